"""Rounds of work that is done a step at a time, so that others have their turn between."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

BREATH_SECONDS = 0.005
"""Pause between transactions of one writer: who waits for SQLite's lock only looks for it now and then."""


class Round:
    """How long work goes on; what is left then is for another round.

    Parameters
    ----------
    seconds : float
        From now.
    should_stop : callable
        Asked between steps.
    """

    def __init__(self, seconds: float = math.inf, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._ends_at = time.monotonic() + seconds
        self._should_stop = should_stop

    @property
    def is_over(self) -> bool:
        """Whether no further step is to be begun."""
        return time.monotonic() >= self._ends_at or self._should_stop()

    def goes_on(self) -> bool:
        """Let others in, and return whether there is time for a further step."""
        if self.is_over:
            return False
        time.sleep(BREATH_SECONDS)
        return True
