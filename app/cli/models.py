"""The command `lrbs models`: list model versions, activate one, roll back, show the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import JsonLinesFlag
from app.cli.ready import ready_services
from app.cli.report_lines import convergence_line, graded_figures, index_lines, item_counts
from app.domain.entities import Activation, ModelVersion
from app.domain.limits import LARGEST_VERSION

if TYPE_CHECKING:
    from app.bootstrap import Services

_BY = "command line"
_LONGEST_HISTORY = 1000


def models(
    collection: str,
    activate: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_VERSION, help="activate this version")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="activate the version that was active before")
    ] = False,
    expected: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_VERSION, help="only if this version is active; 0 for none"),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="reason, for the history")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="list activations: when, by whom and why")
    ] = False,
    as_json: JsonLinesFlag = False,
) -> None:
    """List model versions; activate one, roll back, or show the history of activations."""
    from app.api.schemas.versions import ActivationOut

    if sum((activate is not None, rollback, history)) > 1:
        raise typer.BadParameter("give at most one of --activate, --rollback, --history")
    services = ready_services()
    if activate is not None:
        services.versions.activate(collection, activate, _BY, reason, expected)
    if rollback:
        services.versions.roll_back(collection, _BY, reason, expected)
    if history:
        for entry in services.versions.history(collection, _LONGEST_HISTORY):
            typer.echo(ActivationOut.of(entry).model_dump_json() if as_json else _activation_line(entry))
        return
    _list(services, collection, as_json)


def _list(services: Services, collection: str, as_json: bool) -> None:
    from app.api.schemas.versions import ModelOut

    versions = services.versions.models(collection)
    if not versions:
        typer.echo(f"collection {collection!r} has no models yet: run lrbs train {collection}", err=True)
    for model in versions:
        if as_json:
            typer.echo(ModelOut.of(model).model_dump_json())
            continue
        typer.echo(_model_line(model))
        for line in index_lines(model.report):
            typer.echo(f"       {line}")


def _model_line(model: ModelVersion) -> str:
    report = model.report
    directions = report.held_out.directions
    maps = ", ".join(
        f"{name} {quality.map:.4f}" for name, quality in directions.items() if quality.map is not None
    )
    graded = [
        f"{name} {', '.join(figures)}"
        for name, quality in directions.items()
        if (figures := graded_figures(report, quality))
    ]
    scores = "; ".join([*([f"MAP {maps}"] if maps else []), *graded])
    validation = f"validation {scores} ({item_counts(report)} items)" if scores else ""
    open_gap = "" if convergence_line(report) is None else "  did not converge"
    refused = f"  not activated: {report.not_activated}" if report.not_activated else ""
    mark = "*" if model.is_active else " "
    when = f"{model.created_at:%Y-%m-%d %H:%M}"
    return f"{mark} {model.version:3d}  {when}  {report.method:8}  {validation}{open_gap}{refused}"


def _activation_line(entry: Activation) -> str:
    before = "" if entry.previous is None else f" after {entry.previous}"
    why = f": {entry.reason}" if entry.reason else ""
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  version {entry.version}{before}, by {entry.by}{why}"
