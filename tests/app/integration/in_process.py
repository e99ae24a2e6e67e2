from collections.abc import Callable

from app.bootstrap import Services
from app.domain.entities import Job
from app.worker.attempts import Lease, Outcome, attempt
from app.worker.worker import make_worker


def train_here(services: Services, lease: Lease) -> Outcome:
    """Train in this process: a child takes seconds to start, and knows nothing of what a test patched."""
    return attempt(services.builder, lease.job.collection, lease.job.parameters, lease.report)


def run_with(
    services: Services,
    train: Callable[[Services, Lease], Outcome],
    job_id: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Job | None:
    """Run one job with a trainer of the test's own."""
    return make_worker(services, should_stop, lambda lease: train(services, lease)).run_once(job_id)


def run_here(services: Services, job_id: str | None = None) -> Job | None:
    return run_with(services, train_here, job_id)
