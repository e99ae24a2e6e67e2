"""What those who watch over the service want to know of its collections and jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.domain.entities import Collection, JobState
from app.domain.ports import Database
from app.services.serving.galleries import Gallery
from app.services.serving.snapshots import Snapshot, Snapshots
from app.services.training.evaluation import index_recall

PATIENCE_SECONDS = 2.0
"""How long the database may take to answer those who watch over the service."""
_PROBES = 4
_ROWS_PER_PROBE = 250_000
"""A segment of more rows is asked fewer questions, so that an answer stays a matter of a moment."""
_PROBE_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """One collection as this process sees it.

    Parameters
    ----------
    name : str
        Of the collection.
    active_version : int or None
        Model version that serves, by the database.
    served_version : int or None
        Model version that this process holds.
    revision_lag : int or None
        Writes that the next search here will replay first; None while nothing is held.
    index_sizes : mapping of str to int
        Rows of each modality's index.
    recall : mapping of str to float
        Share of the true neighbours that each modality's index found when it was last probed.
    """

    name: str
    active_version: int | None
    served_version: int | None
    revision_lag: int | None
    index_sizes: Mapping[str, int]
    recall: Mapping[str, float]


class StatusService:
    """Looks at what is served, and probes its indexes now and then.

    Parameters
    ----------
    database : Database
        The truth.
    snapshots : Snapshots
        What this process holds.
    """

    def __init__(self, database: Database, snapshots: Snapshots) -> None:
        self._database = database
        self._snapshots = snapshots
        self._probed: dict[int, tuple[float, int, dict[str, float]]] = {}

    def collections(self, most: int) -> tuple[int, list[CollectionStatus]]:
        """Return how many collections there are, and the status of the first of them by name."""
        found = self._snapshots.collections(PATIENCE_SECONDS)
        held = self._snapshots.held()
        self._probed = {key: entry for key, entry in self._probed.items() if key in held}
        return len(found), [self._status(one, held.get(one.id)) for one in found[:most]]

    def jobs(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        with self._database.read(PATIENCE_SECONDS) as work:
            return work.jobs.counts()

    def _status(self, collection: Collection, held: Snapshot | None) -> CollectionStatus:
        if held is None:
            return CollectionStatus(collection.name, collection.active_version, None, None, {}, {})
        return CollectionStatus(
            name=collection.name,
            active_version=collection.active_version,
            served_version=held.model.version,
            revision_lag=max(collection.revision - held.collection.revision, 0),
            index_sizes={name: gallery.size for name, gallery in held.galleries.items()},
            recall=self._recall(held),
        )

    def _recall(self, held: Snapshot) -> dict[str, float]:
        key, version = held.collection.id, held.model.version
        probed_at, probed_version, found = self._probed.get(key, (0.0, 0, {}))
        if probed_version != version or time.monotonic() - probed_at > _PROBE_EVERY_SECONDS:
            found = {name: probe_recall(gallery) for name, gallery in held.galleries.items()}
            self._probed[key] = (time.monotonic(), version, found)
        return found


def probe_recall(gallery: Gallery, random_state: int | None = None) -> float:
    """Return the mean recall@10 of a gallery's indexes, asked for some of their own rows.

    Parameters
    ----------
    gallery : Gallery
        What is probed; 1.0 when it is empty. A segment counts by its size.
    random_state : int, optional
        Which rows; other ones each time when None.
    """
    rng = np.random.default_rng(random_state)
    indexes = [part.segment.index for part in gallery.parts]
    shares = [index_recall(index, index.vectors[_probed(index.size, rng)]) for index in indexes]
    sizes = [index.size for index in indexes]
    return float(np.average(shares, weights=sizes)) if sizes else 1.0


def _probed(size: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return some of so many rows."""
    count = min(max(_PROBES * _ROWS_PER_PROBE // max(size, 1), 1), _PROBES)
    return rng.integers(size, size=count)
