"""Per-collection and job statistics for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.db.session import Database
from app.domain.entities import Collection, JobState
from app.domain.reports import EXACT
from app.services.serving.recall_monitor import RecallMonitor
from app.services.serving.recall_window import RecallEstimate
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader

DATABASE_TIMEOUT_SECONDS = 2.0
"""How long the database may take for a health check or metrics: less than the usual timeouts of probes."""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The index of one gallery as this process serves it."""

    n_items: int | None  # that it ranks; None while an engine has not counted them
    kind: str  # as of `IndexSpec`
    is_fallback: bool = False  # exact, though the version has an approximate one
    # recall@10 of the version's approximate index as its training measured it; None if it has none
    published_recall: float | None = None
    # recall@10 of live queries; None while it is not known, and for an exact index
    live: RecallEstimate | None = None

    @property
    def recall(self) -> float:
        """What is known of recall@10: of live queries, else of those of the training; 1 if it is exact."""
        if self.live is not None:
            return self.live.recall
        return 1.0 if self.kind == EXACT or self.published_recall is None else self.published_recall


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """One collection as this process sees it."""

    name: str
    active_version: int | None  # to be served, by the database
    served_version: int | None  # in this process's memory
    # writes that the next search here replays first; None while no snapshot is in memory
    revision_lag: int | None
    indexes: Mapping[str, IndexStatus] = field(default_factory=dict)  # by modality


class StatusService:
    """Reports what is served. Of what else the process needs (``storage``, ``vector-engine``), a backend
    returns why it did not answer when it was last asked, None if it did."""

    def __init__(
        self,
        database: Database,
        snapshots: SnapshotReader,
        recall_monitor: RecallMonitor,
        backends: Mapping[str, Callable[[], str | None]],
    ) -> None:
        self._database = database
        self._backends = backends
        self._snapshots = snapshots
        self._recall_monitor = recall_monitor

    def collections(self, limit: int) -> tuple[int, list[CollectionStatus]]:
        """Return the number of collections, and the status of the first `limit` of them by name."""
        collections = self._snapshots.list_collections(DATABASE_TIMEOUT_SECONDS)
        snapshots = self._snapshots.peek_all()
        statuses = [
            self._status(collection, snapshots.get(collection.id)) for collection in collections[:limit]
        ]
        return len(collections), statuses

    def backends(self) -> dict[str, bool]:
        """Return whether what else this process needs answered when it was last asked."""
        return {name: find_fault() is None for name, find_fault in self._backends.items()}

    def jobs(self) -> dict[JobState, int]:
        """Return the number of jobs in each state."""
        with self._database.read(DATABASE_TIMEOUT_SECONDS) as work:
            return work.jobs.counts()

    def _status(self, collection: Collection, snapshot: Snapshot | None) -> CollectionStatus:
        if snapshot is None:
            return CollectionStatus(collection.name, collection.active_version, None, None)
        return CollectionStatus(
            name=collection.name,
            active_version=collection.active_version,
            served_version=snapshot.model.version,
            revision_lag=max(collection.revision - snapshot.collection.revision, 0),
            indexes={name: self._index_status(snapshot, name) for name in snapshot.galleries},
        )

    def _index_status(self, snapshot: Snapshot, modality: str) -> IndexStatus:
        gallery = snapshot.galleries[modality]
        return IndexStatus(
            gallery.known_size,
            gallery.index_kind,
            modality in snapshot.without_index,
            snapshot.model.published_recall.get(modality),
            None if gallery.is_exact else self._recall_monitor.estimate(snapshot, modality),
        )
