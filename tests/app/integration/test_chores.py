"""What a worker does between jobs: one thing that fails keeps nothing else waiting."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.storage.blobs import FileBlobStore
from app.storage.trash import TRASH
from app.worker import run_forever
from tests.app.integration.test_busy_database import locked
from tests.app.integration.test_files import files_under, grow_old


def run_until(services: Services, is_done: Callable[[], bool]) -> bool:
    """Run a worker until something is so; return whether it came to be so within a minute."""
    is_late = threading.Event()
    timer = threading.Timer(60.0, is_late.set)
    timer.start()
    run_forever(services, lambda: is_late.is_set() or is_done())
    timer.cancel()
    return not is_late.is_set()


def left_over(services: Services) -> list[str]:
    with services.database.read() as work:
        return work.imports.finished()


def test_a_busy_database_puts_off_what_writes_for_a_moment_and_the_sweep_not_at_all(
    either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.worker.chores._RETRY_SECONDS", 0.2)
    quick = {"lock_wait_seconds": 0.1, "worker_poll_seconds": 0.05}
    services = build(either.services.settings.model_copy(update=quick))
    either.fill("a")
    services.ownership.look()  # ties database and folder, for which it writes
    with services.database.write() as work:
        work.imports.abandon(work.imports.begin(work.collections.lock("a"), 1, 60.0))
    pictures = services.settings.data_dir / "pictures"
    FileBlobStore(pictures).put(b"refused")
    grow_old(pictures)
    with contextlib.ExitStack() as busy:
        busy.enter_context(locked(services, "imports, jobs, installation"))

        def is_done() -> bool:
            if files_under(pictures):
                assert left_over(services)
            else:
                busy.close()
            return not left_over(services)

        assert run_until(services, is_done)
    services.database.engine.dispose()


def test_a_folder_that_cannot_be_swept_keeps_no_damaged_model_from_being_trained_anew(
    pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    services = pairs.services
    pairs.fill("a")
    pairs.train("a")
    pictures = services.settings.data_dir / "pictures"
    FileBlobStore(pictures).put(b"refused")
    grow_old(pictures)
    (pictures / TRASH).touch()
    damage(services.settings.data_dir / "models")
    assert run_until(services, lambda: len(services.training.jobs("a", 10)) == 2)
    assert "sweeping failed" in caplog.text
    assert "Traceback" in caplog.text


def damage(models: Path) -> None:
    for path in models.rglob("*.safetensors"):
        path.write_bytes(b"damaged")
