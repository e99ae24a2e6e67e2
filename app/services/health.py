"""Health: whether this process can serve, and numbers for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.db.session import Database
from app.domain.entities import Collection, JobState
from app.domain.errors import ServiceError
from app.domain.reports import EXACT
from app.services.serving.recall_monitor import RecallEstimate, RecallMonitor
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshots import Snapshots
from app.services.storage.ownership import Ownership, SchemaService
from app.storage.folders import fault_of_disk

DATABASE_TIMEOUT_SECONDS = 2.0
"""How long the database may take for a health check or metrics: less than the usual timeouts of probes."""
STORAGE, ENGINE = "storage", "vector-engine"
"""Names of backends."""


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


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be routed to this process."""

    is_ready: bool
    reason: str | None = None  # why not; or, when they should, what is wrong all the same


@dataclass(eq=False)
class HealthService:
    """Determines readiness from what the process knows, without a write or a wait for models, and reports
    what is served."""

    # Of what else the process needs (storage, vector-engine), a backend returns why it did not answer when it
    # was last asked, None if it did.
    #
    # A process becomes ready once the schema is current, the data folder belongs to the database, and the
    # first load of every active model has ended. It is not ready while there are active models and none of
    # their collections can be searched. Once it was ready, a model that is loaded for the first time changes
    # nothing.
    #
    # Faults that leave something to serve do not make it unready; the reason names them: a damaged bundle,
    # where an earlier version stands in for the active one, or other collections can be searched; an
    # approximate index that is damaged or was given up: its gallery is searched exactly; a missing or changed
    # file of an encoder: what needs no encoder is served; a schema that a newer release made while this
    # process ran, as long as a rolling update takes; a database older than the files: what it holds is
    # served, and nothing is removed; a disk or database that rejects writes, or an object store that cannot
    # be used: every process would reject writes, and all still answer searches; a vector engine that does not
    # answer: every process would reject searches, and all still store.

    _snapshots: Snapshots
    _database: Database
    _schema: SchemaService
    _ownership: Ownership
    _recall_monitor: RecallMonitor
    _written: Mapping[str, Path]  # what is written to, by its name in messages
    _backends: Mapping[str, Callable[[], str | None]]
    _has_started: bool = field(default=False, init=False)

    def check(self) -> Readiness:
        """Return the readiness, and request missing loads; waits for nothing but the database."""
        try:
            newer = self._schema.find_fault(DATABASE_TIMEOUT_SECONDS)
            standing = self._ownership.status()
            if not standing.belongs:
                return Readiness(False, standing.reason)
            faults = self._find_faults()
            collections = [health for _, health in self._snapshots.reload_stale(DATABASE_TIMEOUT_SECONDS)]
        except ServiceError as error:
            return Readiness(False, str(error))
        except OSError as error:
            return Readiness(False, f"the data folder cannot be used: {error.strerror}")
        self._has_started = self._has_started or all(health.has_started for health in collections)
        can_serve = not collections or any(
            health.is_searchable or not health.has_started for health in collections
        )
        problems = [newer, standing.reason, *faults, *(health.problem for health in collections)]
        reason = "; ".join(problem for problem in problems if problem is not None)
        return Readiness(self._has_started and can_serve, reason or None)

    def _find_faults(self) -> list[str]:
        """Return the faults of what is written to and searched as messages, without a write to find out.
        Raises OSError, DatabaseUnavailableError."""
        disks: dict[str | None, str] = {}
        for name, path in self._written.items():
            # Usually all are on one disk, whose fault is reported once.
            disks.setdefault(fault_of_disk(path), name)
        faults = [
            self._database.fault_of_writes(DATABASE_TIMEOUT_SECONDS),
            self._fault_of(STORAGE),
            *(f"{name} is {fault}" for fault, name in disks.items() if fault is not None),
            self._fault_of(ENGINE),
        ]
        return [fault for fault in faults if fault is not None]

    def _fault_of(self, backend: str) -> str | None:
        return self._backends[backend]() if backend in self._backends else None

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
