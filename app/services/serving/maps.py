"""A map of both galleries: the two directions of the common space in which the items differ most."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from app.domain.entities import Matrix
from app.services.serving.segments import IndexedItem
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.serving.waiting_room import ReleaseSlot

__all__ = ["GalleryMap", "GalleryMaps", "Point"]

_MAPS_KEPT = 16
"""Maps in memory: of a thousand items each they take some megabytes together."""
_MOST_DENSE = 200
"""Dimensions up to which all directions are computed, which takes some tens of milliseconds."""
_AXES = 2
_Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """An item of a map."""

    item: IndexedItem
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class GalleryMap:
    """Items of both galleries in two dimensions.

    Parameters
    ----------
    model_version, index_revision : int
        What it was made of.
    shares : tuple of float
        Share of the sample's variance along each of the two axes.
    points : dict of str to tuple of Point
        By modality.
    """

    model_version: int
    index_revision: int
    shares: tuple[float, float]
    points: dict[str, tuple[Point, ...]]


class GalleryMaps:
    """Draws maps, and keeps the latest ones.

    Parameters
    ----------
    snapshots : SnapshotReader
        Opens what is drawn.
    """

    def __init__(self, snapshots: SnapshotReader) -> None:
        self._snapshots = snapshots
        self._maps: dict[Hashable, GalleryMap] = {}

    def draw(
        self,
        collection: str,
        limit: int,
        release_slot: ReleaseSlot | None = None,
        min_revision: int | None = None,
    ) -> GalleryMap:
        """Return the map of a collection as its model sees it.

        Each gallery is centred, since its mean adds the same to every score of a query, and scaled to the
        same spread, so that both shape the map. The axes are the first principal components of both samples
        together; each points to where its largest loading is positive.

        Parameters
        ----------
        collection : str
            Name.
        limit : int
            Most items of each gallery: evenly spaced ones of a larger gallery.
        release_slot, min_revision
            As of `SnapshotReader.open`, whose errors may be raised, too.
        """
        with self._snapshots.open(collection, release_slot, min_revision) as (snapshot, _):
            key = (snapshot.collection.id, snapshot.model_bundle, snapshot.collection.revision, limit)
        drawn = self._maps.get(key)
        if drawn is None:
            drawn = _draw(snapshot, limit)
            while len(self._maps) >= _MAPS_KEPT:
                self._maps.pop(next(iter(self._maps), key), None)
            self._maps[key] = drawn
        return drawn


def _draw(snapshot: Snapshot, limit: int) -> GalleryMap:
    samples = {name: list(gallery.sample(limit)) for name, gallery in snapshot.galleries.items()}
    rows = {
        name: _centre(np.asarray([row for _, row in sample])) for name, sample in samples.items() if sample
    }
    stacked = np.concatenate(list(rows.values())) if rows else np.zeros((0, 0))
    axes, shares = _principal_axes(stacked)
    return GalleryMap(
        snapshot.model.version,
        snapshot.collection.revision,
        shares,
        {
            name: tuple(
                Point(item, float(x), float(y))
                for (item, _), (x, y) in zip(sample, rows[name] @ axes if sample else (), strict=True)
            )
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
