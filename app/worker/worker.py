"""Claiming jobs, having them trained, and closing them; chores between them; a worker out of the services."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from app.bootstrap import Services, sweep_checkpoints
from app.db.session import UnitOfWork
from app.domain.entities import BuiltModel, Job, JobState
from app.domain.errors import DatabaseUnavailableError, JobCancelledError, NotFoundError, ServiceError
from app.services.storage.pacing import Round
from app.worker.attempts import (
    LONGEST_WAIT_SECONDS,
    Failure,
    Lease,
    Outcome,
    WorkerStoppingError,
    patiently,
    train_in_child,
)

_RETRY_SECONDS = 60.0
"""Until a chore that failed or did not finish is due again: a fault of a moment has passed by then."""
_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Chore:
    """A piece of periodic maintenance, named in the log; its failure delays neither the other chores nor its
    next run for long."""

    # What it raises is logged. After a failure, or when it did not finish (as `act` returns), the chore is
    # due again in a minute, or sooner where the interval is shorter.

    _name: str
    _act: Callable[[Round], bool]
    _every_seconds: float
    due_at: float = field(default_factory=time.monotonic, init=False)  # on that clock

    def do_if_due(self, time_left: Round) -> None:
        """Run the chore if it is due and any time is left; it is due from the start."""
        if time_left.is_over or time.monotonic() < self.due_at:
            return
        is_finished = False
        try:
            is_finished = self._act(time_left)
        except ServiceError as error:
            _logger.warning("worker: %s failed: %s", self._name, error)
        except Exception:
            _logger.exception("worker: %s failed", self._name)
        pause = self._every_seconds if is_finished else min(self._every_seconds, _RETRY_SECONDS)
        self.due_at = time.monotonic() + pause


def whole(act: Callable[[], object]) -> Callable[[Round], bool]:
    """Return the `act` of a chore that always finishes."""

    def act_to_the_end(_: Round) -> bool:
        act()
        return True

    return act_to_the_end


_LONGEST_PAUSE_SECONDS = 10.0
"""After several failures in a row an idle worker looks for jobs no less often than this."""
_MOST_DOUBLINGS = 10  # keeps the pause after many failures in a row within the range of a float
_CHORES_SECONDS = 30.0
"""Time for maintenance between two jobs; chores done in steps continue after the next job."""

Trainer = Callable[[Lease], Outcome]
"""Trains the job of a lease; raises what ended the lease."""


@dataclass(eq=False)
class Worker:
    """Runs jobs one by one, and maintenance between them. `should_stop` is asked all the time; once it is
    true the worker ends, and its job returns to the queue as if it had not been claimed."""

    _services: Services
    _maintenance: Sequence[Chore]
    _train: Trainer
    _should_stop: Callable[[], bool]
    _poll_seconds: float  # how often an idle one looks for a job

    def run_once(self, job_id: str | None = None) -> Job | None:
        """Claim and run the oldest job, or the one given; return it as this attempt left it, None when there
        was nothing to do."""
        settings = self._services.settings
        with self._services.database.write() as work:
            name = name_of_worker(os.getpid())
            job = work.jobs.claim(name, settings.lease_seconds, settings.job_attempts, job_id)
        if job is None:
            return None
        _logger.info("job %s: retraining %s, attempt %d", job.id, job.collection, job.attempts)
        self._attempt(job)
        try:
            return self._services.training.job(job.id)
        except NotFoundError:
            # Deleted with its collection.
            return replace(job, state=JobState.CANCELLED, error="the collection was deleted")

    def run_forever(self) -> None:
        """Run jobs as they come, and maintenance between them, until the worker is asked to stop.
        Errors are logged, and the work is tried again later."""
        failures = 0
        while not self._should_stop():
            self._maintain()
            if self._should_stop():
                return
            try:
                is_idle = self.run_once() is None
                failures = 0
            except ServiceError as error:
                is_idle, failures = True, failures + 1
                _logger.warning("worker: %s", error)
            except Exception:
                is_idle, failures = True, failures + 1
                _logger.exception("worker: looking for a job failed")
            if is_idle:
                pause = self._poll_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS)
                time.sleep(min(pause, max(self._poll_seconds, _LONGEST_PAUSE_SECONDS)))

    def _maintain(self) -> None:
        time_left = Round(_CHORES_SECONDS, self._should_stop)
        # A chore that did not finish comes after the others next time.
        for chore in sorted(self._maintenance, key=attrgetter("due_at")):
            chore.do_if_due(time_left)

    def _attempt(self, job: Job) -> None:
        """Train a claimed job, and publish its model or close the job."""
        claimed_at = time.monotonic()
        try:
            seconds = self._services.settings.lease_seconds
            with Lease(self._services.database, job, seconds, self._should_stop) as lease:
                outcome = self._train(lease)
                lease.insist(lease.write)
                if isinstance(outcome, BuiltModel):
                    # Still under the lease, so that publishing can wait as long as the database is busy.
                    self._publish(lease, outcome)
            if isinstance(outcome, Failure):
                self._fail(job, outcome, claimed_at)
        except JobCancelledError as error:
            _logger.info("job %s: %s", job.id, error)
            self._release(job, lambda work: work.jobs.finish(job, JobState.CANCELLED, None, None))
        except WorkerStoppingError:
            _logger.info("job %s: returned to the queue, the worker is stopping", job.id)
            self._release(job, lambda work: work.jobs.give_back(job, "the worker stopped", 0.0, counts=False))
        except DatabaseUnavailableError as error:
            self._fail(job, Failure(str(error), may_pass=True, counts=False), claimed_at)
        except Exception as error:
            _logger.exception("job %s: retraining %s failed", job.id, job.collection)
            self._fail(job, Failure(f"internal error: {type(error).__name__}", may_pass=False), claimed_at)

    def _publish(self, lease: Lease, built: BuiltModel) -> None:
        job = lease.job
        versions, seconds = self._services.versions, self._services.settings.lease_seconds
        entry = lease.insist(lambda: versions.publish(job, built, seconds))
        reason = "" if entry.is_active else f", not activated: {entry.report.not_activated}"
        _logger.info("job %s: published version %d%s", job.id, entry.version, reason)
        try:
            versions.prune(job.collection)
        except (ServiceError, OSError) as error:
            _logger.warning("job %s: old versions are kept until the next retrain: %s", job.id, error)

    def _fail(self, job: Job, failure: Failure, claimed_at: float) -> None:
        """Close a job, or queue it again for another attempt after a pause."""
        # Attempts refused by a busy database do not count until the job is older than the longest wait.
        counts = failure.counts or _age_seconds(job, claimed_at) > LONGEST_WAIT_SECONDS
        if failure.may_pass and (not counts or job.attempts < self._services.settings.job_attempts):
            pause = self._services.settings.job_retry_seconds * 2 ** (job.attempts - 1)
            message = "job %s: retraining %s: %s; another attempt in %g s"
            _logger.warning(message, job.id, job.collection, failure.reason, pause)
            self._release(job, lambda work: work.jobs.give_back(job, failure.reason, pause, counts))
            return
        prefix = f"gave up after {job.attempts} attempts: " if failure.may_pass else ""
        error = f"{prefix}{failure.reason}"
        _logger.info("job %s: retraining %s failed: %s", job.id, job.collection, error)
        self._release(job, lambda work: work.jobs.finish(job, JobState.FAILED, error, None))

    def _release(self, job: Job, change: Callable[[UnitOfWork], None]) -> None:
        """Write the job's new state, waiting while the database is busy; a stopping worker waits less."""

        def write() -> None:
            with self._services.database.write() as work:
                change(work)

        def longest_seconds() -> float:
            return self._services.settings.shutdown_seconds if self._should_stop() else LONGEST_WAIT_SECONDS

        try:
            patiently(write, longest_seconds)
        except JobCancelledError:
            _logger.info("job %s now belongs to another worker, or is closed", job.id)


def name_of_worker(process: int) -> str:
    """Return the name under which a process of this host claims jobs."""
    return f"{socket.gethostname()}:{process}"


def _age_seconds(job: Job, claimed_at: float) -> float:
    """Return the age of a job that was claimed at a time of the monotonic clock.
    Its own times are of the database's clock, from which the host's may differ."""
    assert job.started_at is not None
    return (job.started_at - job.created_at).total_seconds() + time.monotonic() - claimed_at


_SELDOM_SECONDS = 3600.0  # between chores that go through all files or rows
_SOMETIMES_SECONDS = 300.0  # between chores that go through the rows of what was written meanwhile
_OFTEN_SECONDS = 60.0  # between chores that find little to do, or that somebody waits for


def make_worker(
    services: Services,
    should_stop: Callable[[], bool] = lambda: False,
    train: Trainer | None = None,
    poll_seconds: float = 0.5,
) -> Worker:
    """Return a worker over a set of services, which trains in a child process unless `train` is given."""
    # `should_stop` is asked between jobs and during them; once it is true the worker ends, and gives its job
    # back. Half a second between two looks for a job is short beside a training, and costs the database one
    # indexed query.
    if train is None:
        settings = services.settings
        train = partial(train_in_child, settings.model_dump(mode="json"), settings.max_training_seconds)
    return Worker(services, _maintenance(services), train, should_stop, poll_seconds)


def _maintenance(services: Services) -> Sequence[Chore]:
    of_engine: list[Chore] = []
    if (sweeper := services.engine_sweeper) is not None:
        of_engine += [
            Chore("sweeping the engine", whole(sweeper.sweep), _SELDOM_SECONDS),
            Chore("purging the engine", whole(sweeper.purge), _SOMETIMES_SECONDS),
        ]
    return (
        *of_engine,
        Chore("noting progress", whole(services.ownership.note_progress), _OFTEN_SECONDS),
        Chore("removing what was deleted", services.removal.go_on, _OFTEN_SECONDS),
        Chore("cleaning up after imports", services.imports.clean_up, _OFTEN_SECONDS),
        Chore("sweeping", services.garbage_collector.go_on, _SELDOM_SECONDS),
        Chore("sweeping checkpoints", whole(partial(sweep_checkpoints, services.settings)), _SELDOM_SECONDS),
        Chore("purging tombstones", services.tombstones.purge, _SELDOM_SECONDS),
        Chore("looking for damage", services.repair.go_on, _SELDOM_SECONDS),
        Chore("requesting trainings", services.retraining.go_on, _OFTEN_SECONDS),
    )
