"""Counts and violations of a run, from all of its threads."""

from __future__ import annotations

import threading
from collections import Counter

_MOST_TOLD = 40


class Tally:
    """What happened, and what must not have."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._violations: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, by: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._counts[what] += by

    def most(self, what: str, value: int) -> None:
        """Remember the largest value."""
        with self._lock:
            self._counts[what] = max(self._counts[what], value)

    def violation(self, what: str) -> None:
        """Record what must not have happened."""
        with self._lock:
            self._violations.append(what)

    def __getitem__(self, what: str) -> int:
        with self._lock:
            return self._counts[what]

    @property
    def violations(self) -> list[str]:
        """All of them so far."""
        with self._lock:
            return list(self._violations)

    def lines(self) -> list[str]:
        """Return the tally as text."""
        with self._lock:
            counts = [f"{what}: {number}" for what, number in sorted(self._counts.items())]
            told = [f"VIOLATION {text}" for text in self._violations[:_MOST_TOLD]]
            return [*counts, *told, f"violations: {len(self._violations)}"]
