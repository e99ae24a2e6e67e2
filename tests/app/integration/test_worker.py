import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.cli.train import train_and_wait
from app.domain.entities import Job, JobState
from app.domain.errors import DatabaseUnavailableError, ServiceError
from app.domain.reports import Iteration, Supervision, TrainingParameters
from app.services.training.requests import TrainingService
from app.worker.attempts import Failure, Lease, Outcome
from app.worker.worker import Worker, make_worker
from tests.app.closing import close
from tests.app.integration.in_process import at_work, run_here, run_one, run_with, train_here
from tests.app.refused import refused
from tests.app.waiting import wait_for

PARAMETERS = TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20)


def ignore(*_: object) -> None:
    pass


@pytest.fixture
def trains_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `train_and_wait` train in this process: a child takes seconds to start."""

    def make(services: Services) -> Worker:
        return make_worker(services, train=lambda lease: train_here(services, lease))

    monkeypatch.setattr("app.cli.train.make_worker", make)


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
    thread.join(300)
    assert outcome, "it hangs"
    return outcome[0]


def test_a_training_that_takes_too_long_ends(pairs: Any) -> None:
    """One collection's retrain must not keep the worker from all others for ever."""
    hasty = build(pairs.services.settings.model_copy(update={"max_training_seconds": 0.01}))
    pairs.fill("a")
    hasty.training.request("a", PARAMETERS)
    job = make_worker(hasty).run_once()
    assert job is not None
    assert job.state is JobState.FAILED
    assert job.error == "took longer than LRBS_MAX_TRAINING_SECONDS allows: 0.01 s"
    close(hasty)


def train_until_lost(services: Services, lease: Lease) -> Outcome:
    while True:
        lease.report({"phase": "fitting", "iteration": 1})
        time.sleep(0.01)


@pytest.fixture
def impatient(either: Any) -> Any:
    """Services that try a job at most twice, the second time at once."""
    update = {"job_attempts": 2, "job_retry_seconds": 0.0}
    built = build(either.services.settings.model_copy(update=update))
    yield built
    close(built)


@pytest.mark.usefixtures("trains_here")
def test_training_one_collection_does_not_wait_for_anothers_job(pairs: Any) -> None:
    pairs.fill("other")
    pairs.fill("mine")
    waiting = pairs.services.training.request("other", PARAMETERS)
    assert in_time(lambda: train_and_wait(pairs.services, "mine", PARAMETERS, ignore)) == 1
    assert pairs.services.training.job(waiting.id).state is JobState.QUEUED


def test_who_waits_for_the_worker_of_a_service_is_told(pairs: Any) -> None:
    pairs.fill("a")
    waiting = pairs.services.training.request("a", PARAMETERS)
    told: list[JobState] = []

    def on_elsewhere() -> None:
        told.append(pairs.services.training.job(waiting.id).state)
        pairs.services.training.cancel(waiting.id)

    with pairs.services.database.write() as work:
        claimed = work.jobs.claim("of a service", 2.0, 3)
    assert claimed is not None
    outcome = in_time(
        lambda: train_and_wait(pairs.services, "a", PARAMETERS, ignore, on_elsewhere=on_elsewhere)
    )
    assert isinstance(outcome, ServiceError)
    assert outcome.code == "training-data"
    assert told == [JobState.RUNNING]


def test_training_ends_with_what_the_worker_raises(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Job:
        raise OSError("the disk is gone")

    pairs.fill("a")
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "run_once", fail)
        outcome = in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, ignore))
    assert isinstance(outcome, OSError)
    assert make_worker(pairs.services).run_once() is None  # the job was closed, not left behind


def last_job(services: Services) -> Job | None:
    with services.database.read() as work:
        return next(iter(work.jobs.recent(work.collections.get("a"), 1)), None)


def is_running(services: Services) -> bool:
    job = last_job(services)
    return job is not None and job.state is JobState.RUNNING


def test_an_interrupted_training_cancels_its_job(pairs: Any) -> None:
    def interrupt(*_: object) -> None:
        if is_running(pairs.services):  # its trainer starts for a second or so
            raise KeyboardInterrupt

    pairs.fill("a")
    outcome = in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, interrupt))
    assert isinstance(outcome, KeyboardInterrupt)
    job = last_job(pairs.services)
    assert job is not None
    assert job.state is JobState.CANCELLED
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
    outcome = in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, ignore))
    monkeypatch.undo()
    assert isinstance(outcome, KeyboardInterrupt)
    assert make_worker(pairs.services).run_once() is None
    assert pairs.train("a") == 1


@pytest.mark.usefixtures("trains_here")
def test_training_waits_for_the_worker_that_has_the_job(pairs: Any) -> None:
    pairs.fill("a")
    with at_work(pairs.services):
        assert in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, ignore)) == 1


@pytest.mark.usefixtures("trains_here")
def test_training_goes_on_with_the_job_that_was_requested_in_the_same_words(pairs: Any) -> None:
    pairs.fill("a")
    training = pairs.services.training
    left = training.request("a", PARAMETERS)  # by a process that was killed
    for others in (
        replace(PARAMETERS, alpha=2e-3),
        replace(PARAMETERS, supervision=Supervision(pairs=False)),
    ):
        with refused("training-already-running"):
            train_and_wait(pairs.services, "a", others, ignore)
    assert training.job(left.id).state is JobState.QUEUED
    assert in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, ignore)) == 1
    assert training.job(left.id).model_version == 1


def test_a_collection_deleted_during_its_retrain_ends_the_job(pairs: Any) -> None:
    def delete_first(services: Services, lease: Lease) -> Outcome:
        services.catalogue.delete_collection("a")
        return train_here(services, lease)

    pairs.fill("a")
    pairs.services.training.request("a", PARAMETERS)
    job = run_with(pairs.services, delete_first)
    assert job.state is JobState.CANCELLED
    assert make_worker(pairs.services).run_once() is None


def test_training_a_collection_that_is_deleted_meanwhile_says_so(pairs: Any) -> None:
    def delete(*_: object) -> None:
        if not deleted and is_running(pairs.services):  # its trainer starts for a second or so
            pairs.services.catalogue.delete_collection("a")
            deleted.append("a")

    deleted: list[str] = []
    pairs.fill("a")
    outcome = in_time(lambda: train_and_wait(pairs.services, "a", PARAMETERS, delete))
    assert isinstance(outcome, ServiceError)
    assert outcome.code == "training-data"
    assert "deleted" in str(outcome)


@pytest.mark.parametrize("error", [DatabaseUnavailableError(), ValueError("anything")])
def test_a_worker_outlives_what_goes_wrong(
    pairs: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.fill("a")
    job = pairs.services.training.request("a", PARAMETERS)
    calls = 0

    run_once = Worker.run_once

    def fail_twice(worker: Worker) -> Job | None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise error
        return run_once(worker)

    monkeypatch.setattr(Worker, "run_once", fail_twice)
    make_worker(
        pairs.services, lambda: calls > 3, lambda lease: train_here(pairs.services, lease), poll_seconds=0.01
    ).run_forever()
    assert pairs.services.training.job(job.id).state is JobState.SUCCEEDED


def test_a_busy_moment_does_not_end_a_retrain(pairs: Any) -> None:
    impatient = build(pairs.services.settings.model_copy(update={"lock_wait_seconds": 0.05}))

    def run_beside_a_writer(services: Services, lease: Lease) -> Outcome:
        with pairs.services.database.write() as work:
            work.collections.list()
            for phase in ("one", "two"):
                lease.report({"phase": phase})
                time.sleep(0.4)  # longer than the pause between two heartbeats
        return train_here(services, lease)

    pairs.fill("a")
    impatient.training.request("a", PARAMETERS)
    job = run_with(impatient, train=run_beside_a_writer)
    assert job.state is JobState.SUCCEEDED, job.error
    _, events = impatient.training.events(job.id, 0, 100)
    assert [event.data.get("phase") for event in events[2:4]] == ["one", "two"]  # late, but not lost
    close(impatient)


def test_a_stopping_worker_gives_its_job_back(either: Any) -> None:
    either.fill("a")
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    asked = either.services.training.request("a", PARAMETERS)
    job = run_with(either.services, train=train_until_lost, should_stop=stopping.is_set)
    assert (job.id, job.state, job.attempts) == (asked.id, JobState.QUEUED, 0)
    done = run_here(either.services)
    assert (done.state, done.attempts, done.fencing_token) == (JobState.SUCCEEDED, 1, 2)


def test_what_may_pass_is_tried_again_and_given_up_in_the_end(either: Any, impatient: Services) -> None:
    either.fill("a")
    asked = impatient.training.request("a", PARAMETERS)
    first = run_with(impatient, train=lambda *_: Failure("the trainer died", may_pass=True))
    assert (first.state, first.attempts) == (JobState.QUEUED, 1)
    assert first.progress["reason"] == "the trainer died"
    last = run_with(impatient, train=lambda *_: Failure("the trainer died", may_pass=True))
    assert (last.state, last.error) == (JobState.FAILED, "gave up after 2 attempts: the trainer died")
    assert make_worker(impatient).run_once() is None
    _, events = impatient.training.events(asked.id, 0, 100)
    assert [event.data["state"] for event in events if event.kind == "state"] == [
        *("queued", "running", "queued", "running", "failed")
    ]
    assert either.train("a") == 1


def test_another_attempt_waits(either: Any) -> None:
    patient = build(either.services.settings.model_copy(update={"job_retry_seconds": 0.5}))
    either.fill("a")
    patient.training.request("a", PARAMETERS)
    run_with(patient, train=lambda *_: Failure("the trainer died", may_pass=True))
    began = time.monotonic()
    assert run_one(patient) is None
    wait_for(lambda: run_one(patient) is not None)
    assert time.monotonic() - began > 0.2
    close(patient)


def test_a_stale_worker_publishes_nothing(either: Any) -> None:
    either.fill("a")
    quick = build(either.services.settings.model_copy(update={"lease_seconds": 0.2}))
    quick.training.request("a", PARAMETERS)
    built = train_outside_of_a_lease(either.services)
    with quick.database.write() as work:
        stale = work.jobs.claim("a stale worker", 0.2, 3)
    assert stale is not None
    time.sleep(0.3)
    with quick.database.write() as work:
        assert work.jobs.claim("another worker", 0.05, 3) is None  # that was the notice
    time.sleep(0.1)
    with quick.database.write() as work:
        new = work.jobs.claim("another worker", 60.0, 3)
    assert new is not None
    with pytest.raises(Exception, match="taken over"):
        quick.versions.publish(stale, built, 60.0)
    assert quick.versions.models("a") == []
    assert quick.versions.history("a", 10) == []
    assert quick.catalogue.collection("a")[0].active_version is None
    assert quick.versions.publish(new, built, 60.0).is_active
    assert either.search("a").model_version == 1
    close(quick)


def train_outside_of_a_lease(services: Services) -> Any:
    return services.builder.build("a", PARAMETERS, ignore)


def test_a_cancelled_job_publishes_nothing(either: Any) -> None:
    def cancel_last(services: Services, lease: Lease) -> Outcome:
        built = train_here(services, lease)
        services.training.cancel(lease.job.id)
        return built

    either.fill("a")
    either.services.training.request("a", PARAMETERS)
    job = run_with(either.services, train=cancel_last)
    assert job.state is JobState.CANCELLED
    assert either.services.versions.models("a") == []


def test_a_job_whose_worker_is_silent_is_cancelled_at_once(either: Any) -> None:
    either.fill("a")
    asked = either.services.training.request("a", PARAMETERS)
    with either.services.database.write() as work:
        assert work.jobs.claim("a worker that dies", 1.0, 3) is not None
    assert either.services.training.cancel(asked.id).state is JobState.RUNNING
    time.sleep(1.1)
    assert either.services.training.cancel(asked.id).state is JobState.CANCELLED
    assert either.train("a") == 1


def test_each_step_of_the_fit_is_an_event(either: Any) -> None:
    either.fill("a")
    job = either.try_to_train("a")
    _, events = either.services.training.events(job.id, 0, 10_000)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    steps = [event.data for event in events if event.data.get("phase") == "fitting"]
    fit = either.services.versions.model("a", 1).report.fit
    assert [step["iteration"] for step in steps] == list(range(1, fit.convergence.iteration + 1))
    others = {"phase", "percent", "seconds_left"}
    assert [Iteration(**{k: v for k, v in step.items() if k not in others}) for step in steps] == [
        *fit.history
    ]
    percents = [event.data["percent"] for event in events if event.kind == "progress"]
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0.0, 100.0)
    assert {"iteration", "objective", "gap", "rank"} <= steps[-1].keys()
    assert [event.data["state"] for event in events if event.kind == "state"] == [
        *("queued", "running", "succeeded")
    ]
    _, later = either.services.training.events(job.id, len(events) - 1, 10)
    assert [event.data["state"] for event in later] == ["succeeded"]


def test_a_worker_refuses_an_old_schema(pairs: Any, tmp_path: Any) -> None:
    pairs.services.schema.require_current()
    empty = build(pairs.services.settings.model_copy(update={"data_dir": tmp_path / "empty"}))
    with refused("schema-outdated", match="lrbs db upgrade"):
        empty.schema.require_current()
    close(empty)


def test_a_database_of_a_newer_version_is_refused(pairs: Any) -> None:
    with pairs.services.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with refused("schema-outdated", match="9999"):
        pairs.services.schema.upgrade()
