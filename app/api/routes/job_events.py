"""A job's events as a stream, read from the table, so that it does not matter which process trains."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from app.domain.entities import Job
from app.domain.errors import DatabaseUnavailableError, JobNotFoundError
from app.services.training.requests import TrainingService

_POLL_SECONDS = 0.25
_EVENTS_PER_POLL = 200
_MOST_FAILURES = 20


async def follow(
    training: TrainingService, job_id: str, after: int, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    """Yield what happens to a job until it is closed, or the server is.

    Parameters
    ----------
    training : TrainingService
        Asked again and again.
    job_id : str
        Of an existing job.
    after : int
        Number of the last event that is known already.
    stopping : anyio.Event
        Set when the server stops; a client asks another one then, with the number of the last event.
    """
    failures = 0
    is_told = False
    while not stopping.is_set():
        try:
            job, events = await run_in_threadpool(training.events, job_id, after, _EVENTS_PER_POLL)
            failures = 0
        except JobNotFoundError:
            yield _event(after + 1, "state", {"state": "cancelled", "error": "the collection was deleted"})
            return
        except DatabaseUnavailableError:
            # A client that is cut off asks again, with the number of the last event.
            failures += 1
            if failures > _MOST_FAILURES:
                return
            await _pause(stopping)
            continue
        for event in events:
            yield _event(event.number, event.kind, event.data)
            after, is_told = event.number, event.kind == "state"
        if not job.state.is_open and len(events) < _EVENTS_PER_POLL:
            if not is_told:
                yield _event(after, "state", _last_state(job))
            return
        if len(events) < _EVENTS_PER_POLL:
            await _pause(stopping)


async def _pause(stopping: anyio.Event) -> None:
    with anyio.move_on_after(_POLL_SECONDS):
        await stopping.wait()


def _last_state(job: Job) -> dict[str, Any]:
    return {"state": job.state.value, "error": job.error, "model_version": job.model_version}


def _event(number: int, kind: str, data: Any) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data), event=kind, id=str(number))
