"""Bringing collections up to date in the background, in steps that leave the interpreter to others.

Small collections and large ones have a thread each, so that the load of a large one delays no other. A
collection is renewed once at a time; whoever needs the result waits for it, and bounds keep those who wait
few.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.errors import OverloadedError, ServiceError

Aside = Callable[[], AbstractContextManager[None]]
"""Opened around a wait: lets others have what the waiting request holds, such as its place in a queue."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.0005, 0.05
_Entry = TypeVar("_Entry")
_logger = logging.getLogger(__name__)


def no_pause() -> None:
    """Go on at once."""


def in_steps(entries: Iterable[_Entry], size: int) -> Iterator[list[_Entry]]:
    """Yield entries in lists of a size; the last one may be shorter."""
    source = iter(entries)
    while step := list(itertools.islice(source, size)):
        yield step


class Pace:
    """Makes a thread sleep between its steps for as long as it computed.

    Python runs one thread at a time. Whoever computes without a break takes half of it from those who
    answer, and each of their many short waits costs them a switch of threads.
    """

    def __init__(self) -> None:
        self._since = time.thread_time()

    def __call__(self) -> None:
        """End a step."""
        worked = time.thread_time() - self._since
        time.sleep(min(max(worked, _SHORTEST_SECONDS), _LONGEST_SECONDS))
        self._since = time.thread_time()


@dataclass(frozen=True, slots=True, eq=False)
class Renewal:
    """One renewal of a collection, asked for or running.

    Parameters
    ----------
    collection_id : int
        Identity of the collection.
    name : str
        Its name.
    """

    collection_id: int
    name: str
    done: threading.Event = field(default_factory=threading.Event)
    errors: list[Exception] = field(default_factory=list)


class _Line:
    """Work done one piece after the other, in a thread that ends when there is none left."""

    def __init__(self, name: str, run: Callable[[Renewal], None]) -> None:
        self._name = name
        self._run = run
        self._lock = threading.Lock()
        self._queue: deque[Renewal] = deque()
        self._is_running = False

    def add(self, renewal: Renewal) -> None:
        with self._lock:
            self._queue.append(renewal)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._is_running = False
                    return
                renewal = self._queue.popleft()
            self._run(renewal)


class Renewals:
    """The renewals of one process.

    Parameters
    ----------
    run : callable
        Renews a collection; what it raises is told to those who wait.
    most_waiting, of_one : int
        How many requests wait at once, and how many of them for the same collection.
    patience_seconds : float
        How long a request waits.
    """

    def __init__(
        self, run: Callable[[Renewal], None], most_waiting: int, of_one: int, patience_seconds: float
    ) -> None:
        self._renew = run
        self._small, self._large = _Line("renew-small", self._run), _Line("renew-large", self._run)
        self._open: dict[int, Renewal] = {}
        self._most_waiting = most_waiting
        self._of_one = of_one
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._waiting: Counter[int] = Counter()

    def ask(self, collection_id: int, name: str, is_small: bool) -> Renewal:
        """Have a collection renewed; returns the renewal that is open already, if there is one."""
        with self._lock:
            found = self._open.get(collection_id)
            if found is None:
                found = self._open[collection_id] = Renewal(collection_id, name)
                (self._small if is_small else self._large).add(found)
            return found

    def wait(self, renewal: Renewal, aside: Aside | None) -> None:
        """Wait for a renewal, and raise what it raised.

        Parameters
        ----------
        renewal : Renewal
            As returned by `ask`.
        aside : callable or None
            Of a request, whose patience has an end; None for a caller that waits as long as it takes.

        Raises
        ------
        OverloadedError
            If too many requests wait already, or this one waited too long.
        """
        if aside is None:
            renewal.done.wait()
        else:
            with self.place(renewal.collection_id, renewal.name), aside():
                if not renewal.done.wait(self._patience_seconds):
                    raise OverloadedError(_busy(renewal.name))
        for error in renewal.errors:
            raise error

    @contextmanager
    def place(self, collection_id: int, name: str) -> Iterator[None]:
        """Be one of the few requests that wait for a collection; raises OverloadedError."""
        with self._lock:
            if self._waiting[collection_id] >= self._of_one or self._waiting.total() >= self._most_waiting:
                raise OverloadedError(_busy(name))
            self._waiting[collection_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[collection_id] -= 1
                if not self._waiting[collection_id]:
                    del self._waiting[collection_id]

    def _run(self, renewal: Renewal) -> None:
        try:
            self._renew(renewal)
        except ServiceError as error:
            renewal.errors.append(error)
        except Exception as error:
            _logger.exception("%s: could not be brought up to date", renewal.name)
            renewal.errors.append(error)
        finally:
            with self._lock:
                del self._open[renewal.collection_id]
            renewal.done.set()


def _busy(name: str) -> str:
    return f"collection {name!r} is being brought up to date"
