"""The route that lists encoders."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from app import answers
from app.api.deps import may_list
from app.api.problems import responses
from app.api.shown import show_encoders

router = APIRouter(prefix="/v1/encoders", tags=["collections"])


@router.get("", dependencies=[Depends(may_list)], responses=responses(401, 403))
def list_encoders() -> answers.Encoders:
    """List the encoders of this server with their options, those of other packages as well."""
    return show_encoders()
