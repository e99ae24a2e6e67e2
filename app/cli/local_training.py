"""Queue a retrain and wait for it in this process, as `lrbs train` and the demo do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from app.bootstrap import Services
from app.cli.console import PERCENT, time_left
from app.domain.entities import Job, JobState
from app.domain.errors import ConflictError, NotFoundError, ServiceError
from app.services.training.reencoding import Encoders
from app.services.training.requests import TrainingParameters
from app.worker.worker import make_worker

_POLL_SECONDS = 0.2


def train(
    services: Services,
    name: str,
    parameters: TrainingParameters,
    on_progress: Callable[[str, int, int, str], None],
    encoders: Encoders | None = None,
    on_elsewhere: Callable[[], None] = lambda: None,
) -> int:
    """Queue a retrain, run it here unless a worker claims it, and return the new version."""
    # Raises ConflictError with the job's reason if it fails or is cancelled, as it is when `on_progress`
    # raises, or on Ctrl-C. One that was requested in the same words and is not closed yet is joined: it is
    # run here if the process that ran it is gone. `on_progress` gets (what, done, total, remark);
    # `on_elsewhere` is called once if another worker claims the job, which goes by the settings of that
    # worker. The schema must be current.
    with ThreadPoolExecutor(1) as pool:
        # In a thread of its own, so that an interrupt cannot lose the job id.
        request = pool.submit(services.training.request_or_join, name, parameters, encoders)
        try:
            job = request.result()
            worker = pool.submit(_work_until_closed, services, job, on_elsewhere)
            while not worker.done():
                wait([worker], timeout=_POLL_SECONDS)
                _show(services, job.id, on_progress)
            closed = worker.result()
        except BaseException:
            with contextlib.suppress(ServiceError):
                services.training.cancel(request.result().id)
            raise
    if closed.state is not JobState.SUCCEEDED or closed.model_version is None:
        raise ConflictError("training-data", f"the retrain {closed.state.value}: {closed.error}")
    return closed.model_version


def _work_until_closed(services: Services, job: Job, on_elsewhere: Callable[[], None]) -> Job:
    """Run the job, or wait for the worker that claimed it; take over if that worker dies."""
    name = job.collection
    worker = make_worker(services)
    is_elsewhere = False
    try:
        while job.state.is_open:
            if worker.run_once(job.id) is None:
                if job.state is JobState.RUNNING and not is_elsewhere:
                    is_elsewhere = True
                    on_elsewhere()
                time.sleep(_POLL_SECONDS)
            job = services.training.job(job.id)
    except NotFoundError as error:
        raise ConflictError("training-data", f"collection {name!r} was deleted during its retrain") from error
    return job


def _show(services: Services, job_id: str, on_progress: Callable[[str, int, int, str], None]) -> None:
    try:
        progress = services.training.job(job_id).progress
    except ServiceError:
        return  # the thread that works on the job gets the same error and handles it
    gap, seconds_left = progress.get("gap"), progress.get("seconds_left")
    remarks = [] if gap is None else [f"gap {gap:.1e}"]
    remarks += [] if seconds_left is None else [time_left(seconds_left)]
    percent = int(progress.get("percent", 0.0))
    on_progress(
        f"training: {progress.get('phase', 'waiting')}", percent, PERCENT, ", ".join(filter(None, remarks))
    )
