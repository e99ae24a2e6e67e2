"""Work of a server that is done again and again, and may fail now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import anyio
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import ServiceError

_LOG_SECONDS = 60.0
"""Between two lines about failures of one type, and between two about success after failure."""
_REST_FACTOR = 10.0
"""How many times as long as the work took it rests at least."""
_logger = logging.getLogger(__name__)


class Repeated:
    """Work in a thread; failures of one type are logged once a minute, and so is their end.

    Parameters
    ----------
    name : str
        What the work is, for the log.
    work : callable
        Run without arguments.
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._name = name
        self._work = work
        self._is_failing = False
        self._logged: dict[object, float] = {}

    async def repeat(self, pause_seconds: float) -> None:
        """Do the work until cancelled, with pauses; work that takes long is done less often."""
        while True:
            began = anyio.current_time()
            await self.run()
            await anyio.sleep(max(pause_seconds, _REST_FACTOR * (anyio.current_time() - began)))

    async def run(self, *, is_last: bool = False) -> None:
        """Do the work once.

        Parameters
        ----------
        is_last : bool
            Whether it will not be tried again: a failure is logged in any case.
        """
        try:
            await to_thread.run_sync(self._work)
        except (ServiceError, SQLAlchemyError, OSError) as error:
            self._is_failing = True
            if is_last:
                _logger.warning("could not %s: %s", self._name, error)
            elif self._is_due(type(error)):
                _logger.warning("could not %s, will retry: %s", self._name, error)
        except Exception as error:
            self._is_failing = True
            if is_last or self._is_due(type(error)):
                _logger.exception("could not %s", self._name)
        else:
            if self._is_failing and self._is_due("success"):
                _logger.info("can %s again", self._name)
            self._is_failing = False

    def _is_due(self, event: object) -> bool:
        """Return whether a line about this is a minute ago, or was never logged."""
        now = time.monotonic()
        if now - self._logged.get(event, -_LOG_SECONDS) < _LOG_SECONDS:
            return False
        self._logged[event] = now
        return True
