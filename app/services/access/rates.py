"""How often a key may call: counted exactly on each host, and shared between hosts every second."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping
from pathlib import Path

from app.db.session import Database
from app.domain.entities import CallCount
from app.domain.errors import ServiceError
from app.services.access.call_file import WINDOW, CallFile

_MOST_SHARED = 1000  # callers whose counts are shared with other hosts, the busiest: bounds what is written
_STALE_SECONDS = 5.0
"""What others counted is used for this time: after a pause, or without the database, it is too old."""
_NONE = CallCount(0, 0.0)


class RateLimits:
    """Counts the calls of the last minute by who made them, in one file for all processes of a host; without,
    alone. 0 requests a minute are no limit."""

    # What other hosts counted is known from the last exchange: each of them may allow a caller too many calls
    # until the next one, and no more. Within a host no burst passes more calls than the limit.

    def __init__(self, requests_per_minute: int, file: Path | None = None) -> None:
        self._default = requests_per_minute
        self._calls = CallFile(file)
        self._has_shared = False
        self._elsewhere: tuple[float, Mapping[str, CallCount]] = (-math.inf, {})
        """When others were asked, by the monotonic clock, and what they counted."""

    def count(self, caller: str, requests_per_minute: int | None) -> None:
        """Count one call; raises ServiceError, and counts nothing, when it is one too many by its own or
        the default limit."""
        allowed = self._default if requests_per_minute is None else requests_per_minute
        if allowed == 0:
            return
        elsewhere = self._counted_elsewhere(caller)
        seconds = self._calls.add(caller, max(allowed - elsewhere.calls, 0))
        if seconds is not None:
            if elsewhere.calls:
                seconds = min(seconds, WINDOW - elsewhere.age_seconds)
            wait = max(math.ceil(seconds), 1)
            message = f"more than {allowed} requests in a minute: try again in {wait} s"
            raise ServiceError("rate-limited", message, wait=wait)

    def exchange(self, database: Database) -> None:
        """Exchange counts with other hosts, where there is anything to share."""
        host, counts = self._calls.counts()
        if not counts and not self._has_shared:
            return
        most = heapq.nlargest(_MOST_SHARED, counts.items(), key=lambda entry: entry[1].calls)
        with database.write() as work:
            others = work.calls.exchange(host, dict(most), WINDOW)
        self._has_shared = bool(counts)
        self._elsewhere = time.monotonic(), _sums(others)

    def _counted_elsewhere(self, caller: str) -> CallCount:
        asked_at, counts = self._elsewhere
        return counts.get(caller, _NONE) if time.monotonic() - asked_at < _STALE_SECONDS else _NONE


def _sums(others: list[Mapping[str, CallCount]]) -> Mapping[str, CallCount]:
    """Return the calls of each caller to all other hosts together."""
    sums: dict[str, CallCount] = {}
    for counts in others:
        for caller, entry in counts.items():
            before = sums.get(caller, _NONE)
            sums[caller] = CallCount(before.calls + entry.calls, max(before.age_seconds, entry.age_seconds))
    return sums
