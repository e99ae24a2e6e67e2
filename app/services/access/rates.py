"""How often a key may call: counted in each process, and shared between them every second."""

from __future__ import annotations

import heapq
import math
import secrets
import time
from collections.abc import Mapping
from itertools import count

from limits.storage import MemoryStorage

from app.domain.entities import CallCount
from app.domain.errors import RateLimitedError
from app.domain.ports import Database

_WINDOW_SECONDS = 60
"""Limits are those of a minute."""
_CALLS_PER_CLEANING = 1000
"""Calls between two removals of idle callers: rare enough to cost nothing, often enough to bound memory."""
_MOST_SHARED = 1000
"""Callers whose counts are shared with other processes, the busiest: bounds what is written."""
_STALE_SECONDS = 5.0
"""What others counted is used for this time: after a pause, or without the database, it is too old."""
_NONE = CallCount(0, 0.0)


class RateLimits:
    """Counts the calls of the last minute by who made them.

    A process refuses by what it counted itself and what others have shared of late. So of several processes
    each may allow a caller too many calls until the next exchange, and no more.

    Parameters
    ----------
    requests_per_minute : int
        Of a caller without a limit of its own; 0 for no limit.
    """

    def __init__(self, requests_per_minute: int) -> None:
        self._default = requests_per_minute
        self._storage = MemoryStorage()
        self._calls = count(1)
        self._process = secrets.token_hex(8)
        self._has_shared = False
        self._elsewhere: tuple[float, Mapping[str, CallCount]] = (-math.inf, {})
        """When others were asked, by the monotonic clock, and what they counted."""

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
        elsewhere = self._counted_elsewhere(caller)
        if not self._storage.acquire_entry(caller, max(allowed - elsewhere.calls, 0), _WINDOW_SECONDS):
            age = max(elsewhere.age_seconds, self._counted_here(caller).age_seconds)
            raise RateLimitedError(allowed, max(math.ceil(_WINDOW_SECONDS - age), 1))

    def exchange(self, database: Database) -> None:
        """Exchange counts with other processes, where there is anything to share.

        Parameters
        ----------
        database : Database
            Of all processes.
        """
        counts = {caller: self._counted_here(caller) for caller in list(self._storage.events)}
        counts = {caller: entry for caller, entry in counts.items() if entry.calls}
        if not counts and not self._has_shared:
            return
        most = heapq.nlargest(_MOST_SHARED, counts.items(), key=lambda entry: entry[1].calls)
        with database.write() as work:
            others = work.calls.exchange(self._process, dict(most), _WINDOW_SECONDS)
        self._has_shared = bool(counts)
        self._elsewhere = time.monotonic(), _sums(others)

    def _counted_here(self, caller: str) -> CallCount:
        began, calls = self._storage.get_moving_window(caller, 0, _WINDOW_SECONDS)
        return CallCount(calls, max(time.time() - began, 0.0)) if calls else _NONE

    def _counted_elsewhere(self, caller: str) -> CallCount:
        asked_at, counts = self._elsewhere
        return counts.get(caller, _NONE) if time.monotonic() - asked_at < _STALE_SECONDS else _NONE

    def _forget_idle_callers(self) -> None:
        """Forget those whose calls have all expired: the library keeps an empty list for each."""
        for caller, calls in list(self._storage.events.items()):
            if not calls:
                self._storage.clear(caller)


def _sums(others: list[Mapping[str, CallCount]]) -> Mapping[str, CallCount]:
    """Return the calls of each caller to all other processes together."""
    sums: dict[str, CallCount] = {}
    for counts in others:
        for caller, entry in counts.items():
            before = sums.get(caller, _NONE)
            sums[caller] = CallCount(before.calls + entry.calls, max(before.age_seconds, entry.age_seconds))
    return sums
