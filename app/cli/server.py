"""The HTTP server of one process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import uvicorn

from app.api.state import ApiState
from app.bootstrap import Services
from app.main import create_app
from app.wire.connections import Acceptor, Connections, most_connections, raise_descriptor_limit
from app.wire.protocol import StrictProtocol
from solver import single_threaded_blas

BACKLOG = 2048
"""Connections that the system queues before they are accepted."""
_EXIT_SECONDS = 5.0  # after the shutdown timeout, until a process exits although threads are still running
_IDLE_CONNECTION_SECONDS = 15  # how long an idle connection is kept open for the next request
_SWITCH_SECONDS = 0.00005
"""Python's thread switch interval: the longest wait of the event loop for a thread that computes, and of that
thread for the event loop after each call of NumPy or FAISS, of which a search makes dozens."""
_YOUNGER_COLLECTIONS = 1000
"""Collections of the younger generation between two full ones; Python's default is 10."""
_logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """The HTTP server of one process; `on_stop` is called in a thread as soon as it is asked to stop.
    It exits some seconds after the shutdown timeout even if a thread, which nothing can stop, still runs."""

    def __init__(self, services: Services, on_stop: Callable[[], None]) -> None:
        settings = services.settings
        application = create_app(services)
        api: ApiState = application.state.api
        super().__init__(
            uvicorn.Config(
                application,
                loop="uvloop",
                http="httptools",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # the application reads them
                timeout_keep_alive=_IDLE_CONNECTION_SECONDS,
            )
        )
        self._timeout_seconds = settings.shutdown_seconds
        self._on_stop = on_stop
        self._stopping = api.stopping
        most = most_connections(settings.max_connections, raise_descriptor_limit())
        self._connections = Connections(most, settings.body_pause_seconds)
        self._exit_signals: SimpleQueue[int] = SimpleQueue()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop."""
        threading.Thread(target=self._watch, daemon=True).start()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to shut down."""
        # The interrupted code may hold any lock, even one that starting a thread or setting an event takes;
        # only putting into a queue of this kind is safe in a signal handler.
        self._exit_signals.put(sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections to the sockets."""
        await super().startup(sockets=[])
        for listening in sockets or ():
            listening.listen(BACKLOG)
            listening.setblocking(False)
            self.servers.append(Acceptor(listening, self._protocol, self._connections))  # type: ignore[arg-type]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish accepted requests; those that exceed the timeout are answered that the service stops."""
        asyncio.get_running_loop().call_later(self._timeout_seconds, self._cancel_requests)
        await super().shutdown(sockets)

    def _protocol(self) -> StrictProtocol:
        return StrictProtocol(self._connections, self.config, self.server_state, self.lifespan.state)

    def _cancel_requests(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    def _watch(self) -> None:
        self._exit_signals.get()
        self._stopping.set()
        _logger.info("stopping: accepted requests have %g s to end", self._timeout_seconds)
        self._on_stop()
        time.sleep(self._timeout_seconds + _EXIT_SECONDS)
        _logger.warning(
            "shutdown timed out after %g s with a request still running; exiting", self._timeout_seconds
        )
        os._exit(0)


@contextmanager
def keep_event_loop_responsive() -> Iterator[None]:
    """Shorten what stops or delays the event loop: garbage collections, waits for computing threads, and the
    threads of BLAS, which for the small products of a query spin longer than they compute."""
    # Modules and routes stay for good, so full collections, which stop everything, skip them.
    gc.collect()
    gc.freeze()
    # A full collection visits every object while all requests wait; most garbage is freed by younger ones.
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNGER_COLLECTIONS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with single_threaded_blas():
        yield
