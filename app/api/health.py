"""Routes for those who watch over the service."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Answer while the process lives."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "Not ready"}})
def readyz(request: Request, response: Response) -> dict[str, str]:
    """Answer 200 once the schema is current and every active model is loaded."""
    missing: str | None = request.app.state.what_is_missing()
    if missing is not None:
        response.status_code = 503
        return {"status": "not ready", "reason": missing}
    return {"status": "ready"}
