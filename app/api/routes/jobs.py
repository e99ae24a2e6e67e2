"""Routes of retrain jobs: requesting, following and cancelling them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query, Response, status
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from app import answers
from app.api.admission import Workload, works_as
from app.api.bodies import read_json
from app.api.deps import RootPath, may_administer
from app.api.openapi import JOB_QUEUED
from app.api.problems import OF_BODIES, responses
from app.api.schemas.admin import RetrainIn
from app.api.shown import show_job
from app.api.state import ApiState, State
from app.domain.entities import Job
from app.domain.errors import DatabaseUnavailableError, NotFoundError

_POLL_SECONDS = 0.25  # progress is written no more often than this
_EVENTS_PER_POLL = 200  # bounds the memory of a stream whose client begins at the first event
_MAX_FAILURES = 20
"""In a row, about five seconds without the database; then the client is cut off, and asks again."""


async def follow(state: ApiState, job_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    """Yield what happens to a job after the event of that number until it is closed, or the server stops.
    A client that is cut off asks again with the number of the last event, and any server process answers."""
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


router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])
LastEvent = Annotated[
    int,
    Header(alias="Last-Event-ID", ge=0, le=2**31 - 1, description="resume after the event of this number"),
]
_STREAM = {"example": 'event: state\ndata: {"state": "queued"}\nid: 1\n\n'}


@router.post(
    "/collections/{collection}/retrain",
    status_code=status.HTTP_202_ACCEPTED,
    responses={**responses(401, 403, 404, 409, *OF_BODIES), 202: JOB_QUEUED},
)
def retrain(
    collection: str,
    state: State,
    root_path: RootPath,
    response: Response,
    body: Annotated[RetrainIn, read_json(RetrainIn, default=RetrainIn())],
) -> answers.Job:
    """Queue a retrain; the new version is served as soon as it is published, unless it is worse.

    With `encoders` all stored originals of these modalities are encoded again first, beside the features that
    serve; searches go on with the old encoder until the new version, its encoder and its features take over
    together.
    """
    job = state.training.request(collection, body.to_parameters(), body.to_encoders())
    response.headers["Location"] = f"{root_path}/v1/admin/jobs/{job.id}"
    return show_job(job)


@router.get("/collections/{collection}/jobs", responses=responses(401, 403, 404))
def list_jobs(
    collection: str, state: State, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> answers.Jobs:
    """List the retrains of a collection, newest first; the first one is the one that runs, if any."""
    return answers.Jobs(jobs=[show_job(job) for job in state.training.jobs(collection, limit)])


@router.get("/jobs/{job_id}", responses=responses(401, 403, 404))
def get_job(job_id: str, state: State) -> answers.Job:
    """Return a job with its progress."""
    return show_job(state.training.job(job_id))


def _require_job(job_id: str, state: State, response: Response, last_event: LastEvent = 0) -> None:
    """Answer 422 for a bad event number and 404 for an unknown job, before the stream begins."""
    state.training.job(job_id)
    # FastAPI says `no-cache` of every stream; this one needs a key, so that no cache may keep it either.
    response.headers["Cache-Control"] = "no-store"


@router.get(
    "/jobs/{job_id}/events",
    dependencies=[Depends(_require_job)],
    response_class=EventSourceResponse,
    responses={
        **responses(401, 403, 404),
        200: {"description": "Server-sent events", "content": {"text/event-stream": _STREAM}},
    },
)
@works_as(Workload.EVENTS)
async def job_events(job_id: str, state: State, last_event: LastEvent = 0) -> AsyncIterator[ServerSentEvent]:
    """Follow a job as server-sent events.

    An event `progress` for each step of the training (`phase`, `percent`, an estimate of `seconds_left`; of
    iterations also `iteration`, `objective`, `gap`, `rank`), an event `state` for each new state; the stream
    ends after the last. Every event has a number: a client
    that was cut off resumes with `Last-Event-ID`, as browsers do by themselves. Of a job that ended more than
    a day ago only the last state may be left.
    """
    async for event in follow(state, job_id, last_event):
        yield event


@router.post(
    "/jobs/{job_id}/cancel", status_code=status.HTTP_202_ACCEPTED, responses=responses(401, 403, 404)
)
def cancel_job(job_id: str, state: State) -> answers.Job:
    """Ask a job to stop; its trainer is ended within a second, whatever it is doing."""
    return show_job(state.training.cancel(job_id))
