"""The worker: claims retrain jobs one by one and runs them, outside any request."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from app.bootstrap import Services
from app.domain.entities import Job, JobState
from app.domain.errors import JobCancelledError, ServiceError

_REPORT_SECONDS = 0.3
_logger = logging.getLogger(__name__)


class _Lease:
    """Keeps a claimed job alive from a thread, and tells the training when it lost it."""

    def __init__(self, services: Services, job: Job) -> None:
        self._services = services
        self._job = job
        self._progress: Mapping[str, Any] = {}
        self._lost: Exception | None = None
        self._last_beat = 0.0
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
        with self._lock, self._services.database.write() as work:
            self._last_beat = time.monotonic()
            work.jobs.heartbeat(self._job, self._services.settings.lease_seconds, self._progress)

    def _keep(self) -> None:
        interval = min(self._services.settings.lease_seconds / 3.0, 1.0)
        while not self._closed.wait(interval):
            try:
                self._beat()
            except Exception as error:
                # Whatever it was, the training must learn of it; it raises there.
                self._lost = error
                return


def run_once(services: Services) -> Job | None:
    """Claim and run one job.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.

    Returns
    -------
    Job or None
        The job as it ended; None when there was nothing to do.
    """
    settings = services.settings
    with services.database.write() as work:
        job = work.jobs.claim(
            f"{socket.gethostname()}:{os.getpid()}", settings.lease_seconds, settings.job_attempts
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
        _logger.info("job %s failed: %s", job.id, error)
        _close(services, job, JobState.FAILED, str(error))
    except Exception as error:
        _logger.exception("job %s failed", job.id)
        _close(services, job, JobState.FAILED, f"internal error: {type(error).__name__}")
    return services.training.job(job.id)


def run_forever(services: Services, should_stop: Callable[[], bool]) -> None:
    """Run jobs as they come until `should_stop` says so.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    should_stop : callable
        Asked between jobs.
    """
    while not should_stop():
        if run_once(services) is None:
            time.sleep(services.settings.worker_poll_seconds)


def _close(services: Services, job: Job, state: JobState, error: str | None) -> None:
    try:
        with services.database.write() as work:
            work.jobs.finish(job, state, error, None)
    except JobCancelledError:
        _logger.info("job %s belongs to another worker by now", job.id)
