from app.bootstrap import Services
from app.domain.entities import Job
from app.worker import run_once
from app.worker.lease import Lease
from app.worker.outcome import Outcome, attempt


def train_here(services: Services, lease: Lease) -> Outcome:
    """Train in this process: a child takes seconds to start, and knows nothing of what a test patched."""
    return attempt(services, lease.job.collection, lease.job.parameters, lease.report)


def run_here(services: Services, job_id: str | None = None) -> Job | None:
    return run_once(services, job_id, train_here)
