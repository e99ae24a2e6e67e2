"""Bringing collections up to date in the background, in steps that leave the interpreter to others.

How long a renewal takes shows only while it works. Each begins among the quick ones; what has taken more than
a second goes on among the long ones, which take turns step by step, and never keeps a quick one waiting. Only
so many long ones are open at once; one more begins anew when another has ended, so that the quick ones keep
their places. A collection is renewed once at a time; whoever needs the result waits for it, and bounds keep
those who wait few.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.errors import OverloadedError, ServiceError
from app.services.serving.turns import Turns

Aside = Callable[[], AbstractContextManager[None]]
"""Opened around a wait: lets others have what the waiting request holds, such as its place in a queue."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.0005, 0.05
_LEISURE = 3.0
"""How many times as long as it worked a step rests that is not urgent."""
_QUICK_SECONDS = 1.0
"""As long may the steps of a renewal take, and their pauses, before it is a long one."""
_MOST_QUICK, _MOST_LONG = 2, 4
"""Renewals under way at once; each has a thread, and a transaction that reads."""
MOST_OPEN = _MOST_QUICK + _MOST_LONG
THREAD_NAME = "renew"
_Entry = TypeVar("_Entry")
_logger = logging.getLogger(__name__)


def no_pause() -> None:
    """Go on at once."""


def in_steps(
    entries: Iterable[_Entry], size: int, weigh: Callable[[_Entry], int] | None = None, weight: int = 0
) -> Iterator[list[_Entry]]:
    """Yield entries in lists.

    Parameters
    ----------
    entries : iterable
        In their order.
    size : int
        How many are in a list; the last one may be shorter.
    weigh : callable, optional
        Returns what an entry weighs. A list that has reached `weight` ends.
    weight : int
        See `weigh`.
    """
    step: list[_Entry] = []
    total = 0
    for entry in entries:
        step.append(entry)
        total += 0 if weigh is None else weigh(entry)
        if len(step) == size or (weigh is not None and total >= weight):
            yield step
            step, total = [], 0
    if step:
        yield step


class Pace:
    """Makes a thread sleep between its steps for as long as it computed.

    Python runs one thread at a time. Whoever computes without a break takes half of it from those who
    answer, and each of their many short waits costs them a switch of threads.

    Parameters
    ----------
    is_urgent : callable
        Asked at the end of each step: what is not leaves three times as much to the others.
    """

    def __init__(self, is_urgent: Callable[[], bool]) -> None:
        self._is_urgent = is_urgent
        self._since = time.thread_time()

    def __call__(self) -> None:
        """End a step."""
        worked = min(max(time.thread_time() - self._since, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        time.sleep(worked * (1.0 if self._is_urgent() else _LEISURE))
        self._since = time.thread_time()


@dataclass(slots=True, eq=False)
class Renewal:
    """One renewal of a collection, asked for or running.

    Parameters
    ----------
    collection_id : int
        Identity of the collection.
    name : str
        Its name.
    is_long : bool
        Whether it is known to take long.
    """

    collection_id: int
    name: str
    is_long: bool
    done: threading.Event = field(default_factory=threading.Event)
    errors: list[Exception] = field(default_factory=list)


class PutBackError(Exception):
    """Ends a renewal that takes long while too many others do; it begins anew later."""


class _Steps:
    """The turns of one renewal under way; called at the end of each step."""

    def __init__(self, renewal: Renewal, quick: Turns, long: Turns, may_go_on: Callable[[], bool]) -> None:
        self._renewal = renewal
        self._quick, self._long = quick, long
        self._may_go_on = may_go_on
        self._worked_seconds = 0.0
        self._present: Turns | None = None
        self._since = 0.0

    def __enter__(self) -> _Steps:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self._present is not None:
            self._present.give_up()

    def __call__(self) -> None:
        """Let others have their turns; raises PutBackError."""
        assert self._present is not None
        self._present.give_up()
        self._present = None
        self._worked_seconds += time.monotonic() - self._since
        if not self._renewal.is_long and self._worked_seconds > _QUICK_SECONDS:
            self._renewal.is_long = True
            if not self._may_go_on():
                raise PutBackError
        self._begin()

    def _begin(self) -> None:
        turns = self._long if self._renewal.is_long else self._quick
        turns.take(self)
        self._present = turns
        self._since = time.monotonic()


class Renewals:
    """The renewals of one process.

    Parameters
    ----------
    run : callable
        Renews a collection, and calls what it is given after each step of the work; what it raises is told
        to those who wait.
    most_waiting, of_one : int
        How many requests wait at once, and how many of them for the same collection.
    patience_seconds : float
        How long a request waits.
    """

    def __init__(
        self,
        run: Callable[[Renewal, Callable[[], None]], None],
        most_waiting: int,
        of_one: int,
        patience_seconds: float,
    ) -> None:
        self._renew = run
        self._quick, self._long = Turns(), Turns()
        self._open: dict[int, Renewal] = {}
        self._fresh: deque[Renewal] = deque()
        self._put_back: deque[Renewal] = deque()
        """Those known to take long that have no thread."""
        self._under_way: set[Renewal] = set()
        self._most_waiting = most_waiting
        self._of_one = of_one
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._waiting: Counter[int] = Counter()

    def ask(self, collection_id: int, name: str, is_long: bool = False) -> Renewal:
        """Have a collection renewed; returns the renewal that is open already, if there is one.

        Parameters
        ----------
        collection_id, name, is_long
            As of `Renewal`.
        """
        with self._lock:
            found = self._open.get(collection_id)
            if found is None:
                found = self._open[collection_id] = Renewal(collection_id, name, is_long)
                (self._put_back if is_long else self._fresh).append(found)
                self._start_some()
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
        with ExitStack() as until_waited:
            if aside is not None:
                if not self.has_place(renewal.collection_id, until_waited):
                    raise OverloadedError(_busy(renewal.name))
                until_waited.enter_context(aside())
            if not renewal.done.wait(None if aside is None else self._patience_seconds):
                raise OverloadedError(_busy(renewal.name))
        for error in renewal.errors:
            raise error

    def ends_well(self, renewal: Renewal, aside: Aside | None, seconds: float) -> bool:
        """Wait for a renewal that a request could do without; return whether it ended well and in time.

        Parameters
        ----------
        renewal, aside
            As of `wait`.
        seconds : float
            How long a request waits.
        """
        with ExitStack() as until_waited:
            if aside is not None:
                if not self.has_place(renewal.collection_id, until_waited):
                    return False
                until_waited.enter_context(aside())
            return renewal.done.wait(None if aside is None else seconds) and not renewal.errors

    def has_place(self, collection_id: int, until_waited: ExitStack) -> bool:
        """Become one of the few requests that wait aside for a collection, until a stack is closed.

        Returns whether there was room.
        """
        with self._lock:
            if self._waiting[collection_id] >= self._of_one or self._waiting.total() >= self._most_waiting:
                return False
            self._waiting[collection_id] += 1
        until_waited.callback(self._leave_place, collection_id)
        return True

    @property
    def are_awaited(self) -> bool:
        """Whether a request waits aside: for any of them, since they take turns."""
        return bool(self._waiting)

    def _leave_place(self, collection_id: int) -> None:
        with self._lock:
            self._waiting[collection_id] -= 1
            if not self._waiting[collection_id]:
                del self._waiting[collection_id]

    def _start_some(self) -> None:
        """Start what there is room for; under the lock."""
        while (renewal := self._next()) is not None:
            self._under_way.add(renewal)
            try:
                threading.Thread(target=self._run, args=(renewal,), name=THREAD_NAME, daemon=True).start()
            except RuntimeError as error:  # the system gives no thread: whoever asks next tries again
                _logger.error("%s: could not be brought up to date: %s", renewal.name, error)
                self._under_way.discard(renewal)
                renewal.errors.append(OverloadedError(_busy(renewal.name)))
                self._close(renewal)

    def _next(self) -> Renewal | None:
        if self._put_back and self._long_under_way() < _MOST_LONG:
            return self._put_back.popleft()
        if self._fresh and len(self._under_way) - self._long_under_way() < _MOST_QUICK:
            return self._fresh.popleft()
        return None

    def _long_under_way(self) -> int:
        return sum(renewal.is_long for renewal in self._under_way)

    def _may_go_on(self) -> bool:
        """Return whether a renewal that has just proved to be long may stay."""
        with self._lock:
            is_one_too_many = self._long_under_way() > _MOST_LONG
            if not is_one_too_many:
                self._start_some()
            return not is_one_too_many

    def _run(self, renewal: Renewal) -> None:
        is_put_back = False
        try:
            with _Steps(renewal, self._quick, self._long, self._may_go_on) as end_step:
                self._renew(renewal, end_step)
        except PutBackError:
            is_put_back = True
        except ServiceError as error:
            renewal.errors.append(error)
        except Exception as error:
            _logger.exception("%s: could not be brought up to date", renewal.name)
            renewal.errors.append(error)
        finally:
            with self._lock:
                self._under_way.discard(renewal)
                if is_put_back:
                    self._put_back.append(renewal)
                else:
                    self._close(renewal)
                self._start_some()

    def _close(self, renewal: Renewal) -> None:
        del self._open[renewal.collection_id]
        renewal.done.set()


def _busy(name: str) -> str:
    return f"collection {name!r} is being brought up to date"
