"""Taking connections from the listening socket, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable

from app.wire.connections import Connections

_PAUSE_SECONDS = 0.5
"""After the system gave no connection, for lack of descriptors or memory."""
_COMPLAINT_SECONDS = 60.0
_SWEEP_SECONDS = 0.5
_logger = logging.getLogger(__name__)


class Acceptor:
    """Accepts connections until it is closed; begins at once, in the running loop.

    The loops' own servers accept all that wait before any of it is counted, and where descriptors run out
    one logs a traceback for each and another stops listening.

    Parameters
    ----------
    listening : socket
        Non-blocking, perhaps shared with other processes.
    make_protocol : callable
        Returns the protocol of a new connection.
    connections : Connections
        Those of this process, swept here.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._connections = connections
        self._complained_at = -_COMPLAINT_SECONDS
        self._accepting = asyncio.create_task(self._accept())
        self._sweeping = asyncio.create_task(self._sweep())

    def close(self) -> None:
        """Accept nothing more; deadlines of what is open go on."""
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        """End the deadlines, too, and wait until all is over."""
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
                self._complain(error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                # The next one is accepted when this one is counted.
                await loop.connect_accepted_socket(self._make_protocol, accepted)
            except OSError as error:
                accepted.close()
                _logger.debug("a connection was gone before it was served: %s", error)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(_SWEEP_SECONDS)
                self._connections.sweep(loop.time())

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAINT_SECONDS:
            self._complained_at = now
            n_open = len(self._connections)
            _logger.error(
                "no connection can be accepted: %s (%d are open; told once a minute)", error, n_open
            )
