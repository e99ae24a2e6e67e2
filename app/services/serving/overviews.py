"""Overviews of galleries: what filters can choose from, and a map of both."""
# A map has the two directions of the common space in which the items differ most. Counts are those that a
# filter would let through, and bounded: the keys and values that people can choose from, not the prices and
# ids of a million items.

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from app.answers import LabelCount, Map, Point, ValueCount, Values
from app.domain.entities import Matrix
from app.domain.errors import unknown_modality
from app.domain.filters import NO_FILTER, ItemFilter, comparable, equal_values, is_ordered
from app.services.serving.galleries import Gallery
from app.services.serving.item_columns import ColumnNames
from app.services.serving.reloads import ColumnReader, ReleaseSlot
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshots import Snapshots

__all__ = ["GalleryOverviews"]

_ITEMS_SAMPLED = 1000  # items that say which keys are categorical: decoding them takes some milliseconds
_MAX_KEYS = 12  # keys that are counted: each has a column in memory from then on, as with filters
_MAX_DIFFERENT = 100  # different values in the sample above which a key is no choice for people
_LONGEST_VALUE = 200  # characters above which a text is a description
_MAPS_KEPT = 16  # maps in memory: of a thousand items each they take some megabytes together
_MOST_DENSE = 200  # dimensions up to which all directions are computed, which takes some tens of milliseconds
_AXES = 2
_Rows = npt.NDArray[np.float64]


class GalleryOverviews:
    """Counts what filters can choose from; draws maps, and keeps the latest ones."""

    def __init__(self, snapshots: Snapshots, columns: ColumnReader) -> None:
        self._snapshots = snapshots
        self._columns = columns
        self._maps: dict[Hashable, Map] = {}

    def count_values(
        self,
        collection: str,
        modality: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
        item_filter: ItemFilter = NO_FILTER,
    ) -> Values:
        """Return at most `limit` labels and values of each key among items that pass a filter, the most
        frequent first, equally frequent ones in order. Raises InvalidFieldError, and as `Snapshots.open`."""
        while True:
            opened = self._snapshots.open(collection, release_slot, readers, within=modality)
            with opened as (snapshot, work):
                gallery = snapshot.galleries.get(modality)
                if gallery is None:
                    raise unknown_modality("modality", modality, snapshot.collection.modality_names)
                own_filter = snapshot.read_filter(item_filter, modality, work)
            values = _sample_values(gallery)
            keys = tuple(_categorical_keys(values))
            named = ColumnNames(labels=True, keys=frozenset(keys)) | ColumnNames.of(own_filter)
            needs = [(gallery, named)]
            if self._columns.is_ready(needs):
                break
            self._columns.wait(snapshot.collection, needs, release_slot)
        labels = [LabelCount(*entry) for entry in _most_frequent(gallery.count_labels(own_filter), limit)]
        counted = {
            key: [ValueCount(*entry) for entry in _most_frequent(_count_key(gallery, key, own_filter), limit)]
            for key in keys
        }
        return Values(gallery.count_matching(own_filter), labels, counted, _ranges(values))

    def draw_map(
        self,
        collection: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
    ) -> Map:
        """Return the map of a collection as its model sees it, of evenly spaced items of a larger gallery
        than `limit`. Raises as `Snapshots.open` does."""
        # Each gallery is centred, since its mean adds the same to every score of a query, and scaled to the
        # same spread, so that both shape the map. The axes are the first principal components of both samples
        # together; each points to where its largest loading is positive.
        with self._snapshots.open(collection, release_slot, readers) as (snapshot, _):
            key = (snapshot.collection.id, snapshot.model_bundle, snapshot.collection.revision, limit)
        drawn = self._maps.get(key)
        if drawn is None:
            drawn = _draw(snapshot, limit)
            while len(self._maps) >= _MAPS_KEPT:
                self._maps.pop(next(iter(self._maps), key), None)
            self._maps[key] = drawn
        return drawn


def _count_key(gallery: Gallery, key: str, item_filter: ItemFilter) -> Counter[Any]:
    counts = Counter(gallery.count_values(key, item_filter))
    for value in [value for value in counts if isinstance(value, str)]:
        for same in map(comparable, equal_values(value)[1:]):
            if same in counts:  # a filter by one lets both through
                counts[same] += counts.pop(value)
    return Counter({value: count for value, count in counts.items() if _is_choice(_plain(value))})


def _most_frequent(counts: Counter[Any], limit: int) -> Iterator[tuple[Any, int]]:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return ((_plain(value), count) for value, count in ordered[:limit])


def _plain(value: Any) -> Any:
    """Return the value that `comparable` made a key of."""
    return value[1] if isinstance(value, tuple) else value


def _is_choice(value: Any) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= _LONGEST_VALUE


def _categorical_keys(values: Mapping[str, list[Any]]) -> Iterator[str]:
    """Yield keys whose values repeat, the most frequent key first."""
    by_frequency = sorted(values.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    yield from islice((key for key, of_key in by_frequency if _is_categorical(of_key)), _MAX_KEYS)


def _sample_values(gallery: Gallery) -> dict[str, list[Any]]:
    """Return the values of each key in the first items."""
    values: dict[str, list[Any]] = {}
    for item in gallery.first_items(_ITEMS_SAMPLED):
        for key, value in item.metadata.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    return values


def _ranges(values: Mapping[str, list[Any]]) -> dict[str, tuple[float, float]]:
    """Return the least and the most value of the keys that are numbers."""
    numbers = {key: of_key for key, of_key in values.items() if all(is_ordered(one, 0) for one in of_key)}
    return {key: (min(of_key), max(of_key)) for key, of_key in islice(sorted(numbers.items()), _MAX_KEYS)}


def _is_categorical(values: list[Any]) -> bool:
    if not all(map(_is_choice, values)):
        return False
    different = {comparable(equal_values(value)[-1] if isinstance(value, str) else value) for value in values}
    return 1 < len(different) <= min(_MAX_DIFFERENT, len(values) // 2)


def _draw(snapshot: Snapshot, limit: int) -> Map:
    samples = {name: list(gallery.sample(limit)) for name, gallery in snapshot.galleries.items()}
    rows = {
        name: _centre(np.asarray([row for _, row in sample])) for name, sample in samples.items() if sample
    }
    stacked = np.concatenate(list(rows.values())) if rows else np.zeros((0, 0))
    axes, shares = _principal_axes(stacked)
    return Map(
        snapshot.model.version,
        snapshot.collection.revision,
        list(shares),
        {
            name: [
                Point(item.id, float(x), float(y), list(item.labels))
                for (item, _), (x, y) in zip(sample, rows[name] @ axes if sample else (), strict=True)
            ]
            for name, sample in samples.items()
        },
    )


def _centre(rows: Matrix) -> _Rows:
    """Return rows around zero whose mean square is one, unless all are the same."""
    centred: _Rows = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    spread = np.sqrt(np.mean(np.sum(centred**2, axis=1)))
    return centred / spread if spread > 0 else centred


def _principal_axes(rows: _Rows) -> tuple[_Rows, tuple[float, float]]:
    """Return the first two principal axes of shape (rank, 2), and their shares of the variance."""
    rank, total = rows.shape[1], float(np.sum(rows**2))
    axes, shares = np.zeros((rank, _AXES)), np.zeros(_AXES)
    if total > 0:
        if min(rows.shape) <= _MOST_DENSE:
            _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
        else:
            _, lengths, directions = svds(rows, k=_AXES, v0=np.ones(min(rows.shape)))
        order = np.argsort(-lengths)[:_AXES]
        directions = directions[order]
        largest = directions[np.arange(len(order)), np.argmax(np.abs(directions), axis=1)]
        axes[:, : len(order)] = (directions * np.sign(largest)[:, None]).T
        shares[: len(order)] = lengths[order] ** 2 / total
    return axes, (float(shares[0]), float(shares[1]))
