"""Backpressure for slow readers of large responses.

A large response is held in memory until its last piece is sent. Meanwhile it does not occupy a place of its
workload, or slow readers would block other requests; instead the bytes of all large responses are counted,
and a response beyond the limit is replaced by a 503. A response is sent in pieces, each of which waits until
the one before it was taken; a client that stops reading, or reads too slowly, loses the connection.

Uvicorn waits for a slow reader without end, and Starlette has no limit on responses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import anyio
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.admission import ConcurrencyLimits
from app.api.middleware.request_body_limits import BYTES_PER_SECOND
from app.api.problems import service_problem
from app.api.request_scope import ABORT
from app.domain.errors import OverloadedError

PIECE = 1 << 16
"""Bytes sent at a time; responses of no more are not counted."""
_logger = logging.getLogger(__name__)


class _StalledError(Exception):
    """The client reads too slowly."""


class ResponseBackpressureMiddleware:
    """ASGI middleware that sends responses piece by piece, and counts large ones.

    Parameters
    ----------
    app : callable
        The wrapped application.
    concurrency : ConcurrencyLimits
        Knows which requests only read; the response to a write is sent however large it is.
    max_bytes_at_once : int
        Of all large responses together; the first is sent whatever its size.
    pause_seconds : float
        Waiting time of a new reader; bytes read earn more.
    """

    def __init__(
        self, app: ASGIApp, concurrency: ConcurrencyLimits, max_bytes_at_once: int, pause_seconds: float
    ) -> None:
        self._app = app
        self.concurrency = concurrency
        self._max_bytes = max_bytes_at_once
        self.pause_seconds = pause_seconds
        self.held = 0
        """Bytes of large responses that are being sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(self, scope, receive, send)
        try:
            await self._app(scope, receive, response.send)
        except Exception:
            if not response.has_stalled:
                raise
            # Without its last piece the response is incomplete: the server closes the connection.
            await close_stalled(scope, response.has_started)
        finally:
            self.held -= response.counted

    def has_room_for(self, size: int) -> bool:
        """Return whether one more response fits."""
        return not self.held or self.held + size <= self._max_bytes


async def close_stalled(scope: Scope, has_started: bool) -> None:
    """Log that a response was read too slowly, and close its connection unless its start was sent."""
    _logger.warning("a response was read too slowly; closing the connection")
    abort = scope.get("extensions", {}).get(ABORT, {}).get("abort")
    if not has_started and abort is not None:
        # The server would answer 500 instead, and wait for the same reader without end.
        abort()
        await anyio.sleep(0)  # the server learns of it


class _Response:
    """The response to one request."""

    def __init__(
        self, middleware: ResponseBackpressureMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.counted = 0
        self.has_started = False
        self.has_stalled = False
        self._middleware = middleware
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_refused = False
        self._credit = middleware.pause_seconds

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif not self._is_refused:
            for piece in _pieces(message):
                await self._send_in_time(piece)

    async def _begin(self, message: Message) -> None:
        length = Headers(raw=message["headers"]).get("content-length", "")
        size = int(length) if length.isdigit() else 0
        reads = self._middleware.concurrency.reads
        if size > PIECE:
            if self._middleware.concurrency.of(self._scope) is reads and not self._middleware.has_room_for(
                size
            ):
                self._is_refused = True
                reads.on_refusal(reads)
                refusal = service_problem(
                    Request(self._scope), OverloadedError("too many large answers are being read")
                )
                await refusal(self._scope, self._receive, self._send)
                return
            self.counted = size
            self._middleware.held += size
        await self._send_in_time(message)
        self.has_started = True

    async def _send_in_time(self, message: Message) -> None:
        began = time.monotonic()
        try:
            # Not AnyIO's: that takes several times as long, and most answers are sent without a wait.
            async with asyncio.timeout(max(min(self._credit, self._middleware.pause_seconds), 0.0)):
                await self._send(message)
        except TimeoutError as error:
            self.has_stalled = True
            raise _StalledError from error
        self._credit += len(message.get("body", b"")) / BYTES_PER_SECOND - (time.monotonic() - began)


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
