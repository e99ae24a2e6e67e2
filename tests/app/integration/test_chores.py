"""What a worker does between jobs: one thing that fails keeps nothing else waiting."""

import contextlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import JobState
from app.domain.errors import VectorEngineUnavailableError
from app.services.storage.pacing import Round
from app.storage.folders import TRASH, LocalFolder
from app.storage.pictures_and_bundles import Blobs
from app.worker.worker import Chore, make_worker
from tests.app.closing import close
from tests.app.integration.conftest import PARAMETERS
from tests.app.integration.test_busy_database import locked
from tests.app.integration.test_files import files_under, grow_old


def run_until(services: Services, is_done: Callable[[], bool]) -> bool:
    """Run a worker until something is so; return whether it came to be so within a minute."""
    is_late = threading.Event()
    timer = threading.Timer(60.0, is_late.set)
    timer.start()
    make_worker(services, lambda: is_late.is_set() or is_done(), poll_seconds=0.05).run_forever()
    timer.cancel()
    return not is_late.is_set()


def left_over(services: Services) -> list[str]:
    with services.database.read() as work:
        return work.imports.leftover_ids()


def test_a_busy_database_puts_off_what_writes_for_a_moment_and_the_sweep_not_at_all(
    either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.worker.worker._RETRY_SECONDS", 0.2)
    services = build(either.services.settings.model_copy(update={"lock_wait_seconds": 0.1}))
    either.fill("a")
    services.ownership.status()  # ties database and folder, for which it writes
    with services.database.write() as work:
        work.imports.abandon(work.imports.begin(work.collections.lock("a"), "b" * 16, 1, 60.0))
    pictures = services.settings.data_dir / "pictures"
    Blobs(LocalFolder(pictures)).put(b"refused")
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
    close(services)


@pytest.mark.parametrize("is_late", [False, True], ids=["it is to stop", "its time is over"])
def test_removing_ends_when_the_worker_is_to_do_something_else(either: Any, is_late: bool) -> None:
    services = either.services
    for name in "ab":
        either.make(name)
    with services.database.write() as work:
        for name in "ab":
            work.collections.delete(name)
    either.fill("c")
    with services.database.write() as work:
        work.imports.abandon(work.imports.begin(work.collections.lock("c"), "b" * 16, 1, 60.0))
    time_left = Round(0.0 if is_late else math.inf, lambda: not is_late)
    assert not services.removal.go_on(time_left)
    assert not services.imports.clean_up(time_left)
    assert left_over(services)
    assert services.imports.clean_up(Round())
    with services.database.read() as work:
        assert len(work.collections.deleted_ids()) == 2
    assert services.removal.go_on(Round())
    with services.database.read() as work:
        assert not work.collections.deleted_ids()
    assert not left_over(services)


def test_jobs_do_not_wait_until_all_chores_are_done(either: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    services = either.services
    either.fill("a")
    either.make("gone")
    with services.database.write() as work:
        work.collections.delete("gone")
    monkeypatch.setattr("app.worker.worker._CHORES_SECONDS", 0.0)
    job = services.training.request("a", PARAMETERS)
    assert run_until(services, lambda: services.training.job(job.id).state is JobState.SUCCEEDED)
    with services.database.read() as work:
        assert work.collections.deleted_ids(), "there was no time for it"
    monkeypatch.undo()

    def is_done() -> bool:
        with services.database.read() as work:
            return not work.collections.deleted_ids()

    assert run_until(services, is_done)


def test_a_chore_that_did_not_come_to_its_end_is_due_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.worker._RETRY_SECONDS", 0.0)
    answers = [True, False, False]
    chore = Chore("counting", lambda _: answers.pop(), 3600.0)
    for _ in range(5):
        chore.do_if_due(Round())
    assert answers == []


def test_what_is_away_is_one_line_of_the_log_and_not_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def act(_: Round) -> bool:
        raise VectorEngineUnavailableError("it is away")

    Chore("sweeping the engine", act, 3600.0).do_if_due(Round())
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "sweeping the engine failed: the vector engine cannot be used: it is away"
    )
    assert record.exc_info is None


def test_a_folder_that_cannot_be_swept_keeps_no_damaged_model_from_being_trained_anew(
    trained_pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    services = trained_pairs.services
    pictures = services.settings.data_dir / "pictures"
    Blobs(LocalFolder(pictures)).put(b"refused")
    grow_old(pictures)
    (pictures / TRASH).touch()
    damage(services.settings.data_dir / "models")
    assert run_until(services, lambda: len(services.training.jobs("a", 10)) == 2)
    assert "sweeping failed" in caplog.text
    assert "Traceback" in caplog.text


def damage(models: Path) -> None:
    for path in models.rglob("*.safetensors"):
        path.write_bytes(b"damaged")
