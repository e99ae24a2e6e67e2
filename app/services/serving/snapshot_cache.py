"""Snapshots in memory, within a byte budget: the least recently searched make room for others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.services.serving.snapshot import Snapshot

_BYTES_PER_MODEL = 16 << 20
"""Allowance for projector and encoders, whose size is not known; typical ones take a few MiB."""
_logger = logging.getLogger(__name__)


def estimate_bytes(snapshot: Snapshot) -> int:
    """Return about how much memory a snapshot takes."""
    return _BYTES_PER_MODEL + sum(gallery.estimated_bytes for gallery in snapshot.galleries.values())


class SnapshotCache:
    """The newest snapshot of each collection, by the collection's identity, within estimated bytes.
    Least recently used go first; the one put in last stays in any case."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._snapshots: dict[int, Snapshot] = {}  # least recently used first
        self._bytes: dict[int, int] = {}
        self._n_dropped = 0
        self._on_evict: list[Callable[[int], None]] = []

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

    def on_evict(self, take_note: Callable[[int], None]) -> None:
        """Call a function with the identity of each collection that `evict` drops, from then on."""
        self._on_evict.append(take_note)

    @property
    def n_dropped(self) -> int:
        """How often `evict` was called."""
        return self._n_dropped

    def put(self, snapshot: Snapshot) -> None:
        """Replace the collection's snapshot, and evict others for which there is no room."""
        self._put_if(snapshot, lambda: True)

    def replace(self, before: Snapshot, snapshot: Snapshot) -> bool:
        """Put a snapshot of the same collection in the place of another one; return False if that is gone."""
        return self._put_if(snapshot, lambda: self._snapshots.get(before.collection.id) is before)

    def put_unless_dropped(self, snapshot: Snapshot, n_dropped: int) -> bool:
        """Put a snapshot, unless `evict` was called since `n_dropped` was read; return False if it was."""
        return self._put_if(snapshot, lambda: self._n_dropped == n_dropped)

    def _put_if(self, snapshot: Snapshot, may_put: Callable[[], bool]) -> bool:
        collection_id, n_bytes = snapshot.collection.id, estimate_bytes(snapshot)
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

    def evict(self, collection_id: int) -> None:
        """Drop a collection's snapshot, if there is one."""
        with self._lock:
            self._n_dropped += 1
            self._snapshots.pop(collection_id, None)
            self._bytes.pop(collection_id, None)
        for take_note in self._on_evict:
            take_note(collection_id)

    def snapshots(self) -> dict[int, Snapshot]:
        """Return all of them, by the collections' identity."""
        with self._lock:
            return dict(self._snapshots)
