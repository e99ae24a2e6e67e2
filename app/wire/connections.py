"""Accepting connections one at a time, the limit on open ones, and which one is closed to make room."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import socket
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_DESCRIPTORS = 65_536
"""Open files this process asks for: enough for any plausible limit on connections, where the system's own
hard limit may be a billion."""
_RESERVED_DESCRIPTORS = 256  # for the database, pictures, indexes, and connections that are being closed
_MAX_LINGERING = 32
"""Refused connections that stay open for their clients: they are not counted, and have to fit among the
reserved descriptors."""
_CLOSING_SECONDS = 20.0  # how long the rest of an answer may take once its connection is being closed


class Connection(Protocol):
    """What the limit needs to know of a connection."""

    address: str
    """Client address."""
    deadline: float
    """On the loop's clock, in seconds; infinite while a request is being answered."""
    closing_since: float
    """On the loop's clock, in seconds; infinite while the connection is open."""

    def is_closing(self) -> bool:
        """Return whether it closes as soon as the data written so far has been sent."""
        ...

    def expire(self) -> None:
        """Close it because its deadline has passed."""
        ...

    def abort(self) -> None:
        """Close it immediately."""
        ...


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
        self._open: dict[Connection, None] = {}
        self._of_address: Counter[str] = Counter()
        self._new: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._used: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
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

    def remove(self, connection: Connection) -> None:
        """Remove a connection, if it is there."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]
        self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """Record that a connection has sent a request, and is no longer idle."""
        for idle in (self._new, self._used):
            idle[connection.address].pop(connection, None)
            if not idle[connection.address]:
                del idle[connection.address]

    def wait(self, connection: Connection) -> None:
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


def raise_descriptor_limit() -> int:
    """Raise the limit on open files of this process as far as the system allows; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY:
        return _MAX_DESCRIPTORS
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)


def most_connections(limit: int, descriptors: int) -> int:
    """Return how many connections, at most the limit, leave enough descriptors for everything else."""
    reserved = min(_RESERVED_DESCRIPTORS, math.ceil(descriptors / 2))
    return max(min(limit, descriptors - reserved), 1)


_PAUSE_SECONDS = 0.5
"""Pause after a failed `accept`, for lack of descriptors or memory: the socket stays ready, so a loop
without a pause would spin."""
_SWEEP_SECONDS = 0.5  # between two checks of the deadlines: short beside the seconds that they last
_logger = logging.getLogger(__name__)


class Acceptor:
    """Accept connections until closed, and check their deadlines; starts immediately, in the running event
    loop. The listening socket is non-blocking, and may be shared with other processes."""

    # The servers of asyncio and uvloop accept every waiting connection before any is counted; when
    # descriptors run out, one logs a traceback for each connection and the other stops listening.

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], HttpToolsProtocol],
        connections: Connections,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._connections = connections
        self._accepting = asyncio.create_task(self._accept())
        self._sweeping = asyncio.create_task(self._sweep())

    def close(self) -> None:
        """Stop accepting; the deadlines of open connections still apply."""
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        """Stop checking deadlines as well, and wait until both tasks have ended."""
        self._sweeping.cancel()
        await asyncio.gather(self._accepting, self._sweeping, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                _logger.error("cannot accept connections: %s (%d open)", error, len(self._connections))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            connecting = asyncio.ensure_future(loop.connect_accepted_socket(self._make_protocol, accepted))
            try:
                # The next connection is accepted only after this one has been counted.
                await asyncio.shield(connecting)
            except OSError as error:
                accepted.close()
                _logger.debug("connection lost before it was served: %s", error)
            except asyncio.CancelledError:
                # Were it cancelled as well, the protocol would hear of the connection, and never of its end:
                # a server that stops would wait for it in vain.
                with contextlib.suppress(OSError):
                    _, protocol = await connecting
                    protocol.shutdown()
                raise

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(_SWEEP_SECONDS)
                self._connections.sweep(loop.time())
