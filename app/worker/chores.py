"""Periodic maintenance between jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.domain.errors import ServiceError
from app.services.storage.rounds import Round

_RETRY_SECONDS = 60.0
"""Until a chore that failed or did not finish is due again: a fault of a moment has passed by then."""
_logger = logging.getLogger(__name__)


class Chore:
    """A piece of periodic maintenance, named in the log; its failure delays neither the other chores nor its
    next run for long."""

    # What it raises is logged. After a failure, or when it did not finish (as `act` returns), the chore is
    # due again in a minute, or sooner where the interval is shorter.

    def __init__(self, name: str, act: Callable[[Round], bool], every_seconds: float) -> None:
        self._name = name
        self._act = act
        self._every_seconds = every_seconds
        self.due_at = time.monotonic()
        """On the monotonic clock."""

    def do_if_due(self, time_left: Round) -> None:
        """Run the chore if it is due and any time is left; it is due from the start."""
        if time_left.is_over or time.monotonic() < self.due_at:
            return
        is_finished = False
        try:
            is_finished = self._act(time_left)
        except ServiceError as error:
            _logger.warning("worker: %s failed: %s", self._name, error)
        except Exception:
            _logger.exception("worker: %s failed", self._name)
        pause = self._every_seconds if is_finished else min(self._every_seconds, _RETRY_SECONDS)
        self.due_at = time.monotonic() + pause


def whole(act: Callable[[], object]) -> Callable[[Round], bool]:
    """Return the `act` of a chore that always finishes."""

    def act_to_the_end(_: Round) -> bool:
        act()
        return True

    return act_to_the_end
