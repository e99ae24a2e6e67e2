"""Snapshots of versions that do not serve, so that their answers can be compared."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, ModelVersion
from app.domain.errors import DamagedBundleError, damaged_version, overload
from app.services.serving.replay import replay
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_cache import SnapshotCache, estimate_bytes
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.serving.waiting_room import MAX_WAIT_SECONDS
from app.services.storage.pacing import Pacer

_MOST_KEPT = 2  # a comparison is of two versions
_MOST_BYTES = 256 << 20
"""Estimated memory of those that are kept, beside the budget of what serves: some 100,000 items each side."""


class VersionSnapshots:
    """Opens the snapshot of any version, with the items of now; none of a collection that the served cache
    dropped. The last ones stay in memory unless they are large: people try one query after another."""

    def __init__(self, database: Database, loader: SnapshotLoader, served: SnapshotCache) -> None:
        self._database = database
        self._loader = loader
        self._lock = threading.Lock()
        """Held while a version is loaded: one at a time, since each takes memory and time from searches."""
        self._guard = threading.Lock()  # held to change what is kept
        self._kept: dict[tuple[int, str], Snapshot] = {}
        """By collection and bundle, the least recently used first."""
        self._incarnation: Hashable = None
        served.on_evict(self._forget)

    @contextmanager
    def open(self, name: str, version: int) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open the snapshot of a version, and a read transaction of the same state."""
        # Raises CollectionNotFoundError, NotFoundError, ConflictError, and UnavailableError where
        # others are loaded for too long.
        with ExitStack() as until_answered:
            if not self._lock.acquire(timeout=MAX_WAIT_SECONDS):
                raise overload("other versions are being loaded")
            try:
                # Begun under the lock, it sees at least what a kept snapshot saw.
                work = until_answered.enter_context(self._database.read())
                collection = work.collections.get(name)
                snapshot = self._load(work, collection, work.models.get(collection, version))
            finally:
                self._lock.release()
            yield snapshot, work

    def _load(self, work: UnitOfWork, collection: Collection, version: ModelVersion) -> Snapshot:
        pause = Pacer(is_urgent=lambda: True)
        place, incarnation = (collection.id, version.bundle), self._database.incarnation()
        with self._guard:
            if incarnation != self._incarnation:  # the database was replaced
                self._kept, self._incarnation = {}, incarnation
            snapshot = self._kept.pop(place, None)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision > collection.revision:
            try:
                snapshot = self._loader.load_version(work, collection, version, pause)
            except DamagedBundleError as error:
                raise damaged_version(collection.name, version.version, str(error)) from error
        snapshot = replay(snapshot, collection, work, pause)
        with self._guard:
            if incarnation != self._database.incarnation():
                return snapshot
            self._kept[place] = snapshot
            while len(self._kept) > _MOST_KEPT or sum(map(estimate_bytes, self._kept.values())) > _MOST_BYTES:
                del self._kept[next(iter(self._kept))]
        return snapshot

    def _forget(self, collection_id: int) -> None:
        """Drop what is kept of a collection; what is being loaded goes with the next ones."""
        with self._guard:
            self._kept = {
                place: snapshot for place, snapshot in self._kept.items() if place[0] != collection_id
            }
