"""Whether items suffice for a training, as far as can be checked before anything is encoded."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from app.domain.errors import ConflictError, InvalidFieldError
from app.domain.names import some_of
from app.domain.reports import Supervision
from app.domain.searches import describe_others
from app.services.catalogue.preparation import FEWEST_PAIRS
from app.services.training.costs import Sizes, posteriors_too_large
from app.services.training.facets import Annotated, facet_keys, facet_values

_MOST_SEEN = 5000  # items of a modality in which facets are looked for: the training looks at all of them


def class_of(labels: Sequence[str]) -> str:
    """Return the class of an item that is trained on: the first of its labels."""
    return labels[0]


def check_labels(
    names: tuple[str, str], labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]], chooses: bool
) -> None:
    """Reject labels that no model can be learned from with ConflictError; stop reading as soon as they
    suffice. `chooses` if a part of each class is held out to choose the penalty weight."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    suffices: set[str] = set()
    for entries in itertools.zip_longest(*labels):
        for count, entry in zip(counts, entries, strict=True):
            if entry is not None:
                count[class_of(entry)] += 1
        suffices.update(
            label
            for label in (class_of(entry) for entry in entries if entry is not None)
            if min(count[label] for count in counts) >= 2
        )
        if len(suffices) >= 2:
            return
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise ConflictError(
                "training-data", f"no item of modality {name!r} has a label and may be trained on"
            )
    shared = counts[0].keys() & counts[1].keys()
    if not shared:
        labels_found = " and ".join(
            f"{name!r} has {some_of([label for label, _ in count.most_common()])}"
            for name, count in zip(names, counts, strict=True)
        )
        raise ConflictError("training-data", f"no label stands on items of both modalities: {labels_found}")
    if len(counts[0].keys() | counts[1].keys()) == 1:
        raise ConflictError(
            "training-data",
            f"all items to train on have the label {min(shared)!r}: items of a second label are needed",
        )
    if chooses and not suffices:
        raise ConflictError(
            "training-data",
            f"too few items of each label to hold a part out for choosing alpha: at least one label needs "
            f"two items of {names[0]!r} and two of {names[1]!r}; add items, or give alpha",
        )


def check_posteriors(labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]]) -> None:
    """Reject labels whose posteriors would not fit into memory with ConflictError; read all of them."""
    counts = [Counter(class_of(entry) for entry in entries) for entries in labels]
    reason = posteriors_too_large(Sizes(counts[0].total(), counts[1].total(), len(counts[0] | counts[1])))
    if reason is not None:
        raise ConflictError(
            "training-data", f"method 'semantic': {reason}; with 'auto' the method is chosen by size"
        )


def check_facets(
    names: tuple[str, str], items: tuple[Iterable[Annotated], Iterable[Annotated]], supervision: Supervision
) -> None:
    """Raise InvalidFieldError for facets that none of the first 5000 items of each modality has."""
    for name, side in zip(names, items, strict=True):
        unknown = dict.fromkeys(key for key in supervision.facets if supervision.facets != "auto")
        seen = list(itertools.islice(side, _MOST_SEEN)) if unknown else []
        for key in [key for key in unknown if any(facet_values(item.metadata, key) for item in seen)]:
            del unknown[key]
        if unknown and len(seen) < _MOST_SEEN:
            key = next(iter(unknown))
            place = f"supervision.facets.{supervision.facets.index(key)}"
            others = describe_others(key, (other for item in seen for other in item.metadata), "keys")
            raise InvalidFieldError(
                place, f"no training item of modality {name!r} has the metadata key {key!r}{others}"
            )


def teaches_without_labels(
    items: tuple[Iterable[Annotated], Iterable[Annotated]], supervision: Supervision
) -> bool:
    """Return whether pairs or facets suffice; stop reading as soon as they do."""
    pair_ids: tuple[set[str], set[str]] = (set(), set())
    seen: tuple[list[Annotated], list[Annotated]] = ([], [])
    n_pairs = 0
    for entries in itertools.zip_longest(*items):
        for side, (own, other) in enumerate((pair_ids, pair_ids[::-1])):
            item = entries[side]
            if item is None:
                continue
            if len(seen[side]) < _MOST_SEEN:
                seen[side].append(item)
            if supervision.pairs and item.pair_id is not None and item.pair_id not in own:
                own.add(item.pair_id)
                n_pairs += item.pair_id in other
        if n_pairs >= FEWEST_PAIRS:
            return True
    return bool(facet_keys(seen, supervision))
