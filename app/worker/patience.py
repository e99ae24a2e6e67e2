"""Retrying while the database is busy, so that a brief lock does not discard hours of work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from app.domain.errors import DatabaseUnavailableError

LONGEST_WAIT_SECONDS = 6 * 3600.0
"""After this long without the database a worker gives up: longer than a migration or a restore takes."""
_FIRST_PAUSE_SECONDS = 0.25  # doubled after each failure
_LONGEST_PAUSE_SECONDS = 2.0  # bound on the doubled pause, so that a free database is noticed soon
_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def pause_after(failures: int) -> float:
    """Return how many seconds to wait after that many failures in a row; it doubles up to a bound."""
    return float(min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_SECONDS))


def patiently(
    act: Callable[[], _Result],
    longest_seconds: Callable[[], float] = lambda: LONGEST_WAIT_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """Return what `act` returns, retrying with growing pauses while the database is busy; what `pause` raises
    ends that."""
    # Raises DatabaseUnavailableError, on which `act` has changed nothing, after `longest_seconds` in all.
    began, failures = time.monotonic(), 0
    while True:
        try:
            return act()
        except DatabaseUnavailableError:
            failures += 1
            waited = time.monotonic() - began
            if waited >= longest_seconds():
                raise
            _logger.info("the database has been busy for %.0f s, will retry", waited, extra={"cause": "busy"})
        pause(pause_after(failures))
