"""Whether items suffice for a training, as far as can be checked before anything is encoded."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from app.domain.entities import Supervision
from app.domain.errors import InvalidFieldError, TrainingDataError
from app.domain.names import some_of
from app.services.training.costs import Sizes, posteriors_too_large
from app.services.training.facets import Annotated, facet_keys, facet_values

_FEWEST_PAIRS = 4
"""Two to learn from and two to hold out."""
_MOST_SEEN = 5000
"""Items of a modality in which facets are looked for: the training looks at all of them."""


def class_of(labels: Sequence[str]) -> str:
    """Return the class of an item that is trained on: the first of its labels."""
    return labels[0]


def check_labels(
    names: tuple[str, str], labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]], chooses: bool
) -> None:
    """Reject labels that no model can be learned from; stop reading as soon as they suffice.

    Parameters
    ----------
    names : tuple of str
        Both modalities.
    labels : tuple of iterable of tuple of str
        Labels of each modality's training items.
    chooses : bool
        Whether a part of each class is held out to choose the penalty weight.

    Raises
    ------
    TrainingDataError
        Says what is missing.
    """
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
            raise TrainingDataError(f"no item of modality {name!r} has a label and may be trained on")
    shared = counts[0].keys() & counts[1].keys()
    if not shared:
        labels_found = " and ".join(
            f"{name!r} has {some_of([label for label, _ in count.most_common()])}"
            for name, count in zip(names, counts, strict=True)
        )
        raise TrainingDataError(f"no label stands on items of both modalities: {labels_found}")
    if len(counts[0].keys() | counts[1].keys()) == 1:
        raise TrainingDataError(
            f"all items to train on have the label {min(shared)!r}: items of a second label are needed"
        )
    if chooses and not suffices:
        raise TrainingDataError(
            f"too few items of each label to hold a part out for choosing alpha: at least one label needs "
            f"two items of {names[0]!r} and two of {names[1]!r}; add items, or give alpha"
        )


def check_posteriors(labels: tuple[Iterable[tuple[str, ...]], Iterable[tuple[str, ...]]]) -> None:
    """Reject labels whose posteriors would not fit into memory; read all of them.

    Parameters
    ----------
    labels : tuple of iterable of tuple of str
        As of `check_labels`.

    Raises
    ------
    TrainingDataError
        Names the bound.
    """
    counts = [Counter(class_of(entry) for entry in entries) for entries in labels]
    reason = posteriors_too_large(Sizes(counts[0].total(), counts[1].total(), len(counts[0] | counts[1])))
    if reason is not None:
        raise TrainingDataError(f"method 'semantic': {reason}; with 'auto' the method is chosen by size")


def check_facets(
    names: tuple[str, str], items: tuple[Iterable[Annotated], Iterable[Annotated]], supervision: Supervision
) -> None:
    """Refuse facets that no item has; read at most the first 5000 items of each modality.

    Parameters
    ----------
    names : tuple of str
        Both modalities.
    items : tuple of iterable
        Training items of each modality.
    supervision : Supervision
        The facets that were asked for.

    Raises
    ------
    InvalidFieldError
        Names the facet.
    """
    for name, side in zip(names, items, strict=True):
        unknown = dict.fromkeys(key for key in supervision.facets if supervision.facets != "auto")
        seen = list(itertools.islice(side, _MOST_SEEN)) if unknown else []
        for key in [key for key in unknown if any(facet_values(item.metadata, key) for item in seen)]:
            del unknown[key]
        if unknown and len(seen) < _MOST_SEEN:
            key = next(iter(unknown))
            place = f"supervision.facets.{supervision.facets.index(key)}"
            raise InvalidFieldError(
                place, f"no training item of modality {name!r} has the metadata key {key!r}"
            )


def teaches_without_labels(
    items: tuple[Iterable[Annotated], Iterable[Annotated]], supervision: Supervision
) -> bool:
    """Return whether pairs or facets suffice; stop reading as soon as they do.

    Parameters
    ----------
    items : tuple of iterable
        Training items of each modality.
    supervision : Supervision
        What may be learned from.
    """
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
        if n_pairs >= _FEWEST_PAIRS:
            return True
    return bool(facet_keys(seen, supervision))
