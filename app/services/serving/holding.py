"""Snapshots in memory, within a bound: those that nobody has asked for longest make room for others."""

from __future__ import annotations

import logging
import threading

from app.services.serving.loading import Snapshot

_BYTES_PER_MODEL = 16 << 20
"""Of projector and encoders, which do not tell."""
_logger = logging.getLogger(__name__)


def snapshot_bytes(snapshot: Snapshot) -> int:
    """Return about how much memory a snapshot takes."""
    return _BYTES_PER_MODEL + sum(gallery.estimated_bytes for gallery in snapshot.galleries.values())


class HeldSnapshots:
    """The newest snapshot of each collection, by the collection's identity.

    Parameters
    ----------
    max_bytes : int
        How much all of them may take together, by estimate. The last one put in is held in any case.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._guard = threading.Lock()
        self._held: dict[int, Snapshot] = {}
        """In the order of their last use."""
        self._bytes: dict[int, int] = {}

    def get(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot."""
        return self._held.get(collection_id)

    def use(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot for a search, which keeps it in memory for longer than others."""
        with self._guard:
            held = self._held.pop(collection_id, None)
            if held is not None:
                self._held[collection_id] = held
            return held

    def put(self, snapshot: Snapshot) -> None:
        """Hold a snapshot in place of the collection's last one, and let go of others that have no room."""
        size = snapshot_bytes(snapshot)
        with self._guard:
            # A renewal is no use: a collection that is only written to does not keep others out.
            self._held[snapshot.collection.id] = snapshot
            self._bytes[snapshot.collection.id] = size
            others = [key for key in self._held if key != snapshot.collection.id]
            evicted = []
            while others and sum(self._bytes.values()) > self._max_bytes:
                evicted.append(self._held.pop(others[0]))
                del self._bytes[others.pop(0)]
        for one in evicted:
            _logger.info("%s: not searched for longest, out of memory until it is", one.collection.name)

    def drop(self, collection_id: int) -> None:
        """Let go of a collection's snapshot, if there is one."""
        with self._guard:
            self._held.pop(collection_id, None)
            self._bytes.pop(collection_id, None)

    def all(self) -> dict[int, Snapshot]:
        """Return all of them."""
        with self._guard:
            return dict(self._held)
