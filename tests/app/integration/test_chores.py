"""What a worker does between jobs: one thing that fails keeps nothing else waiting; damage is looked for."""

import contextlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import JobState, ModelVersion
from app.domain.errors import DamagedBundleError, DatabaseUnavailableError, VectorEngineUnavailableError
from app.services.models.model_bundles import ModelBundles
from app.services.storage.pacing import Round
from app.storage.folders import TRASH, LocalCache, LocalFolder
from app.storage.pictures_and_bundles import Blobs, Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from app.worker.worker import Chore, make_worker
from tests.app.closing import close
from tests.app.integration.conftest import PARAMETERS, CopyOf, Pairs, train_all
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


PART = 1000


@pytest.fixture
def folder(tmp_path: Path) -> RemoteFolder:
    return open_remote(f"memory:/{tmp_path}/store")


def fill(path: Path) -> None:
    (path / "large").write_bytes(bytes(range(256)) * 20)
    (path / "empty").touch()


def test_a_stored_bundle_is_read_in_parts_and_not_copied(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.remote_folder.PART_BYTES", PART, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-room-here"))
    store = Bundles(folder, LocalCache(tmp_path / "cache", 1 << 20))
    name, manifest_hash = store.write("1-v1", fill, {})
    sizes: list[int] = []
    cat_file = folder._filesystem.cat_file

    def watch(*arguments: Any, **options: Any) -> bytes:
        content: bytes = cat_file(*arguments, **options)
        sizes.append(len(content))
        return content

    folder._filesystem.cat_file = watch
    store.check(name, manifest_hash)
    assert sum(sizes) > 5120
    assert max(sizes) <= PART
    folder.write(f"{name}/large", bytes(range(256)) * 19 + bytes(256))
    with pytest.raises(DamagedBundleError, match="large does not match its sum"):
        store.check(name, manifest_hash)
    folder.remove(f"{name}/empty")
    with pytest.raises(DamagedBundleError, match="No such file"):
        store.check(name, manifest_hash)


@pytest.fixture
def three(copy_of: CopyOf) -> Pairs:
    pairs, _ = copy_of(train_all, "abc")
    return pairs


@pytest.fixture
def checked(three: Pairs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The collections whose bundles were looked at; that of "a" meets a full disk, and all are damaged."""
    seen: list[str] = []
    names = {str(three.services.catalogue.collection(name)[0].id): name for name in "abc"}

    def check(_: ModelBundles, version: ModelVersion) -> None:
        name = names[version.bundle.partition("-")[0]]
        seen.append(name)
        if name == "a" and seen.count("a") == 1:
            raise DatabaseUnavailableError("storage-full")
        raise DamagedBundleError("damaged")

    monkeypatch.setattr(ModelBundles, "check", check)
    return seen


def test_one_that_cannot_be_looked_at_keeps_no_other_from_it_and_comes_again(
    three: Pairs, checked: list[str]
) -> None:
    assert not three.services.repair.go_on(Round())
    assert checked == ["a", "b", "c"]
    assert [len(three.services.training.jobs(name, 9)) for name in "abc"] == [1, 2, 2]
    assert three.services.repair.go_on(Round())
    assert checked == ["a", "b", "c", "a"]
    assert len(three.services.training.jobs("a", 9)) == 2


def test_the_look_ends_after_a_collection_when_the_worker_has_something_else_to_do(
    three: Pairs, checked: list[str]
) -> None:
    over = Round(math.inf, lambda: True)
    for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert not three.services.repair.go_on(over)
        assert checked == expected
    three.services.catalogue.delete_collection("a")
    assert three.services.repair.go_on(over)
    assert checked == ["a", "b", "c"]


def test_a_worker_is_asked_whether_to_stop_between_collections(three: Pairs, checked: list[str]) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(len(checked))
        return len(checked) == 2

    make_worker(three.services, should_stop).run_forever()
    assert {0, 1, 2} <= set(asked)
    assert checked == ["a", "b"]
