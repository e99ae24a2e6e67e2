"""The commands that serve: `lrbs serve`, one server process of several, and `lrbs demo`."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import webbrowser
from typing import Annotated

import typer

from app.bootstrap import Services, build
from app.cli import demo as demonstration
from app.cli.console import LOG, OUT, progress
from app.cli.ready import read_settings
from app.cli.serve import bound_socket, is_loopback, serve_beside_others, serve_on
from app.cli.serve import serve as run_server
from app.cli.train import print_quality
from app.domain.errors import DatabaseUnavailableError
from app.domain.names import Scope
from app.logs import log_to_stderr
from app.sample import KINDS
from app.settings import Settings

_logger = logging.getLogger(__name__)


def demo(
    check: Annotated[
        bool, typer.Option(help="query the demo over HTTP, print a JSON summary and exit")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
    per_kind: Annotated[
        int, typer.Option(min=10, max=1000, help="pictures of each kind")
    ] = demonstration.PER_KIND,
) -> None:
    """Draw the sample set, train on it, serve it and open the page."""
    settings = read_settings()
    settings.open_search = is_loopback(settings.host)
    if check:
        services = _prepare(settings, per_kind)
        summary = demonstration.check(services)
        typer.echo(json.dumps(summary, indent=2))
        raise typer.Exit(0 if summary["passed"] else 1)
    # Bind first: a port that is in use should be reported before the training, not after it.
    settings.processes = settings.processes or 1  # a demo is for one visitor
    with bound_socket(settings) as bound:
        _serve_demo(_prepare(settings, per_kind), bound, open_page)


def _prepare(settings: Settings, per_kind: int) -> Services:
    services = build(settings)
    services.schema.upgrade()
    what = (
        f"Drawing {per_kind * len(KINDS)} pictures of {len(KINDS)} kinds of scenes with sentences, and "
        "training on four fifths of them, once; the time left is shown as soon as it can be estimated."
    )
    with progress(LOG, what) as show:
        demonstration.prepare(services, per_kind, show)
    return services


def _serve_demo(services: Services, bound: socket.socket, open_page: bool) -> None:
    log_to_stderr(services.settings.log_format)
    _, secret = services.access.create(Scope.ADMIN, "demo", replace=True)
    versions = services.versions.models(demonstration.COLLECTION)
    print_quality(next(version for version in versions if version.is_active).report)
    OUT.print(
        "quality on the test split, which is never trained on: lrbs demo --check",
        highlight=False,
    )
    OUT.print(f"admin key (shown this once, in place of any earlier one): {secret}", highlight=False)

    def on_listening(url: str) -> None:
        OUT.print(f"LRBS serves on {url}   API: {url}/docs   stop with Ctrl-C", highlight=False)
        if open_page and sys.stdout.isatty():
            webbrowser.open(url)

    serve_on(bound, services, with_worker=True, on_listening=on_listening)


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
    log_to_stderr(Settings().log_format)
    serve_beside_others(descriptor, parent)
