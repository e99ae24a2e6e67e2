"""Work in bounded steps with pauses between them, so that other writers get their turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

ROWS_PER_STEP = 500
BYTES_PER_STEP = 4 << 20
"""A transaction of this size keeps other writers of SQLite out for milliseconds."""
BREATH_SECONDS = 0.005
"""Pause between transactions of one writer: those who wait for SQLite's lock poll for it."""


class Round:
    """A time limit, from now, for work in steps; the rest is left to the next round."""

    def __init__(self, seconds: float = math.inf, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._ends_at = time.monotonic() + seconds
        self._should_stop = should_stop

    @property
    def is_over(self) -> bool:
        """Whether no further step may start."""
        return time.monotonic() >= self._ends_at or self._should_stop()

    def goes_on(self) -> bool:
        """Pause for other writers and return whether there is time for a further step."""
        if self.is_over:
            return False
        time.sleep(BREATH_SECONDS)
        return True

    def finish(self, step: Callable[[], bool]) -> bool:
        """Repeat a step, once at least, until it returns that nothing remains; return whether it did."""
        while not step():
            if not self.goes_on():
                return False
        return True
