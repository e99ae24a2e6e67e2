"""Routes of retrains: asking for one, following it, ending it."""

from __future__ import annotations

from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query, Response, status
from sse_starlette import EventSourceResponse

from app.api.bodies import read_json
from app.api.deps import Training, may_administer
from app.api.openapi import JOB_QUEUED, json_body
from app.api.problems import OF_BODIES, responses
from app.api.routes.job_events import follow
from app.api.schemas.admin import JobList, JobOut, RetrainIn
from app.services.training.requests import TrainingParameters

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])
LastEvent = Annotated[
    int,
    Header(alias="Last-Event-ID", ge=0, le=2**31 - 1, description="go on after the event of this number"),
]
_KEEP_ALIVE_SECONDS = 15
_LAST_LOOK_SECONDS = 5.0
"""How long a stream may take to end by itself when the server stops."""
_STREAM = {"example": 'id: 1\nevent: state\ndata: {"state": "queued"}\n\n'}


@router.post(
    "/collections/{collection}/retrain",
    status_code=status.HTTP_202_ACCEPTED,
    responses={**responses(401, 403, 404, 409, *OF_BODIES), 202: JOB_QUEUED},
    openapi_extra=json_body(RetrainIn, required=False),
)
def retrain(
    collection: str,
    training: Training,
    response: Response,
    body: Annotated[RetrainIn, read_json(RetrainIn, default=RetrainIn())],
) -> JobOut:
    """Queue a retrain; the new version serves as soon as it is published, unless it is worse."""
    job = training.request(collection, TrainingParameters(**body.model_dump()))
    response.headers["Location"] = f"/v1/admin/jobs/{job.id}"
    return JobOut.of(job)


@router.get("/collections/{collection}/jobs", responses=responses(401, 403, 404, 422))
def list_jobs(
    collection: str, training: Training, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> JobList:
    """List the retrains of a collection, newest first: the first is the one that runs, if one does."""
    return JobList(jobs=[JobOut.of(job) for job in training.jobs(collection, limit)])


@router.get("/jobs/{job_id}", responses=responses(401, 403, 404, 422))
def get_job(job_id: str, training: Training) -> JobOut:
    """Return a job with its progress."""
    return JobOut.of(training.job(job_id))


@router.get(
    "/jobs/{job_id}/events",
    response_class=EventSourceResponse,
    responses={
        **responses(401, 403, 404, 422),
        200: {"description": "Server-sent events", "content": {"text/event-stream": _STREAM}},
    },
)
def job_events(job_id: str, training: Training, last_event: LastEvent = 0) -> EventSourceResponse:
    """Follow a job as server-sent events.

    An event `progress` for each step of the training (`phase`, `iteration`, `objective`, `gap`, `rank`), an
    event `state` for each new state; the stream ends after the last one. Every event has a number: who was
    cut off goes on with `Last-Event-ID`, as browsers do by themselves. Of a job that ended more than a day
    ago only the last state may be left.
    """
    training.job(job_id)
    stopping = anyio.Event()
    return EventSourceResponse(
        follow(training, job_id, last_event, stopping),
        ping=_KEEP_ALIVE_SECONDS,
        shutdown_event=stopping,
        shutdown_grace_period=_LAST_LOOK_SECONDS,
    )


@router.post(
    "/jobs/{job_id}/cancel", status_code=status.HTTP_202_ACCEPTED, responses=responses(401, 403, 404, 422)
)
def cancel_job(job_id: str, training: Training) -> JobOut:
    """Ask a job to stop; its trainer is ended within a second, whatever it is at."""
    return JobOut.of(training.cancel(job_id))
