"""Periodic background work of a server, which may fail temporarily."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import ServiceError

_REST_FACTOR = 10.0
"""The pause is at least this multiple of the time the work took, so that slow work leaves its thread free."""
_logger = logging.getLogger(__name__)


class Repeated:
    """Periodic work in a thread, whose failures and recoveries are logged under its name."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._name = name
        self._work = work
        self._is_failing = False

    async def repeat(self, pause_seconds: float) -> None:
        """Repeat the work with pauses until cancelled; slow work runs less often."""
        while True:
            started_at = anyio.current_time()
            await self.run()
            await anyio.sleep(max(pause_seconds, _REST_FACTOR * (anyio.current_time() - started_at)))

    async def run(self, *, is_last: bool = False) -> None:
        """Run the work once; after the last time there will be no retry."""
        try:
            await to_thread.run_sync(self._work)
        except (ServiceError, SQLAlchemyError, OSError) as error:
            self._is_failing = True
            hope = "" if is_last else ", will retry"
            _logger.warning("could not %s%s: %s", self._name, hope, error)
        except Exception:
            self._is_failing = True
            _logger.exception("could not %s", self._name)
        else:
            if self._is_failing:
                # A failure may come and go many times a minute.
                _logger.info("can %s again", self._name, extra={"cause": f"can {self._name}"})
            self._is_failing = False
