"""Accepting connections one at a time, and how many this process may have open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import socket
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.wire.protocol import Connections

_MAX_DESCRIPTORS = 65_536
"""Open files this process asks for: enough for any plausible limit on connections, where the system's own
hard limit may be a billion."""
_RESERVED_DESCRIPTORS = 256  # for the database, pictures, indexes, and connections that are being closed


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
