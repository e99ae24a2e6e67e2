"""How many items of a gallery have each label and each value of the metadata that looks categorical."""
# The numbers are those that a filter would let through. What is counted is bounded: the keys and values that
# people can choose from, not the prices and ids of a million items.

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterator
from itertools import islice
from typing import Any

from app.answers import LabelCount, ValueCount, Values
from app.domain.conditions import equal_values
from app.domain.entities import comparable
from app.domain.errors import unknown_modality
from app.services.serving.column_reader import ColumnReader
from app.services.serving.gallery import Gallery
from app.services.serving.item_columns import ColumnNames
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.serving.waiting_room import ReleaseSlot

__all__ = ["GalleryValues"]

_ITEMS_SAMPLED = 1000  # items that say which keys are categorical: decoding them takes some milliseconds
_MAX_KEYS = 12  # keys that are counted: each has a column in memory from then on, as with filters
_MAX_DIFFERENT = 100  # different values in the sample above which a key is no choice for people
_LONGEST_VALUE = 200  # characters above which a text is a description


class GalleryValues:
    """Counts what filters can choose from."""

    def __init__(self, snapshots: SnapshotReader, columns: ColumnReader) -> None:
        self._snapshots = snapshots
        self._columns = columns

    def count(
        self,
        collection: str,
        modality: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
    ) -> Values:
        """Return at most `limit` labels and values of each key, the most frequent first, equally frequent
        ones in order. Raises InvalidFieldError, and as `SnapshotReader.open` does."""
        while True:
            with self._snapshots.open(collection, release_slot, readers) as (snapshot, _):
                gallery = snapshot.galleries.get(modality)
            if gallery is None:
                raise unknown_modality("modality", modality, snapshot.collection.modality_names)
            keys = tuple(_categorical_keys(gallery))
            needs = [(gallery, ColumnNames(labels=True, keys=frozenset(keys)))]
            if self._columns.is_ready(needs):
                break
            self._columns.wait(snapshot.collection, needs, release_slot)
        labels = _most_frequent(gallery.count_labels(), limit)
        counted = {key: _most_frequent(_count_key(gallery, key), limit) for key in keys}
        return Values(
            gallery.size,
            [LabelCount(*entry) for entry in labels],
            {key: [ValueCount(*entry) for entry in entries] for key, entries in counted.items()},
        )


def _count_key(gallery: Gallery, key: str) -> Counter[Any]:
    counts = Counter(gallery.count_values(key))
    for value in [value for value in counts if isinstance(value, str)]:
        for same in map(comparable, equal_values(value)[1:]):
            if same in counts:  # a filter by one lets both through
                counts[same] += counts.pop(value)
    return Counter({value: count for value, count in counts.items() if _is_choice(_plain(value))})


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
    if not all(map(_is_choice, values)):
        return False
    different = {comparable(equal_values(value)[-1] if isinstance(value, str) else value) for value in values}
    return 1 < len(different) <= min(_MAX_DIFFERENT, len(values) // 2)
