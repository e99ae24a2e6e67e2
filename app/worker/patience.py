"""Trying again while the database is busy: hours of work are not thrown away for a lock of a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from app.domain.errors import DatabaseUnavailableError

LONGEST_WAIT_SECONDS = 6 * 3600.0
"""After so long without the database a worker gives up."""
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0
_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def pause_after(failures: int) -> float:
    """Return how many seconds to wait after so many failures in a row; it grows, up to a bound."""
    return float(min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_SECONDS))


def patiently(
    act: Callable[[], _Result],
    longest_seconds: Callable[[], float] = lambda: LONGEST_WAIT_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """Return what `act` returns, which is tried again with growing pauses while the database is busy.

    Parameters
    ----------
    act : callable
        Changes nothing when it raises DatabaseUnavailableError.
    longest_seconds : callable
        Asked after each failure: how long this may go on in all.
    pause : callable
        Waits so many seconds; whatever it raises ends the waiting.

    Raises
    ------
    DatabaseUnavailableError
        If the database is still busy after `longest_seconds`.
    """
    began, failures = time.monotonic(), 0
    while True:
        try:
            return act()
        except DatabaseUnavailableError:
            failures += 1
            waited = time.monotonic() - began
            if waited >= longest_seconds():
                raise
            _logger.info("the database is busy, since %.0f s: trying again", waited)
        pause(pause_after(failures))
