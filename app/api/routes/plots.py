"""Plots of the training reports of model versions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response

from app.api.deps import Versions, may_administer
from app.api.problems import responses
from app.domain.names import LARGEST_VERSION
from app.services.models.registry import PlotKind, draw_report

router = APIRouter(
    prefix="/v1/admin/collections/{collection}/models/{version}/plots",
    tags=["admin"],
    dependencies=[Depends(may_administer)],
)
_TEXT, _FILE = {"type": "string"}, {"type": "string", "format": "binary"}


@router.get(
    "/{kind}",
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
    version: Annotated[int, Path(ge=1, le=LARGEST_VERSION)],
    kind: PlotKind,
    versions: Versions,
    direction: Annotated[
        str | None, Query(max_length=200, description="of curves, such as image-to-text; both when left out")
    ] = None,
    theme: Annotated[Literal["light", "dark"], Query(description="ground that is drawn on")] = "light",
    form: Annotated[Literal["svg", "png"], Query(alias="format", description="of the drawing")] = "svg",
) -> Response:
    """Draw what the report of a version holds; 503 where the service has no library to draw with."""
    plot = draw_report(versions.model(collection, version).report, kind, theme, direction)
    if form == "png":
        return Response(plot.png(), media_type="image/png")
    return Response(plot.svg(), media_type="image/svg+xml")
