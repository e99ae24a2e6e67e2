"""The events of a job as a stream, read from the table, so that any server process can follow any job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
from fastapi.sse import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from app.api.state import ApiState
from app.domain.entities import Job
from app.domain.errors import DatabaseUnavailableError, NotFoundError

_POLL_SECONDS = 0.25  # progress is written no more often than this
_EVENTS_PER_POLL = 200  # bounds the memory of a stream whose client begins at the first event
_MAX_FAILURES = 20
"""In a row, about five seconds without the database; then the client is cut off, and asks again."""


async def follow(state: ApiState, job_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    """Yield what happens to a job after the event of that number until it is closed, or the server stops.
    A client that is cut off asks again, perhaps another server, with the number of the last event."""
    failures = 0
    is_state_sent = False
    while not state.stopping.is_set():
        try:
            job, events = await run_in_threadpool(state.training.events, job_id, after, _EVENTS_PER_POLL)
            failures = 0
        except NotFoundError:
            yield _event(after + 1, "state", {"state": "cancelled", "error": "the collection was deleted"})
            return
        except DatabaseUnavailableError:
            failures += 1
            if failures > _MAX_FAILURES:
                return
            await anyio.sleep(_POLL_SECONDS)
            continue
        for event in events:
            yield _event(event.number, event.kind, event.data)
            after, is_state_sent = event.number, event.kind == "state"
        if len(events) == _EVENTS_PER_POLL:
            continue
        if not job.state.is_open:
            if not is_state_sent:
                yield _event(after, "state", _last_state(job))
            return
        await anyio.sleep(_POLL_SECONDS)


def _last_state(job: Job) -> dict[str, Any]:
    return {"state": job.state.value, "error": job.error, "model_version": job.model_version}


def _event(number: int, kind: str, data: Any) -> ServerSentEvent:
    return ServerSentEvent(data=data, event=kind, id=str(number))
