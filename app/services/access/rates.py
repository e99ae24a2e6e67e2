"""How often a key may call, counted in this process."""

from __future__ import annotations

import math
import time
from itertools import count

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from app.domain.errors import RateLimitedError

_CALLS_PER_CLEANING = 1000
"""Calls between two removals of idle callers: rare enough to cost nothing, often enough to bound memory."""


class RateLimits:
    """Counts the calls of the last minute by who made them.

    Each process counts for itself: of several, each allows the whole limit.

    Parameters
    ----------
    requests_per_minute : int
        Of a caller without a limit of its own; 0 for no limit.
    """

    def __init__(self, requests_per_minute: int) -> None:
        self._default = requests_per_minute
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)
        self._calls = count(1)

    def count(self, caller: str, requests_per_minute: int | None) -> None:
        """Count one call; raises RateLimitedError, and counts nothing, when it is one too many.

        Parameters
        ----------
        caller : str
            Who called.
        requests_per_minute : int or None
            The caller's own limit; the default when None.
        """
        allowed = self._default if requests_per_minute is None else requests_per_minute
        if allowed == 0:
            return
        if next(self._calls) % _CALLS_PER_CLEANING == 0:
            self._forget_idle_callers()
        limit = RateLimitItemPerMinute(allowed)
        if not self._limiter.hit(limit, caller):
            wait = self._limiter.get_window_stats(limit, caller).reset_time - time.time()
            raise RateLimitedError(allowed, max(math.ceil(wait), 1))

    def _forget_idle_callers(self) -> None:
        """Forget those whose calls have all expired: the library keeps an empty list for each."""
        for caller, calls in list(self._storage.events.items()):
            if not calls:
                self._storage.clear(caller)
