"""The job queue: a table, claimed row by row with a lease and a fencing token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.constraints import violates_foreign_key, violates_unique
from app.db.models import CollectionRow, JobRow
from app.domain.entities import Collection, Job, JobState
from app.domain.errors import (
    CollectionNotFoundError,
    JobCancelledError,
    JobNotFoundError,
    TrainingAlreadyRunningError,
)

_OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)


class SqlJobQueue:
    """Retrain jobs; every change of a running job checks the fencing token of its claim."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def enqueue(self, collection: Collection, parameters: Mapping[str, Any]) -> Job:
        """Add a job; raises TrainingAlreadyRunningError while one is queued or running."""
        row = JobRow(
            id=secrets.token_hex(8),
            collection_id=collection.id,
            state=JobState.QUEUED.value,
            parameters=dict(parameters),
            progress={},
            cancel_requested=False,
            fencing_token=0,
            created_at=datetime.now(UTC),
        )
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            if violates_unique(error, "uq_jobs_open_per_collection", "jobs.collection_id"):
                raise TrainingAlreadyRunningError(collection.name) from error
            if violates_foreign_key(error, "fk_jobs_collection_id_collections"):
                raise CollectionNotFoundError(collection.name) from error
            raise
        return self._job(row)

    def get(self, job_id: str) -> Job:
        """Return one; raises JobNotFoundError."""
        return self._job(self._row(job_id))

    def last(self, collection: Collection) -> Job | None:
        """Return the newest job of a collection."""
        newest = select(JobRow).where(JobRow.collection_id == collection.id).limit(1)
        row = self._session.scalar(newest.order_by(JobRow.created_at.desc()))
        return None if row is None else self._job(row)

    def claim(
        self, worker: str, lease_seconds: float, max_attempts: int, job_id: str | None = None
    ) -> Job | None:
        """Take the oldest job that is queued or whose lease ran out, or only the one of that id."""
        now = datetime.now(UTC)
        query = (
            select(JobRow)
            .where(
                JobRow.state.in_(_OPEN),
                or_(JobRow.state == JobState.QUEUED.value, JobRow.lease_expires_at < now),
            )
            .order_by(JobRow.created_at)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if job_id is not None:
            query = query.where(JobRow.id == job_id)
        while (row := self._session.scalar(query)) is not None:
            if not row.cancel_requested and row.fencing_token < max_attempts:
                break
            row.state = (JobState.CANCELLED if row.cancel_requested else JobState.FAILED).value
            gave_up = f"gave up after {max_attempts} attempts: the worker died"
            row.error = None if row.cancel_requested else gave_up
            row.finished_at = now
            self._session.flush()
        if row is None:
            return None
        row.state, row.worker, row.progress = JobState.RUNNING.value, worker, {}
        row.fencing_token += 1
        row.started_at, row.lease_expires_at = now, now + timedelta(seconds=lease_seconds)
        self._session.flush()
        return self._job(row)

    def heartbeat(self, job: Job, lease_seconds: float, progress: Mapping[str, Any]) -> None:
        """Extend the lease; raises JobCancelledError when the job is no longer this claim's."""
        cancel_requested = self._session.scalar(
            update(JobRow)
            .where(*_held_by(job))
            .values(
                progress=dict(progress),
                lease_expires_at=datetime.now(UTC) + timedelta(seconds=lease_seconds),
            )
            .returning(JobRow.cancel_requested)
        )
        if cancel_requested is None or cancel_requested:
            raise JobCancelledError(f"job {job.id} was cancelled or taken over")

    def finish(self, job: Job, state: JobState, error: str | None, model_version: int | None) -> None:
        """Close the job; raises JobCancelledError when the job is no longer this claim's."""
        closed = self._session.scalar(
            update(JobRow)
            .where(*_held_by(job))
            .values(
                state=state.value,
                error=error,
                model_version=model_version,
                finished_at=datetime.now(UTC),
                lease_expires_at=None,
            )
            .returning(JobRow.id)
        )
        if closed is None:
            raise JobCancelledError(f"job {job.id} was taken over by another worker")

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        found = self._session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
        return dict.fromkeys(JobState, 0) | {JobState(state): count for state, count in found}

    def request_cancel(self, job_id: str) -> Job:
        """Ask the job to stop; a queued one is cancelled at once."""
        row = self._row(job_id, lock=True)
        if row.state == JobState.QUEUED.value:
            row.state, row.finished_at = JobState.CANCELLED.value, datetime.now(UTC)
        elif row.state == JobState.RUNNING.value:
            row.cancel_requested = True
        self._session.flush()
        return self._job(row)

    def _row(self, job_id: str, lock: bool = False) -> JobRow:
        row = None if "\x00" in job_id else self._session.get(JobRow, job_id, with_for_update=lock)
        if row is None:
            raise JobNotFoundError(job_id)
        return row

    def _job(self, row: JobRow) -> Job:
        name = self._session.scalar(select(CollectionRow.name).where(CollectionRow.id == row.collection_id))
        return Job(
            id=row.id,
            collection=name or "",
            state=JobState(row.state),
            parameters=row.parameters,
            progress=row.progress,
            error=row.error,
            model_version=row.model_version,
            fencing_token=row.fencing_token,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
        )


def _held_by(job: Job) -> tuple[Any, ...]:
    return (
        JobRow.id == job.id,
        JobRow.state == JobState.RUNNING.value,
        JobRow.fencing_token == job.fencing_token,
    )
