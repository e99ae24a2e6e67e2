"""Which metadata of the items are facets: properties that are learned like labels.

A metadata key is taken as a facet by itself ("auto") if

* all its values are categorical: texts of at most 100 characters, whole numbers of at most four digits, true
  or false, or lists of these;
* at least two values stand on items of both modalities;
* in neither modality there are more values than half as many as items that have one, nor more than 1000;
* it does not divide the items as another facet, or the label, does already.

Of more than 16 such keys those are taken that most items have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from app.domain.entities import Supervision
from app.domain.errors import TrainingDataError

LABEL = "label"
"""Name of the facet of the items' labels."""
_LONGEST_VALUE, _LARGEST_NUMBER = 100, 9999
"""Longer texts are descriptions, and larger numbers measurements or ids."""
_ITEMS_PER_VALUE = 2
"""Fewer items of a value on average, and the key separates items instead of putting them together."""
_MOST_VALUES, _MOST_FACETS = 1000, 16
"""What is learned grows with values and facets; catalogues have far fewer of either."""
_MOST_KEYS = 64
"""Keys that are looked at, the most frequent first: each takes a walk over all items."""


class Annotated(Protocol):
    """What an item carries beside its content."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes."""
        ...

    @property
    def pair_id(self) -> str | None:
        """Shared with the items that belong to it."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Facts of the client's own."""
        ...


Sides = tuple[Sequence[Annotated], Sequence[Annotated]]
"""Items of both modalities."""
MetadataSides = tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Metadata of the items of both modalities."""
Labels = Sequence[tuple[str, ...]]
"""Labels of items."""


def facet_values(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return an item's values of a facet; none where they are unknown or not categorical."""
    values = [_categorical(value) for value in _entries(metadata.get(key))]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def facet_keys(sides: Sides, supervision: Supervision) -> dict[str, str]:
    """Return the metadata key of each facet but the label, by the facet's name.

    A key's facet has the name of the key, except that "label" is the facet of the labels: a metadata key of
    that name is the facet "metadata.label".

    Parameters
    ----------
    sides : tuple of sequence
        Training items of both modalities.
    supervision : Supervision
        Which facets were asked for.

    Raises
    ------
    TrainingDataError
        If a key that was asked for has no value that stands on items of both modalities.
    """
    x_items, z_items = sides
    metadata = [item.metadata for item in x_items], [item.metadata for item in z_items]
    if supervision.facets == "auto":
        labels = [item.labels for items in sides for item in items] if supervision.labels else None
        return {facet_name(key): key for key in categorical_keys(metadata, labels)}
    for key in supervision.facets:
        x, z = (Counter(_all_values(side, key)) for side in metadata)
        if not x.keys() & z.keys():
            raise TrainingDataError(
                f"facet {key!r}: no value of this metadata key stands on training items of both modalities"
            )
    return {facet_name(key): key for key in supervision.facets}


def facet_name(key: str) -> str:
    """Return the name of the facet of a metadata key."""
    return f"metadata.{key}" if key == LABEL else key


def categorical_keys(sides: MetadataSides, labels: Labels | None) -> list[str]:
    """Return the metadata keys that are facets by themselves, sorted.

    Parameters
    ----------
    sides : tuple of sequence of mapping
        Metadata of the items of both modalities.
    labels : sequence of tuple of str or None
        Labels of all items, those of the first modality first: a key that divides the items as they do is
        left out.
    """
    counts = Counter(key for side in sides for metadata in side for key in metadata)
    partitions = set() if labels is None else {_partition(labels)}
    keys: list[str] = []
    for key, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_KEYS]:
        if not _is_categorical(sides, key):
            continue
        partition = _partition([facet_values(metadata, key) for side in sides for metadata in side])
        if partition not in partitions:
            partitions.add(partition)
            keys.append(key)
    return sorted(keys[:_MOST_FACETS])


def _is_categorical(sides: MetadataSides, key: str) -> bool:
    counters: list[Counter[str]] = []
    for side in sides:
        if any(_categorical(value) is None for metadata in side for value in _entries(metadata.get(key))):
            return False
        counts = Counter(_all_values(side, key))
        if len(counts) > min(counts.total() // _ITEMS_PER_VALUE, _MOST_VALUES):
            return False
        counters.append(counts)
    return len(counters[0].keys() & counters[1].keys()) > 1


def _partition(values: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return a number for each item, equal where the values are; numbered in the order of the items."""
    numbers: dict[tuple[str, ...], int] = {(): 0}
    return tuple(numbers.setdefault(entry, len(numbers)) for entry in values)


def _all_values(side: Sequence[Mapping[str, Any]], key: str) -> Iterator[str]:
    for metadata in side:
        yield from facet_values(metadata, key)


def _entries(value: Any) -> list[Any]:
    """Return a metadata value as a list; none where it is null or empty."""
    values = value if isinstance(value, list) else [value]
    return [entry for entry in values if entry is not None and entry != ""]


def _categorical(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_VALUE else None
    return str(value) if isinstance(value, int) and abs(value) <= _LARGEST_NUMBER else None
