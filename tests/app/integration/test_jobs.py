import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.db.session import Database
from app.domain.entities import Collection, JobState
from app.domain.errors import JobCancelledError
from tests.app.refused import refused


def claim(database: Database, lease_seconds: float = 60.0, attempts: int = 3) -> Any:
    with database.write() as work:
        return work.jobs.claim("worker", lease_seconds, attempts)


def enqueue(database: Database, collection: Collection) -> str:
    with database.write() as work:
        return work.jobs.enqueue(collection, {"alpha": 0.5}).id


def test_a_collection_has_one_open_job(database: Database, collection: Collection) -> None:
    job_id = enqueue(database, collection)
    with refused("training-already-running"):
        enqueue(database, collection)
    job = claim(database)
    assert (job.id, job.state, job.parameters) == (job_id, JobState.RUNNING, {"alpha": 0.5})
    assert claim(database) is None
    with refused("training-already-running"):
        enqueue(database, collection)
    with database.write() as work:
        work.jobs.finish(job, JobState.SUCCEEDED, None, 4)
    with database.read() as work:
        closed = work.jobs.get(job_id)
    assert (closed.state, closed.model_version, closed.collection) == (JobState.SUCCEEDED, 4, "pairs")
    assert closed.finished_at is not None
    assert closed.finished_at.tzinfo is not None
    assert enqueue(database, collection) != job_id


def test_a_worker_that_lost_its_lease_can_change_nothing(database: Database, collection: Collection) -> None:
    enqueue(database, collection)
    old = claim(database, lease_seconds=0.01)
    time.sleep(0.05)
    assert claim(database, lease_seconds=0.01) is None  # that was the notice
    time.sleep(0.05)
    new = claim(database)
    assert (new.id, new.fencing_token) == (old.id, old.fencing_token + 1)
    calls: list[Callable[[Any], None]] = [
        lambda work: work.jobs.heartbeat(old, 60.0, {"iteration": 9}),
        lambda work: work.jobs.finish(old, JobState.SUCCEEDED, None, 9),
    ]
    for call in calls:
        with pytest.raises(JobCancelledError), database.write() as work:
            call(work)
    with database.write() as work:
        work.jobs.heartbeat(new, 60.0, {"iteration": 1})
    with database.read() as work:
        job = work.jobs.get(new.id)
    assert (job.state, job.progress, job.model_version) == (JobState.RUNNING, {"iteration": 1}, None)


def test_a_heartbeat_keeps_the_lease(database: Database, collection: Collection) -> None:
    enqueue(database, collection)
    job = claim(database, lease_seconds=0.2)
    with database.write() as work:
        work.jobs.heartbeat(job, 60.0, {})
    time.sleep(0.3)
    assert claim(database) is None


def test_a_job_whose_workers_die_is_given_up(database: Database, collection: Collection) -> None:
    job_id = enqueue(database, collection)
    for _ in range(2):
        assert claim(database, lease_seconds=0.0, attempts=2) is not None
        time.sleep(0.02)
        assert claim(database, lease_seconds=0.01, attempts=2) is None  # that was the notice
        time.sleep(0.02)
    assert claim(database, attempts=2) is None
    with database.read() as work:
        job = work.jobs.get(job_id)
    assert job.state is JobState.FAILED
    assert "2 attempts" in (job.error or "")


def test_a_queued_job_is_cancelled_at_once_and_a_running_one_learns_of_it(
    database: Database, collection: Collection
) -> None:
    queued = enqueue(database, collection)
    with database.write() as work:
        assert work.jobs.request_cancel(queued).state is JobState.CANCELLED
    assert claim(database) is None
    enqueue(database, collection)
    job = claim(database)
    with database.write() as work:
        assert work.jobs.request_cancel(job.id).state is JobState.RUNNING
    with pytest.raises(JobCancelledError), database.write() as work:
        work.jobs.heartbeat(job, 60.0, {})
    with database.write() as work:
        work.jobs.finish(job, JobState.CANCELLED, None, None)
        assert work.jobs.request_cancel(job.id).state is JobState.CANCELLED
    with refused("job-not-found"), database.write() as work:
        work.jobs.request_cancel("none")


def test_workers_at_the_same_time_claim_a_job_once(database: Database, collection: Collection) -> None:
    enqueue(database, collection)
    with ThreadPoolExecutor(6) as pool:
        claimed = [job for job in pool.map(lambda _: claim(database), range(12)) if job is not None]
    assert len(claimed) == 1
