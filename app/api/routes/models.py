"""Routes of model versions, their activations, and searches by a version."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from fastapi import Query as QueryParameter

from app.api.bodies import read_json
from app.api.deps import Administrator, Search, Versions, may_administer
from app.api.middleware.admission import aside
from app.api.middleware.workload import Workload, works_as
from app.api.problems import OF_BODIES, responses
from app.api.routes.searches import READ_SEARCH, single_search
from app.api.schemas.searches import SearchOptions, SearchOut, encode_result
from app.api.schemas.versions import (
    ActivateIn,
    ActivationList,
    ActivationOut,
    ModelList,
    ModelOut,
)
from app.domain.limits import LARGEST_VERSION
from app.services.serving.search import Query

router = APIRouter(
    prefix="/v1/admin/collections/{collection}", tags=["admin"], dependencies=[Depends(may_administer)]
)
Version = Annotated[int, Path(ge=1, le=LARGEST_VERSION)]
Activation = Annotated[ActivateIn, read_json(ActivateIn, default=ActivateIn())]


@router.get("/models", responses=responses(401, 403, 404, 422))
def list_models(collection: str, versions: Versions) -> ModelList:
    """List model versions, newest first, without their lists (curves, history, classes and their like)."""
    return ModelList(models=[ModelOut.summary_of(model) for model in versions.models(collection)])


@router.get("/models/{version}", responses=responses(401, 403, 404, 422))
def get_model(collection: str, version: Version, versions: Versions) -> ModelOut:
    """Return one model version with its whole report."""
    return ModelOut.of(versions.model(collection, version))


@router.post("/models/{version}/activate", responses=responses(401, 403, 404, 409, *OF_BODIES))
def activate_model(
    collection: str, version: Version, versions: Versions, key: Administrator, body: Activation
) -> ModelOut:
    """Activate a version: promote it, or roll back to it; its bundle is checked first."""
    by = f"key {key.id}"
    return ModelOut.of(versions.activate(collection, version, by, body.reason, body.expected_version))


@router.post(
    "/models/{version}/search/{source}-to-{target}",
    responses=responses(401, 403, 404, 409, *OF_BODIES),
    response_model=SearchOut,
)
@works_as(Workload.READ)
def search_version(
    collection: str,
    version: Version,
    source: str,
    target: str,
    search: Search,
    request: Annotated[tuple[Query, SearchOptions], READ_SEARCH],
) -> Response:
    """Search by a version whether it serves or not, to compare it with another one.

    It ranks the items that are there now. A version that does not serve is loaded first, which takes seconds
    where there are many items.
    """
    query, options = request
    single = single_search(query, options, None)
    result = search.search_version(collection, version, (source, target), single, aside)
    return Response(encode_result(collection, result, single.fields), media_type="application/json")


@router.post("/rollback", responses=responses(401, 403, 404, 409, *OF_BODIES))
def roll_back(collection: str, versions: Versions, key: Administrator, body: Activation) -> ModelOut:
    """Activate the version that was active before the current one."""
    return ModelOut.of(versions.roll_back(collection, f"key {key.id}", body.reason, body.expected_version))


@router.get("/activations", responses=responses(401, 403, 404, 422))
def list_activations(
    collection: str, versions: Versions, limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
) -> ActivationList:
    """Return which version was activated when, by whom and why, newest first."""
    return ActivationList(
        activations=[ActivationOut.of(entry) for entry in versions.history(collection, limit)]
    )
