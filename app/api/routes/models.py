"""Routes of trainings, of the model versions that they make, and of searches by a version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Depends, Header, Path, Response, status
from fastapi import Query as Parameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from app import answers
from app.api.admission import aside, works_as
from app.api.bodies import read_json
from app.api.deps import KeyId, Readers, RootPath, may_administer
from app.api.openapi import JOB_QUEUED
from app.api.problems import responses
from app.api.routes.searches import READ_SEARCH
from app.api.schemas.admin import ActivateIn, RetrainIn, RetrainingPolicyIn
from app.api.schemas.searches import SearchOptions, encode_result
from app.api.shown import show_collection, show_job, show_model
from app.api.state import ApiState, State
from app.domain.errors import DatabaseUnavailableError, NotFoundError
from app.domain.names import LARGEST_VERSION
from app.services.models.registry import PlotKind, draw_report
from app.services.serving.search import Query

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
                ended = {"state": job.state.value, "error": job.error, "model_version": job.model_version}
                yield _event(after, "state", ended)
            return
        await anyio.sleep(_POLL_SECONDS)


def _event(number: int, kind: str, data: Any) -> ServerSentEvent:
    return ServerSentEvent(data=data, event=kind, id=str(number))


jobs = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])
LastEvent = Annotated[
    int,
    Header(alias="Last-Event-ID", ge=0, le=2**31 - 1, description="resume after the event of this number"),
]
_STREAM = {"example": 'event: state\ndata: {"state": "queued"}\nid: 1\n\n'}


@jobs.post(
    "/collections/{collection}/retrain",
    status_code=status.HTTP_202_ACCEPTED,
    responses={**responses(409), 202: JOB_QUEUED},
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


@jobs.put("/collections/{collection}/retraining")
def set_retraining(
    collection: str, body: Annotated[RetrainingPolicyIn, read_json(RetrainingPolicyIn)], state: State
) -> answers.Collection:
    """Say when a collection is trained by itself, in place of what was said before; `{}` means never.

    Trainings have the parameters of the active version and a reason, and versions have to pass the same
    comparison as others. While items are written a training waits for up to an hour; after one that failed or
    was stopped six hours pass.
    """
    return show_collection(state.training.set_policy(collection, body.to_policy()))


@jobs.get("/collections/{collection}/jobs")
def list_jobs(
    collection: str, state: State, limit: Annotated[int, Parameter(ge=1, le=1000)] = 100
) -> answers.Jobs:
    """List the retrains of a collection, newest first; the first one is the one that runs, if any."""
    return answers.Jobs(jobs=[show_job(job) for job in state.training.jobs(collection, limit)])


@jobs.get("/jobs/{job_id}")
def get_job(job_id: str, state: State) -> answers.Job:
    """Return a job with its progress."""
    return show_job(state.training.job(job_id))


def _require_job(job_id: str, state: State, response: Response, last_event: LastEvent = 0) -> None:
    """Answer 422 for a bad event number and 404 for an unknown job, before the stream begins."""
    state.training.job(job_id)
    # FastAPI says `no-cache` of every stream; this one needs a key, so that no cache may keep it either.
    response.headers["Cache-Control"] = "no-store"


@jobs.get(
    "/jobs/{job_id}/events",
    dependencies=[Depends(_require_job)],
    response_class=EventSourceResponse,
    responses={200: {"description": "Server-sent events", "content": {"text/event-stream": _STREAM}}},
)
@works_as("events")
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


@jobs.post("/jobs/{job_id}/cancel", status_code=status.HTTP_202_ACCEPTED)
def cancel_job(job_id: str, state: State) -> answers.Job:
    """Ask a job to stop; its trainer is ended within a second, whatever it is doing."""
    return show_job(state.training.cancel(job_id))


models = APIRouter(
    prefix="/v1/admin/collections/{collection}", tags=["admin"], dependencies=[Depends(may_administer)]
)
_TEXT, _FILE = {"type": "string"}, {"type": "string", "format": "binary"}
Version = Annotated[int, Path(ge=1, le=LARGEST_VERSION)]
Activation = Annotated[ActivateIn, read_json(ActivateIn, default=ActivateIn())]


@models.get("/models")
def list_models(collection: str, state: State) -> answers.Models:
    """List model versions, newest first, without their lists (curves, history, classes and their like)."""
    return answers.Models([show_model(model, is_whole=False) for model in state.versions.models(collection)])


@models.get("/models/{version}")
def get_model(collection: str, version: Version, state: State) -> answers.Model:
    """Return one model version with its whole report."""
    return show_model(state.versions.model(collection, version))


@models.post("/models/{version}/activate", responses=responses(409))
def activate_model(
    collection: str, version: Version, state: State, key_id: KeyId, body: Activation
) -> answers.Model:
    """Activate a version: promote it, or roll back to it; its bundle is checked first."""
    by = f"key {key_id}"
    return show_model(state.versions.activate(collection, version, by, body.reason, body.expected_version))


@models.post(
    "/models/{version}/search/{source}-to-{target}",
    responses=responses(409),
    response_model=answers.SearchResult,
)
@works_as("read")
def search_version(
    collection: str,
    version: Version,
    source: str,
    target: str,
    state: State,
    readers: Readers,
    root_path: RootPath,
    request: Annotated[tuple[Query, SearchOptions], READ_SEARCH],
) -> Response:
    """Search by a version whether it serves or not, to compare it with another one.

    It ranks the items that are there now. A version that does not serve is loaded first, which takes seconds
    where there are many items.
    """
    query, options = request
    task = options.to_search([query], readers)
    result = state.search.search_version(collection, version, (source, target), task, aside)
    answer = encode_result(collection, result, task.fields, root_path)
    return Response(answer, media_type="application/json")


@models.post("/rollback", responses=responses(409))
def roll_back(collection: str, state: State, key_id: KeyId, body: Activation) -> answers.Model:
    """Activate the version that was active before the current one."""
    return show_model(
        state.versions.roll_back(collection, f"key {key_id}", body.reason, body.expected_version)
    )


@models.get("/activations")
def list_activations(
    collection: str, state: State, limit: Annotated[int, Parameter(ge=1, le=1000)] = 100
) -> answers.Activations:
    """Return which version was activated when, by whom and why, newest first."""
    return answers.Activations(list(state.versions.history(collection, limit)))


@models.get(
    "/models/{version}/plots/{kind}",
    responses={
        200: {
            "description": "The drawing",
            "content": {"image/svg+xml": {"schema": _TEXT}, "image/png": {"schema": _FILE}},
        }
    },
    response_class=Response,
)
def get_plot(
    collection: str,
    version: Version,
    kind: PlotKind,
    state: State,
    direction: Annotated[
        str | None,
        Parameter(max_length=200, description="of curves, such as image-to-text; both when left out"),
    ] = None,
    theme: Annotated[Literal["light", "dark"], Parameter(description="ground that is drawn on")] = "light",
    form: Annotated[Literal["svg", "png"], Parameter(alias="format", description="of the drawing")] = "svg",
) -> Response:
    """Draw what the report of a version holds; 503 where the service has no library to draw with."""
    plot = draw_report(state.versions.model(collection, version).report, kind, theme, direction)
    if form == "png":
        return Response(plot.png(), media_type="image/png")
    return Response(plot.svg(), media_type="image/svg+xml")
