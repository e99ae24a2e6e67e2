"""A database that is locked for longer than leases and lock waits last costs no finished model."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import Job, JobState
from app.domain.errors import DatabaseUnavailableError
from app.domain.names import Scope
from app.services.training.requests import TrainingParameters
from app.worker.attempts import Failure, Lease, Outcome
from tests.app.closing import close
from tests.app.integration.in_process import run_one, run_with, train_here
from tests.app.waiting import wait_for

PARAMETERS = TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20)
LEASE_SECONDS, LOCK_WAIT_SECONDS, HELD_SECONDS = 1.0, 0.2, 3.0
HOLDER = """
import sys
url, statement = sys.argv[1:]
if url.startswith("sqlite"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
else:
    import psycopg
    connection = psycopg.connect(url.replace("+psycopg", ""))
connection.execute(statement)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hurried(either: Any) -> Iterator[Any]:
    """Services whose leases and lock waits are short, and whose jobs have one attempt."""
    update = {
        "lease_seconds": LEASE_SECONDS,
        "lock_wait_seconds": LOCK_WAIT_SECONDS,
        "job_attempts": 1,
        "job_retry_seconds": 0.1,
    }
    built = build(either.services.settings.model_copy(update=update))
    either.fill("a")
    yield built
    close(built)


@contextmanager
def locked(services: Services, table: str = "jobs") -> Iterator[None]:
    """Have another process hold the lock that every write needs."""
    url = services.database.engine.url.render_as_string(hide_password=False)
    is_sqlite = services.database.engine.dialect.name == "sqlite"
    statement = "BEGIN IMMEDIATE" if is_sqlite else f"LOCK TABLE {table} IN EXCLUSIVE MODE"
    command = [sys.executable, "-c", HOLDER, url, statement]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.kill()
        holder.communicate()


def hold_for_a_while(services: Services, stop: threading.Event) -> threading.Thread:
    ready = threading.Event()

    def hold() -> None:
        with locked(services):
            ready.set()
            stop.wait(HELD_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(30)
    return thread


def claim_all_the_time(services: Services, until: Callable[[], bool], found: list[Job]) -> None:
    """What an idle worker does."""
    while not until():
        try:
            job = run_one(services, lambda *_: Failure("the rival had it", may_pass=False))
            if job is not None:
                found.append(job)
        except DatabaseUnavailableError:
            pass
        time.sleep(0.02)


@pytest.mark.parametrize("is_finished", [True, False], ids=["a finished model", "a fit"])
def test_a_model_outlasts_a_lock_held_for_longer_than_its_lease(
    either: Any, hurried: Services, is_finished: bool
) -> None:
    """Beside an idle worker that waits for the same lock and finds the lease expired."""
    stop, found = threading.Event(), list[Job]()
    rival = threading.Thread(target=claim_all_the_time, args=(either.services, stop.is_set, found))

    def train(services: Services, lease: Lease) -> Outcome:
        built = train_here(services, lease) if is_finished else None
        holder = hold_for_a_while(services, stop)
        rival.start()
        if built is None:
            holder.join()
            built = train_here(services, lease)
        return built

    hurried.training.request("a", PARAMETERS)
    try:
        job = run_with(hurried, train=train)
    finally:
        stop.set()
        rival.join()
    assert (job.state, job.error, job.attempts) == (JobState.SUCCEEDED, None, 1)
    assert job.model_version == 1
    assert found == []
    assert either.search("a").model_version == 1


@pytest.mark.postgres
@pytest.mark.parametrize("either", ["postgres"], indirect=True)
def test_a_model_that_waits_for_its_collection_can_be_cancelled(either: Any, hurried: Services) -> None:
    def train(services: Services, lease: Lease) -> Outcome:
        built = train_here(services, lease)
        holding.__enter__()
        threading.Timer(2 * LEASE_SECONDS, lambda: services.training.cancel(lease.job.id)).start()
        return built

    holding = locked(hurried, "collections")
    hurried.training.request("a", PARAMETERS)
    try:
        job = run_with(hurried, train=train)
    finally:
        holding.__exit__(None, None, None)
    assert job.state is JobState.CANCELLED
    assert hurried.versions.models("a") == []


def test_an_attempt_that_the_database_refused_is_none(hurried: Services) -> None:
    def refused(*_: object) -> Outcome:
        raise DatabaseUnavailableError

    hurried.training.request("a", PARAMETERS)
    for _ in range(3):
        job = run_with(hurried, train=refused)
        assert (job.state, job.attempts) == (JobState.QUEUED, 0)
        time.sleep(0.2)
    job = run_with(hurried, train=train_here)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)


def test_how_a_job_ended_is_written_when_the_lock_is_free(hurried: Services) -> None:
    stop = threading.Event()

    def fail(services: Services, _: Lease) -> Outcome:
        hold_for_a_while(services, stop)
        return Failure("no labels", may_pass=False)

    hurried.training.request("a", PARAMETERS)
    job = run_with(hurried, train=fail)
    assert (job.state, job.error) == (JobState.FAILED, "no labels")


def test_a_use_of_a_key_stays_the_last_one_though_an_earlier_one_could_not_be_stored(either: Any) -> None:
    services = build(either.services.settings.model_copy(update={"lock_wait_seconds": 2.0}))
    key, secret = services.access.create(Scope.SEARCH)
    services.access.require(secret, Scope.SEARCH)
    time.sleep(1.0)
    with locked(services, "api_keys"), ThreadPoolExecutor(1) as storing:
        stored = storing.submit(services.access.record_use)
        wait_for(lambda: not services.access._used_at)
        used_at = datetime.now(UTC)
        services.access.admit(key, Scope.SEARCH)
        assert isinstance(stored.exception(), DatabaseUnavailableError)
    services.access.record_use()
    (last_used_at,) = (one.last_used_at for one in services.access.list_keys() if one.id == key.id)
    assert last_used_at is not None
    assert last_used_at >= used_at - timedelta(seconds=0.5)
    close(services)


def test_progress_that_could_not_be_written_comes_before_what_was_reported_meanwhile(either: Any) -> None:
    services = build(either.services.settings.model_copy(update={"lock_wait_seconds": 2.0}))
    either.fill("a")
    services.training.request("a", PARAMETERS)
    with services.database.write() as work:
        job = work.jobs.claim("worker", 60.0, 1)
    assert job is not None
    lease = Lease(services.database, job, 60.0, lambda: False)
    lease.report({"phase": "one"})
    with locked(services), ThreadPoolExecutor(1) as writing:
        written = writing.submit(lease.write)
        wait_for(lambda: not lease._steps)
        lease.report({"phase": "two"})
        assert isinstance(written.exception(), DatabaseUnavailableError)
    lease.write()
    job, events = services.training.events(job.id, 0, 100)
    phases = [event.data["phase"] for event in events if event.kind == "progress"]
    assert (phases, job.progress) == (["one", "two"], {"phase": "two"})
    close(services)
