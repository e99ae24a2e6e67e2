"""How many items an engine's galleries rank, and whether it answers, for those who must not wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from app.domain.errors import ServiceError

COUNT_THREAD_NAME = "count"
WATCH_THREAD_NAME = "watch"
_SECONDS_BETWEEN_COUNTS = 60.0  # a count may read every row of a gallery
_SECONDS_BETWEEN_LOOKS = 5.0  # whether an engine answers is found out by a small question

_logger = logging.getLogger(__name__)


class _Updates:
    """Brings values up to date in a thread of its own, one after another; it ends when none is due."""

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._due: deque[ItemCount | EngineWatch] = deque()
        self._is_running = False
        self._lock = threading.Lock()  # held while these two are changed

    def request(self, value: ItemCount | EngineWatch) -> None:
        """Have a value brought up to date after those that were requested before."""
        with self._lock:
            self._due.append(value)
            if not self._is_running:
                try:
                    threading.Thread(target=self._update_due, name=self._thread_name, daemon=True).start()
                    self._is_running = True
                except RuntimeError as error:  # the system has no thread left
                    _logger.warning("the engine is not asked: %s", error)

    def _update_due(self) -> None:
        while True:
            with self._lock:
                self._is_running = bool(self._due)
                if not self._is_running:
                    return
                value = self._due.popleft()
            value.update()


_counts, _watches = _Updates(COUNT_THREAD_NAME), _Updates(WATCH_THREAD_NAME)


class ItemCount:
    """The latest known size of a gallery; `ask` counts the items of the latest revision, which may take
    long."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._value: int | None = None
        self._due_at = -float("inf")  # on the monotonic clock

    def read(self) -> int | None:
        """Return what was last counted, None if nothing was yet, and have it counted again if that is old."""
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + _SECONDS_BETWEEN_COUNTS
            _counts.request(self)
        return self._value

    def update(self) -> None:
        """Count; keep the earlier value while that is not possible."""
        try:
            self._value = self._ask()
        except ServiceError as error:
            _logger.info("items could not be counted: %s", error)
        except Exception:
            _logger.exception("items could not be counted")


class EngineWatch:
    """Whether an engine answers; `ask` raises what prevents an answer, which may take long."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._fault: str | None = None
        self._due_at = -float("inf")  # on the monotonic clock

    def find_fault(self) -> str | None:
        """Return why it did not answer when it was last asked; have it asked again if that is long ago."""
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + _SECONDS_BETWEEN_LOOKS
            _watches.request(self)
        return self._fault

    def update(self) -> None:
        """Ask it."""
        try:
            self._ask()
        except ServiceError as error:
            self._fault = str(error)
        except Exception as error:
            _logger.exception("the engine could not be asked")
            self._fault = f"the vector engine fails: {type(error).__name__}"
        else:
            self._fault = None
