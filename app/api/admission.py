"""Admission: the workload of each request, the fair queue of each workload, and a request's place in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, TypeVar

import anyio
from anyio import from_thread, to_thread
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.routing import compile_path
from starlette.types import Scope

from app.domain.entities import ApiKey
from app.domain.errors import UnavailableError, overload
from app.domain.names import Scope as KeyScope
from app.services.access import AccessService

# The workload follows from the method, except for the routes marked with `works_as`. Paths contain ids and
# names that clients choose, so each is matched as a whole, against the pattern of the marked route.
_WORK = "/v1/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_COLLECTION = re.compile("/v1/(?:admin/)?collections/([^/]+)")
_MARK = "workload"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


Workload = Literal["read", "import", "events"]
"""A kind of work with limits of its own. "read" includes searches; "import" holds no more than a piece of its
body in memory, and limits the body itself, exports are as long; "events" lasts as long as the job."""


def works_as(workload: Workload) -> Callable[[_Endpoint], _Endpoint]:
    """Mark the endpoint of a route whose workload does not follow from its method."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _MARK, workload)
        return endpoint

    return mark


def collection_of(scope: Scope) -> str:
    """Return the name of the collection in a request's path; empty when it names none."""
    match = _COLLECTION.match(get_route_path(scope))
    return "" if match is None else match[1]


# A fixed number of requests run, a fixed number wait, and the rest is rejected immediately. Free places go to
# the collections in turn (round robin), and within a collection to its callers in turn. A request that
# arrives when the queue is full is rejected, unless another collection (or, within the collection, another
# caller) has at least two more waiting: then the last of those is rejected instead (longest queue drop;
# Suter, Lakshman, Stiliadis and Choudhury, INFOCOM 1998).
#
# AnyIO's `CapacityLimiter` bounds what runs, but its queue is neither bounded nor fair between callers.

OnChange = Callable[["ConcurrencyLimiter"], None]
_Key = TypeVar("_Key", bound=Hashable)


def _ignore(_: ConcurrencyLimiter) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a place."""

    collection: str = ""  # empty for none
    caller: str = ""  # the id of its key, or its address

    @property
    def parties(self) -> tuple[Hashable, Hashable]:
        """Those who take turns: the collections, and the callers of each."""
        return self.collection, (self.collection, self.caller)


@dataclass(eq=False, slots=True)
class _Waiter:
    asker: Asker
    is_admitted: bool = False
    decided: anyio.Event | None = None

    def decide(self, is_admitted: bool) -> None:
        """Admit or reject it."""
        self.is_admitted = is_admitted
        if self.decided is not None:
            self.decided.set()


class ConcurrencyLimiter:
    """Places for requests of one workload, held until an answer begins (`whole`: until its end), and their
    queue. A caller's request beyond `of_caller` is rejected; a collection's beyond `of_collection` waits."""

    def __init__(
        self,
        name: str,
        running: int,
        waiting: int,
        whole: bool = False,
        of_caller: int | None = None,
        of_collection: int | None = None,
    ) -> None:
        self.name = name
        self.whole = whole
        self.running = 0
        self.on_change: OnChange = _ignore
        self.on_refusal: OnChange = _ignore
        self._max_running = running
        self._max_waiting = waiting
        self._of_caller = of_caller
        self._of_collection = running if of_collection is None else of_collection
        self._queue: list[_Waiter] = []
        self._callers: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._present: Counter[Hashable] = Counter()
        self._last_turns: dict[Hashable, int] = {}
        self._turns = count(1)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue)

    def check(self, asker: Asker) -> None:
        """Raise UnavailableError if there is no room, or none for this caller."""
        self._find_room(asker)

    async def enter(self, asker: Asker) -> None:
        """Wait for a place; raises UnavailableError if there is no room to wait, or no longer."""
        dropped = self._find_room(asker)
        if dropped is not None:
            self._queue.remove(dropped)
            dropped.decide(False)
        # A party's first request waits for one turn of each other party, not for all that arrives meanwhile.
        for party in asker.parties:
            self._last_turns.setdefault(party, next(self._turns))
        waiter = _Waiter(asker)
        self._queue.append(waiter)
        self._callers[asker.caller] += 1
        self._present.update(asker.parties)
        self._admit()
        if waiter.is_admitted:
            return
        waiter.decided = anyio.Event()
        try:
            await waiter.decided.wait()
            if not waiter.is_admitted:
                raise self._refusal()
        except BaseException:
            if waiter.is_admitted:
                self.leave(asker)
            else:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._forget(asker)
                self.on_change(self)
            raise

    def leave(self, asker: Asker) -> None:
        """Give a place back."""
        self.running -= 1
        _decrease(self._working, asker.collection)
        self._forget(asker)
        self._admit()

    def _admit(self) -> None:
        while self.running < self._max_running:
            candidates = [waiter for waiter in self._queue if self._may_work(waiter.asker)]
            if not candidates:
                break
            turns = self._last_turns
            first = min(candidates, key=lambda waiter: [turns[party] for party in waiter.asker.parties])
            self._queue.remove(first)
            self.running += 1
            self._working[first.asker.collection] += 1
            self._last_turns.update(dict.fromkeys(first.asker.parties, next(self._turns)))
            first.decide(True)
        self.on_change(self)

    def _find_room(self, asker: Asker) -> _Waiter | None:
        """Return who must leave the queue for this asker; None if none must."""
        if self._of_caller is not None and self._callers[asker.caller] >= self._of_caller:
            raise self._refusal(f"{self._of_caller} requests of this kind by the same caller are running")
        if len(self._queue) < self._max_waiting:
            return None
        if self.running < self._max_running and self._may_work(asker):
            return None
        of_collection = [waiter for waiter in self._queue if waiter.asker.collection == asker.collection]
        for queue, level in ((self._queue, 0), (of_collection, 1)):
            lengths = Counter(waiter.asker.parties[level] for waiter in queue)
            for party, length in lengths.most_common(1):
                if length > lengths[asker.parties[level]] + 1:
                    return next(w for w in reversed(queue) if w.asker.parties[level] == party)
        raise self._refusal()

    def _may_work(self, asker: Asker) -> bool:
        return not asker.collection or self._working[asker.collection] < self._of_collection

    def _refusal(self, reason: str | None = None) -> UnavailableError:
        self.on_refusal(self)
        return overload() if reason is None else overload(reason)

    def _forget(self, asker: Asker) -> None:
        _decrease(self._callers, asker.caller)
        for party in asker.parties:
            _decrease(self._present, party)
            if party not in self._present:
                self._last_turns.pop(party, None)


def _decrease(counter: Counter[_Key], key: _Key) -> None:
    """Subtract one, and forget a key at zero."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


# Searches and reads share one limiter and writes have another, so that neither can keep the other out. A
# request is queued once its key is checked, and takes its place when its body is complete, so that callers
# without a key and slow senders hold no place. Streams (imports, job events) do not queue, and hold their
# place for as long as they last. No collection gets all places for searches, reads, writes or imports, and no
# key those for imports or events, so that a slow one cannot block the others. Keys that this process never
# found valid are looked up under a limiter of their own.

PLACE = "place"  # of the state of a request
_UNKNOWN = "/"  # no collection can have this name
_MAX_KNOWN = 10_000  # collections remembered as existing; bounds the memory that names in paths can take
_RUNNING_KEY_CHECKS, _WAITING_KEY_CHECKS, _KEY_CHECKS_OF_ADDRESS = 2, 62, 32
"""Look-ups of unknown keys; each takes a fraction of a millisecond. One address gets half of the places."""


class ConcurrencyLimits:
    """The limiters of an application of some routes: most running and most queued searches and reads, as many
    writes, most open streams."""

    def __init__(self, routers: Iterable[APIRouter], running: int, waiting: int, streams: int) -> None:
        all_but_one = max(running - 1, 1)
        self.reads = ConcurrencyLimiter("read", running, waiting, of_collection=all_but_one)
        self.writes = ConcurrencyLimiter("write", running, waiting, of_collection=all_but_one)
        self.imports = ConcurrencyLimiter(
            "import", running, 0, whole=True, of_caller=all_but_one, of_collection=all_but_one
        )
        self.events = ConcurrencyLimiter("events", streams, 0, whole=True, of_caller=max(streams // 2, 1))
        self.keys = ConcurrencyLimiter(
            "keys", _RUNNING_KEY_CHECKS, _WAITING_KEY_CHECKS, of_caller=_KEY_CHECKS_OF_ADDRESS
        )
        by_workload = {limiter.name: limiter for limiter in (self.reads, self.imports, self.events)}
        self._marked: list[tuple[Set[str], re.Pattern[str], ConcurrencyLimiter]] = [
            (route.methods or frozenset(), compile_path(route.path)[0], by_workload[workload])
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and (workload := getattr(route.endpoint, _MARK, None))
        ]
        self.threads = 3 * running + streams
        """As many as all admitted requests can need together."""
        self._known: dict[str, None] = {}

    def watch(self, on_change: OnChange, on_refusal: OnChange) -> None:
        """Register observers of changes in a queue and of rejected requests."""
        for limiter in (self.reads, self.writes, self.imports, self.events, self.keys):
            limiter.on_change, limiter.on_refusal = on_change, on_refusal

    def party_of(self, name: str) -> str:
        """Return the collection whose turn a request takes; all names without a success so far share one.
        Otherwise a caller could get more turns by inventing names."""
        return name if not name or name in self._known else _UNKNOWN

    def learn(self, name: str, status: int) -> None:
        """Remember the collection of a request that succeeded."""
        if name and status < 300:
            self._known.pop(name, None)
            self._known[name] = None
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]  # set longest ago

    def of(self, scope: Scope) -> ConcurrencyLimiter | None:
        """Return the limiter of a request; None for what is not limited, such as probes and pages."""
        path = get_route_path(scope)
        if not path.startswith(_WORK):
            return None
        for methods, pattern, limiter in self._marked:
            if scope["method"] in methods and pattern.match(path):
                return limiter
        return self.reads if scope["method"] in _READING else self.writes


class Place:
    """A request's place in its limiter, which it takes once it is admitted."""

    def __init__(self, limiter: ConcurrencyLimiter, collection: str, has_body: bool) -> None:
        self._limiter = limiter
        self._has_body = has_body
        self._asker = Asker(collection)
        self._is_taken = False
        self.is_deferred = False
        """Whether the route takes the place, rather than the end of the body."""

    async def admit(self, caller: str, reads_body: bool = False) -> None:
        """Take the place of a caller whose key was checked, or of an address; of one that `reads_body`, find
        out whether there will be one when that is complete. Raises UnavailableError."""
        self._asker = Asker(self._asker.collection, caller)
        if self._limiter.whole or not (reads_body and self._has_body):
            await self.take()
        elif not self.is_deferred:
            self._limiter.check(self._asker)

    async def take(self) -> None:
        """Wait for the place, unless it is taken; raises UnavailableError."""
        if not self._is_taken:
            await self._limiter.enter(self._asker)
            self._is_taken = True

    def give_back(self) -> None:
        """Give the place to others, if it is taken."""
        if self._is_taken:
            self._is_taken = False
            self._limiter.leave(self._asker)


CURRENT_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def aside() -> Iterator[None]:
    """Lend the current request's place to others while its thread waits, then queue for one again."""
    place = CURRENT_PLACE.get()
    if place is None:
        yield
        return
    from_thread.run_sync(place.give_back)
    yield
    from_thread.run(place.take)


def place_of(scope: Scope) -> Place:
    """Return the place of a request that was admitted, which its route may give back and take again."""
    place: Place = scope["state"][PLACE]
    return place


_KEY_THREADS = 6
"""For keys that were valid before; they are looked up after each commit, since they may have been revoked."""


class KeyChecks:
    """Checks keys in threads of its own; look-ups of keys that this process never found valid are limited, so
    that invented keys do not delay callers with valid ones."""

    def __init__(self, access: AccessService, strangers: ConcurrencyLimiter) -> None:
        self._access = access
        self._strangers = strangers
        self._threads = anyio.CapacityLimiter(_KEY_THREADS)
        self._strangers_threads = anyio.CapacityLimiter(_KEY_THREADS)  # `strangers` admits fewer

    async def require(self, secret: str | None, scope: KeyScope, address: str) -> ApiKey:
        """Return the key of a call that could not be recalled, as `AccessService.require` does; raises
        UnavailableError for too many unknown keys. No address may block all others whose key is unknown."""
        if not secret:
            return self._access.require(None, scope)
        if self._access.has_seen(secret):
            return await to_thread.run_sync(self._access.require, secret, scope, limiter=self._threads)
        asker = Asker(caller=address)
        await self._strangers.enter(asker)
        try:
            return await to_thread.run_sync(
                self._access.require, secret, scope, limiter=self._strangers_threads
            )
        finally:
            self._strangers.leave(asker)
