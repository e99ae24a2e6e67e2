"""Routes of API keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, status

from app import answers
from app.api.bodies import read_json
from app.api.deps import may_administer
from app.api.problems import OF_BODIES, responses
from app.api.schemas.admin import KeyIn
from app.api.shown import show_key
from app.api.state import State
from app.domain.names import Scope

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])


@router.post("/keys", status_code=status.HTTP_201_CREATED, responses=responses(401, 403, 404, *OF_BODIES))
def create_key(body: Annotated[KeyIn, read_json(KeyIn)], state: State) -> answers.Key:
    """Create a key; its secret is in this answer only."""
    return show_key(*state.access.create(Scope(body.scope), body.name, bounds=body.to_bounds()))


@router.get("/keys", responses=responses(401, 403))
def list_keys(state: State) -> answers.Keys:
    """List keys, without their secrets."""
    return answers.Keys(keys=[show_key(key) for key in state.access.list_keys()])


@router.delete("/keys/{key_id}", status_code=status.HTTP_204_NO_CONTENT, responses=responses(401, 403, 404))
def revoke_key(key_id: str, state: State) -> None:
    """Revoke a key."""
    state.access.revoke(key_id)
