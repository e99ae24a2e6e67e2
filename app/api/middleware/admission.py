"""Admission control: bound the running and queued requests of each workload; reject the rest with 503."""
# Searches and reads share one limiter and writes have another, so that neither can keep the other out. A
# request is queued once its key is checked, and takes its place when its body is complete, so that callers
# without a key and slow senders hold no place. Streams (imports, job events) do not queue, and hold their
# place for as long as they last. No collection gets all places for searches, reads, writes or imports, and no
# key those for imports or events, so that a slow one cannot block the others. Keys that this process never
# found valid are looked up under a limiter of their own.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anyio import from_thread
from starlette.types import Scope

from app.api.middleware.queues import Asker, ConcurrencyLimiter, OnChange
from app.api.middleware.workload import Workload

_STATE = "place"
_UNKNOWN = "/"  # no collection can have this name
_MAX_KNOWN = 10_000  # collections remembered as existing; bounds the memory that names in paths can take
_RUNNING_KEY_CHECKS, _WAITING_KEY_CHECKS, _KEY_CHECKS_OF_ADDRESS = 2, 62, 32
"""Look-ups of unknown keys; each takes a fraction of a millisecond. One address gets half of the places."""


class ConcurrencyLimits:
    """The limiters of one application: most running and most queued searches and reads, as many writes, most
    open streams."""

    def __init__(self, running: int, waiting: int, streams: int) -> None:
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
        self._by_workload = {
            Workload.READ: self.reads,
            Workload.WRITE: self.writes,
            Workload.IMPORT: self.imports,
            Workload.EVENTS: self.events,
        }
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

    def of(self, workload: Workload | None) -> ConcurrencyLimiter | None:
        """Return the limiter of a workload; None for what is not limited, such as probes and pages."""
        return None if workload is None else self._by_workload[workload]


class Place:
    """A request's place in its limiter, which it takes once it is admitted."""

    def __init__(self, limiter: ConcurrencyLimiter, collection: str, has_body: bool) -> None:
        self._limiter = limiter
        self._has_body = has_body
        self._asker = Asker(collection)
        self._is_taken = False
        self.is_deferred = False
        """Whether the route takes the place, rather than the end of the body."""

    async def admit(self, caller: str, reads_body: bool) -> None:
        """Take the place, or find out whether there will be one when the body is complete."""
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


_CURRENT: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def aside() -> Iterator[None]:
    """Lend the current request's place to others while its thread waits, then queue for one again."""
    place = _CURRENT.get()
    if place is None:
        yield
        return
    from_thread.run_sync(place.give_back)
    yield
    from_thread.run(place.take)


def place_in(scope: Scope, limiter: ConcurrencyLimiter, collection: str, has_body: bool) -> Place:
    """Return the place of a request in a limiter, which `admit` takes."""
    place = scope["state"][_STATE] = Place(limiter, collection, has_body)
    _CURRENT.set(place)
    return place


async def admit(scope: Scope, caller: str, reads_body: bool = False) -> None:
    """Queue a request whose key was checked; raises UnavailableError when there is no room. The caller is the
    id of its key, or its address. Its place is taken when the body is complete (`reads_body`), or at once."""
    place: Place | None = scope.get("state", {}).get(_STATE)
    if place is not None:
        await place.admit(caller, reads_body)


def defer_place(scope: Scope) -> None:
    """Let the route of a request take its place with `take_place`, if it needs one."""
    scope["state"][_STATE].is_deferred = True


async def take_place(scope: Scope) -> None:
    """Wait for the place of a request that was admitted; raises UnavailableError."""
    place: Place = scope["state"][_STATE]
    await place.take()


def give_back_place(scope: Scope) -> None:
    """Give the place of a request to others; `take_place` waits for another one."""
    place: Place = scope["state"][_STATE]
    place.give_back()
