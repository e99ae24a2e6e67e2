"""The queue of jobs in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app.domain.entities import Collection, Job, JobEvent, JobState


class JobQueue(Protocol):
    """Retrain jobs; the table is the queue."""

    def enqueue(self, collection: Collection, parameters: Mapping[str, Any]) -> Job:
        """Add a job; raises TrainingAlreadyRunningError while one is queued or running."""
        ...

    def get(self, job_id: str) -> Job:
        """Return one; raises JobNotFoundError."""
        ...

    def recent(self, collection: Collection, limit: int) -> list[Job]:
        """Return the last jobs of a collection, newest first."""
        ...

    def claim(
        self, worker: str, lease_seconds: float, max_attempts: int, job_id: str | None = None
    ) -> Job | None:
        """Take the oldest job that is due or whose worker is gone, or only the one of that id.

        The first claim of a job whose lease ran out only gives notice; its worker may still renew it.
        """
        ...

    def heartbeat(
        self,
        job: Job,
        lease_seconds: float,
        progress: Mapping[str, Any],
        before: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Extend the lease and record progress, and what came before it since the last heartbeat.

        Raises JobCancelledError when the job is no longer this claim's.
        """
        ...

    def check(self, job: Job) -> None:
        """Raise JobCancelledError when the job is no longer this claim's; writes nothing."""
        ...

    def give_back(self, job: Job, reason: str, delay_seconds: float, counts: bool) -> None:
        """Queue the job again; it waits for a while, and the attempt may count.

        Raises JobCancelledError when the job is no longer this claim's.
        """
        ...

    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Return what happened after the event of that number, oldest first."""
        ...

    def finish(self, job: Job, state: JobState, error: str | None, model_version: int | None) -> None:
        """Close the job; raises JobCancelledError when the job is no longer this claim's."""
        ...

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        ...

    def request_cancel(self, job_id: str) -> Job:
        """Ask the job to stop; a job without a worker is cancelled immediately."""
        ...
