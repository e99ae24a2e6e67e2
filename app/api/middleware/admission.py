"""Which request waits where: a lane for each kind of work.

Searches and reads stand in one line and writes in another, so that neither can keep the other out. A request
enters its line once its key is checked, and takes its place when its body is complete: strangers and slow
senders hold none. Streams (imports, job events) have a line without a waiting room, and their place for as
long as they last. No collection gets all places for searches, reads, writes or imports, and no key those
for imports or events: one that is slow must not keep the others waiting. Keys that were never seen to be
valid are looked up in a line of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anyio import from_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.queues import Asker, ConcurrencyLimiter, OnChange
from app.api.middleware.workload import Workload, collection_of, workload_of

_STATE = "place"
_UNKNOWN = "/"
"""No collection is called that."""
_MOST_KNOWN = 10_000
_KEYS_AT_ONCE, _KEYS_WAITING, _KEYS_OF_ONE = 2, 62, 32
"""Look-ups of unknown keys; each takes a fraction of a millisecond."""


class ConcurrencyLimits:
    """The lines of one application.

    Parameters
    ----------
    running, waiting : int
        Of searches and reads, and of writes.
    streams : int
        How many imports, and how many event streams, at once.
    """

    def __init__(self, running: int, waiting: int, streams: int) -> None:
        all_but_one = max(running - 1, 1)
        self.reads = ConcurrencyLimiter("read", running, waiting, of_collection=all_but_one)
        self.writes = ConcurrencyLimiter("write", running, waiting, of_collection=all_but_one)
        self.imports = ConcurrencyLimiter(
            "import", running, 0, whole=True, of_caller=all_but_one, of_collection=all_but_one
        )
        self.events = ConcurrencyLimiter("events", streams, 0, whole=True, of_caller=max(streams // 2, 1))
        self.keys = ConcurrencyLimiter("keys", _KEYS_AT_ONCE, _KEYS_WAITING, of_caller=_KEYS_OF_ONE)
        self._by_workload = {
            Workload.READ: self.reads,
            Workload.WRITE: self.writes,
            Workload.IMPORT: self.imports,
            Workload.EVENTS: self.events,
        }
        self.threads = 3 * running + streams
        """As many as can be asked for at once."""
        self._known: dict[str, None] = {}

    def watch(self, on_change: OnChange, on_refusal: OnChange) -> None:
        """Be told of every change of a line, and of every refusal."""
        for lane in (self.reads, self.writes, self.imports, self.events, self.keys):
            lane.on_change, lane.on_refusal = on_change, on_refusal

    def known_collection_of(self, scope: Scope) -> str:
        """Return the collection that a request takes turns for: one for all names that answered nothing yet.

        Names cost nothing: whoever invents some must not have a turn for each.
        """
        name = collection_of(scope)
        return name if not name or name in self._known else _UNKNOWN

    def learn(self, scope: Scope, status: int) -> None:
        """Take notice of the collection of a request that was answered."""
        name = collection_of(scope)
        if name and status < 300:
            self._known.pop(name, None)
            self._known[name] = None
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def of(self, scope: Scope) -> ConcurrencyLimiter | None:
        """Return the line of a request; None for what is no work, such as health and pages."""
        workload = workload_of(scope)
        return None if workload is None else self._by_workload[workload]


class _Place:
    def __init__(self, lane: ConcurrencyLimiter, collection: str, has_body: bool) -> None:
        self._lane = lane
        self._has_body = has_body
        self._asker = Asker(collection)
        self._is_held = False

    async def admit(self, caller: str, reads_body: bool) -> None:
        self._asker = Asker(self._asker.collection, caller)
        if self._lane.whole or not (reads_body and self._has_body):
            await self.take()
        else:
            self._lane.check(self._asker)

    async def take(self) -> None:
        if not self._is_held:
            await self._lane.enter(self._asker)
            self._is_held = True

    def give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lane.leave(self._asker)


_PRESENT: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextmanager
def aside() -> Iterator[None]:
    """Give the place of the present request to others while its thread waits, and take one again after."""
    place = _PRESENT.get()
    if place is None:
        yield
        return
    from_thread.run_sync(place.give_back)
    yield
    from_thread.run(place.take)


class AdmissionMiddleware:
    """ASGI middleware that gives each request its place in a lane, which `admit` lets it take.

    Parameters
    ----------
    app : callable
        What it wraps.
    lanes : ConcurrencyLimits
        Where they wait.
    """

    def __init__(self, app: ASGIApp, lanes: ConcurrencyLimits) -> None:
        self._app = app
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        lane = self._lanes.of(scope) if scope["type"] == "http" else None
        if lane is None:
            await self._app(scope, receive, send)
            return
        place = scope.setdefault("state", {})[_STATE] = _Place(
            lane, self._lanes.known_collection_of(scope), _has_body(scope)
        )
        _PRESENT.set(place)

        async def receive_and_enter() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await place.take()
            return message

        async def send_and_leave(message: Message) -> None:
            # What comes behind a refusal is the rest of a body that nobody reads.
            if message["type"] == "http.response.start":
                self._lanes.learn(scope, message["status"])
                if not lane.whole or message["status"] >= 400:
                    place.give_back()
            await send(message)

        try:
            await self._app(scope, receive_and_enter, send_and_leave)
        finally:
            place.give_back()


async def admit(scope: Scope, caller: str, reads_body: bool = False) -> None:
    """Let a request whose key was checked into its lane; raises OverloadedError when there is no room.

    Parameters
    ----------
    scope : dict
        The request; one that is no work has no lane.
    caller : str
        What tells a caller from others: the id of its key, or its address where none is needed.
    reads_body : bool
        Whether the place is taken when the body, if there is one, is complete; at once otherwise.
    """
    place: _Place | None = scope.get("state", {}).get(_STATE)
    if place is not None:
        await place.admit(caller, reads_body)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
