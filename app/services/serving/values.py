"""How many items of a gallery have each label and each value of the metadata that looks categorical.

The numbers are those that a filter would let through. What is counted is bounded: the keys and values that
people can choose from, not the prices and ids of a million items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from app.domain.entities import comparable
from app.domain.errors import UnknownModalityError
from app.services.serving.column_reader import ColumnReader
from app.services.serving.gallery import Gallery
from app.services.serving.item_columns import ColumnNames
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.serving.waiting_room import ReleaseSlot

__all__ = ["GalleryValues", "ValueCounts"]

_ITEMS_SAMPLED = 1000
"""Items that say which keys are categorical: decoding them takes some milliseconds."""
_MAX_KEYS = 12
"""Keys that are counted: each has a column in memory from then on, as with filters."""
_MAX_DIFFERENT = 100
"""Different values in the sample above which a key is no choice for people."""
_LONGEST_VALUE = 200
"""Characters above which a text is a description."""


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The most frequent values of a gallery's labels and metadata, each with its number of items."""

    n_items: int
    labels: tuple[tuple[str, int], ...]
    metadata: dict[str, tuple[tuple[Any, int], ...]]


class GalleryValues:
    """Counts what filters can choose from.

    Parameters
    ----------
    snapshots : SnapshotReader
        Opens what is counted.
    columns : ColumnReader
        Reads what is counted.
    """

    def __init__(self, snapshots: SnapshotReader, columns: ColumnReader) -> None:
        self._snapshots = snapshots
        self._columns = columns

    def count(
        self,
        collection: str,
        modality: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        min_revision: int | None = None,
    ) -> ValueCounts:
        """Return the values of one gallery, the most frequent first, equally frequent ones in order.

        Parameters
        ----------
        collection, modality : str
            Whose gallery.
        limit : int
            Most labels, and most values of each key.
        release_slot, min_revision
            As of `SnapshotReader.open`, whose errors may be raised, too.

        Raises
        ------
        UnknownModalityError
            If the collection has no such modality.
        """
        while True:
            with self._snapshots.open(collection, release_slot, min_revision) as (snapshot, _):
                gallery = snapshot.galleries.get(modality)
            if gallery is None:
                raise UnknownModalityError("modality", modality, snapshot.collection.modality_names)
            keys = tuple(_categorical_keys(gallery))
            needs = [(gallery, ColumnNames(labels=True, keys=frozenset(keys)))]
            if self._columns.is_ready(needs):
                break
            self._columns.wait(snapshot.collection, needs, release_slot)
        return ValueCounts(
            gallery.size,
            _most_frequent(gallery.count_labels(), limit),
            {key: _most_frequent(_count_key(gallery, key), limit) for key in keys},
        )


def _count_key(gallery: Gallery, key: str) -> Counter[Any]:
    counts = gallery.count_values(key).items()
    return Counter({value: count for value, count in counts if _is_choice(_plain(value))})


def _most_frequent(counts: Counter[Any], limit: int) -> tuple[tuple[Any, int], ...]:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return tuple((_plain(value), count) for value, count in ordered[:limit])


def _plain(value: Any) -> Any:
    """Return the value that `comparable` made a key of."""
    return value[1] if isinstance(value, tuple) else value


def _is_choice(value: Any) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= _LONGEST_VALUE


def _categorical_keys(gallery: Gallery) -> Iterator[str]:
    """Yield keys whose values repeat in the first items, the most frequent key first."""
    sample = gallery.first_items(_ITEMS_SAMPLED)
    values: dict[str, list[Any]] = {}
    for item in sample:
        for key, value in item.metadata.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    by_frequency = sorted(values.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    yield from islice((key for key, of_key in by_frequency if _is_categorical(of_key)), _MAX_KEYS)


def _is_categorical(values: list[Any]) -> bool:
    return all(map(_is_choice, values)) and 1 < len(set(map(comparable, values))) <= min(
        _MAX_DIFFERENT, len(values) // 2
    )
