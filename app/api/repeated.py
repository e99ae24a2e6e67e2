"""Periodic background work of a server, which may fail temporarily."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from app.api.log_intervals import LogIntervals
from app.domain.errors import ServiceError

_REST_FACTOR = 10.0
"""The pause is at least this multiple of the time the work took, so that slow work leaves its thread free."""
_logger = logging.getLogger(__name__)


class Repeated:
    """Periodic work in a thread; logs failures of one type at most once a minute, and so recoveries.

    Parameters
    ----------
    name : str
        Name of the work in the log, such as "share metrics".
    work : callable
        Called without arguments.
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._name = name
        self._work = work
        self._is_failing = False
        self._log_intervals = LogIntervals()

    async def repeat(self, pause_seconds: float) -> None:
        """Repeat the work with pauses until cancelled; slow work runs less often."""
        while True:
            started_at = anyio.current_time()
            await self.run()
            await anyio.sleep(max(pause_seconds, _REST_FACTOR * (anyio.current_time() - started_at)))

    async def run(self, *, is_last: bool = False) -> None:
        """Run the work once.

        Parameters
        ----------
        is_last : bool
            Whether there will be no retry: then a failure is always logged.
        """
        try:
            await to_thread.run_sync(self._work)
        except (ServiceError, SQLAlchemyError, OSError) as error:
            self._is_failing = True
            if is_last:
                _logger.warning("could not %s: %s", self._name, error)
            elif self._log_intervals.is_due(type(error)):
                _logger.warning("could not %s, will retry: %s", self._name, error)
        except Exception as error:
            self._is_failing = True
            if is_last or self._log_intervals.is_due(type(error)):
                _logger.exception("could not %s", self._name)
        else:
            if self._is_failing and self._log_intervals.is_due("success"):
                _logger.info("can %s again", self._name)
            self._is_failing = False
