"""The job queue: a table, claimed row by row with a lease and a fencing token."""
# Every change of a job's state and every step of its training is a numbered event, written in the transaction
# that makes the change; a client that follows a job asks for the events after the last one it has seen. An
# expired lease shows that the worker is silent, not that it died: it may be waiting for the same lock as the
# process that sees the expiry. So the first claim only sets a deadline, and the job is taken over if its
# worker has not renewed the lease by then.

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.db.collections import IS_NOT_DELETED, is_there
from app.db.models import OPEN_STATES, CollectionRow, JobEventRow, JobRow
from app.db.statements import Repository, now, violates
from app.domain.entities import Collection, Job, JobEvent, JobState, value_of
from app.domain.errors import CollectionNotFoundError, ConflictError, JobCancelledError, job_not_found
from app.domain.names import is_storable

_STATE, _PROGRESS = "state", "progress"
_EVENT_RETENTION = timedelta(days=1)  # events of a finished job stay for clients that reconnect to its stream
_NOTICE_SECONDS = 5.0
"""Time for a worker with an expired lease to renew it: as long as a statement waits for a lock by default."""


class JobQueue(Repository):
    """Retrain jobs; every change of a running job checks the fencing token of its claim."""

    def enqueue(self, collection: Collection, parameters: Mapping[str, Any]) -> Job:
        """Add a job; raises ConflictError while one is queued or running."""
        # Workers of the release before, beside these, refuse parameters that they do not know, as the reason.
        row = JobRow(
            id=secrets.token_hex(8),
            collection_id=collection.id,
            state=JobState.QUEUED.value,
            parameters={name: value for name, value in parameters.items() if name != "reason"},
            reason=parameters.get("reason"),
            progress={},
            cancel_requested=False,
            fencing_token=0,
            attempts=0,
            last_event=0,
            created_at=now(self._session),
        )
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            if violates(error, "uq_jobs_open_per_collection", "jobs.collection_id"):
                raise ConflictError(
                    "training-already-running",
                    f"a retrain of {collection.name!r} is already queued or running",
                ) from error
            if violates(error, "fk_jobs_collection_id_collections"):
                raise CollectionNotFoundError(collection.name) from error
            raise
        if not is_there(self._session, collection.id):  # only now can it no longer be deleted concurrently
            raise CollectionNotFoundError(collection.name)
        self._forget_old_events(collection)
        self._record_state(row)
        return self._job(row)

    def get(self, job_id: str) -> Job:
        """Return one; raises NotFoundError."""
        return self._job(self._row(job_id))

    def recent(self, collection: Collection, limit: int) -> list[Job]:
        """Return the last jobs of a collection, newest first."""
        rows = select(JobRow).where(JobRow.collection_id == collection.id)
        newest = rows.order_by(JobRow.created_at.desc(), JobRow.id).limit(limit)
        return [_job(row, collection.name) for row in self._session.scalars(newest)]

    def held_by(self, worker: str) -> Job | None:
        """Return the one that a worker runs, or ran when it died."""
        is_its = JobRow.worker == worker, JobRow.state == JobState.RUNNING.value
        row = self._session.scalar(select(JobRow).where(*is_its))
        return None if row is None else self._job(row)

    def claim(
        self, worker: str, lease_seconds: float, max_attempts: int, job_id: str | None = None
    ) -> Job | None:
        """Take the oldest job that is due or whose worker is gone, or only the job with that id."""
        # A worker is gone when it has not renewed its lease within `_NOTICE_SECONDS` after the first claim
        # that saw it expired.
        moment = now(self._session)
        is_ready = or_(JobRow.state == JobState.QUEUED.value, JobRow.lease_expires_at < moment)
        is_due = or_(JobRow.not_before.is_(None), JobRow.not_before <= moment)
        query = (
            select(JobRow)
            .where(JobRow.state.in_(OPEN_STATES), is_ready, or_(is_due, JobRow.cancel_requested))
            .order_by(JobRow.created_at)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if job_id is not None:
            query = query.where(JobRow.id == job_id)
        while (row := self._session.scalar(query)) is not None:
            is_silent = row.state == JobState.RUNNING.value and row.not_before is None
            if is_silent and not row.cancel_requested:
                row.not_before = moment + timedelta(seconds=min(lease_seconds, _NOTICE_SECONDS))
                continue
            if not row.cancel_requested and row.attempts < max_attempts:
                break
            if row.cancel_requested:
                self._close(row, JobState.CANCELLED, None)
            else:
                self._close(row, JobState.FAILED, f"gave up after {row.attempts} attempts: the worker died")
        if row is None:
            return None
        row.state, row.worker, row.progress = JobState.RUNNING.value, worker, {}
        row.fencing_token += 1
        row.attempts += 1
        row.not_before = None
        row.started_at, row.lease_expires_at = moment, moment + timedelta(seconds=lease_seconds)
        self._record_state(row, attempt=row.attempts)
        return self._job(row)

    def heartbeat(self, job: Job, lease_seconds: float, *progress: Mapping[str, Any]) -> None:
        """Extend the lease and record progress since the last heartbeat, the latest last. Raises
        JobCancelledError when the job is no longer this claim's."""
        steps = [dict(step) for step in progress if step]
        row = self._session.execute(
            update(JobRow)
            .where(*_held_by(job))
            .values(
                **({"progress": steps[-1]} if steps else {}),
                last_event=JobRow.last_event + len(steps),
                not_before=None,
                lease_expires_at=now(self._session) + timedelta(seconds=lease_seconds),
            )
            .returning(JobRow.cancel_requested, JobRow.last_event)
        ).one_or_none()
        if row is None or row.cancel_requested:
            raise JobCancelledError(f"job {job.id} was cancelled or taken over")
        first = row.last_event - len(steps) + 1
        self._record(job.id, _PROGRESS, steps, first)

    def check(self, job: Job) -> None:
        """Raise JobCancelledError when the job is no longer this claim's; writes nothing."""
        cancel_requested = self._session.scalar(select(JobRow.cancel_requested).where(*_held_by(job)))
        if cancel_requested is None or cancel_requested:
            raise JobCancelledError(f"job {job.id} was cancelled or taken over")

    def give_back(self, job: Job, reason: str, delay_seconds: float, counts: bool) -> None:
        """Queue the job again; it waits for a while, and the attempt may count. Raises JobCancelledError when
        the job is no longer this claim's."""
        row = self._held_row(job)
        if row.cancel_requested:
            self._close(row, JobState.CANCELLED, None)
            return
        row.state, row.lease_expires_at = JobState.QUEUED.value, None
        row.not_before = now(self._session) + timedelta(seconds=delay_seconds)
        row.progress = {"phase": "waiting for another attempt", "reason": reason}
        if not counts:
            row.attempts -= 1
        self._record_state(row, reason=reason, retry_in_seconds=delay_seconds)

    def finish(self, job: Job, state: JobState, error: str | None, model_version: int | None) -> None:
        """Close the job; raises JobCancelledError when the job is no longer this claim's."""
        row = self._held_row(job)
        row.model_version = model_version
        self._close(row, state, error)

    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Return what happened after the event of that number, oldest first."""
        query = (
            select(JobEventRow)
            .where(JobEventRow.job_id == job_id, JobEventRow.number > after)
            .order_by(JobEventRow.number)
            .limit(limit)
        )
        return [JobEvent(row.number, row.kind, row.data) for row in self._session.scalars(query)]

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        is_its = CollectionRow.id == JobRow.collection_id
        query = select(JobRow.state, func.count()).join(CollectionRow, is_its).where(IS_NOT_DELETED)
        rows = self._session.execute(query.group_by(JobRow.state))
        return dict.fromkeys(JobState, 0) | {JobState(state): count for state, count in rows}

    def request_cancel(self, job_id: str) -> Job:
        """Ask the job to stop; a job without a worker is cancelled immediately."""
        row = self._row(job_id, lock=True)
        is_abandoned = row.lease_expires_at is not None and row.lease_expires_at < now(self._session)
        if row.state == JobState.QUEUED.value or (row.state == JobState.RUNNING.value and is_abandoned):
            self._close(row, JobState.CANCELLED, None)
        elif row.state == JobState.RUNNING.value:
            row.cancel_requested = True
        self._session.flush()
        return self._job(row)

    def _close(self, row: JobRow, state: JobState, error: str | None) -> None:
        row.state, row.error = state.value, error
        row.finished_at, row.lease_expires_at = now(self._session), None
        self._record_state(row, error=error, model_version=row.model_version)

    def _record_state(self, row: JobRow, **facts: Any) -> None:
        row.last_event += 1
        self._session.flush()
        self._record(row.id, _STATE, [{"state": row.state, **facts}], row.last_event)

    def _record(self, job_id: str, kind: str, entries: Sequence[Mapping[str, Any]], first: int) -> None:
        rows = [
            {"job_id": job_id, "number": first + place, "kind": kind, "data": data}
            for place, data in enumerate(entries)
        ]
        if rows:
            self._session.execute(insert(JobEventRow), rows)

    def _forget_old_events(self, collection: Collection) -> None:
        """Keep the table small: the job stays, its events are deleted a day after it finished."""
        closed = select(JobRow.id).where(
            JobRow.collection_id == collection.id, JobRow.finished_at < now(self._session) - _EVENT_RETENTION
        )
        self._session.execute(delete(JobEventRow).where(JobEventRow.job_id.in_(closed)))

    def _held_row(self, job: Job) -> JobRow:
        # The session's copy of the row may be older than the lock.
        query = select(JobRow).where(*_held_by(job)).with_for_update()
        row = self._session.scalar(query.execution_options(populate_existing=True))
        if row is None:
            raise JobCancelledError(f"job {job.id} was taken over by another worker")
        return row

    def _row(self, job_id: str, lock: bool = False) -> JobRow:
        row = self._session.get(JobRow, job_id, with_for_update=lock) if is_storable(job_id) else None
        if row is None or not is_there(self._session, row.collection_id):
            raise job_not_found(job_id)
        return row

    def _job(self, row: JobRow) -> Job:
        name = self._session.scalar(select(CollectionRow.name).where(CollectionRow.id == row.collection_id))
        return _job(row, name or "")


def _job(row: JobRow, collection: str) -> Job:
    parameters = row.parameters | ({} if row.reason is None else {"reason": row.reason})
    return value_of(Job, row, collection=collection, state=JobState(row.state), parameters=parameters)


def _held_by(job: Job) -> tuple[Any, ...]:
    return (
        JobRow.id == job.id,
        JobRow.state == JobState.RUNNING.value,
        JobRow.fencing_token == job.fencing_token,
    )
