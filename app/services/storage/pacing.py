"""Work in bounded steps: rounds, pauses for other writers, and for threads that answer requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ROWS_PER_STEP = 500
BYTES_PER_STEP = 4 << 20
"""A transaction of this size keeps other writers of SQLite out for milliseconds."""
BREATH_SECONDS = 0.005
"""Pause between transactions of one writer: those who wait for SQLite's lock poll for it."""
MAX_QUICK = 2  # quick reloads at the same time: one that computes and one that waits for the database
MAX_LONG = 4  # long reloads at the same time; they share one turn, so more would only hold more memory
MAX_RELOADS = MAX_QUICK + MAX_LONG
"""Threads, each with a read transaction and so a database connection."""


class Round:
    """A time limit, from now, for work in steps; the rest is left to the next round."""

    def __init__(self, seconds: float = math.inf, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._ends_at = time.monotonic() + seconds
        self._should_stop = should_stop

    @property
    def is_over(self) -> bool:
        """Whether no further step may start."""
        return time.monotonic() >= self._ends_at or self._should_stop()

    def goes_on(self) -> bool:
        """Pause for other writers and return whether there is time for a further step."""
        if self.is_over:
            return False
        time.sleep(BREATH_SECONDS)
        return True

    def finish(self, step: Callable[[], bool]) -> bool:
        """Repeat a step, once at least, until it returns that nothing remains; return whether it did."""
        while not step():
            if not self.goes_on():
                return False
        return True


_MIN_SLEEP_SECONDS = 0.0005  # a shorter sleep does not reliably let another thread run
_MAX_SLEEP_SECONDS = 0.05
"""Bounds the delay after a single long step, such as a product of large matrices outside the interpreter."""
_BACKGROUND_SLEEP_FACTOR = 3.0
"""Work that is not urgent sleeps this many times as long as it computed: a quarter of one core at most."""
_Entry = TypeVar("_Entry")
Pause = Callable[[], None]


def no_pause() -> None:
    """Continue without a pause."""


def in_batches(
    entries: Iterable[_Entry], size: int, weigh: Callable[[_Entry], int] | None = None, weight: int = 0
) -> Iterator[list[_Entry]]:
    """Yield entries in order, in lists that end at some size or once their weight reaches `weight`."""
    batch: list[_Entry] = []
    total = 0
    for entry in entries:
        batch.append(entry)
        total += 0 if weigh is None else weigh(entry)
        if len(batch) == size or (weigh is not None and total >= weight):
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class Pacer:
    """Makes a thread sleep between its steps for as long as it computed: three times as long where it is not
    urgent, and not at all where no request is answered (`is_alone`)."""

    # Python runs one thread at a time. A thread that computes without a break takes half of it from those
    # that answer requests, and costs each of their many short waits a switch of threads.

    def __init__(self, is_urgent: Callable[[], bool], is_alone: Callable[[], bool] = lambda: False) -> None:
        self._is_urgent = is_urgent
        self._is_alone = is_alone
        self._step_began = time.thread_time()

    def __call__(self) -> None:
        """End a step."""
        if not self._is_alone():
            worked = time.thread_time() - self._step_began
            sleep = min(max(worked, _MIN_SLEEP_SECONDS), _MAX_SLEEP_SECONDS)
            time.sleep(sleep * (1.0 if self._is_urgent() else _BACKGROUND_SLEEP_FACTOR))
        self._step_began = time.thread_time()
