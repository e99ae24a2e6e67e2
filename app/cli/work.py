"""The command `lrbs worker`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.bootstrap import build, build_on_existing
from app.domain.errors import DatabaseUnavailableError
from app.logs import log_to_stderr
from app.settings import Settings
from app.worker.worker import make_worker

_logger = logging.getLogger(__name__)
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
    for fault in settings.faults_in(os.environ).values():
        _logger.warning(fault)
    # In a folder that is there its database may come back; one that is not is mistyped.
    services = build(settings) if settings.data_dir.exists() else build_on_existing(settings)
    # Without the right database it claims no job, until that is back.
    with contextlib.suppress(DatabaseUnavailableError):
        services.schema.require_current()
    show_life = _touch_now_and_then(settings.alive_file) if settings.alive_file else _nothing

    def should_stop() -> bool:
        show_life()
        return stopping or (parent is not None and os.getppid() != parent)

    _logger.info("the worker looks for jobs")
    make_worker(services, should_stop).run_forever()
    _logger.info("the worker has stopped")


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
