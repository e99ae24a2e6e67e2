"""Serving: one or several processes of the HTTP server behind one port, and a worker process beside them."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator

from app.api.metrics import forget_process
from app.bootstrap import Services, build
from app.cli.server import BACKLOG, Server, keep_event_loop_responsive
from app.cli.supervisor import ChildCommand, KeptProcesses
from app.domain.errors import ServiceError
from app.settings import Settings
from app.worker.worker import name_of_worker

_logger = logging.getLogger(__name__)
_STOP_SECONDS = 10.0
"""How long a child process may take to end after it was asked to; longer than giving a job back takes."""
_PARENT_POLL_SECONDS = 0.5  # how soon a server process notices that its parent is gone


def serve(services: Services, with_worker: bool, on_listening: Callable[[str], None]) -> None:
    """Serve until interrupted; `on_listening` gets the base URL once connections are accepted.
    A worker process beside the server is restarted when it dies."""
    with bound_socket(services.settings) as bound:
        serve_on(bound, services, with_worker, on_listening)


def serve_on(
    bound: socket.socket, services: Services, with_worker: bool, on_listening: Callable[[str], None]
) -> None:
    """Serve on a socket of `bound_socket` until interrupted; parameters as of `serve`."""
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
        end_worker = _nothing if worker is None else worker.terminate
        if settings.resolved_processes == 1:
            _run(bound, services, end_worker)
        else:
            with _server_processes(bound, settings):
                try:
                    signal.pause()
                finally:
                    end_worker()
    _logger.info("LRBS has stopped")


def serve_beside_others(descriptor: int, parent: int) -> None:
    """Serve as one process of several, on an inherited socket, until asked to stop or the parent is gone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), socket.socket(fileno=descriptor) as bound:
        _run(bound, build(Settings()), _nothing)


def _nothing() -> None:
    """Do nothing: there is no worker to end."""


def _run(bound: socket.socket, services: Services, on_stop: Callable[[], None]) -> None:
    server = Server(services, on_stop)
    with keep_event_loop_responsive():
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
        own = ChildCommand.of(settings, "server-process", str(bound.fileno()), str(os.getpid()))
        command = dataclasses.replace(
            own,
            environment={**own.environment, "PROMETHEUS_MULTIPROC_DIR": folder},
            descriptors=(bound.fileno(),),
        )
        seconds = settings.shutdown_seconds + _STOP_SECONDS

        def describe(process: int) -> str:
            forget_process(process, folder)
            return "it served"

        with KeptProcesses(command, seconds, settings.resolved_processes, describe):
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

    command = ChildCommand.of(services.settings, "worker", "--parent", str(os.getpid()))
    return KeptProcesses(command, _STOP_SECONDS, describe=describe)
