"""What a client knows of its own writes, and which states of each item that allows at a revision."""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

State = int | None
"""Generation of an item's content; None where there is no item."""


class Outcome(enum.Enum):
    """What a client knows of a write."""

    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNSURE = "unsure"
    """No answer, or one that does not say: it happened whole, or not at all."""


@dataclass(eq=False)
class Write:
    """One request and its end."""

    changes: Mapping[str, State]
    outcome: Outcome = Outcome.PENDING
    revision: int | None = None


class Ledger:
    """The writes to one collection. Each item is written by one client at a time."""

    def __init__(self) -> None:
        self._history: dict[str, list[tuple[Write, State]]] = {}
        self._pairs: list[tuple[str, str]] = []
        self._revisions: Counter[int] = Counter()
        self._acknowledged_at: dict[int, float] = {}
        self._lock = threading.Lock()

    def begin(self, changes: Mapping[str, State], pair: tuple[str, str] | None = None) -> Write:
        """Record a write before it is sent; a `pair` is written by this request and never again."""
        write = Write(changes)
        with self._lock:
            for item_id, state in changes.items():
                self._history.setdefault(item_id, []).append((write, state))
            if pair is not None:
                self._pairs.append(pair)
        return write

    def close(self, write: Write, outcome: Outcome, revision: int | None = None) -> str | None:
        """Record how a write ended; returns what is wrong with that."""
        with self._lock:
            write.revision, write.outcome = revision, outcome
            if revision is None:
                return None
            self._revisions[revision] += 1
            self._acknowledged_at.setdefault(revision, time.monotonic())
            if self._revisions[revision] > 1:
                return f"two writes were acknowledged with revision {revision}"
        return None

    def possible(self, item_id: str, revision: int | None = None) -> set[State]:
        """Return the states an item may have at a revision; now, when None."""
        with self._lock:
            return self._possible(item_id, revision)

    def wrong(self, found: Mapping[str, State], revision: int | None, ids: Iterable[str]) -> list[str]:
        """Return how a full answer differs from every state that was possible at its revision (None: at
        present). A `begin` after the answer was asked for may be among `ids`."""
        problems = []
        with self._lock:
            for item_id in {*ids, *found}:
                allowed = self._possible(item_id, revision)
                if found.get(item_id) not in allowed:
                    problems.append(
                        f"{item_id} is {found.get(item_id)} at revision {revision}, possible: {allowed}; "
                        f"history {self._told(item_id)}"
                    )
            for first, second in self._pairs:
                if (first in found) != (second in found):
                    problems.append(f"of {first} and {second}, stored by one request, only one is found")
        return problems

    def known(self, prefix: str = "") -> list[str]:
        """Return every item ever written whose id begins so."""
        with self._lock:
            return [item_id for item_id in self._history if item_id.startswith(prefix)]

    def count(self, outcome: Outcome) -> int:
        """Return how many writes ended so."""
        with self._lock:
            writes = {id(w) for entries in self._history.values() for w, _ in entries if w.outcome is outcome}
        return len(writes)

    def lag(self, revision: int, asked_at: float) -> float:
        """Return for how long a write had been acknowledged, when it was asked for, that an answer lacks.
        `asked_at` is of the monotonic clock."""
        with self._lock:
            newest = max(self._acknowledged_at, default=0)
            missing = (self._acknowledged_at.get(number) for number in range(revision + 1, newest + 1))
            earlier = [at for at in missing if at is not None and at <= asked_at]
        return asked_at - min(earlier) if earlier else 0.0

    def _possible(self, item_id: str, revision: int | None) -> set[State]:
        states: set[State] = {None}
        for write, state in self._history.get(item_id, []):
            if write.outcome is Outcome.REFUSED:
                continue
            if write.outcome is Outcome.ACKNOWLEDGED:
                if revision is not None and write.revision is not None and write.revision > revision:
                    break
                states = {state}
            else:
                states.add(state)
        return states

    def _told(self, item_id: str) -> str:
        entries = self._history.get(item_id, [])[-4:]
        return ", ".join(f"{state} {write.outcome.value} at {write.revision}" for write, state in entries)
