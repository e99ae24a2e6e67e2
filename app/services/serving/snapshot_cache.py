"""Snapshots in memory, within a byte budget: the least recently searched make room for others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.services.serving.snapshot import LoadFailure, Snapshot

_logger = logging.getLogger(__name__)


class SnapshotCache:
    """The newest snapshot of each collection, by the collection's identity, within estimated bytes, and what
    has happened to each in this process, whether its snapshot is in memory or not."""

    # Least recently used go first; the one put in last stays in any case.

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._snapshots: dict[int, Snapshot] = {}  # least recently used first
        self._bytes: dict[int, int] = {}
        self._failures: dict[int, LoadFailure] = {}
        self._loaded: set[int] = set()
        self._given_up: dict[int, dict[tuple[str, str], str]] = {}  # reasons by bundle and modality
        self._on_evict: list[Callable[[int], None]] = []
        self.n_dropped = 0
        """How often `evict` was called."""

    def peek(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot without counting as a use."""
        with self._lock:
            return self._snapshots.get(collection_id)

    def get(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot for a search, and mark it as the most recently used."""
        with self._lock:
            snapshot = self._snapshots.pop(collection_id, None)
            if snapshot is not None:
                self._snapshots[collection_id] = snapshot
            return snapshot

    def snapshots(self) -> dict[int, Snapshot]:
        """Return all of them, by the collections' identity."""
        with self._lock:
            return dict(self._snapshots)

    def put(self, snapshot: Snapshot, n_dropped: int | None = None) -> bool:
        """Replace the collection's snapshot, and evict others for which there is no room; return False, and
        do nothing, if `evict` was called since `n_dropped` was read."""
        return self._put_if(snapshot, lambda: n_dropped in (None, self.n_dropped))

    def replace(self, before: Snapshot, snapshot: Snapshot) -> bool:
        """Put a snapshot of the same collection in the place of another one; return False if that is gone."""
        return self._put_if(snapshot, lambda: self._snapshots.get(before.collection.id) is before)

    def _put_if(self, snapshot: Snapshot, may_put: Callable[[], bool]) -> bool:
        collection_id, n_bytes = snapshot.collection.id, snapshot.estimated_bytes
        evicted = []
        with self._lock:
            if not may_put():
                return False
            # A replacement is no use: a collection that is only written to does not keep others out.
            self._snapshots[collection_id] = snapshot
            self._bytes[collection_id] = n_bytes
            candidates = [key for key in self._snapshots if key != collection_id]
            while candidates and sum(self._bytes.values()) > self._max_bytes:
                evicted.append(self._snapshots.pop(candidates[0]))
                del self._bytes[candidates.pop(0)]
        for other in evicted:
            _logger.info("%s: evicted from memory as least recently searched", other.collection.name)
        return True

    def on_evict(self, take_note: Callable[[int], None]) -> None:
        """Call a function with the identity of each collection that `evict` drops, from then on."""
        self._on_evict.append(take_note)

    def evict(self, collection_id: int) -> None:
        """Drop a collection's snapshot, if there is one."""
        with self._lock:
            self.n_dropped += 1
            self._snapshots.pop(collection_id, None)
            self._bytes.pop(collection_id, None)
        for take_note in self._on_evict:
            take_note(collection_id)

    def forget(self, collection_id: int) -> None:
        """Drop everything about a deleted collection."""
        self.evict(collection_id)
        with self._lock:
            self._failures.pop(collection_id, None)
            self._loaded.discard(collection_id)
            self._given_up.pop(collection_id, None)

    def known_ids(self) -> set[int]:
        """Return the collections of which anything is known."""
        with self._lock:
            return {*self._snapshots, *self._failures, *self._loaded, *self._given_up}

    def record_load(self, collection_id: int) -> None:
        """Record that a collection was brought up to date."""
        with self._lock:
            self._loaded.add(collection_id)
            self._failures.pop(collection_id, None)

    def was_loaded(self, collection_id: int) -> bool:
        """Return whether a collection was loaded once, even if it is no longer in memory."""
        return collection_id in self._loaded

    def record_failure(self, collection_id: int, failure: LoadFailure) -> None:
        """Record that it could not be."""
        with self._lock:
            self._failures[collection_id] = failure

    def last_failure(self, collection_id: int) -> LoadFailure | None:
        """Return why the last load failed; None when it succeeded."""
        return self._failures.get(collection_id)

    def record_given_up(self, snapshot: Snapshot, modality: str, reason: str) -> None:
        """Record that this process searches a gallery of a model exactly from now on, and why."""
        collection_id = snapshot.collection.id
        with self._lock:
            before = self._given_up.get(collection_id, {})
            self._given_up[collection_id] = {**before, (snapshot.model_bundle, modality): reason}

    def given_up(self, snapshot: Snapshot) -> dict[str, str]:
        """Return why galleries of a snapshot's model are searched exactly, by modality."""
        reasons = self._given_up.get(snapshot.collection.id, {})
        return {name: reason for (bundle, name), reason in reasons.items() if bundle == snapshot.model_bundle}
