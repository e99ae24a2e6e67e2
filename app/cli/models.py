"""The command `lrbs models`: list model versions, activate one, roll back, show the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import JsonLinesFlag, print_json
from app.cli.report_lines import convergence_line, graded_figures, index_lines, item_counts
from app.domain.names import LARGEST_VERSION

if TYPE_CHECKING:
    from app.answers import Activation, Model
    from app.cli.backend import Backend
    from app.cli.short_report import ShortReport

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
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List model versions; activate one, roll back, or show the history of activations."""
    if sum((activate is not None, rollback, history)) > 1:
        raise typer.BadParameter("give at most one of --activate, --rollback, --history")
    with open_backend(url, key) as backend:
        if activate is not None:
            backend.activate_model(collection, activate, expected_version=expected, reason=reason)
        if rollback:
            backend.roll_back(collection, expected_version=expected, reason=reason)
        show = _show_history if history else _show_versions
        show(backend, collection, as_json)


def _show_history(backend: Backend, collection: str, as_json: bool) -> None:
    for entry in backend.list_activations(collection, limit=_LONGEST_HISTORY).activations:
        if as_json:
            print_json(entry)
        else:
            typer.echo(_activation_line(entry))


def _show_versions(backend: Backend, collection: str, as_json: bool) -> None:
    from app.cli.short_report import read_report

    versions = backend.list_models(collection).models
    if not versions:
        typer.echo(f"collection {collection!r} has no models yet: run lrbs train {collection}", err=True)
    for model in versions:
        if as_json:
            print_json(backend.get_model(collection, model.version))  # with its whole report
            continue
        report = read_report(model)
        typer.echo(_model_line(model, report))
        for line in index_lines(report):
            typer.echo(f"       {line}")


def _model_line(model: Model, report: ShortReport) -> str:
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
