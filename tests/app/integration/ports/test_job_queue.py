"""The contract of JobQueue, for every database."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, tzinfo

import pytest

from app.db.schema import DatabaseSchema
from app.db.session import Database, make_engine
from app.domain.entities import Collection, Job, JobState
from app.domain.errors import ConflictError, JobCancelledError
from tests.app.integration.conftest import MODALITIES
from tests.app.refused import refused

FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


def enqueue(database: Database, collection: Collection) -> Job:
    with database.write() as work:
        return work.jobs.enqueue(collection, {"alpha": 0.5})


def claim(
    database: Database, lease_seconds: float = 60.0, job_id: str | None = None, attempts: int = 3
) -> Job | None:
    with database.write() as work:
        return work.jobs.claim("worker", lease_seconds, attempts, job_id)


def claimed(database: Database, lease_seconds: float = 60.0) -> Job:
    job = claim(database, lease_seconds)
    assert job is not None
    return job


def taken_over(database: Database) -> Job:
    """Claim a job whose lease ran out: the first claim only gives notice."""
    assert claim(database, lease_seconds=0.05) is None
    time.sleep(0.1)
    return claimed(database)


def finish(database: Database, job: Job, state: JobState, version: int | None = None) -> None:
    with database.write() as work:
        work.jobs.finish(job, state, None, version)


def state_of(database: Database, job: Job) -> JobState:
    with database.read() as work:
        return work.jobs.get(job.id).state


def made(database: Database, name: str) -> Collection:
    with database.write() as work:
        return work.collections.add(name, MODALITIES)


def test_of_many_who_ask_at_the_same_time_one_gets_a_job(database: Database, collection: Collection) -> None:
    def ask(_: int) -> bool:
        try:
            enqueue(database, collection)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(ask, range(6))) == [False] * 5 + [True]
        claims = list(pool.map(lambda _: claim(database), range(12)))
    assert claims.count(None) == 11


def test_a_collection_has_one_open_job(database: Database, collection: Collection) -> None:
    job_id = enqueue(database, collection).id
    with refused("training-already-running"):
        enqueue(database, collection)
    job = claimed(database)
    assert (job.id, job.state, job.parameters) == (job_id, JobState.RUNNING, {"alpha": 0.5})
    assert claim(database) is None
    with refused("training-already-running"):
        enqueue(database, collection)
    finish(database, job, JobState.SUCCEEDED, 4)
    with database.read() as work:
        closed = work.jobs.get(job_id)
    assert (closed.state, closed.model_version, closed.collection) == (JobState.SUCCEEDED, 4, "pairs")
    assert closed.finished_at is not None
    assert closed.finished_at.tzinfo is not None
    assert enqueue(database, collection).id != job_id


def test_a_job_whose_workers_die_is_given_up(database: Database, collection: Collection) -> None:
    job_id = enqueue(database, collection).id
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
    queued = enqueue(database, collection).id
    with database.write() as work:
        assert work.jobs.request_cancel(queued).state is JobState.CANCELLED
    assert claim(database) is None
    enqueue(database, collection)
    job = claimed(database)
    with database.write() as work:
        assert work.jobs.request_cancel(job.id).state is JobState.RUNNING
    with pytest.raises(JobCancelledError), database.write() as work:
        work.jobs.heartbeat(job, 60.0, {})
    with database.write() as work:
        work.jobs.finish(job, JobState.CANCELLED, None, None)
        assert work.jobs.request_cancel(job.id).state is JobState.CANCELLED
    with refused("job-not-found"), database.write() as work:
        work.jobs.request_cancel("none")


def test_jobs_are_claimed_oldest_first_and_by_id(database: Database) -> None:
    jobs = []
    for name in ("b", "c", "a"):
        jobs.append(enqueue(database, made(database, name)))
        time.sleep(0.01)
    assert claim(database, job_id="none") is None
    chosen = claim(database, job_id=jobs[1].id)
    assert chosen is not None
    assert (chosen.id, chosen.collection) == (jobs[1].id, "c")
    assert [claimed(database).id for _ in range(2)] == [jobs[0].id, jobs[2].id]
    assert claim(database) is None


def test_a_closed_job_stays_as_it_is(database: Database, collection: Collection) -> None:
    for state in FINAL:
        enqueue(database, collection)
        job = claimed(database, lease_seconds=0.0)
        finish(database, job, state, 7)
        time.sleep(0.01)
        assert claim(database) is None
        for other in FINAL:
            with pytest.raises(JobCancelledError):
                finish(database, job, other, 8)
        with pytest.raises(JobCancelledError), database.write() as work:
            work.jobs.heartbeat(job, 60.0, {})
        with database.write() as work:
            after = work.jobs.request_cancel(job.id)
        assert (after.state, after.model_version) == (state, 7)


def test_a_lease_that_ran_out_is_nobodys_until_it_is_claimed_again(
    database: Database, collection: Collection
) -> None:
    """Late is not lost: the work counts as long as no other worker has taken it."""
    enqueue(database, collection)
    job = claimed(database, lease_seconds=0.0)
    time.sleep(0.01)
    with database.write() as work:
        work.jobs.heartbeat(job, 60.0, {"iteration": 1})
    assert claim(database) is None
    finish(database, job, JobState.SUCCEEDED, 1)
    assert state_of(database, job) is JobState.SUCCEEDED


def test_a_worker_that_renews_its_lease_after_the_notice_keeps_the_job(
    database: Database, collection: Collection
) -> None:
    enqueue(database, collection)
    job = claimed(database, lease_seconds=0.0)
    other = enqueue(database, made(database, "other"))
    time.sleep(0.01)
    found = claim(database, lease_seconds=0.2)  # gives notice to the silent one, and takes the next
    assert found is not None
    assert found.id == other.id
    finish(database, found, JobState.SUCCEEDED)
    with database.write() as work:
        work.jobs.heartbeat(job, 60.0, {})
    time.sleep(0.25)
    assert claim(database, lease_seconds=0.2) is None
    with database.write() as work:
        work.jobs.heartbeat(job, 0.0, {})
    time.sleep(0.01)
    assert claim(database, lease_seconds=0.2) is None  # silent again: the old notice counts no longer
    finish(database, job, JobState.SUCCEEDED, 1)


def test_what_a_stale_worker_writes_beside_its_claim_is_undone(
    database: Database, collection: Collection
) -> None:
    """Fencing: the whole transaction of a publication fails with the claim."""
    enqueue(database, collection)
    stale = claimed(database, lease_seconds=0.0)
    time.sleep(0.01)
    current = taken_over(database)
    assert current.fencing_token > stale.fencing_token

    def publish(job: Job, version: int) -> None:
        with database.write() as work:
            work.models.replace_active(collection, version, None)
            work.jobs.finish(job, JobState.SUCCEEDED, None, version)

    with pytest.raises(JobCancelledError):
        publish(stale, 1)
    with pytest.raises(JobCancelledError), database.write() as work:
        work.jobs.heartbeat(stale, 60.0, {"iteration": 9})
    with database.read() as work:
        assert work.jobs.get(current.id).progress == {}
        assert work.collections.get("pairs").active_version is None
    publish(current, 2)
    with database.read() as work:
        assert work.collections.get("pairs").active_version == 2
        assert work.jobs.get(current.id).model_version == 2


def test_a_cancelled_job_whose_worker_died_is_cancelled_not_tried_again(
    database: Database, collection: Collection
) -> None:
    enqueue(database, collection)
    job = claimed(database, lease_seconds=0.0)
    with database.write() as work:
        work.jobs.request_cancel(job.id)
    time.sleep(0.01)
    assert claim(database) is None
    assert state_of(database, job) is JobState.CANCELLED
    enqueue(database, collection)


def test_a_cancelled_job_that_its_worker_gives_back_is_over(
    database: Database, collection: Collection
) -> None:
    enqueue(database, collection)
    job = claimed(database)
    with database.write() as work:
        work.jobs.request_cancel(job.id)
        work.jobs.give_back(job, "the worker is stopping", 0.0, counts=False)
    assert state_of(database, job) is JobState.CANCELLED
    assert enqueue(database, collection).state is JobState.QUEUED, "it is not in the way of another"


def test_the_last_jobs_of_a_collection_come_newest_first(database: Database, collection: Collection) -> None:
    other = made(database, "other")
    with database.read() as work:
        assert work.jobs.recent(collection, 10) == []
    first = enqueue(database, collection)
    finish(database, claimed(database), JobState.FAILED)
    time.sleep(0.01)
    newest = enqueue(database, collection)
    enqueue(database, other)
    with database.read() as work:
        assert [job.id for job in work.jobs.recent(collection, 10)] == [newest.id, first.id]
        assert [job.id for job in work.jobs.recent(collection, 1)] == [newest.id]


def test_jobs_of_a_deleted_collection_are_gone_and_change_nothing(
    database: Database, collection: Collection
) -> None:
    enqueue(database, collection)
    job = claimed(database)
    with database.write() as work:
        work.collections.delete("pairs")
    with pytest.raises(JobCancelledError):
        finish(database, job, JobState.SUCCEEDED, 1)
    with refused("job-not-found"):
        state_of(database, job)
    assert claim(database) is None


@pytest.mark.postgres
@pytest.mark.parametrize("skew_hours", [-1, 1])
def test_hosts_need_not_agree_on_the_time(
    postgres_url: str, skew_hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose host's clock is wrong neither takes others' jobs nor keeps dead workers' for longer."""
    engine = make_engine(postgres_url)
    DatabaseSchema(engine).upgrade()
    database = Database(engine)
    first = enqueue(database, made(database, "a"))
    claimed(database)

    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=skew_hours)

    with monkeypatch.context() as patch:
        patch.setattr("app.db.statements.datetime", WrongClock)
        assert claim(database) is None
        second = enqueue(database, made(database, "b"))
        assert claimed(database, lease_seconds=0.2).id == second.id
    # The first look after the lease only gives notice; the job is taken over when the worker stays silent.
    deadline = time.monotonic() + 20.0
    while (taken_over := claim(database)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert taken_over is not None
    assert (taken_over.id, taken_over.attempts) == (second.id, 2)
    assert state_of(database, first) is JobState.RUNNING
    engine.dispose()
