"""The worker: claims retrain jobs one by one and runs them, outside any request."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from app.bootstrap import Services
from app.domain.entities import Job, JobState
from app.domain.errors import DatabaseUnavailableError, JobCancelledError, JobNotFoundError, ServiceError

_REPORT_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 10.0
_SWEEP_EVERY_SECONDS = 3600.0
_logger = logging.getLogger(__name__)


class _Lease:
    """Keeps a claimed job alive from a thread, and tells the training when it lost it."""

    def __init__(self, services: Services, job: Job) -> None:
        self._services = services
        self._job = job
        self._progress: Mapping[str, Any] = {}
        self._lost: Exception | None = None
        self._last_beat = 0.0
        self._kept_at = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> _Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def report(self, progress: Mapping[str, Any]) -> None:
        """Publish progress now and then; raise what the lease-keeping met."""
        if self._lost is not None:
            raise self._lost
        self._progress = dict(progress)
        if time.monotonic() - self._last_beat >= _REPORT_SECONDS:
            self._beat()

    def _beat(self) -> None:
        lease_seconds = self._services.settings.lease_seconds
        with self._lock:
            self._last_beat = time.monotonic()
            try:
                with self._services.database.write() as work:
                    work.jobs.heartbeat(self._job, lease_seconds, self._progress)
                self._kept_at = self._last_beat
            except DatabaseUnavailableError:
                # A busy moment costs nothing while the lease still runs.
                if time.monotonic() - self._kept_at > lease_seconds:
                    raise

    def _keep(self) -> None:
        interval = min(self._services.settings.lease_seconds / 3.0, 1.0)
        while not self._closed.wait(interval):
            try:
                self._beat()
            except Exception as error:
                # Whatever it was, the training must learn of it; it raises there.
                self._lost = error
                return


def run_once(services: Services, job_id: str | None = None) -> Job | None:
    """Claim and run one job.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    job_id : str, optional
        Only this job; the oldest when None.

    Returns
    -------
    Job or None
        The job as it ended; None when there was nothing to do.
    """
    settings = services.settings
    with services.database.write() as work:
        job = work.jobs.claim(
            f"{socket.gethostname()}:{os.getpid()}", settings.lease_seconds, settings.job_attempts, job_id
        )
    if job is None:
        return None
    _logger.info("job %s: retraining %s", job.id, job.collection)
    try:
        with _Lease(services, job) as lease:
            version = services.training.run(job, lease.report, settings.lease_seconds)
        _logger.info("job %s: published version %d", job.id, version)
    except JobCancelledError as error:
        _logger.info("job %s: %s", job.id, error)
        _close(services, job, JobState.CANCELLED, None)
    except ServiceError as error:
        _logger.info("job %s: retraining %s failed: %s", job.id, job.collection, error)
        _close(services, job, JobState.FAILED, str(error))
    except Exception as error:
        _logger.exception("job %s: retraining %s failed", job.id, job.collection)
        _close(services, job, JobState.FAILED, f"internal error: {type(error).__name__}")
    try:
        return services.training.job(job.id)
    except JobNotFoundError:
        # It went away with its collection.
        return replace(job, state=JobState.CANCELLED, error="the collection was deleted")


def run_forever(services: Services, should_stop: Callable[[], bool]) -> None:
    """Run jobs as they come, and sweep now and then, until `should_stop` says so.

    What goes wrong is logged, and tried again later.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    should_stop : callable
        Asked between jobs.
    """
    poll_seconds = services.settings.worker_poll_seconds
    failures, next_sweep = 0, time.monotonic()
    while not should_stop():
        try:
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + _SWEEP_EVERY_SECONDS
                services.housekeeping.sweep()
            is_idle = run_once(services) is None
            failures = 0
        except DatabaseUnavailableError as error:
            is_idle, failures = True, failures + 1
            _logger.warning("worker: %s", error)
        except Exception:
            is_idle, failures = True, failures + 1
            _logger.exception("worker: looking for a job failed")
        if is_idle:
            time.sleep(min(poll_seconds * 2 ** min(failures, 10), max(poll_seconds, _LONGEST_PAUSE_SECONDS)))


def _close(services: Services, job: Job, state: JobState, error: str | None) -> None:
    try:
        with services.database.write() as work:
            work.jobs.finish(job, state, error, None)
    except JobCancelledError:
        _logger.info("job %s belongs to another worker by now", job.id)
