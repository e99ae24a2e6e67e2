"""Routes for those who watch over the service."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

router = APIRouter(tags=["health"])


class Status(BaseModel):
    """How the service is."""

    status: str
    reason: str | None = Field(None, description="what is missing")


@router.get("/healthz", response_model_exclude_none=True)
def healthz() -> Status:
    """Answer while the process lives."""
    return Status(status="alive")


@router.get(
    "/readyz",
    response_model_exclude_none=True,
    responses={503: {"description": "Not ready", "model": Status}},
)
def readyz(request: Request, response: Response) -> Status:
    """Answer 200 once the schema is current and every active model is loaded."""
    missing: str | None = request.app.state.what_is_missing()
    if missing is not None:
        response.status_code = 503
        return Status(status="not ready", reason=missing)
    return Status(status="ready")
