"""Admission control: bound the running and queued requests of each workload; reject the rest with 503.

Searches and reads share one limiter and writes have another, so that neither can keep the other out. A
request is queued once its key is checked, and takes its place when its body is complete, so that callers
without a key and slow senders hold no place. Streams (imports, job events) do not queue, and hold their place
for as long as they last. No collection gets all places for searches, reads, writes or imports, and no key
those for imports or events, so that a slow one cannot block the others. Keys that this process never found
valid are looked up under a limiter of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anyio import from_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.queues import Asker, ConcurrencyLimiter, OnChange, Ride
from app.api.middleware.workload import Workload, Workloads, collection_of
from app.api.newest import set_newest
from app.domain.cores import usable_cores

_STATE = "place"
_UNKNOWN = "/"
"""No collection can have this name."""
_MAX_KNOWN = 10_000
"""Collections remembered as existing; bounds the memory that names in paths can take."""
_RUNNING_KEY_CHECKS, _WAITING_KEY_CHECKS, _KEY_CHECKS_OF_ADDRESS = 2, 62, 32
"""Look-ups of unknown keys; each takes a fraction of a millisecond. One address gets half of the places."""


class ConcurrencyLimits:
    """The limiters of one application.

    Parameters
    ----------
    running, waiting : int
        Most running and most queued searches and reads, and as many writes.
    streams : int
        Most open event streams.
    workloads : Workloads
        Classifies requests.
    """

    def __init__(self, running: int, waiting: int, streams: int, workloads: Workloads) -> None:
        all_but_one = max(running - 1, 1)
        # One core is left for the event loop.
        rides = min(max(usable_cores() - 1, 1), all_but_one)
        self.reads = ConcurrencyLimiter(
            "read", running, waiting, of_collection=all_but_one, rides_of_group=rides
        )
        self.writes = ConcurrencyLimiter("write", running, waiting, of_collection=all_but_one)
        self.imports = ConcurrencyLimiter(
            "import", running, 0, whole=True, of_caller=all_but_one, of_collection=all_but_one
        )
        self.events = ConcurrencyLimiter("events", streams, 0, whole=True, of_caller=max(streams // 2, 1))
        self.keys = ConcurrencyLimiter(
            "keys", _RUNNING_KEY_CHECKS, _WAITING_KEY_CHECKS, of_caller=_KEY_CHECKS_OF_ADDRESS
        )
        self._workloads = workloads
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

    def known_collection_of(self, scope: Scope) -> str:
        """Return the collection whose turn a request takes; all names without a success so far share one.

        Otherwise a caller could get more turns by inventing names.
        """
        name = collection_of(scope)
        return name if not name or name in self._known else _UNKNOWN

    def learn(self, scope: Scope, status: int) -> None:
        """Remember the collection of a request that succeeded."""
        name = collection_of(scope)
        if name and status < 300:
            set_newest(self._known, name, None, _MAX_KNOWN)

    def of(self, scope: Scope) -> ConcurrencyLimiter | None:
        """Return the limiter of a request; None for what is not limited, such as probes and pages."""
        workload = self._workloads.of(scope)
        return None if workload is None else self._by_workload[workload]


class _Place:
    def __init__(self, limiter: ConcurrencyLimiter, collection: str, has_body: bool) -> None:
        self._limiter = limiter
        self._has_body = has_body
        self._asker = Asker(collection)
        self._ride: Ride | None = None
        self.is_deferred = False
        """Whether the route takes the place, rather than the end of the body."""

    async def admit(self, caller: str, reads_body: bool) -> None:
        self._asker = Asker(self._asker.collection, caller)
        if self._limiter.whole or not (reads_body and self._has_body):
            await self.take()
        else:
            self._limiter.check(self._asker)

    async def take(self, group: Hashable | None = None) -> Ride:
        if self._ride is None:
            self._ride = await self._limiter.enter(self._asker, group)
        return self._ride

    def give_back(self) -> None:
        ride, self._ride = self._ride, None
        if ride is not None:
            self._limiter.leave(self._asker, ride)


_CURRENT: ContextVar[_Place | None] = ContextVar("place", default=None)


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


class AdmissionMiddleware:
    """ASGI middleware that prepares each request's place in its limiter; `admit` then takes it.

    Parameters
    ----------
    app : callable
        The wrapped application.
    concurrency : ConcurrencyLimits
        The limiters.
    """

    def __init__(self, app: ASGIApp, concurrency: ConcurrencyLimits) -> None:
        self._app = app
        self._concurrency = concurrency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        limiter = self._concurrency.of(scope) if scope["type"] == "http" else None
        if limiter is None:
            await self._app(scope, receive, send)
            return
        place = scope.setdefault("state", {})[_STATE] = _Place(
            limiter, self._concurrency.known_collection_of(scope), _has_body(scope)
        )
        _CURRENT.set(place)

        async def receive_and_enter() -> Message:
            message = await receive()
            is_last = message["type"] == "http.request" and not message.get("more_body", False)
            if is_last and not place.is_deferred:
                await place.take()
            return message

        async def send_and_leave(message: Message) -> None:
            # After a rejection only the unread rest of a body may follow.
            if message["type"] == "http.response.start":
                self._concurrency.learn(scope, message["status"])
                if not limiter.whole or message["status"] >= 400:
                    place.give_back()
            await send(message)

        try:
            await self._app(scope, receive_and_enter, send_and_leave)
        finally:
            place.give_back()


async def admit(scope: Scope, caller: str, reads_body: bool = False) -> None:
    """Queue a request whose key was checked; raises OverloadedError when there is no room.

    Parameters
    ----------
    scope : dict
        The request; one that is not limited passes.
    caller : str
        Identifies the caller: the id of its key, or its address where none is needed.
    reads_body : bool
        Whether the place is taken when the body, if there is one, is complete; immediately otherwise.
    """
    place: _Place | None = scope.get("state", {}).get(_STATE)
    if place is not None:
        await place.admit(caller, reads_body)


def defer_place(scope: Scope) -> None:
    """Let the route of a request take its place with `take_place`, once it knows whom to share it with."""
    scope["state"][_STATE].is_deferred = True


async def take_place(scope: Scope, group: Hashable | None = None) -> Ride:
    """Wait for the place of a request that was admitted; raises OverloadedError.

    Parameters
    ----------
    scope : dict
        The request.
    group : hashable, optional
        Others of this group may share the place.
    """
    place: _Place = scope["state"][_STATE]
    return await place.take(group)


def give_back_place(scope: Scope) -> None:
    """Give the place of a request to others; `take_place` waits for another one."""
    place: _Place = scope["state"][_STATE]
    place.give_back()


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
