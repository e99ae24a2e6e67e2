"""The command `lrbs worker`."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Annotated

import typer

from app.bootstrap import build
from app.domain.errors import WrongDatabaseError
from app.logs import log_to_stderr
from app.settings import Settings
from app.worker import make_worker


def worker(
    parent: Annotated[int | None, typer.Option(hidden=True, help="exit when this process has ended")] = None,
) -> None:
    """Run retrain jobs until stopped."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    settings = Settings()
    log_to_stderr(settings.log_format)
    services = build(settings)
    with contextlib.suppress(WrongDatabaseError):  # claims no job until the right one is back
        services.schema.require_current()
    make_worker(services, lambda: stopping or (parent is not None and os.getppid() != parent)).run_forever()
