"""The gate: what every request passes on its way in, and every answer on its way out, in one ASGI class."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import anyio
from fastapi import Request
from starlette._utils import get_route_path
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.api.admission import CURRENT_PLACE, PLACE, ConcurrencyLimits, Place, collection_of
from app.api.problems import service_problem, unexpected_problem
from app.api.request_scope import ABORT, CURRENT_REQUEST_ID, REQUEST_ID, SECURITY_HEADERS
from app.domain.errors import ContentTooLargeError, ServiceError, UnavailableError, overload
from app.domain.hosts import path_prefix_of

# A body is counted chunk by chunk, whether its length was announced or not, so that no client can send more
# than is allowed. The limit is that of the whole service until the route, which runs after the key check,
# sets its own. A body that stops or trickles is abandoned; after an answer to a body that was not read to its
# end the connection is closed. FastAPI and Starlette limit the size of one body; they know neither the slow
# sender, nor the memory of all bodies together, nor a limit that changes once the key is known.
BYTES_PER_SECOND = 16_384
"""Rate at which received bytes earn more waiting time; slower bodies are abandoned after `pause_seconds`."""
_STREAM_BYTES_PER_SECOND = 1024
"""The same for imports, which may be produced while they are sent; a slower one only blocks others."""
_WINDOW = 3  # earned waiting time is bounded by this multiple of `pause_seconds`
_DRAIN_SECONDS, _DRAINED_BYTES = 1.0, 1 << 20
"""Bounds on reading the rest of a body after an answer that did not need it."""
_STATE = "body"


class Budget:
    """Memory for the bodies of unfinished requests, of all together and of one caller."""

    def __init__(self, max_bytes: int, max_bytes_of_one: int) -> None:
        self._left = max_bytes
        self._max_of_one = max_bytes_of_one
        self._held: Counter[str] = Counter()

    def take(self, size: int, caller: str) -> None:
        """Reserve memory; raises UnavailableError if too much is in use, or by this caller."""
        if size > self._left:
            raise overload()
        if self._held[caller] + size > self._max_of_one:
            raise overload("too many bodies of this caller are on their way")
        self._left -= size
        self._held[caller] += size

    def give_back(self, size: int, caller: str) -> None:
        """Release memory."""
        self._left += size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]


class IncomingBody:
    """One request's body; its budget is shared by all that are held in memory, None for a streamed one."""

    def __init__(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        limit: int,
        pause_seconds: float,
        budget: Budget | None,
    ) -> None:
        self.announced = _length_of(headers)
        self.is_unread = self.announced > 0 or b"transfer-encoding" in headers
        self.caller = ""
        """Set once the key is checked, before anything is read."""
        self._receive = receive
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._budget = budget
        self._received = self._held = 0
        self._seconds_per_byte = 1.0 / (_STREAM_BYTES_PER_SECOND if budget is None else BYTES_PER_SECOND)
        self._max_credit = _WINDOW * pause_seconds
        self._credit = self._max_credit if budget is None else pause_seconds

    def restrict(self, limit: int) -> None:
        """Set the limit of the route; raises ContentTooLargeError if more is announced."""
        self._limit = limit
        self._check(self.announced)

    async def receive(self) -> Message:
        """Return the next message. Raises ContentTooLargeError, also if only announced; ServiceError if
        the next chunk does not come in time; UnavailableError if others use too much memory."""
        if not self.is_unread:
            return await self._receive()
        self._check(self.announced)
        began = time.monotonic()
        try:
            message: Message = await _in_time(
                self._receive(), min(max(self._credit, 0.0), self._pause_seconds)
            )
        except TimeoutError as error:
            raise ServiceError("body-timeout", field="body") from error
        self._credit -= time.monotonic() - began
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            self.is_unread = bool(message.get("more_body", False))
        return message

    async def drain(self) -> None:
        """Read and discard, for a moment, what still arrives after the answer.
        A connection that is closed while bytes arrive is reset, and its client may lose the answer."""
        discarded = 0
        with anyio.move_on_after(_DRAIN_SECONDS):
            while self.is_unread and discarded < _DRAINED_BYTES:
                message = await self._receive()
                discarded += len(message.get("body", b""))
                self.is_unread = message["type"] == "http.request" and bool(message.get("more_body", False))

    def close(self) -> None:
        """Release the body's memory."""
        if self._budget is not None:
            self._budget.give_back(self._held, self.caller)
        self._held = 0

    def _count(self, size: int) -> None:
        self._received += size
        self._credit = min(self._credit + size * self._seconds_per_byte, self._max_credit)
        self._check(self._received)
        if self._budget is not None:
            self._budget.take(size, self.caller)
            self._held += size

    def _check(self, size: int) -> None:
        if self._budget is not None and size > self._limit:
            raise ContentTooLargeError("body", f"{size} bytes, at most {self._limit} allowed here")


def _length_of(headers: Mapping[bytes, bytes]) -> int:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


async def _in_time(work: Awaitable[Any], seconds: float) -> Any:
    """Return what is awaited; raises TimeoutError where it takes longer."""
    # What does not have to wait, as most pieces of a body and of an answer, needs no timer, which costs more.
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        return end.value
    async with asyncio.timeout(seconds):
        return await _go_on(steps, waits_for)


@types.coroutine
def _go_on(steps: Generator[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Return what steps that have begun lead to."""
    while True:
        try:
            try:
                sent = yield waits_for
            except BaseException as error:  # such as that time is up
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(sent)
        except StopIteration as end:
            return end.value


def body_of(request: Request) -> IncomingBody:
    """Return the body of a request, to set the limit of its route."""
    body: IncomingBody = request.scope["state"][_STATE]
    return body


# On the way in: an id and a line in the log, the limits of the body, a place in the queue of its workload. On
# the way out: a problem in place of an error, security headers, pieces that wait for their reader, and the
# rest of the body.
#
# Of large answers the bytes are counted rather than places, or slow readers would block other requests; one
# that does not fit is replaced by a 503. A client that stops reading, or reads too slowly, loses the
# connection: uvicorn waits for it without end, and Starlette has no limit on responses.

PIECE = 1 << 16
"""Bytes sent at a time; responses of no more are not counted."""
OnAnswer = Callable[[str, str, int, float], None]
"""Takes method, route template, status and seconds of an answered request."""
_VALID_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_ID_HEADER = REQUEST_ID.lower().encode()
_SECURITY_HEADERS = {name.lower().encode(): value.encode() for name, value in SECURITY_HEADERS.items()}
_OF_OTHER_SITES = (b"access-control-", b"vary")
_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_logger = logging.getLogger(__name__)
# Apart from the lines of requests, so that one cause has a line a minute, in JSON as in text.
_proxy_logger = logging.getLogger("app.api.forwarded")


def _ignore(*_: object) -> None:
    """Count nothing."""


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        concurrency: ConcurrencyLimits,
        max_body_bytes: int,
        body_bytes_at_once: int,
        pause_seconds: float,
        on_answer: OnAnswer = _ignore,
        on_change: Callable[[int], None] = _ignore,
        origins: Sequence[str] = (),
    ) -> None:
        self.concurrency = concurrency
        self.max_bytes = max_body_bytes
        self.pause_seconds = pause_seconds
        self.budget = Budget(body_bytes_at_once, body_bytes_at_once - max_body_bytes)
        self.held = 0
        """Bytes of large responses that are being sent."""
        self._app = app
        self._on_answer = on_answer
        self._on_change = on_change
        # Inside, so that preflights are logged, and around the problems, which pages of other sites can read.
        self._inner: ASGIApp = self._answer_failures
        if origins:
            self._inner = CORSMiddleware(
                self._answer_failures,
                allow_origins=origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["Authorization", "Content-Type", REQUEST_ID],
                expose_headers=["Location", "Retry-After", REQUEST_ID],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = _Passage(self, scope, receive, send)
        self._on_change(1)
        token = CURRENT_REQUEST_ID.set(passage.request_id)
        try:
            await self._inner(scope, passage.receive, passage.send)
        except Exception:  # of a stream it is one of a group
            if not passage.has_stalled:
                raise
            await passage.abort()
        finally:
            passage.close()
            seconds = time.perf_counter() - passage.began
            self._on_change(-1)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            # With the names of the path's parameters, since a client's choice must not become a label.
            template = getattr(scope.get("route"), "path", _UNMATCHED)
            self._on_answer(method, template, passage.status, seconds)
            _log(scope, template, passage.status, seconds)
            CURRENT_REQUEST_ID.reset(token)

    async def _answer_failures(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an error with a problem, which keeps the connection usable; Starlette raises it again."""
        passage: _Passage = scope["state"]["passage"]
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # Only a stopping server cancels a request that is being answered.
            if passage.has_answer:
                raise
            answer = service_problem(Request(scope), UnavailableError("stopping"))
        except Exception as error:
            if passage.has_answer:
                raise  # the end of the connection shows the client that the answer is incomplete
            answer = unexpected_problem(Request(scope), error)
        else:
            return
        await answer(scope, receive, send)


class _Passage:
    """One request on its way in, and its answer on the way out."""

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self.began = time.perf_counter()
        self.status = 500
        self.has_answer = False
        """Whether the application has begun to answer; the client may know nothing of it yet."""
        self.has_stalled = False
        self._gate, self._scope, self._send = gate, scope, send
        headers = dict(reversed(scope["headers"]))  # the first of one name counts
        client_id = headers.get(_ID_HEADER, b"").decode("latin-1")
        self.request_id = client_id if _VALID_ID.fullmatch(client_id) else os.urandom(8).hex()
        self._limiter, self._collection = gate.concurrency.of(scope), collection_of(scope)
        budget = None if self._limiter is gate.concurrency.imports else gate.budget
        self._body = IncomingBody(headers, receive, gate.max_bytes, gate.pause_seconds, budget)
        state = scope.setdefault("state", {})
        state["passage"], state["request_id"], state[_STATE] = self, self.request_id, self._body
        self._place: Place | None = None
        if self._limiter is not None:
            party = gate.concurrency.party_of(self._collection)
            self._place = state[PLACE] = Place(self._limiter, party, self._body.is_unread)
            CURRENT_PLACE.set(self._place)
        self._is_head = scope["method"] == "HEAD"
        if self._is_head:
            scope["method"] = "GET"  # which answers it, but for the body
        self._has_started = self._is_refused = self._is_over = False
        self._counted = 0
        self._credit = gate.pause_seconds

    async def receive(self) -> Message:
        """Return a piece of the body; the last one leads to a place, unless the route takes it."""
        message = await self._body.receive()
        is_last = message["type"] == "http.request" and not message.get("more_body", False)
        if is_last and self._place is not None and not self._place.is_deferred:
            await self._place.take()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, at the pace of its reader."""
        self.has_answer = True
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif not self._is_refused:
            for piece in _pieces(message):
                await self._send_body(piece)

    async def _begin(self, message: Message) -> None:
        status, limiter = message["status"], self._limiter
        self._gate.concurrency.learn(self._collection, status)
        # After a rejection only the unread rest of a body may follow.
        if self._place is not None and limiter is not None and (not limiter.whole or status >= 400):
            self._place.give_back()
        headers = {name.lower(): value for name, value in message["headers"]}  # the last of one name counts
        size = _length_of(headers)
        if size > PIECE:
            reads = self._gate.concurrency.reads
            has_room = not self._gate.held or self._gate.held + size <= self._gate.max_bytes
            if limiter is reads and not has_room:
                reads.on_refusal(reads)
                await self._refuse(headers)
                return
            self._counted = size
            self._gate.held += size
        await self._start(status, headers)

    async def _refuse(self, headers: Mapping[bytes, bytes]) -> None:
        """Send a problem in place of an answer, and of its headers those for pages of other sites."""
        refusal = service_problem(Request(self._scope), overload("too many large answers are being read"))
        shared = {name: value for name, value in headers.items() if name.startswith(_OF_OTHER_SITES)}
        await self._start(refusal.status_code, {**dict(refusal.raw_headers), **shared})
        await self._send_body({"type": "http.response.body", "body": bytes(refusal.body)})
        self._is_refused = True

    async def _start(self, status: int, own: Mapping[bytes, bytes]) -> None:
        self.status = status
        headers = {**_SECURITY_HEADERS, **own, _ID_HEADER: self.request_id.encode("latin-1")}
        if self._body.is_unread:
            # Otherwise a client that sends on would be read, and one that stopped would be waited for.
            headers[b"connection"] = b"close"
        if self._is_head:
            self._scope["method"] = "HEAD"  # as the server, which counts what it sends, and the log know it
        start = {"type": "http.response.start", "status": status, "headers": list(headers.items())}
        await self._send_in_time(start)
        self._has_started = True
        if self._is_head:
            await self._send_body({"type": "http.response.body", "body": b""})

    async def _send_body(self, message: Message) -> None:
        if self._is_over:
            return  # it was asked for by HEAD
        self._is_over = not message.get("more_body", False)
        if self._is_over and self._body.is_unread:
            await self._send_in_time({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send_in_time(message)

    async def _send_in_time(self, message: Message) -> None:
        began = time.monotonic()
        try:
            await _in_time(self._send(message), max(min(self._credit, self._gate.pause_seconds), 0.0))
        except TimeoutError as error:
            self.has_stalled = True
            raise ClientDisconnect from error
        self._credit += len(message.get("body", b"")) / BYTES_PER_SECOND - (time.monotonic() - began)

    async def abort(self) -> None:
        """Close the connection of a slow reader: without its last piece the answer is incomplete."""
        _logger.warning("a response was read too slowly; closing the connection")
        abort = self._scope.get("extensions", {}).get(ABORT, {}).get("abort")
        if not self._has_started and abort is not None:
            # The server would answer 500 instead, and wait for the same reader without end.
            abort()
            await anyio.sleep(0)  # the server learns of it

    def close(self) -> None:
        """Give back what the request holds."""
        if self._is_head:
            self._scope["method"] = "HEAD"
        if self._place is not None:
            self._place.give_back()
        self._gate.held -= self._counted
        self._body.close()


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message as messages with a small body each."""
    body = memoryview(message.get("body", b""))
    if len(body) <= PIECE:
        yield message
        return
    for start in range(0, len(body), PIECE):
        is_last = start + PIECE >= len(body)
        more = bool(message.get("more_body", False)) or not is_last
        yield {**message, "body": bytes(body[start : start + PIECE]), "more_body": more}


def _log(scope: Scope, template: str, status: int, seconds: float) -> None:
    """Log a request: the path without its query, and nothing of headers and bodies: no key, no picture."""
    level = logging.WARNING if status >= 500 else logging.INFO
    if get_route_path(scope) in _PROBES and level == logging.INFO:
        level = logging.DEBUG
    if not _logger.isEnabledFor(level):
        return
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "milliseconds": round(seconds * 1000, 1),
        "key_id": scope["state"].get("key_id"),
    }
    cause = scope["method"], template, status
    text = "%(method)s %(path)s %(status)d %(milliseconds).1f ms"
    _logger.log(level, text, fields, extra={**fields, "cause": cause})


# A path that is a setting holds for every request, whether the proxy strips it or passes it on. One of
# `X-Forwarded-Prefix` was stripped by the proxy that says so: a client that could make the service strip more
# would reach paths that the proxy keeps from it.

_PREFIX = b"x-forwarded-prefix"


class ForwardedMiddleware(ProxyHeadersMiddleware):
    """ASGI middleware: client, scheme and `root_path` of a request by the headers of `proxies` (networks)."""

    def __init__(self, app: ASGIApp, proxies: list[str], root_path: str) -> None:
        super().__init__(app, proxies)  # type: ignore[arg-type]
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Serve one request."""
        if scope["type"] == "http":
            self._place(scope)
        await super().__call__(scope, receive, send)  # type: ignore[arg-type]

    def _place(self, scope: Scope) -> None:
        """Complete path and root path, as ASGI has them: the one begins with the other."""
        root_path, path = self._root_path, scope["path"]
        is_whole = root_path != "" and (path == root_path or path.startswith(f"{root_path}/"))
        client = scope.get("client")
        if client is not None and client[0] in self.trusted_hosts:
            stripped = self._stripped_of(scope)
            if stripped is not None and stripped != root_path:
                root_path, is_whole = stripped, False
        scope["root_path"] = root_path
        if not is_whole:
            scope["path"] = root_path + path

    def _stripped_of(self, scope: Scope) -> str | None:
        """Return the path that the nearest proxy says it has stripped; None if it says none that is one."""
        values = [value for name, value in scope["headers"] if name == _PREFIX]
        if not values:
            return None
        value = values[-1].decode("latin-1").rpartition(",")[2].strip()
        try:
            return path_prefix_of(value)
        except ValueError as error:
            _proxy_logger.warning(
                "X-Forwarded-Prefix of a trusted proxy %s: it is ignored", error, extra={"cause": _PREFIX}
            )
            return None
