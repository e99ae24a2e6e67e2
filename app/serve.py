"""Serving: one or several processes of the HTTP server behind one port, and a worker process beside them."""

from __future__ import annotations

import contextlib
import ipaddress
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from app.bootstrap import Services, build
from app.console import log_to_stderr
from app.main import create_app
from app.settings import Settings

_STOP_SECONDS = 10.0
_RESTART_SECONDS = 1.0
_IDLE_CONNECTION_SECONDS = 15


def serve(services: Services, with_worker: bool, on_listening: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    with_worker : bool
        Run a worker process beside the server, restarted when it dies.
    on_listening : callable
        Gets the base URL once connections to it are taken.
    """
    with bound_socket(services.settings) as bound:
        serve_on(bound, services, with_worker, on_listening)


def serve_on(
    bound: socket.socket, services: Services, with_worker: bool, on_listening: Callable[[str], None]
) -> None:
    """Serve on a socket of `bound_socket` until interrupted; parameters as of `serve`."""
    settings = services.settings
    several = settings.processes > 1
    # A process of several builds its own services from the environment: nothing of this one's is shared.
    application = f"{__name__}:one_of_several" if several else create_app(services)
    config = _configure(settings, application)
    with _explained(settings):
        bound.listen(config.backlog)
    on_listening(url_of(bound))
    # Both ways to end it are to leave no worker behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        worker_beside(settings) if with_worker else contextlib.nullcontext(),
    ):
        if several:
            services.database.engine.dispose()
            with _shared_metrics():
                Multiprocess(config, sockets=[bound]).run()
        else:
            uvicorn.Server(config).run(sockets=[bound])


def _configure(settings: Settings, application: FastAPI | str) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        factory=isinstance(application, str),
        workers=settings.processes,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE_CONNECTION_SECONDS,
        # What was accepted is finished, unless that takes longer.
        timeout_graceful_shutdown=round(settings.shutdown_seconds),
    )


def one_of_several() -> FastAPI:
    """Return the application of one server process of several; it ends when its parent is gone."""
    settings = Settings()
    log_to_stderr(settings.log_format)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    return create_app(build(settings))


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is gone: the next one that serves needs the port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _shared_metrics() -> Iterator[None]:
    """Give the server processes a folder where they count together."""
    with tempfile.TemporaryDirectory(prefix="lrbs-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


@contextlib.contextmanager
def bound_socket(settings: Settings) -> Iterator[socket.socket]:
    """Bind host and port; port 0 takes a free one. Raises OSError, saying which, when that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with _explained(settings):
            bound.bind((settings.host, settings.port))
        yield bound


@contextlib.contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f"LRBS_HOST {settings.host!r}, LRBS_PORT {settings.port}"
        raise OSError(error.errno, f"cannot listen at {place}: {error.strerror or error}") from error


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


@contextlib.contextmanager
def worker_beside(settings: Settings) -> Iterator[None]:
    """Keep one worker process alive; it ends with this process, however that ends."""
    # Ctrl-C reaches every process of a terminal; this one ends the worker.
    deaf = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*deaf, sys.executable, "-m", "app.cli", "worker", "--parent", str(os.getpid())]
    environment = {
        **os.environ,
        "LRBS_DATA_DIR": str(settings.data_dir.resolve()),
        "LRBS_DATABASE_URL": settings.resolved_database_url,
    }
    closing = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep_alive() -> None:
        while not closing.is_set():
            running[:] = [subprocess.Popen(command, env=environment)]
            running[0].wait()
            closing.wait(_RESTART_SECONDS)

    thread = threading.Thread(target=keep_alive, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        for process in running:
            process.terminate()
        thread.join(_STOP_SECONDS)
        for process in running:
            process.kill()
