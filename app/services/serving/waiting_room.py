"""A bound on the requests that wait for a collection to be brought up to date (a bulkhead).
Without it, requests for a few collections that are being loaded would hold every thread of the service."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

ReleaseSlot = Callable[[], AbstractContextManager[None]]
"""Opened around a wait: gives the waiting request's concurrency slot to others meanwhile."""
MAX_WAITING = 32
"""Requests that wait at the same time; each holds a thread beyond those of the concurrency limits."""
MAX_WAITING_PER_COLLECTION = 8
"""So that four collections being loaded can have waiting requests before others are turned away."""
MAX_WAIT_SECONDS = 30.0
"""Longest wait of a request: within the usual time limits of proxies and clients, which are a minute."""


class WaitingRoom:
    """Admits a bounded number of waiting requests, in all and of one collection, each for a bounded time."""

    def __init__(
        self,
        capacity: int = MAX_WAITING,
        capacity_per_collection: int = MAX_WAITING_PER_COLLECTION,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._capacity = capacity
        self._capacity_per_collection = capacity_per_collection
        self.max_wait_seconds = max_wait_seconds
        self._lock = threading.Lock()
        self._waiting: Counter[int] = Counter()

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._waiting

    def try_enter(self, collection_id: int, until_left: ExitStack) -> bool:
        """Admit a request unless the room is full, and return whether; it leaves when the stack is closed."""
        with self._lock:
            if (
                self._waiting[collection_id] >= self._capacity_per_collection
                or self._waiting.total() >= self._capacity
            ):
                return False
            self._waiting[collection_id] += 1
        until_left.callback(self._leave, collection_id)
        return True

    def _leave(self, collection_id: int) -> None:
        with self._lock:
            self._waiting[collection_id] -= 1
            if not self._waiting[collection_id]:
                del self._waiting[collection_id]


class FairLock:
    """A lock handed out in the order of requests: a thread that releases it and asks again goes last."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()  # the owner of the lock, followed by those waiting for it

    def acquire(self, owner: object) -> None:
        """Wait until the lock is this owner's."""
        with self._changed:
            self._queue.append(owner)
            self._changed.wait_for(lambda: self._queue[0] is owner)

    def release(self) -> None:
        """Pass the lock on to the next in line."""
        with self._changed:
            self._queue.popleft()
            self._changed.notify_all()
