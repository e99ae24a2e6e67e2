"""Taking turns: one thread works at a time, in the order in which they asked."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A lock that is fair: a thread that gives up its turn and asks again comes after all who wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        """Whose turn it is, and then who waits."""

    def take(self, owner: object) -> None:
        """Wait until it is this owner's turn."""
        with self._changed:
            self._line.append(owner)
            self._changed.wait_for(lambda: self._line[0] is owner)

    def give_up(self) -> None:
        """End the present turn."""
        with self._changed:
            self._line.popleft()
            self._changed.notify_all()
