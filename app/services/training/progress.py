"""How far a training is: percent done and seconds left, in each event of its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Receives progress; raises to end the training."""
_SHARE = "share"  # of a stage, in the events of what works on it
_LEAST_SHARE, _LEAST_SECONDS = 0.03, 5.0
"""Below either, the time left would be a guess from a start that is slower than the rest."""


class StagedReport:
    """Passes progress on, with the share of the whole work that is done instead of that of a stage.
    The share never falls: an event of a stage that knows none has that of the event before."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._start, self._stop, self._done = 0.0, 1.0, 0.0

    def enter(self, start: float, stop: float) -> None:
        """Begin a stage that leads from one share of the whole work to another."""
        self._start, self._stop = start, stop
        self._done = max(self._done, start)

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Pass an event on."""
        share = self._start + (self._stop - self._start) * float(progress.get(_SHARE, 0.0))
        self._done = max(self._done, min(share, self._stop))
        self._report({**progress, _SHARE: self._done})


def add_time_left(report: Report, now: Callable[[], float] = time.monotonic) -> Report:
    """Return what passes progress on, with `percent` done and, once it is known, `seconds_left` in place of a
    share."""
    began = now()

    def pass_on(progress: Mapping[str, Any]) -> None:
        share = float(progress[_SHARE])
        event = {name: value for name, value in progress.items() if name != _SHARE}
        event["percent"] = round(100.0 * share, 1)
        seconds = now() - began
        if share >= _LEAST_SHARE and seconds >= _LEAST_SECONDS:
            event["seconds_left"] = round(seconds * (1.0 / share - 1.0))
        report(event)

    return pass_on
