"""What a worker does now and then, between jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.services.storage.rounds import Round

_RETRY_SECONDS = 60.0
_logger = logging.getLogger(__name__)


class Chore:
    """Something to be done now and then; when it fails, neither the others nor its next try wait for long.

    Parameters
    ----------
    name : str
        What the log calls it.
    act : callable
        What it is; takes how much time is left, and returns whether it came to its end. Whatever it raises
        is logged.
    every_seconds : float
        How often. After a failure, or when it did not come to its end, it is due again in a minute, or sooner
        where it is done more often.
    """

    def __init__(self, name: str, act: Callable[[Round], bool], every_seconds: float) -> None:
        self._name = name
        self._act = act
        self._every_seconds = every_seconds
        self.due_at = time.monotonic()
        """By the monotonic clock."""

    def do_if_due(self, time_left: Round) -> None:
        """Do it if its time has come, the first time at once, and any is left."""
        if time_left.is_over or time.monotonic() < self.due_at:
            return
        is_finished = False
        try:
            is_finished = self._act(time_left)
        except Exception:
            _logger.exception("worker: %s failed", self._name)
        pause = self._every_seconds if is_finished else min(self._every_seconds, _RETRY_SECONDS)
        self.due_at = time.monotonic() + pause


def whole(act: Callable[[], object]) -> Callable[[Round], bool]:
    """Return a chore's `act` that always comes to its end."""

    def act_to_the_end(_: Round) -> bool:
        act()
        return True

    return act_to_the_end
