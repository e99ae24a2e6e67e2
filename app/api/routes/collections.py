"""Routes of collections, and of the encoders that they can have."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, status

from app import answers
from app.api.bodies import read_json
from app.api.deps import may_administer, may_list, may_search
from app.api.problems import OF_BODIES, responses
from app.api.schemas.admin import CollectionIn
from app.api.shown import show_collection, show_encoders
from app.api.state import State
from app.domain.entities import ApiKey

router = APIRouter(prefix="/v1", tags=["collections"])


@router.post(
    "/collections",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_administer)],
    responses=responses(401, 403, 409, *OF_BODIES),
)
def create_collection(
    body: Annotated[CollectionIn, read_json(CollectionIn)], state: State
) -> answers.Collection:
    """Create a collection: a pair of galleries with an encoder each."""
    return show_collection(state.catalogue.create(body.name, body.to_modalities()))


@router.get("/collections", responses=responses(401, 403))
def list_collections(key: Annotated[ApiKey | None, Depends(may_list)], state: State) -> answers.Collections:
    """List the collections that the key can see."""
    visible = state.catalogue.collections()
    if key is not None:
        visible = [collection for collection in visible if key.bounds.allow(collection.name)]
    return answers.Collections([show_collection(collection) for collection in visible])


@router.get(
    "/collections/{collection}", dependencies=[Depends(may_search)], responses=responses(401, 403, 404)
)
def get_collection(collection: str, state: State) -> answers.Collection:
    """Return one collection with its item counts."""
    return show_collection(*state.catalogue.collection(collection))


@router.delete(
    "/collections/{collection}",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[Depends(may_administer)],
    responses=responses(401, 403, 404),
)
def delete_collection(collection: str, state: State) -> None:
    """Delete a collection with all its items and models; its name is free immediately."""
    state.catalogue.delete_collection(collection)


@router.get("/encoders", dependencies=[Depends(may_list)], responses=responses(401, 403))
def list_encoders() -> answers.Encoders:
    """List the encoders of this server with their options, those of other packages as well."""
    return show_encoders()
