"""Which of many equal events are logged: an outage shows in the log without filling it."""

from __future__ import annotations

import time

_SECONDS = 60.0
"""Between two lines about the same event: often enough for one who watches the log."""


class LogIntervals:
    """Decides when an event is logged: at most once a minute."""

    def __init__(self) -> None:
        self._logged: dict[object, float] = {}

    def is_due(self, event: object) -> bool:
        """Return whether the last line about an event is a minute old, or missing; it is logged now."""
        now = time.monotonic()
        if now - self._logged.get(event, -_SECONDS) < _SECONDS:
            return False
        self._logged[event] = now
        return True
