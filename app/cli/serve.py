"""Serving, as `lrbs serve` does: one or several processes of the HTTP server behind one port, and a worker
process beside them; child processes are restarted when they die, and terminated with this one."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Self

import typer
import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from app.bootstrap import Services, build
from app.domain.errors import DatabaseUnavailableError, ServiceError
from app.imports import import_for_good
from app.logs import log_to_stderr
from app.settings import Settings
from app.wire.acceptor import Acceptor, most_connections, raise_descriptor_limit
from app.wire.protocol import Connections, StrictProtocol
from app.worker.attempts import describe_end
from app.worker.worker import name_of_worker
from solver import single_threaded_blas

if TYPE_CHECKING:
    from app.api.state import ApiState

_STOP_SECONDS = 10.0
"""How long a child process may take to end after it was asked to; longer than giving a job back takes."""
_PARENT_POLL_SECONDS = 0.5  # how soon a server process notices that its parent is gone
_RESTART_SECONDS = 1.0  # between two starts of a child process that dies immediately
_IGNORE_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C reaches every process of a terminal; the children ignore it, and this process ends them."""
_logger = logging.getLogger(__name__)
BACKLOG = 2048
"""Connections that the system queues before they are accepted."""
_EXIT_SECONDS = 5.0  # after the shutdown timeout, until a process exits although threads are still running
_IDLE_CONNECTION_SECONDS = 15  # how long an idle connection is kept open for the next request
_SWITCH_SECONDS = 0.00005
"""Python's thread switch interval: the longest wait of the event loop for a thread that computes, and of that
thread for the event loop after each call of NumPy or FAISS, of which a search makes dozens."""
_YOUNGER_COLLECTIONS = 1000
"""Collections of the younger generation between two full ones; Python's default is 10."""


class KeptProcesses:
    """Processes of one command of `lrbs`, kept alive as long as this context lasts; they may take
    `stop_seconds` to end. `describe` gets the id of one that ended, and returns what it did, for the log."""

    # They have these settings and further variables, and inherit the files of the descriptors.

    def __init__(
        self,
        settings: Settings,
        *arguments: str,
        describe: Callable[[int], str],
        stop_seconds: float = _STOP_SECONDS,
        count: int = 1,
        variables: Mapping[str, str] | None = None,
        descriptors: tuple[int, ...] = (),
    ) -> None:
        self._name = arguments[0]
        self._command = [*_IGNORE_INTERRUPTS, sys.executable, "-m", "app.cli", *arguments]
        self._environment = {**settings.passed_on_in(os.environ), **(variables or {})}
        self._descriptors = descriptors
        self._stop_seconds = stop_seconds
        self._describe = describe
        self._closing = threading.Event()
        self._starting = threading.Lock()
        """Held while a process is started, so that none is started after all were terminated."""
        self._running: dict[int, subprocess.Popen[bytes]] = {}  # the last process of each number
        self._threads = [
            threading.Thread(target=self._keep_alive, args=(number,), daemon=True) for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate them, and kill those that have not ended in time."""
        self.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        for process in self._running.values():
            process.kill()

    def terminate(self) -> None:
        """Ask the processes to end, and start none after them."""
        with self._starting:
            self._closing.set()
        for process in self._running.values():
            process.terminate()

    def _keep_alive(self, number: int) -> None:
        while not self._closing.is_set():
            process = self._start(number)
            if process is not None:
                process.wait()
                doing = self._describe(process.pid)
                if not self._closing.is_set():
                    end, doing = describe_end(process.returncode), doing and f" while {doing}"
                    facts = self._name, process.pid, end, doing
                    _logger.error("%s %d %s%s, another is started", *facts, extra={"cause": process.pid})
            self._closing.wait(_RESTART_SECONDS)

    def _start(self, number: int) -> subprocess.Popen[bytes] | None:
        """Start a process; None when that fails, or when all were terminated meanwhile."""
        with self._starting:
            if self._closing.is_set():
                return None
            try:
                process = subprocess.Popen(self._command, env=self._environment, pass_fds=self._descriptors)
            except OSError:
                # Memory, processes or descriptors have run out, perhaps for a moment only.
                _logger.exception("cannot start lrbs %s, will retry", self._name)
                return None
            self._running[number] = process
            _logger.info("%s %d is started", self._name, process.pid)
            return process


class Server(uvicorn.Server):
    """The HTTP server of one process; `on_stop` is called in a thread as soon as it is asked to stop.
    It exits some seconds after the shutdown timeout even if a thread, which nothing can stop, still runs."""

    def __init__(self, services: Services, on_stop: Callable[[], None] = lambda: None) -> None:
        create_app = import_for_good("app.main").create_app  # the routes, which a process that serves needs
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
        threading.Thread(target=self._watch, daemon=True).start()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The interrupted code may hold any lock, even one that starting a thread or setting an event takes;
        # only putting into a queue of this kind is safe in a signal handler.
        self._exit_signals.put(sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        facts = self._connections, self.config, self.server_state, self.lifespan.state
        for listening in sockets or ():
            listening.listen(BACKLOG)
            listening.setblocking(False)
            self.servers.append(Acceptor(listening, partial(StrictProtocol, *facts), self._connections))  # type: ignore[arg-type]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish accepted requests; those that exceed the timeout are answered that the service stops."""
        asyncio.get_running_loop().call_later(self._timeout_seconds, self._cancel_requests)
        await super().shutdown(sockets)

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


def serve(
    worker: Annotated[bool, typer.Option(help="run a worker process beside the server")] = True,
    processes: Annotated[
        int | None, typer.Option(min=1, max=64, help="server processes; default: LRBS_PROCESSES")
    ] = None,
) -> None:
    """Serve the API and the page on LRBS_HOST:LRBS_PORT."""
    settings = Settings()
    settings.processes = processes or settings.processes
    log_to_stderr(settings.log_format)
    for fault in settings.faults_in(os.environ).values():
        _logger.warning(fault)
    services = build(settings)
    try:
        services.schema.set_up()
    except DatabaseUnavailableError as error:
        if error.code != "wrong-database":
            raise
        _logger.error("not ready: %s", error)  # ready without a restart once the right one is back
    run_server(services, worker, lambda url: _logger.info("LRBS serves on %s", url))


def server_process(descriptor: int, parent: int) -> None:
    """Serve as one of several processes."""
    # On an inherited socket, until asked to stop or the parent is gone.
    settings = Settings()
    log_to_stderr(settings.log_format)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), socket.socket(fileno=descriptor) as bound:
        _run(bound, Server(build(settings)))


def run_server(services: Services, with_worker: bool, on_listening: Callable[[str], None]) -> None:
    """Serve until interrupted; `on_listening` gets the base URL once connections are accepted.
    A worker process beside the server is restarted when it dies."""
    with bound_socket(services.settings) as bound:
        serve_on(bound, services, with_worker, on_listening)


def serve_on(
    bound: socket.socket, services: Services, with_worker: bool, on_listening: Callable[[str], None]
) -> None:
    """Serve on a socket of `bound_socket` until interrupted; parameters as of `run_server`."""
    settings = services.settings
    with _name_settings_in_errors(settings):
        bound.listen(BACKLOG)
    on_listening(url_of(bound))
    # SIGTERM ends the service as Ctrl-C does: in an orderly way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        worker_beside(services) if with_worker else contextlib.nullcontext() as worker,
    ):

        def end_worker() -> None:
            if worker is not None:
                worker.terminate()

        if settings.resolved_processes == 1:
            _run(bound, Server(services, end_worker))
        else:
            with _server_processes(bound, settings):
                try:
                    signal.pause()
                finally:
                    end_worker()
    _logger.info("LRBS has stopped")


def _run(bound: socket.socket, server: Server) -> None:
    with keep_event_loop_responsive():
        # Before uvicorn does so itself: until then a signal would leave its coroutine behind, with a warning.
        for number in HANDLED_SIGNALS:
            signal.signal(number, server.handle_exit)
        server.run(sockets=[bound])


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, since its successor needs the port."""
    closing = threading.Event()
    while os.getppid() == parent:
        closing.wait(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _server_processes(bound: socket.socket, settings: Settings) -> Iterator[None]:
    """Keep several server processes alive, which share their metrics."""
    with tempfile.TemporaryDirectory(prefix="lrbs-metrics-") as folder:

        def describe(process: int) -> str:
            from app.api.metrics import forget_process  # of a process that ended: seldom

            forget_process(process, folder)
            return "it served"

        with KeptProcesses(
            settings,
            "server-process",
            str(bound.fileno()),
            str(os.getpid()),
            describe=describe,
            stop_seconds=settings.shutdown_seconds + _STOP_SECONDS,
            count=settings.resolved_processes,
            variables={"PROMETHEUS_MULTIPROC_DIR": folder},
            descriptors=(bound.fileno(),),
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


def worker_beside(services: Services) -> KeptProcesses:
    """Return one worker process to be kept alive; it ends with this process, however that ends."""

    def describe(process: int) -> str:
        with contextlib.suppress(ServiceError):  # the database may be away
            job = services.training.held_by(name_of_worker(process))
            return "" if job is None else f"job {job.id} retrained {job.collection}"
        return ""

    return KeptProcesses(services.settings, "worker", "--parent", str(os.getpid()), describe=describe)
