"""The command `lrbs worker`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.bootstrap import build
from app.domain.errors import WrongDatabaseError
from app.logs import log_to_stderr
from app.settings import Settings
from app.worker.assembly import make_worker

_TOUCH_SECONDS = 1.0
"""Between signs of life: a waiting worker asks many times a second whether it should stop."""


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
    show_life = _touch_now_and_then(settings.alive_file) if settings.alive_file else _nothing

    def should_stop() -> bool:
        show_life()
        return stopping or (parent is not None and os.getppid() != parent)

    make_worker(services, should_stop).run_forever()


def _nothing() -> None:
    """Show no sign of life."""


def _touch_now_and_then(file: Path) -> Callable[[], None]:
    """Touch a file, and return what does so again, once a second at most; a full disk ends no training."""
    file.touch()
    due_at = 0.0

    def touch() -> None:
        nonlocal due_at
        if time.monotonic() >= due_at:
            due_at = time.monotonic() + _TOUCH_SECONDS
            with contextlib.suppress(OSError):
                file.touch()

    return touch
