"""Work beside searches: reloads and columns that searches wait for, a few at a time and fairly."""
# How long a reload takes shows only while it runs. Each starts among the quick ones; one that has run for
# more than a second continues among the long ones, which take turns step by step and never delay a quick one.
# The number of long ones is bounded; a further one is requeued, and starts over when another has ended, so
# that the quick ones keep their threads. A collection has at most one reload at a time, and every request
# that needs its result waits for it.
#
# Bounds on the requests that wait (a bulkhead): without them, those for a few collections that are being
# loaded would hold every thread of the service.

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from app.domain.entities import Collection
from app.domain.errors import ServiceError, UnavailableError, overload
from app.services.serving.galleries import Gallery
from app.services.serving.item_columns import ROWS_READ_BY_A_SEARCH, ColumnNames
from app.services.serving.segments import Segment
from app.services.storage.pacing import MAX_LONG, MAX_QUICK, Pacer

ReleaseSlot = Callable[[], AbstractContextManager[None]]
"""Opened around a wait: gives the waiting request's concurrency slot to others meanwhile."""
MAX_WAITING = 32
"""Requests that wait at the same time; each holds a thread beyond those of the concurrency limits."""
MAX_WAITING_PER_COLLECTION = 8
"""So that four collections being loaded can have waiting requests before others are turned away."""
MAX_WAIT_SECONDS = 30.0
"""Longest wait of a request: within the usual time limits of proxies and clients, which are a minute."""
_QUICK_SECONDS = 1.0  # a reload whose steps and pauses have taken longer than this is a long one
THREAD_NAME = "reload"
_logger = logging.getLogger(__name__)
Needs = Iterable[tuple[Gallery, ColumnNames]]
"""Galleries, and the columns of each that a search compares."""
_Due = TypeVar("_Due", bound=Hashable)


@dataclass(slots=True, eq=False)
class WaitingRoom:
    """Admits a bounded number of waiting requests, in all and of one collection, each for a bounded time."""

    capacity: int = MAX_WAITING
    capacity_per_collection: int = MAX_WAITING_PER_COLLECTION
    max_wait_seconds: float = MAX_WAIT_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _waiting: Counter[int] = field(default_factory=Counter, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._waiting

    def try_enter(self, collection_id: int, until_left: ExitStack) -> bool:
        """Admit a request unless the room is full, and return whether; it leaves when the stack is closed."""
        with self._lock:
            if (
                self._waiting[collection_id] >= self.capacity_per_collection
                or self._waiting.total() >= self.capacity
            ):
                return False
            self._waiting[collection_id] += 1
        until_left.callback(self._leave, collection_id)
        return True

    def _leave(self, collection_id: int) -> None:
        with self._lock:
            self._waiting[collection_id] -= 1
            if not self._waiting[collection_id]:
                del self._waiting[collection_id]


class FairLock:
    """A lock handed out in the order of requests: a thread that releases it and asks again goes last."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()  # the owner of the lock, followed by those waiting for it

    def acquire(self, owner: object) -> None:
        """Wait until the lock is this owner's."""
        with self._changed:
            self._queue.append(owner)
            self._changed.wait_for(lambda: self._queue[0] is owner)

    def release(self) -> None:
        """Pass the lock on to the next in line."""
        with self._changed:
            self._queue.popleft()
            self._changed.notify_all()


@dataclass(slots=True, eq=False)
class Reload:
    """A requested or running reload of one collection."""

    collection_id: int
    name: str
    is_long: bool  # known to take long
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None  # what it raised


class RequeuedError(Exception):
    """Ends a reload that turned out to be long while too many others are; it starts over later."""


@dataclass(slots=True, eq=False)
class _Turns:
    """The turns of one running reload; called at the end of each step."""

    reload: Reload
    quick: FairLock
    long: FairLock
    may_stay_long: Callable[[], bool]
    worked_seconds: float = 0.0
    lock: FairLock | None = None
    turn_began: float = 0.0

    def __enter__(self) -> _Turns:
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock is not None:
            self.lock.release()

    def __call__(self) -> None:
        """Let others have their turns; raises RequeuedError."""
        if self.lock is None:  # outside
            return
        self._end()
        if self.worked_seconds > _QUICK_SECONDS:
            self._become_long()
        self._take()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leave all turns to others; as of `outside_turns`."""
        self._end()
        self._become_long()
        try:
            yield
        finally:
            self._take()

    def _end(self) -> None:
        assert self.lock is not None
        self.lock.release()
        self.lock = None
        self.worked_seconds += time.monotonic() - self.turn_began

    def _become_long(self) -> None:
        if not self.reload.is_long:
            self.reload.is_long = True
            if not self.may_stay_long():
                raise RequeuedError

    def _take(self) -> None:
        lock = self.long if self.reload.is_long else self.quick
        lock.acquire(self)
        self.lock = lock
        self.turn_began = time.monotonic()


_TURNS: ContextVar[_Turns | None] = ContextVar("turns", default=None)  # of the reload that this thread runs


def outside_turns() -> AbstractContextManager[None]:
    """Return a context for what another program does, which may take long: other reloads go on meanwhile;
    else it does nothing. Raises RequeuedError on entering, where too many reloads take long already."""
    turns = _TURNS.get()
    return nullcontext() if turns is None else turns.outside()


@dataclass(eq=False)
class ReloadScheduler:
    """Runs the reloads of one process; `phrase` says what happens to a collection, if a request is refused.
    `run` calls its second argument after each step; what it raises is raised in the requests that wait."""

    _run: Callable[[Reload, Callable[[], None]], None]
    _waiting_room: WaitingRoom
    _phrase: str = "is being brought up to date"
    _quick: FairLock = field(default_factory=FairLock, init=False)
    _long: FairLock = field(default_factory=FairLock, init=False)
    _open: dict[int, Reload] = field(default_factory=dict, init=False)  # queued or running, by collection
    _quick_queue: deque[Reload] = field(default_factory=deque, init=False)
    _long_queue: deque[Reload] = field(default_factory=deque, init=False)  # those known to take long
    _running: set[Reload] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def request(self, collection_id: int, name: str, is_long: bool = False) -> Reload:
        """Return the queued or running reload of a collection, or queue one (`is_long` if that is known)."""
        with self._lock:
            reload = self._open.get(collection_id)
            if reload is None:
                reload = self._open[collection_id] = Reload(collection_id, name, is_long)
                (self._long_queue if is_long else self._quick_queue).append(reload)
                self._start_queued()
            return reload

    def is_long(self, collection_id: int) -> bool:
        """Return whether a reload of a collection is queued or running that takes long."""
        reload = self._open.get(collection_id)
        return reload is not None and reload.is_long

    def wait(self, reload: Reload, release_slot: ReleaseSlot | None) -> None:
        """Wait for a reload, and raise what it raised; as of `wait_for`.
        Raises UnavailableError if too many requests wait already, or this one waited too long."""
        if not self.wait_for(reload, release_slot, self._waiting_room.max_wait_seconds):
            raise self._make_refusal(reload)
        if reload.error is not None:
            raise reload.error

    def wait_for(self, reload: Reload, release_slot: ReleaseSlot | None, seconds: float) -> bool:
        """Wait for the end of a reload; return whether it came in time. A request, which gives its slot away
        (`release_slot`), waits for these seconds at most, and not at all where too many wait already."""
        with ExitStack() as until_left:
            if release_slot is not None:
                if not self._waiting_room.try_enter(reload.collection_id, until_left):
                    return False
                until_left.enter_context(release_slot())
            return reload.done.wait(None if release_slot is None else seconds)

    def _start_queued(self) -> None:
        """Start as many reloads as there is room for; under the lock."""
        while (reload := self._pop_startable()) is not None:
            self._running.add(reload)
            try:
                threading.Thread(
                    target=self._run_in_turns, args=(reload,), name=THREAD_NAME, daemon=True
                ).start()
            except RuntimeError as error:  # the system has no thread left: the next request tries again
                _logger.error("%s: could not start a reload: %s", reload.name, error)
                self._running.discard(reload)
                reload.error = self._make_refusal(reload)
                self._close(reload)

    def _pop_startable(self) -> Reload | None:
        n_long = self._count_long()
        if self._long_queue and n_long < MAX_LONG:
            return self._long_queue.popleft()
        if self._quick_queue and len(self._running) - n_long < MAX_QUICK:
            return self._quick_queue.popleft()
        return None

    def _count_long(self) -> int:
        return sum(reload.is_long for reload in self._running)

    def _may_stay_long(self) -> bool:
        """Return whether a reload that has just turned out to be long may go on."""
        with self._lock:
            is_one_too_many = self._count_long() > MAX_LONG
            if not is_one_too_many:
                self._start_queued()
            return not is_one_too_many

    def _run_in_turns(self, reload: Reload) -> None:
        is_requeued = False
        try:
            with _Turns(reload, self._quick, self._long, self._may_stay_long) as end_step:
                _TURNS.set(end_step)
                self._run(reload, end_step)
        except RequeuedError:
            is_requeued = True
        except ServiceError as error:
            reload.error = error
        except Exception as error:
            _logger.exception("%s: reload failed", reload.name)
            reload.error = error
        finally:
            with self._lock:
                self._running.discard(reload)
                if is_requeued:
                    self._long_queue.append(reload)
                else:
                    self._close(reload)
                self._start_queued()

    def _close(self, reload: Reload) -> None:
        del self._open[reload.collection_id]
        reload.done.set()

    def _make_refusal(self, reload: Reload) -> UnavailableError:
        return overload(f"collection {reload.name!r} {self._phrase}")


class ColumnReader:
    """Reads columns that filters need (1 s per million items), of several collections in turns, while their
    searches wait."""

    # A search that read one itself would hold a thread and a database connection, and with several of them
    # all others would be turned away.

    def __init__(self, waiting_room: WaitingRoom, is_searched: Callable[[], bool]) -> None:
        self._is_searched = is_searched
        self._scheduler = ReloadScheduler(self._read, waiting_room, "is being made ready for this filter")
        self._lock = threading.Lock()
        self._wanted: dict[int, dict[Segment, ColumnNames]] = {}  # by collection

    @staticmethod
    def is_ready(needs: Needs) -> bool:
        """Return whether a search may go on, and read itself what is missing."""
        return sum(gallery.rows_to_read(names) for gallery, names in needs) <= ROWS_READ_BY_A_SEARCH

    def wait(self, collection: Collection, needs: Needs, release_slot: ReleaseSlot | None) -> None:
        """Have columns read, and wait for them; `release_slot` as of `ReloadScheduler.wait`.
        Raises UnavailableError if too many wait already, or this one waited too long; the reading goes on."""
        with self._lock:
            columns = self._wanted.setdefault(collection.id, {})
            for gallery, names in needs:
                for segment in gallery.unread_segments(names):
                    columns[segment] = columns.get(segment, ColumnNames()) | names
        reload = self._scheduler.request(collection.id, collection.name, is_long=True)
        self._scheduler.wait(reload, release_slot)

    def _read(self, reload: Reload, end_step: Callable[[], None]) -> None:
        pace = Pacer(lambda: True, lambda: not self._is_searched())

        def pause() -> None:
            pace()
            end_step()

        while columns := self._take(reload.collection_id):
            for segment, names in columns.items():
                segment.columns.read(names, pause)

    def _take(self, collection_id: int) -> dict[Segment, ColumnNames]:
        with self._lock:
            return self._wanted.pop(collection_id, {})


@dataclass(slots=True, eq=False)
class Background(Generic[_Due]):
    """Works in a thread of its own, one thing after another, none of which waits twice; it ends when nothing
    is due. `complaint` is logged where no thread can be had: the next request tries again."""

    work: Callable[[_Due], None]
    thread_name: str
    complaint: str
    _due: dict[_Due, None] = field(default_factory=dict, init=False)  # in the order of the requests
    _is_running: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)  # held to change these two

    def request(self, due: _Due) -> None:
        """Have something done after what was requested before; waits for nothing."""
        with self._lock:
            self._due[due] = None
            if self._is_running:
                return
            try:
                threading.Thread(target=self._run, name=self.thread_name, daemon=True).start()
                self._is_running = True
            except RuntimeError as error:  # the system has no thread left
                _logger.warning("%s: %s", self.complaint, error)

    def _run(self) -> None:
        while True:
            with self._lock:
                due = next(iter(self._due), None)
                if due is None:
                    self._is_running = False
                    return
                del self._due[due]
            try:
                self.work(due)
            except Exception:
                _logger.exception("%s", self.complaint)
