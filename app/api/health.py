"""Routes for those who watch over the service."""

from __future__ import annotations

import anyio
from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from app.api.deps import Credentials, may_administer
from app.api.metrics import CONTENT_TYPE, Metrics
from app.api.problems import responses

router = APIRouter(tags=["health"])
_limiter = anyio.CapacityLimiter(2)
"""Threads of its own: who asks about an overloaded service should not wait with the others."""


class Status(BaseModel):
    """How the service is."""

    status: str
    reason: str | None = Field(None, description="what is missing")


@router.get("/healthz", response_model_exclude_none=True)
async def healthz() -> Status:
    """Answer while the process lives."""
    return Status(status="alive")


@router.get(
    "/readyz",
    response_model_exclude_none=True,
    responses={503: {"description": "Not ready", "model": Status}},
)
async def readyz(request: Request, response: Response) -> Status:
    """Answer 200 once the schema is current and every active model is loaded."""
    missing: str | None = await to_thread.run_sync(request.app.state.what_is_missing, limiter=_limiter)
    if missing is not None:
        response.status_code = 503
        return Status(status="not ready", reason=missing)
    return Status(status="ready")


def _may_watch(request: Request, credentials: Credentials) -> None:
    if not request.app.state.settings.open_metrics:
        may_administer(request, credentials)


@router.get(
    "/metrics",
    dependencies=[Depends(_may_watch)],
    response_class=Response,
    responses={
        **responses(401, 403),
        200: {"description": "Prometheus' text format", "content": {"text/plain": {}}},
    },
)
async def metrics(request: Request) -> Response:
    """Return metrics in Prometheus' text format."""
    found: Metrics = request.app.state.metrics
    return Response(await to_thread.run_sync(found.text, limiter=_limiter), media_type=CONTENT_TYPE)
