"""Per-collection and job statistics for monitoring."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.domain.entities import Collection, JobState
from app.domain.ports import Database
from app.services.serving.galleries import Gallery
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.training.evaluation import index_recall

DATABASE_TIMEOUT_SECONDS = 2.0
"""How long the database may take for a health check or metrics: less than the usual timeouts of probes."""
_QUERIES_PER_PROBE = 4
"""A sample this small is noisy; the mean over many probes is not."""
_ROWS_PER_QUERY = 250_000
"""Fewer queries are asked of a larger segment, so that a probe never compares more than a million rows."""
_PROBE_INTERVAL_SECONDS = 60.0
"""Recall of an index changes slowly; scrapes are usually more frequent."""


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """One collection as this process sees it.

    Parameters
    ----------
    name : str
        Name of the collection.
    active_version : int or None
        Model version to be served, by the database.
    served_version : int or None
        Model version in this process's memory.
    revision_lag : int or None
        Writes that the next search here will replay first; None while no snapshot is in memory.
    index_sizes : mapping of str to int
        Rows of each modality's index.
    recall : mapping of str to float
        Fraction of the true neighbours found by each modality's index when it was last probed; 1 for an exact
        index, which is not probed.
    """

    name: str
    active_version: int | None
    served_version: int | None
    revision_lag: int | None
    index_sizes: Mapping[str, int]
    recall: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Probe:
    """Recall of a version's indexes, by modality, and when it was measured by the monotonic clock."""

    probed_at: float
    version: int
    recall: dict[str, float]


class StatusService:
    """Reports what is served, and probes approximate indexes from time to time.

    Parameters
    ----------
    database : Database
        The source of truth.
    snapshots : SnapshotReader
        What is in this process's memory.
    """

    def __init__(self, database: Database, snapshots: SnapshotReader) -> None:
        self._database = database
        self._snapshots = snapshots
        self._probes: dict[int, _Probe] = {}

    def collections(self, limit: int) -> tuple[int, list[CollectionStatus]]:
        """Return the number of collections, and the status of the first `limit` of them by name."""
        collections = self._snapshots.list_collections(DATABASE_TIMEOUT_SECONDS)
        snapshots = self._snapshots.peek_all()
        self._probes = {key: probe for key, probe in self._probes.items() if key in snapshots}
        statuses = [
            self._status(collection, snapshots.get(collection.id)) for collection in collections[:limit]
        ]
        return len(collections), statuses

    def jobs(self) -> dict[JobState, int]:
        """Return the number of jobs in each state."""
        with self._database.read(DATABASE_TIMEOUT_SECONDS) as work:
            return work.jobs.counts()

    def _status(self, collection: Collection, snapshot: Snapshot | None) -> CollectionStatus:
        if snapshot is None:
            return CollectionStatus(collection.name, collection.active_version, None, None, {}, {})
        return CollectionStatus(
            name=collection.name,
            active_version=collection.active_version,
            served_version=snapshot.model.version,
            revision_lag=max(collection.revision - snapshot.collection.revision, 0),
            index_sizes={name: gallery.size for name, gallery in snapshot.galleries.items()},
            recall=self._recall(snapshot),
        )

    def _recall(self, snapshot: Snapshot) -> dict[str, float]:
        now, version = time.monotonic(), snapshot.model.version
        probe = self._probes.get(snapshot.collection.id)
        if probe is None or probe.version != version or now - probe.probed_at > _PROBE_INTERVAL_SECONDS:
            recall = {name: probe_recall(gallery) for name, gallery in snapshot.galleries.items()}
            probe = self._probes[snapshot.collection.id] = _Probe(now, version, recall)
        return probe.recall


def probe_recall(gallery: Gallery, random_state: int | None = None) -> float:
    """Return the mean recall@10 of a gallery's indexes, queried with some of their own rows.

    Parameters
    ----------
    gallery : Gallery
        What is probed; 1.0 when it is empty. A segment is weighted by its size; one with an exact index has
        recall 1 by construction, and is not queried.
    random_state : int, optional
        Seed of the choice of rows; a different one each time when None.
    """
    rng = np.random.default_rng(random_state)
    indexes = [view.segment.index for view in gallery.segments]
    recalls = [
        1.0 if index.is_exact else index_recall(index, index.vectors[_sample_rows(index.size, rng)])
        for index in indexes
    ]
    sizes = [index.size for index in indexes]
    return float(np.average(recalls, weights=sizes)) if sizes else 1.0


def _sample_rows(size: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the numbers of some rows out of `size`."""
    count = min(max(_QUERIES_PER_PROBE * _ROWS_PER_QUERY // max(size, 1), 1), _QUERIES_PER_PROBE)
    return rng.integers(size, size=count)
