"""A first-come, first-served lock."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A lock handed out in the order of requests: a thread that releases it and asks again goes last."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        """The owner of the lock, followed by those waiting for it."""

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
