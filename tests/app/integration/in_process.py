import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.bootstrap import Services
from app.domain.entities import Job, JobState
from app.worker.attempts import Lease, Outcome, attempt
from app.worker.worker import make_worker


def train_here(services: Services, lease: Lease) -> Outcome:
    """Train in this process: a child takes seconds to start, and knows nothing of what a test patched."""
    return attempt(services.builder, lease.job.collection, lease.job.parameters, lease.report)


def run_one(
    services: Services,
    train: Callable[[Services, Lease], Outcome] = train_here,
    job_id: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Job | None:
    """Run one job, if there is one, with a trainer of the test's own."""
    return make_worker(services, should_stop, lambda lease: train(services, lease)).run_once(job_id)


def run_with(
    services: Services,
    train: Callable[[Services, Lease], Outcome],
    should_stop: Callable[[], bool] = lambda: False,
) -> Job:
    """Run a job that there is with a trainer of the test's own."""
    job = run_one(services, train, should_stop=should_stop)
    assert job is not None
    return job


def run_here(services: Services, job_id: str | None = None) -> Job:
    """Run a job that there is in this process."""
    job = run_one(services, job_id=job_id)
    assert job is not None
    return job


def run_well(services: Services) -> Job:
    """Run a job that there is, which succeeds."""
    job = run_here(services)
    assert job.state is JobState.SUCCEEDED, job.error
    return job


@contextmanager
def at_work(services: Services) -> Iterator[None]:
    """Have a worker run meanwhile, which trains in this process."""
    stopping = threading.Event()
    made = make_worker(services, stopping.is_set, lambda lease: train_here(services, lease))
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
