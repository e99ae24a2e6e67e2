"""Serving: one or several processes of the HTTP server behind one port, and a worker process beside them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType, MappingProxyType

import uvicorn

from app.api.shares import forget_process
from app.api.state import ApiState
from app.bootstrap import Services, build
from app.domain.errors import ServiceError
from app.encoders.registry import TEXT_TYPES
from app.encoders.texts import import_vectorizers
from app.main import create_app
from app.settings import Settings
from app.wire.acceptor import Acceptor
from app.wire.connections import Connections, most_connections, raise_descriptor_limit
from app.wire.protocol import StrictProtocol

_STOP_SECONDS = 10.0
"""How long a child process may take to end after it was asked to; longer than giving a job back takes."""
_EXIT_SECONDS = 5.0
"""After the shutdown timeout, until a process exits although threads are still running."""
_RESTART_SECONDS = 1.0
"""Between two starts of a child process that dies immediately."""
_PARENT_POLL_SECONDS = 0.5
"""How soon a server process notices that its parent is gone."""
_IDLE_CONNECTION_SECONDS = 15
"""How long an idle connection is kept open for the next request."""
_SWITCH_SECONDS = 0.0005
"""Python's thread switch interval: the longest wait of the event loop for a thread that computes."""
_YOUNGER_COLLECTIONS = 1000
"""Collections of the younger generation between two full ones; Python's default is 10."""
_BACKLOG = 2048
"""Connections that the system queues before they are accepted."""
_logger = logging.getLogger(__name__)


def serve(services: Services, with_worker: bool, on_listening: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    with_worker : bool
        Run a worker process beside the server, restarted when it dies.
    on_listening : callable
        Gets the base URL once connections are accepted.
    """
    with bound_socket(services.settings) as bound:
        serve_on(bound, services, with_worker, on_listening)


def serve_on(
    bound: socket.socket, services: Services, with_worker: bool, on_listening: Callable[[str], None]
) -> None:
    """Serve on a socket of `bound_socket` until interrupted; parameters as of `serve`."""
    settings = services.settings
    with _name_settings_in_errors(settings):
        bound.listen(_BACKLOG)
    on_listening(url_of(bound))
    # SIGTERM ends the service as Ctrl-C does: in an orderly way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        worker_beside(settings) if with_worker else contextlib.nullcontext(_nothing) as end_worker,
    ):
        if settings.processes == 1:
            _run(bound, services, end_worker)
        else:
            with _server_processes(bound, settings):
                try:
                    signal.pause()
                finally:
                    end_worker()


def serve_beside_others(descriptor: int, parent: int) -> None:
    """Serve as one process of several, until asked to stop or until the parent is gone.

    Parameters
    ----------
    descriptor : int
        Of the listening socket, inherited.
    parent : int
        Process that started this one.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), socket.socket(fileno=descriptor) as bound:
        _run(bound, build(Settings()), _nothing)


def _nothing() -> None:
    """Do nothing: there is no worker to end."""


class Server(uvicorn.Server):
    """The HTTP server of one process.

    It exits some seconds after the shutdown timeout even if a thread, which nothing can stop, still runs.

    Parameters
    ----------
    services : Services
        Services of the application.
    on_stop : callable
        Called in a thread as soon as the server is asked to stop.
    """

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
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=settings.proxies,
                timeout_keep_alive=_IDLE_CONNECTION_SECONDS,
            )
        )
        self._timeout_seconds = settings.shutdown_seconds
        self._on_stop = on_stop
        self._stopping = api.stopping
        most = most_connections(settings.max_connections, raise_descriptor_limit())
        self._connections = Connections(most, settings.body_pause_seconds)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to shut down."""
        if not self.should_exit:
            # The interrupted code may hold a lock, so nothing else is done in the signal handler.
            threading.Thread(target=self._watch, daemon=True).start()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections to the sockets."""
        await super().startup(sockets=[])
        for listening in sockets or ():
            listening.listen(_BACKLOG)
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
        self._stopping.set()
        self._on_stop()
        time.sleep(self._timeout_seconds + _EXIT_SECONDS)
        _logger.warning(
            "shutdown timed out after %g s with a request still running; exiting", self._timeout_seconds
        )
        os._exit(0)


def _run(bound: socket.socket, services: Services, on_stop: Callable[[], None]) -> None:
    server = Server(services, on_stop)
    _import_for_texts(services)
    keep_event_loop_responsive()
    server.run(sockets=[bound])


def _import_for_texts(services: Services) -> None:
    """Import what the collections' text models need: during searches it would take part of a second."""
    try:
        collections = services.catalogue.collections()
    except ServiceError:
        return  # not ready yet; they are imported with the first model
    types = {modality.encoder["type"] for collection in collections for modality in collection.modalities}
    if types.intersection(TEXT_TYPES):
        import_vectorizers()


def keep_event_loop_responsive() -> None:
    """Shorten what stops or delays the event loop: garbage collections and waits for computing threads."""
    # Modules and routes stay for good, so full collections, which stop everything, skip them.
    gc.collect()
    gc.freeze()
    # A full collection visits every object while all requests wait; most garbage is freed by younger ones.
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNGER_COLLECTIONS)
    sys.setswitchinterval(_SWITCH_SECONDS)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, since its successor needs the port."""
    closing = threading.Event()
    while os.getppid() == parent:
        closing.wait(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _server_processes(bound: socket.socket, settings: Settings) -> Iterator[None]:
    """Keep several server processes alive, which share their metrics."""
    arguments = ["server-process", str(bound.fileno()), str(os.getpid())]
    seconds = settings.shutdown_seconds + _STOP_SECONDS
    with (
        tempfile.TemporaryDirectory(prefix="lrbs-metrics-") as folder,
        _kept_alive(
            arguments,
            settings,
            seconds,
            count=settings.processes,
            more_environment={"PROMETHEUS_MULTIPROC_DIR": folder},
            descriptors=(bound.fileno(),),
            on_end=lambda process: forget_process(process, folder),
        ),
    ):
        try:
            yield
        finally:
            bound.close()  # connections not accepted yet are refused rather than left waiting


@contextlib.contextmanager
def bound_socket(settings: Settings) -> Iterator[socket.socket]:
    """Bind host and port; port 0 takes a free one. Raises OSError, saying which, when that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small packets immediately (TCP_NODELAY) only where the protocol is named. Otherwise the
    # body of an answer waits for the client to acknowledge the head, which clients delay by some 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with _name_settings_in_errors(settings):
            bound.bind((settings.host, settings.port))
        yield bound


@contextlib.contextmanager
def _name_settings_in_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        address = f"LRBS_HOST {settings.host!r}, LRBS_PORT {settings.port}"
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror or error}") from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host's address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listening: socket.socket) -> str:
    """Return the base URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def worker_beside(settings: Settings) -> AbstractContextManager[Callable[[], None]]:
    """Keep one worker process alive; it ends with this process, however that ends.

    Yields a function that ends it early.
    """
    return _kept_alive(["worker", "--parent", str(os.getpid())], settings, _STOP_SECONDS)


@contextlib.contextmanager
def _kept_alive(
    arguments: Sequence[str],
    settings: Settings,
    stop_seconds: float,
    count: int = 1,
    more_environment: Mapping[str, str] = MappingProxyType({}),
    descriptors: Sequence[int] = (),
    on_end: Callable[[int], None] = lambda _: None,
) -> Iterator[Callable[[], None]]:
    """Keep processes of the command line alive: restarted when they die, terminated at the end of the block.

    Yields a function that terminates them early.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of the command.
    settings : Settings
        Passed on in the environment.
    stop_seconds : float
        How long they may take to end.
    count : int
        Number of processes.
    more_environment : mapping of str to str
        Further variables.
    descriptors : sequence of int
        Files they inherit.
    on_end : callable
        Gets the id of a process that ended.
    """
    # Ctrl-C reaches every process of a terminal; the children ignore it, and this process ends them.
    ignore_interrupts = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*ignore_interrupts, sys.executable, "-m", "app.cli", *arguments]
    environment = {**settings.passed_on_in(os.environ), **more_environment}
    closing, starting = threading.Event(), threading.Lock()
    running: dict[int, subprocess.Popen[bytes]] = {}

    def keep_alive(number: int) -> None:
        process: subprocess.Popen[bytes] | None
        while True:
            with starting:
                if closing.is_set():
                    return
                try:
                    process = subprocess.Popen(command, env=environment, pass_fds=descriptors)
                except OSError:
                    # Memory, processes or descriptors have run out, perhaps for a moment only.
                    _logger.exception("cannot start lrbs %s, will retry", arguments[0])
                    process = None
                else:
                    running[number] = process
            if process is not None:
                process.wait()
                on_end(process.pid)
            closing.wait(_RESTART_SECONDS)

    def terminate() -> None:
        with starting:
            closing.set()
        for process in running.values():
            process.terminate()

    threads = [threading.Thread(target=keep_alive, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield terminate
    finally:
        terminate()
        deadline = time.monotonic() + stop_seconds
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        for process in running.values():
            process.kill()
