"""Routes of API keys, of health probes and metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, status

from app import answers
from app.answers import Status
from app.api.bodies import read_json
from app.api.deps import Credentials, check_query, may_administer, may_watch
from app.api.metrics import CONTENT_TYPE
from app.api.problems import responses
from app.api.schemas.admin import KeyIn
from app.api.shown import show_key
from app.api.state import State
from app.domain.errors import UnavailableError
from app.domain.names import Scope
from app.services.health import Readiness

keys = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])


@keys.post("/keys", status_code=status.HTTP_201_CREATED, responses=responses(404))
def create_key(body: Annotated[KeyIn, read_json(KeyIn)], state: State) -> answers.Key:
    """Create a key; its secret is in this answer only."""
    return show_key(*state.access.create(Scope(body.scope), body.name, bounds=body.to_bounds()))


@keys.get("/keys")
def list_keys(state: State) -> answers.Keys:
    """List keys, without their secrets."""
    return answers.Keys(keys=[show_key(key) for key in state.access.list_keys()])


@keys.delete("/keys/{key_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_key(key_id: str, state: State) -> None:
    """Revoke a key."""
    state.access.revoke(key_id)


health = APIRouter(tags=["health"], dependencies=[Depends(check_query)], responses={422: responses()[422]})


@health.get("/healthz", response_model_exclude_none=True)
async def healthz() -> Status:
    """Answer while the process is alive."""
    return Status(status="alive")


@health.get(
    "/readyz",
    response_model_exclude_none=True,
    responses={503: {"description": "Not ready", "model": Status}},
)
async def readyz(state: State, response: Response) -> Status:
    """Answer 200 once the schema is current and the first load of every active model has ended.

    It does not wait for loads: what is still being loaded is named in `reason`.
    A damaged model bundle is named in `reason`. The answer is still 200 as long as something can be searched:
    an earlier version stands in for the damaged one, or other collections are intact; damage to the part that
    only later versions are compared with is named, too.
    So is a gallery that is searched exactly, because its approximate index is damaged or misses too much.
    The same holds where writes are refused or soon will be: a disk or database that is full (less than 64 MiB
    left) or read-only is named, and searches are answered.
    """
    try:
        readiness = await state.readiness.get()
    except UnavailableError as error:
        readiness = Readiness(False, str(error))
    if not readiness.is_ready:
        response.status_code = 503
    return Status(status="ready" if readiness.is_ready else "not ready", reason=readiness.reason)


async def _may_watch(request: Request, state: State, credentials: Credentials) -> None:
    if not state.open_metrics:
        await may_watch(request, credentials)


@health.get(
    "/metrics",
    dependencies=[Depends(_may_watch)],
    response_class=Response,
    responses={
        **responses(401, 403),
        200: {"description": "Prometheus' text format", "content": {"text/plain": {}}},
    },
)
async def metrics(state: State) -> Response:
    """Return metrics in Prometheus' text format, of this process and those beside it on the same host.

    Unless they are open to everybody they need a key of scope `metrics` or `admin`.
    """
    return Response(await state.metrics.get(), media_type=CONTENT_TYPE)
