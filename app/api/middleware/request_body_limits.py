"""Limits on request bodies, enforced while they arrive."""
# A body is counted chunk by chunk, whether its length was announced or not, so that no client can send more
# than is allowed. The limit is that of the whole service until the route, which runs after the key check,
# sets its own. A body that stops or trickles is abandoned; after an answer to a body that was not read to its
# end the connection is closed. FastAPI and Starlette limit the size of one body; they know neither the slow
# sender, nor the memory of all bodies together, nor a limit that changes once the key is known.

from __future__ import annotations

import asyncio
import time
from collections import Counter

import anyio
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from app.domain.errors import ContentTooLargeError, ServiceError, overload

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
        self, scope: Scope, receive: Receive, limit: int, pause_seconds: float, budget: Budget | None
    ) -> None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        self.announced = int(length) if length.isdigit() else 0
        self.is_unread = self.announced > 0 or "transfer-encoding" in headers
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
            async with asyncio.timeout(self._longest_wait()):
                message = await self._receive()
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

    def _longest_wait(self) -> float:
        return min(max(self._credit, 0.0), self._pause_seconds)

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


def keep_body(scope: Scope, body: IncomingBody) -> None:
    """Set the body of a request."""
    scope["state"][_STATE] = body


def body_of(request: Request) -> IncomingBody:
    """Return the body of a request, to set the limit of its route."""
    body: IncomingBody = request.scope["state"][_STATE]
    return body
