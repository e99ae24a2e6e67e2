"""Strict HTTP/1.1: a request that two parsers could read in two ways is rejected, its connection closed."""
# The C parser rejects most of these by itself: a Content-Length beside a Transfer-Encoding, two lengths, bare
# line feeds, obsolete line folding, control characters. This module rejects what the parser and uvicorn
# accept. Uvicorn has no limits on the size of heads, on the overhead of chunked bodies, on pipelined requests
# or on the time until a head is complete either, so they are here.

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.request_scope import ABORT, REQUEST_ID, SECURITY_HEADERS
from app.domain.errors import PROBLEMS
from app.domain.hosts import party_of, unmap_ipv4

_JOINED_BYTES = 1 << 14
"""Larger writes are passed on at once: copying them would take longer, and their flow is controlled."""


class JoiningTransport:
    """Passes everything on to a transport, small writes together at the end of the event loop's step."""

    # A server writes the head of an answer and its body one after the other. Sent one by one, each costs a
    # system call and wakes the client, which takes longer than preparing the answer to a search.

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._n_held = 0

    def __getattr__(self, name: str) -> Any:
        """Return what the transport has; `write` and what ends the writing are defined here."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data, after what was written before."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._n_held += len(data)
        if self._n_held > _JOINED_BYTES:
            self._flush()

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Send several pieces."""
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._n_held + self._transport.get_write_buffer_size()

    def write_eof(self) -> None:
        """Close the writing end after what was written before."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close after what was written before."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            self._transport.write(b"".join(self._held))
        self._held.clear()
        self._n_held = 0


_LINGER_SECONDS = 1.0
"""How long a rejected client may go on sending: if closed earlier, it may never see the answer."""
_MAX_HEAD_BYTES = 1 << 16
"""Limit on a request's head, and on the lengths, extensions and trailers of a chunked body: four times the
default of h11, the other parser that uvicorn has."""
_HEADER_BYTES = 32  # memory that a header takes beyond its name and value
_CHUNK_BYTES = 24
"""Allowance for a chunk's length and line ends: sixteen hexadecimal digits and four bytes, rounded up."""
_MAX_PIPELINED = 32
"""Unanswered requests on one connection; hardly any client pipelines, and each request takes memory."""
_VERSIONS = ("1.0", "1.1")
_SCHEMES = (b"http", b"https")
_WHITESPACE = b" \t"
_MAX_LINGERING = 32
"""Refused connections that stay open for their clients: they are not counted, and have to fit among the
reserved descriptors."""
_CLOSING_SECONDS = 20.0  # how long the rest of an answer may take once its connection is being closed
_logger = logging.getLogger(__name__)


class _RefusedError(Exception):
    """A request is rejected; the detail is for the client."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Connections:
    """The open connections of one process; one address may hold three quarters of the most."""

    # Idle connections, those waiting for a request, are kept in the order in which they became idle. At the
    # limit the address with the most connections loses an idle one: one that has never sent a request, or
    # else the one that has been idle longest. Connections with a request being answered are left alone. The
    # head of a request may take `head_seconds` from its first byte; that of the first request, from the
    # moment the connection was opened.

    def __init__(self, most: int, head_seconds: float) -> None:
        self.head_seconds = head_seconds
        self._most = most
        self._most_of_one = max(most * 3 // 4, 1)
        self._open: dict[StrictProtocol, None] = {}
        self._of_address: Counter[str] = Counter()
        self._new: defaultdict[str, dict[StrictProtocol, None]] = defaultdict(dict)
        self._used: defaultdict[str, dict[StrictProtocol, None]] = defaultdict(dict)
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: StrictProtocol) -> bool:
        """Add a connection that waits for its first request; return False when there is no room."""
        address = connection.address
        if self._of_address[address] >= self._most_of_one:
            has_room = self._close_idle(address)
        elif len(self._open) >= self._most:
            has_room = self._close_idle(self._largest_idle())
        else:
            has_room = True
        if has_room:
            self._open[connection] = None
            self._of_address[address] += 1
            self._new[address][connection] = None
        return has_room

    def remove(self, connection: StrictProtocol) -> None:
        """Remove a connection, if it is there."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]
        self.begin(connection)

    def begin(self, connection: StrictProtocol) -> None:
        """Record that a connection has sent a request, and is no longer idle."""
        for idle in (self._new, self._used):
            idle[connection.address].pop(connection, None)
            if not idle[connection.address]:
                del idle[connection.address]

    def wait(self, connection: StrictProtocol) -> None:
        """Record that a connection was answered, and waits for its next request."""
        if connection in self._open:
            self._used[connection.address][connection] = None

    def linger(self) -> bool:
        """Return whether one more refused connection may stay open until its client has read the answer."""
        if self._lingering >= _MAX_LINGERING:
            return False
        self._lingering += 1
        return True

    def stop_lingering(self) -> None:
        """Release a place that `linger` granted."""
        self._lingering -= 1

    def sweep(self, now: float) -> None:
        """Close the connections whose time is up; `now` is the loop's clock, in seconds."""
        for connection in list(self._open):
            if connection.is_closing():
                connection.closing_since = min(connection.closing_since, now)
                if now - connection.closing_since > _CLOSING_SECONDS:
                    connection.abort()
            elif now > connection.deadline:
                connection.expire()

    def _largest_idle(self) -> str:
        """Return the address with the most connections, of those with an idle one."""
        idle = self._new.keys() | self._used.keys()
        return max(idle, key=self._of_address.__getitem__, default="")

    def _close_idle(self, address: str) -> bool:
        for idle in (self._new, self._used):
            if address in idle:
                victim = next(iter(idle[address]))
                self.remove(victim)
                victim.abort()
                return True
        return False


class StrictProtocol(HttpToolsProtocol):
    """uvicorn's protocol of one connection, with strict parsing, limits and deadlines."""

    def __init__(
        self,
        connections: Connections,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.address = ""
        # On the loop's clock, in seconds: infinite while a request is being answered, and while it is open.
        self.deadline = self.closing_since = math.inf
        self._connections = connections
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._is_in_head = False
        self._head_bytes = 0
        self._overhead = 0
        self._refusal: _RefusedError | None = None
        self._final_answer: bytes | None = None
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection; answer 503 and close it if that is one too many."""
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        if self.client:
            self.client = unmap_ipv4(self.client[0]), self.client[1]
            self.address = party_of(self.client[0])
        self.deadline = self.loop.time() + self._connections.head_seconds
        if not self._connections.add(self):
            self._refuse(_RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection, and notify every request on it of the disconnect."""
        self._connections.remove(self)
        if self._lingers:
            self._connections.stop_lingering()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

    def is_closing(self) -> bool:
        """Return whether it closes as soon as the data written so far has been sent."""
        return self.transport.is_closing()

    def expire(self) -> None:
        """Close a connection without a complete request head in time; an incomplete one is answered 408."""
        if self._is_in_head and self._refusal is None:
            self._refuse(_RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the head of the request is incomplete"))
        else:
            self.transport.abort()

    def abort(self) -> None:
        """Close it immediately."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse a piece of one or several requests."""
        rest = data
        while rest and self._refusal is None:
            self._overhead += len(rest)
            piece, rest = rest, b""
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                rest = piece[upgrade.args[0] :]  # left unread because of an `Upgrade`, which is ignored
            except httptools.HttpParserCallbackError as error:
                cause = error.__context__
                if isinstance(cause, httptools.HttpParserInvalidURLError):
                    cause = _RefusedError(HTTPStatus.BAD_REQUEST, "the request's target is invalid")
                if not isinstance(cause, _RefusedError):
                    raise
                self._refuse(cause)
            except httptools.HttpParserError as error:
                self._refuse(_RefusedError(HTTPStatus.BAD_REQUEST, f"not HTTP/1.1: {error}"))
            if self._overhead > _MAX_HEAD_BYTES and self._refusal is None:
                self._refuse(_too_large())
            self._overhead = max(self._overhead, 0)

    def on_message_begin(self) -> None:
        """Start a request."""
        if len(self._unanswered) >= _MAX_PIPELINED:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"more than {_MAX_PIPELINED} requests at once")
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self._is_in_head = True
        self._head_bytes = self._overhead = 0
        if not self._unanswered and math.isinf(self.deadline):
            self.deadline = self.loop.time() + self._connections.head_seconds

    def on_url(self, url: bytes) -> None:
        """Count a piece of the request target."""
        self._head_bytes += len(url)
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise _too_large()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers, which follow the body, are dropped: the application does not read them."""
        self._head_bytes += len(name) + len(value) + _HEADER_BYTES
        if self._head_bytes > _MAX_HEAD_BYTES:
            raise _too_large()
        if self._is_in_head:
            super().on_header(name, value.strip(_WHITESPACE))

    def on_headers_complete(self) -> None:
        """Start answering a request, or queue it behind the earlier ones."""
        self._check_head()
        self._is_in_head = False
        self.deadline = math.inf
        self._connections.begin(self)
        super().on_headers_complete()
        self.scope["extensions"] = {ABORT: {"abort": self.transport.abort}}
        self._unanswered.append(self.cycle)
        self._overhead = 0

    def on_chunk_header(self) -> None:
        """Leave the framing of a chunk out of the overhead."""
        self._overhead -= _CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Finish a request."""
        super().on_message_complete()
        self._overhead = 0

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait for it."""
        if self._unanswered:
            self._unanswered.popleft()
        super().on_response_complete()
        if self._unanswered or self.transport.is_closing():
            return
        if self._final_answer is not None:
            self._send_and_close(self._final_answer)
            return
        self._connections.wait(self)
        if self._is_in_head:
            self._unset_keepalive_if_required()
            self.deadline = self.loop.time() + self._connections.head_seconds

    def _check_head(self) -> None:
        """Reject heads that programs read differently, and unsupported HTTP versions."""
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected HTTP/1.1")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected one Host header")
        if not self.url.startswith(b"/"):
            self.url = _origin_form(self.url, b"".join(hosts))
        if not self.url.startswith(b"/") or b"#" in self.url:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected a path as the request's target")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (codings != [b"chunked"] or version == "1.0"):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected no Transfer-Encoding but chunked")

    def _refuse(self, refused: _RefusedError) -> None:
        """Reject the request and close the connection, once all earlier requests are answered."""
        self._refusal = refused
        if self._unanswered and self._unanswered[-1].more_body:
            broken = self._unanswered.pop()
            if self._unanswered:
                self.pipeline.popleft()
            else:
                broken.disconnected = True
                broken.message_event.set()
                if broken.response_started:
                    self.transport.close()
                    return
        answer = _problem(refused)
        if self._unanswered:
            self._final_answer = answer
        else:
            self._send_and_close(answer)

    def _send_and_close(self, answer: bytes) -> None:
        """Send an answer, and close when the client stops sending or `_LINGER_SECONDS` have passed."""
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(answer)
        self._lingers = self._connections.linger()
        if not self._lingers:
            self.transport.close()
            return
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def _origin_form(target: bytes, host: bytes) -> bytes:
    """Return path and query of a target in absolute form whose host is `host` (RFC 9112, 3.2.2).
    Any other target is returned as it is."""
    scheme, _, rest = target.partition(b"://")
    authority, _, path = rest.partition(b"/")
    is_absolute = scheme.lower() in _SCHEMES and host != b"" and authority.lower() == host.lower()
    return b"/" + path if is_absolute else target


def _too_large() -> _RefusedError:
    detail = f"more than {_MAX_HEAD_BYTES} bytes of headers, or between pieces of a body"
    return _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)


def _problem(refused: _RefusedError) -> bytes:
    """Return a complete answer that closes the connection: a problem document as in `app.api.problems`."""
    request_id = secrets.token_hex(8)
    is_overload = refused.status is HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(
        {
            "type": f"/problems/{'overloaded' if is_overload else 'http'}",
            "title": PROBLEMS["overloaded"].title if is_overload else refused.status.phrase,
            "status": refused.status.value,
            "detail": refused.detail,
            "instance": "/",  # its path may be what is too long
            "request_id": request_id,
        }
    ).encode()
    headers = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **({"Retry-After": "5"} if is_overload else {}),
        **SECURITY_HEADERS,
        REQUEST_ID: request_id,
    }
    _logger.info("%d %s", refused.status, refused.detail, extra={"request_id": request_id})
    lines = [f"HTTP/1.1 {refused.status.value} {refused.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
