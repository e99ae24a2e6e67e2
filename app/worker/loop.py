"""Claiming jobs, having them trained, and closing them."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter

from app.bootstrap import Services
from app.domain.entities import BuiltModel, Job, JobState
from app.domain.errors import (
    DatabaseUnavailableError,
    JobCancelledError,
    JobNotFoundError,
    ServiceError,
)
from app.domain.ports import UnitOfWork
from app.services.storage.rounds import Round
from app.worker.child import train_in_child
from app.worker.chores import Chore, whole
from app.worker.lease import Lease
from app.worker.outcome import Failure, Outcome, WorkerStoppingError
from app.worker.patience import LONGEST_WAIT_SECONDS, patiently

_LONGEST_PAUSE_SECONDS = 10.0
_CHORES_SECONDS = 30.0
"""Of chores between two jobs; what of them is done in steps goes on after the next job."""
_SELDOM_SECONDS = 3600.0
_OFTEN_SECONDS = 60.0
_logger = logging.getLogger(__name__)

Trainer = Callable[[Services, Lease], Outcome]
"""Trains the job of a lease; raises what ended the lease."""


def run_once(
    services: Services,
    job_id: str | None = None,
    train: Trainer = train_in_child,
    should_stop: Callable[[], bool] = lambda: False,
) -> Job | None:
    """Claim and run one job.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    job_id : str, optional
        Only this job; the oldest when None.
    train : callable
        In a child process by default.
    should_stop : callable
        Asked all the time; when it says so, the job goes back to the queue as if it had not been claimed.

    Returns
    -------
    Job or None
        The job as this attempt left it; None when there was nothing to do.
    """
    settings = services.settings
    with services.database.write() as work:
        job = work.jobs.claim(
            f"{socket.gethostname()}:{os.getpid()}", settings.lease_seconds, settings.job_attempts, job_id
        )
    if job is None:
        return None
    _logger.info("job %s: retraining %s, attempt %d", job.id, job.collection, job.attempts)
    closing = _Closing(services, job, should_stop)
    try:
        with Lease(services, job, should_stop) as lease:
            outcome = train(services, lease)
            lease.insist(lease.write)
            if isinstance(outcome, BuiltModel):
                # The lease is kept meanwhile: a finished model waits for a busy database, however long.
                _publish(services, lease, outcome)
        if isinstance(outcome, Failure):
            _fail(closing, outcome)
    except JobCancelledError as error:
        _logger.info("job %s: %s", job.id, error)
        closing.leave(lambda work: work.jobs.finish(job, JobState.CANCELLED, None, None))
    except WorkerStoppingError:
        _logger.info("job %s: given back, the worker stops", job.id)
        closing.leave(lambda work: work.jobs.give_back(job, "the worker stopped", 0.0, counts=False))
    except DatabaseUnavailableError as error:
        _fail(closing, Failure(str(error), may_pass=True, counts=False))
    except Exception as error:
        _logger.exception("job %s: retraining %s failed", job.id, job.collection)
        _fail(closing, Failure(f"internal error: {type(error).__name__}", may_pass=False))
    try:
        return services.training.job(job.id)
    except JobNotFoundError:
        # It went away with its collection.
        return replace(job, state=JobState.CANCELLED, error="the collection was deleted")


def run_forever(services: Services, should_stop: Callable[[], bool]) -> None:
    """Run jobs as they come, and look after files and rows now and then, until `should_stop` says so.

    What goes wrong is logged, and tried again later.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    should_stop : callable
        Asked between jobs and during them.
    """
    poll_seconds = services.settings.worker_poll_seconds
    failures = 0
    chores = [
        Chore("noting progress", whole(services.ownership.note_progress), _OFTEN_SECONDS),
        Chore("removing what was deleted", services.removal.go_on, _OFTEN_SECONDS),
        Chore("cleaning up after imports", services.imports.clean_up, _OFTEN_SECONDS),
        Chore("sweeping", whole(services.garbage_collector.sweep), _SELDOM_SECONDS),
        Chore("purging tombstones", services.tombstones.purge, _SELDOM_SECONDS),
        Chore("looking for damage", whole(services.repair.request_what_is_damaged), _SELDOM_SECONDS),
    ]
    while not should_stop():
        time_left = Round(_CHORES_SECONDS, should_stop)
        # What did not come to its end comes behind the others next time.
        for chore in sorted(chores, key=attrgetter("due_at")):
            chore.do_if_due(time_left)
        if should_stop():
            return
        try:
            is_idle = run_once(services, should_stop=should_stop) is None
            failures = 0
        except ServiceError as error:
            is_idle, failures = True, failures + 1
            _logger.warning("worker: %s", error)
        except Exception:
            is_idle, failures = True, failures + 1
            _logger.exception("worker: looking for a job failed")
        if is_idle:
            time.sleep(min(poll_seconds * 2 ** min(failures, 10), max(poll_seconds, _LONGEST_PAUSE_SECONDS)))


def _publish(services: Services, lease: Lease, built: BuiltModel) -> None:
    job = lease.job
    entry = lease.insist(lambda: services.versions.publish(job, built, services.settings.lease_seconds))
    _logger.info(
        "job %s: published version %d%s",
        job.id,
        entry.version,
        "" if entry.is_active else f", which does not serve: {entry.report.not_activated}",
    )
    try:
        services.versions.prune(job.collection)
    except (ServiceError, OSError) as error:
        _logger.warning("job %s: old versions stay until the next retrain: %s", job.id, error)


@dataclass(frozen=True, slots=True)
class _Closing:
    """What is needed to let go of a job."""

    services: Services
    job: Job
    should_stop: Callable[[], bool]

    def leave(self, change: Callable[[UnitOfWork], None]) -> None:
        """Write how the job is left, however busy the database is; a worker that is to end waits less."""

        def write() -> None:
            with self.services.database.write() as work:
                change(work)

        def longest_seconds() -> float:
            return self.services.settings.shutdown_seconds if self.should_stop() else LONGEST_WAIT_SECONDS

        try:
            patiently(write, longest_seconds)
        except JobCancelledError:
            _logger.info("job %s belongs to another worker by now, or is closed", self.job.id)


def _fail(closing: _Closing, failure: Failure) -> None:
    """Close a job, or queue it again for another attempt after a pause."""
    settings, job = closing.services.settings, closing.job
    # What the database refused counts for nothing, until the job is so old that it is not for its being busy.
    counts = failure.counts or (datetime.now(UTC) - job.created_at).total_seconds() > LONGEST_WAIT_SECONDS
    if failure.may_pass and (not counts or job.attempts < settings.job_attempts):
        pause = settings.job_retry_seconds * 2 ** (job.attempts - 1)
        _logger.warning("job %s: %s; another attempt in %g s", job.id, failure.reason, pause)
        closing.leave(lambda work: work.jobs.give_back(job, failure.reason, pause, counts))
        return
    gave_up = f"gave up after {job.attempts} attempts: " if failure.may_pass else ""
    error = f"{gave_up}{failure.reason}"
    _logger.info("job %s: retraining %s failed: %s", job.id, job.collection, error)
    closing.leave(lambda work: work.jobs.finish(job, JobState.FAILED, error, None))
