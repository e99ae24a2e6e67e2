"""A map of both galleries: the two directions of the common space in which the items differ most."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from app.answers import Map, Point
from app.domain.entities import Matrix
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.serving.waiting_room import ReleaseSlot

__all__ = ["GalleryMaps"]

_MAPS_KEPT = 16  # maps in memory: of a thousand items each they take some megabytes together
_MOST_DENSE = 200  # dimensions up to which all directions are computed, which takes some tens of milliseconds
_AXES = 2
_Rows = npt.NDArray[np.float64]


class GalleryMaps:
    """Draws maps, and keeps the latest ones."""

    def __init__(self, snapshots: SnapshotReader) -> None:
        self._snapshots = snapshots
        self._maps: dict[Hashable, Map] = {}

    def draw(
        self,
        collection: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
    ) -> Map:
        """Return the map of a collection as its model sees it, of evenly spaced items of a larger gallery
        than `limit`. Raises as `SnapshotReader.open` does."""
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
