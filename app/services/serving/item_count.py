"""How many items an engine's galleries rank, for those who must not wait for the engine."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from app.domain.errors import ServiceError

THREAD_NAME = "count"
_SECONDS_BETWEEN_COUNTS = 60.0
"""A count may read every row of a gallery."""

_logger = logging.getLogger(__name__)


class _Counter:
    """Counts in a thread of its own, one gallery after another; the thread ends when none is due."""

    def __init__(self) -> None:
        self._due: deque[ItemCount] = deque()
        self._is_running = False
        self._lock = threading.Lock()
        """Held while these two are changed."""

    def request(self, count: ItemCount) -> None:
        """Have a count brought up to date after those that were requested before."""
        with self._lock:
            self._due.append(count)
            if not self._is_running:
                try:
                    threading.Thread(target=self._count_due, name=THREAD_NAME, daemon=True).start()
                    self._is_running = True
                except RuntimeError as error:  # the system has no thread left
                    _logger.warning("items are not counted: %s", error)

    def _count_due(self) -> None:
        while True:
            with self._lock:
                self._is_running = bool(self._due)
                if not self._is_running:
                    return
                count = self._due.popleft()
            count.update()


_counter = _Counter()


class ItemCount:
    """The latest known size of a gallery.

    Parameters
    ----------
    ask : callable
        Counts the items of the latest revision; may take long.
    """

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._value: int | None = None
        self._due_at = -float("inf")
        """On the monotonic clock."""

    def read(self) -> int | None:
        """Return what was last counted, None if nothing was yet, and have it counted again if that is old."""
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + _SECONDS_BETWEEN_COUNTS
            _counter.request(self)
        return self._value

    def update(self) -> None:
        """Count; keep the earlier value while that is not possible."""
        try:
            self._value = self._ask()
        except ServiceError as error:
            _logger.info("items could not be counted: %s", error)
        except Exception:
            _logger.exception("items could not be counted")
