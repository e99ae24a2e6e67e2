"""Limits on answers that nobody reads.

A large answer is held in memory until its last piece is on its way. It holds no place in a lane meanwhile, or
slow readers would keep others from working; instead the bytes of all large answers are counted, and one too
many becomes a refusal. An answer is sent in pieces, each of which waits until the one before it was taken;
whoever stops reading, or reads slower than a sender may send, loses the connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import anyio
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.admission import ConcurrencyLimits
from app.api.problems import service_problem
from app.domain.errors import OverloadedError

_PIECE = 1 << 16
"""Bytes; answers of no more are not counted."""
_BYTES_PER_SECOND = 16_384
_logger = logging.getLogger(__name__)


class _StalledError(Exception):
    """The reader takes too long."""


class ResponseBackpressureMiddleware:
    """ASGI middleware that sends answers piece by piece, and counts those that are large.

    Parameters
    ----------
    app : callable
        What it wraps.
    lanes : ConcurrencyLimits
        Know which requests only read: what a write did is told however large the answer is.
    max_bytes_at_once : int
        Of all large answers together; the first is sent whatever its size.
    pause_seconds : float
        How long a reader may take before what it has read so far must earn it more.
    """

    def __init__(
        self, app: ASGIApp, lanes: ConcurrencyLimits, max_bytes_at_once: int, pause_seconds: float
    ) -> None:
        self._app = app
        self.lanes = lanes
        self._max_bytes = max_bytes_at_once
        self.pause_seconds = pause_seconds
        self.held = 0
        """Bytes of large answers that are being sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(self, scope, receive, send)
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            if not answer.has_stalled:
                raise
            # Without its last piece the answer is incomplete: the server closes the connection.
            _logger.warning("an answer was not read in time: the connection is closed")
        finally:
            self.held -= answer.counted

    def has_room_for(self, size: int) -> bool:
        """Return whether an answer may be counted too."""
        return not self.held or self.held + size <= self._max_bytes


class _Answer:
    """The answer to one request."""

    def __init__(
        self, answers: ResponseBackpressureMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.counted = 0
        self.has_stalled = False
        self._answers = answers
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_refused = False
        self._credit = answers.pause_seconds

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
        reads = self._answers.lanes.reads
        if size > _PIECE:
            if self._answers.lanes.of(self._scope) is reads and not self._answers.has_room_for(size):
                self._is_refused = True
                reads.on_refusal(reads)
                refusal = service_problem(
                    Request(self._scope), OverloadedError("too many large answers are being read")
                )
                await refusal(self._scope, self._receive, self._send)
                return
            self.counted = size
            self._answers.held += size
        await self._send_in_time(message)

    async def _send_in_time(self, message: Message) -> None:
        began = time.monotonic()
        with anyio.move_on_after(max(min(self._credit, self._answers.pause_seconds), 0.0)) as timer:
            await self._send(message)
        if timer.cancelled_caught:
            self.has_stalled = True
            raise _StalledError
        self._credit += len(message.get("body", b"")) / _BYTES_PER_SECOND - (time.monotonic() - began)


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message as messages with a small body each."""
    body = memoryview(message.get("body", b""))
    if len(body) <= _PIECE:
        yield message
        return
    for start in range(0, len(body), _PIECE):
        is_last = start + _PIECE >= len(body)
        more = bool(message.get("more_body", False)) or not is_last
        yield {**message, "body": bytes(body[start : start + _PIECE]), "more_body": more}
