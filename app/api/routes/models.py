"""Routes of model versions, their activations and plots, and searches by a version."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Response
from fastapi import Query as Parameter

from app import answers
from app.api.admission import Workload, aside, works_as
from app.api.bodies import read_json
from app.api.deps import KeyId, Readers, RootPath, may_administer
from app.api.problems import OF_BODIES, responses
from app.api.routes.searches import READ_SEARCH, search_for
from app.api.schemas.admin import ActivateIn
from app.api.schemas.searches import SearchOptions, encode_result
from app.api.shown import show_model
from app.api.state import State
from app.domain.names import LARGEST_VERSION
from app.services.models.registry import PlotKind, draw_report
from app.services.serving.search import Query

router = APIRouter(
    prefix="/v1/admin/collections/{collection}", tags=["admin"], dependencies=[Depends(may_administer)]
)
_TEXT, _FILE = {"type": "string"}, {"type": "string", "format": "binary"}
Version = Annotated[int, Path(ge=1, le=LARGEST_VERSION)]
Activation = Annotated[ActivateIn, read_json(ActivateIn, default=ActivateIn())]


@router.get("/models", responses=responses(401, 403, 404))
def list_models(collection: str, state: State) -> answers.Models:
    """List model versions, newest first, without their lists (curves, history, classes and their like)."""
    return answers.Models([show_model(model, is_whole=False) for model in state.versions.models(collection)])


@router.get("/models/{version}", responses=responses(401, 403, 404))
def get_model(collection: str, version: Version, state: State) -> answers.Model:
    """Return one model version with its whole report."""
    return show_model(state.versions.model(collection, version))


@router.post("/models/{version}/activate", responses=responses(401, 403, 404, 409, *OF_BODIES))
def activate_model(
    collection: str, version: Version, state: State, key_id: KeyId, body: Activation
) -> answers.Model:
    """Activate a version: promote it, or roll back to it; its bundle is checked first."""
    by = f"key {key_id}"
    return show_model(state.versions.activate(collection, version, by, body.reason, body.expected_version))


@router.post(
    "/models/{version}/search/{source}-to-{target}",
    responses=responses(401, 403, 404, 409, *OF_BODIES),
    response_model=answers.SearchResult,
)
@works_as(Workload.READ)
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
    task = search_for([query], options, readers)
    result = state.search.search_version(collection, version, (source, target), task, aside)
    answer = encode_result(collection, result, task.fields, root_path)
    return Response(answer, media_type="application/json")


@router.post("/rollback", responses=responses(401, 403, 404, 409, *OF_BODIES))
def roll_back(collection: str, state: State, key_id: KeyId, body: Activation) -> answers.Model:
    """Activate the version that was active before the current one."""
    return show_model(
        state.versions.roll_back(collection, f"key {key_id}", body.reason, body.expected_version)
    )


@router.get("/activations", responses=responses(401, 403, 404))
def list_activations(
    collection: str, state: State, limit: Annotated[int, Parameter(ge=1, le=1000)] = 100
) -> answers.Activations:
    """Return which version was activated when, by whom and why, newest first."""
    return answers.Activations(list(state.versions.history(collection, limit)))


@router.get(
    "/models/{version}/plots/{kind}",
    responses={
        **responses(401, 403, 404),
        200: {
            "description": "The drawing",
            "content": {"image/svg+xml": {"schema": _TEXT}, "image/png": {"schema": _FILE}},
        },
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
