"""Limits on request bodies, enforced while they come in.

A body is counted chunk by chunk, announced length or not, so nobody can send more than is allowed. The limit
is that of the whole service until a route, which knows the caller by then, sets its own. A body that stops,
or trickles, is given up; one that was not read to its end closes the connection with the answer.
"""

from __future__ import annotations

import time
from collections import Counter

import anyio
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.workload import Workload, workload_of
from app.domain.errors import BodyTimeoutError, ContentTooLargeError, OverloadedError

_BYTES_PER_SECOND = 16_384
"""Slower bodies are given up, once `pause_seconds` of waiting are used up: bytes earn more."""
_STREAM_BYTES_PER_SECOND = 1024
"""A streamed body may be made while it is sent; slower than this it only keeps others out."""
_WINDOW = 3
"""What bytes have earned lasts for at most so many times `pause_seconds`."""
_DRAIN_SECONDS, _DRAINED_BYTES = 1.0, 1 << 20
"""How long, and of what, the rest of a body is taken in after an answer that did not need it."""
_STATE = "body"


class Budget:
    """Bytes of unfinished requests that are held in memory.

    Parameters
    ----------
    max_bytes : int
        More are refused.
    max_bytes_of_one : int
        Of the requests of one caller.
    """

    def __init__(self, max_bytes: int, max_bytes_of_one: int) -> None:
        self._left = max_bytes
        self._max_of_one = max_bytes_of_one
        self._held: Counter[str] = Counter()

    def take(self, size: int, caller: str) -> None:
        """Account for bytes; raises OverloadedError when there are too many already, or of this caller."""
        if size > self._left:
            raise OverloadedError
        if self._held[caller] + size > self._max_of_one:
            raise OverloadedError("too many bodies of this caller are on their way")
        self._left -= size
        self._held[caller] += size

    def give_back(self, size: int, caller: str) -> None:
        """Account for bytes that are gone."""
        self._left += size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]


class IncomingBody:
    """One request's body.

    Parameters
    ----------
    scope : dict
        The request.
    receive : callable
        Gives the next chunk.
    limit : int
        Most bytes.
    pause_seconds : float
        Longest wait for a chunk.
    budget : Budget
        Shared by all requests whose body is kept.
    """

    def __init__(
        self, scope: Scope, receive: Receive, limit: int, pause_seconds: float, budget: Budget
    ) -> None:
        self._is_kept = workload_of(scope) is not Workload.IMPORT
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        self.announced = int(length) if length.isdigit() else 0
        self.is_unread = self.announced > 0 or "transfer-encoding" in headers
        self.caller = ""
        """Told once the key is checked, before anything is read."""
        self._receive = receive
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._budget = budget
        self._received = self._held = 0
        self._seconds_per_byte = 1.0 / (_BYTES_PER_SECOND if self._is_kept else _STREAM_BYTES_PER_SECOND)
        self._most_credit = _WINDOW * pause_seconds
        self._credit = pause_seconds if self._is_kept else self._most_credit

    def restrict(self, limit: int) -> None:
        """Set the limit of the route; raises ContentTooLargeError when more is announced."""
        self._limit = limit
        self._check(self.announced)

    async def receive(self) -> Message:
        """Return the next message.

        Raises
        ------
        ContentTooLargeError
            If the body is, or is announced to be, larger than allowed.
        BodyTimeoutError
            If the next chunk does not come in time.
        OverloadedError
            If too much is held for others.
        """
        if not self.is_unread:
            return await self._receive()
        self._check(self.announced)
        began = time.monotonic()
        with anyio.move_on_after(self._longest_wait()) as timer:
            message = await self._receive()
        if timer.cancelled_caught:
            raise BodyTimeoutError
        self._credit -= time.monotonic() - began
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            self.is_unread = bool(message.get("more_body", False))
        return message

    async def drain(self) -> None:
        """Take in, for a moment, what is still coming after the answer, and let go of it.

        A connection that is closed while bytes arrive is reset, and its client may lose the answer.
        """
        taken = 0
        with anyio.move_on_after(_DRAIN_SECONDS):
            while self.is_unread and taken < _DRAINED_BYTES:
                message = await self._receive()
                taken += len(message.get("body", b""))
                self.is_unread = message["type"] == "http.request" and bool(message.get("more_body", False))

    def close(self) -> None:
        """Give back what it held."""
        self._budget.give_back(self._held, self.caller)
        self._held = 0

    def _longest_wait(self) -> float:
        return min(max(self._credit, 0.0), self._pause_seconds)

    def _count(self, size: int) -> None:
        self._received += size
        self._credit = min(self._credit + size * self._seconds_per_byte, self._most_credit)
        self._check(self._received)
        if self._is_kept:
            self._budget.take(size, self.caller)
            self._held += size

    def _check(self, size: int) -> None:
        if self._is_kept and size > self._limit:
            raise ContentTooLargeError("body", f"{size} bytes, at most {self._limit} allowed here")


class RequestBodyLimitMiddleware:
    """ASGI middleware that gives each request its `IncomingBody`.

    Parameters
    ----------
    app : callable
        What it wraps.
    max_bytes : int
        Limit where no route sets its own.
    max_bytes_at_once : int
        Of all requests together; of one caller, `max_bytes` fewer.
    pause_seconds : float
        Longest wait for a chunk.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_bytes_at_once: int, pause_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._pause_seconds = pause_seconds
        self._budget = Budget(max_bytes_at_once, max_bytes_at_once - max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = IncomingBody(scope, receive, self._max_bytes, self._pause_seconds, self._budget)
        scope.setdefault("state", {})[_STATE] = body

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and body.is_unread:
                # Whoever sends on would be listened to, and whoever stopped waited for.
                MutableHeaders(scope=message)["Connection"] = "close"
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if is_last and body.is_unread:
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            await self._app(scope, body.receive, send_and_close)
        finally:
            body.close()


def body_of(request: Request) -> IncomingBody:
    """Return the body of a request, to set the limit of its route."""
    body: IncomingBody = request.scope["state"][_STATE]
    return body
