"""Work of a server that is done again and again, and may fail now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import ServiceError

_LOG_SECONDS = 60.0
"""Between two lines about the same failure."""
_logger = logging.getLogger(__name__)


class Repeated:
    """Work in a thread; a failure is logged once a minute, and its end once.

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
        self._logged_at: float | None = None

    async def run(self) -> None:
        """Do the work once; whatever goes wrong, it can be tried again."""
        try:
            await to_thread.run_sync(self._work)
        except (ServiceError, SQLAlchemyError, OSError) as error:
            if self._is_to_be_logged():
                _logger.warning("could not %s, will retry: %s", self._name, error)
        except Exception:
            if self._is_to_be_logged():
                _logger.exception("could not %s, will retry", self._name)
        else:
            if self._logged_at is not None:
                _logger.info("can %s again", self._name)
            self._logged_at = None

    def _is_to_be_logged(self) -> bool:
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < _LOG_SECONDS:
            return False
        self._logged_at = now
        return True
