import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import Job, JobState
from app.domain.errors import DatabaseUnavailableError, SchemaOutdatedError, TrainingDataError
from app.retrain import train
from app.services.training import TrainingParameters, TrainingService
from app.worker import run_forever, run_once

PARAMETERS = TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20)


def ignore(*_: object) -> None:
    pass


def in_time(call: Callable[[], object]) -> Any:
    """Return what a call returns or raises; a call that hangs fails the test instead of stopping it."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert outcome, "it hangs"
    return outcome[0]


def test_training_one_collection_does_not_wait_for_anothers_job(pairs: Any) -> None:
    pairs.fill("other")
    pairs.fill("mine")
    waiting = pairs.services.training.request("other", PARAMETERS)
    assert in_time(lambda: train(pairs.services, "mine", PARAMETERS, ignore)) == 1
    assert pairs.services.training.job(waiting.id).state is JobState.QUEUED


def test_training_ends_with_what_the_worker_raises(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Job:
        raise OSError("the disk is gone")

    pairs.fill("a")
    monkeypatch.setattr("app.retrain.run_once", fail)
    outcome = in_time(lambda: train(pairs.services, "a", PARAMETERS, ignore))
    assert isinstance(outcome, OSError)
    assert run_once(pairs.services) is None  # the job was closed, not left behind


def test_an_interrupted_training_cancels_its_job(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def train_forever(self: TrainingService, job: Job, report: Any, lease_seconds: float) -> int:
        jobs.append(job)
        while True:
            report({"phase": "fitting"})
            time.sleep(0.01)

    def interrupt(what: str, *_: object) -> None:
        if what == "training: fitting":
            raise KeyboardInterrupt

    pairs.fill("a")
    monkeypatch.setattr(TrainingService, "run", train_forever)
    outcome = in_time(lambda: train(pairs.services, "a", PARAMETERS, interrupt))
    assert isinstance(outcome, KeyboardInterrupt)
    assert pairs.services.training.job(jobs[0].id).state is JobState.CANCELLED
    monkeypatch.undo()
    assert pairs.train("a") == 1


def test_an_interruption_while_the_job_is_queued_cancels_it(
    pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TrainingService.request
    main_thread = threading.Event()

    def request_slowly(self: TrainingService, *arguments: Any) -> Job:
        job = request(self, *arguments)
        main_thread.wait(0.3)  # the transaction is through, its caller knows nothing yet
        return job

    def interrupt(future: Any) -> Any:
        if not main_thread.is_set():
            time.sleep(0.1)
            main_thread.set()
            raise KeyboardInterrupt
        return result(future)

    pairs.fill("a")
    result = Future.result
    monkeypatch.setattr(TrainingService, "request", request_slowly)
    monkeypatch.setattr(Future, "result", interrupt)
    outcome = in_time(lambda: train(pairs.services, "a", PARAMETERS, ignore))
    monkeypatch.undo()
    assert isinstance(outcome, KeyboardInterrupt)
    assert run_once(pairs.services) is None
    assert pairs.train("a") == 1


def test_training_waits_for_the_worker_that_has_the_job(pairs: Any) -> None:
    pairs.fill("a")
    stopping = threading.Event()
    worker = threading.Thread(target=run_forever, args=(pairs.services, stopping.is_set))
    worker.start()
    try:
        assert in_time(lambda: train(pairs.services, "a", PARAMETERS, ignore)) == 1
    finally:
        stopping.set()
        worker.join()


@pytest.fixture
def deleting(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A service whose collection goes away as soon as its retrain has begun."""
    run = TrainingService.run

    def delete_first(self: TrainingService, job: Job, *arguments: Any) -> int:
        pairs.services.catalogue.delete_collection(job.collection)
        return run(self, job, *arguments)

    monkeypatch.setattr(TrainingService, "run", delete_first)
    pairs.fill("a")
    return pairs


def test_a_collection_deleted_during_its_retrain_ends_the_job(deleting: Any) -> None:
    assert deleting.try_to_train("a").state is JobState.CANCELLED
    assert run_once(deleting.services) is None


def test_training_a_collection_that_is_deleted_meanwhile_says_so(deleting: Any) -> None:
    outcome = in_time(lambda: train(deleting.services, "a", PARAMETERS, ignore))
    assert isinstance(outcome, TrainingDataError)
    assert "deleted" in str(outcome)


@pytest.mark.parametrize("error", [DatabaseUnavailableError(), ValueError("anything")])
def test_a_worker_outlives_what_goes_wrong(
    pairs: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.fill("a")
    job = pairs.services.training.request("a", PARAMETERS)
    calls = 0

    def fail_twice(services: Services) -> Job | None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise error
        return run_once(services)

    monkeypatch.setattr("app.worker.run_once", fail_twice)
    quick = build(pairs.services.settings.model_copy(update={"worker_poll_seconds": 0.01}))
    run_forever(quick, lambda: calls > 3)
    quick.database.engine.dispose()
    assert pairs.services.training.job(job.id).state is JobState.SUCCEEDED


def test_a_busy_moment_does_not_end_a_retrain(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = pairs.services.settings.model_copy(update={"lock_wait_seconds": 0.05})
    impatient = build(settings)
    run = TrainingService.run

    def run_beside_a_writer(self: TrainingService, job: Job, report: Any, lease_seconds: float) -> int:
        with pairs.services.database.write() as work:
            work.collections.list()
            for phase in ("one", "two"):
                time.sleep(0.4)  # longer than the pause between two reports
                report({"phase": phase})
        return run(self, job, report, lease_seconds)

    monkeypatch.setattr(TrainingService, "run", run_beside_a_writer)
    pairs.fill("a")
    impatient.training.request("a", PARAMETERS)
    job = run_once(impatient)
    impatient.database.engine.dispose()
    assert job is not None
    assert job.state is JobState.SUCCEEDED, job.error


def test_a_worker_refuses_an_old_schema(pairs: Any, tmp_path: Any) -> None:
    pairs.services.require_current_schema()
    empty = build(pairs.services.settings.model_copy(update={"data_dir": tmp_path / "empty"}))
    with pytest.raises(SchemaOutdatedError, match="lrbs db upgrade"):
        empty.require_current_schema()
    empty.database.engine.dispose()


def test_a_database_of_a_newer_version_is_refused(pairs: Any) -> None:
    with pairs.services.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaOutdatedError, match="9999"):
        pairs.services.upgrade_schema()
