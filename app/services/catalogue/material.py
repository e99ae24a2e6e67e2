"""What the items of a collection offer to a training, in words for those who have not trained one yet."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

from app.db.session import UnitOfWork
from app.domain.entities import Carried, Collection
from app.domain.names import join_words, some_of

FEWEST_PAIRS = 4
"""Two to learn from and two to hold out."""
_MOST_SEEN = 1000
"""Items of a modality that are looked at: an answer to a search must not read a whole collection."""
_NEEDED = (
    "a training needs one of these on items of both modalities: two labels in common; a metadata key with "
    f"two values in common; or {FEWEST_PAIRS} pairs (the same pair_id on two items)"
)


def describe_material(work: UnitOfWork, collection: Collection) -> str:
    """Return what of labels, facets, pairs and words there is, and what is missing for a training."""
    names = collection.modality_names
    with contextlib.ExitStack() as reading:
        cursors = (
            reading.enter_context(contextlib.closing(work.items.training_traits(collection, name)))
            for name in names
        )
        x, z = (list(itertools.islice(cursor, _MOST_SEEN)) for cursor in cursors)
    with_texts = [
        name for name in names if any(item.text for _, item in work.items.page(collection, name, 0, 1))
    ]
    words = (
        f"typed queries are compared with the words of {join_words(map(repr, with_texts), 'and')}"
        if with_texts
        else "no item has a text, so there are no words to search by"
    )
    if not x or not z:
        empty = [name for name, items in zip(names, (x, z), strict=True) if not items]
        return f"it has no item of {join_words(map(repr, empty), 'or')} to train on; {_NEEDED}"
    labels = {label for item in x for label in item.labels} & {label for item in z for label in item.labels}
    pairs = {item.pair_id for item in x if item.pair_id} & {item.pair_id for item in z}
    keys = [key for key, values in _facets(x).items() if len(values & _facets(z).get(key, set())) > 1]
    seen = [
        f"{len(items)}{' or more' if len(items) == _MOST_SEEN else ''} items of {name!r}, "
        f"{sum(bool(item.labels) for item in items)} labelled"
        for name, items in zip(names, (x, z), strict=True)
    ]
    common = [
        f"{some_of(sorted(labels))} as {'label' if len(labels) == 1 else 'labels'}" if labels else "no label",
        f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'}" if pairs else "no pair_id",
        f"values of the metadata {some_of(sorted(keys))}" if keys else "no metadata that could be a facet",
    ]
    suffices = len(labels) > 1 or len(pairs) >= FEWEST_PAIRS or bool(keys)
    verdict = "that suffices for a training" if suffices else _NEEDED
    return (
        f"there are {join_words(seen, 'and')}; {words}; "
        f"in common they have {join_words(common, 'and')}; {verdict}"
    )


def _facets(items: list[Carried]) -> dict[str, set[str]]:
    """Return the values of each metadata key by which items are put together, as a facet's are."""
    counts: dict[str, Counter[str]] = {}
    for item in items:
        for key, value in item.metadata.items():
            if isinstance(value, str | int):
                counts.setdefault(key, Counter())[str(value)] += 1
    return {key: set(values) for key, values in counts.items() if 2 * len(values) <= values.total()}
