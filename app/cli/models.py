"""The command `lrbs models` (list model versions, activate one, roll back, show the history), and the report
of a training in lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import JsonLinesFlag, print_json, print_one, shorten
from app.domain.names import LARGEST_VERSION, some_of

if TYPE_CHECKING:
    from app.answers import Activation, Model
    from app.cli.backend import Backend

Report = Mapping[str, Any]
"""A training report as the service answers it: the JSON of `TrainingReport`, with the names of its fields."""
_LONGEST_HISTORY = 1000
DOUBTS_SHOWN = 3
FEW_RELEVANT = "(lower than 1 where a gallery has fewer than ten relevant items)"
"""What bounds a precision at ten on a small gallery."""


_QUERIES = {"placed": "items, their own partners left out", "placed_for_texts": "texts that name two values"}


def validation_lines(report: Report) -> list[str]:
    """Return lines for each direction with the quality on held-out training items."""
    lines = []
    for direction, quality in report["held_out"]["directions"].items():
        figures = [] if quality["map"] is None else [f"MAP {quality['map']:.4f}"]
        figures += graded_figures(report, quality)
        chance = "" if quality["chance"] is None else f" (chance {quality['chance']:.4f})"
        what = f"validation {', '.join(figures)}"
        lines.append(f"{direction}: {what} on {item_counts(report)} items held out of training{chance}")
        lines += [f"{direction}: {text}" for text in _details(report, quality)]
    return lines


def graded_figures(report: Report, quality: Mapping[str, Any]) -> list[str]:
    """Return figures beyond MAP, where more than one label each could be learned from."""
    ndcg, recall = quality["ndcg_at_10"], quality["recall_at_10"]
    if ndcg is None or not _has_more_than_labels(report):
        return []
    return [f"nDCG@10 {ndcg:.4f}", *([] if recall is None else [f"partner in the first ten {recall:.4f}"])]


def _has_more_than_labels(report: Report) -> bool:
    return len(report["data"]["facets"]) > 1 or report["data"]["n_pairs"] > 0


def _details(report: Report, quality: Mapping[str, Any]) -> list[str]:
    if not _has_more_than_labels(report) or quality["n_queries"] is None:
        return []
    shares = ", ".join(f"{name} {value:.4f}" for name, value in quality["precision_at_10"].items())
    lines = [f"right in the first ten: {shares} {FEW_RELEVANT}"] if shares else []
    if quality["median_rank"] is not None:
        first = quality["recall_at_1"] or 0.0
        lines.append(f"partner comes first {first:.4f}, median rank {quality['median_rank']:g}")
    lines += [
        f"nDCG@10 of {queries}: {placed['content']:.4f} by content alone, "
        f"{placed['partners']:.4f} with partners, {placed['complete']:.4f} as people find items"
        + ("" if placed["untrained"] is None else f", {placed['untrained']:.4f} before any training")
        for key, queries in _QUERIES.items()
        if (placed := quality.get(key)) is not None
    ]
    return [*lines, f"{quality['distinct_lists']} different first pages for {quality['n_queries']} queries"]


def data_lines(report: Report) -> list[str]:
    """Return a line that says what was learned from beside one label each, and one for the terms' weights."""
    data, fit = report["data"], report["fit"]
    if not _has_more_than_labels(report) and not data["n_signs"]:
        return []
    facets = ", ".join(f"{name} ({count})" for name, count in data["facets"].items())
    parts = [f"facets {facets}"] if facets else []
    parts += [f"{data['n_pairs']} pairs"] if data["n_pairs"] else []
    parts += [f"{data['n_signs']} judged pairs"] if data["n_signs"] else []
    weights = ", ".join(f"{name} {weight:.3g}" for name, weight in fit["weights"].items())
    dimensions = ", ".join(f"{name} {width}" for name, width in fit["dimensions"].items())
    return [
        "learned from " + "; ".join(parts),
        *([f"weights: {weights}"] if weights else []),
        *([f"dimensions: {dimensions}, together {fit['rank']}"] if dimensions else []),
    ]


def column_lines(report: Report, names: Mapping[str, str]) -> list[str]:
    """Return a line for each metadata column, and for the first labels that content contradicts, with what
    their items are called by id."""
    # Keys and values are quoted: whatever they hold, terminals show it and do not obey it.
    data = report["data"]
    lines = [
        f"column {column['name']!r}: out, {column['reason']}"
        if column["weight"] is None
        else f"column {column['name']!r}: in with weight {column['weight']:.3g}, {column['reason']}"
        for column in data["columns"]
    ]
    if data["doubtful"]:
        lines.append(f"labels worth a look: {len(data['doubtful'])}, first")
    for doubt in data["doubtful"][:DOUBTS_SHOWN]:
        name = f" {shorten(names[doubt['id']])!r}" if names.get(doubt["id"]) else ""
        lines.append(
            f"  {doubt['id']}{name} has {doubt['carried']!r} as {doubt['facet']!r}, its content says "
            f"{doubt['likely']!r} ({doubt['probability']:.0%})"
        )
    return lines


def item_counts(report: Report) -> str:
    """Return the number of held-out items of each modality, in words."""
    return count_words(report["held_out"]["items"]) or "unknown"


def count_words(counts: Mapping[str, int]) -> str:
    """Return the number of items of each modality: ``12 image and 9 text``."""
    return " and ".join(f"{count} {name}" for name, count in counts.items())


def label_lines(report: Report) -> list[str]:
    """Return a warning for classes that only one modality has training items of."""
    return [
        f"no training item of the other modality is of these classes of {name!r}: {some_of(labels)}"
        for name, labels in report["data"]["unmatched_labels"].items()
        if labels
    ]


def index_lines(report: Report) -> list[str]:
    """Return lines that explain the choice of the index of each large gallery."""
    lines = []
    for name, choice in report["index"]["choices"].items():
        recall = report["index"]["recall_at_10"].get(name)
        if not choice["spec"]["lists"] or recall is None:  # an exact index has none
            lines.append(f"{name} is searched exactly: {choice['reason']}")
            lines += [
                f"{name} is not searched by {_describe_index(trial['spec'])}: {trial['rejected']}"
                for trial in choice["trials"]
                if trial.get("rejected") is not None
            ]
        else:
            what = f"{name} is searched by {_describe_index(choice['spec'])}"
            lines.append(f"{what}, recall@10 {recall:.4f}: {choice['reason']}")
    return lines


def _describe_index(spec: Mapping[str, Any]) -> str:
    return f"{spec['kind']} ({spec['lists']} lists, {spec['probes']} probes)"


def convergence_line(report: Report) -> str | None:
    """Return a warning if the fit did not converge."""
    end = report["fit"]["convergence"]
    if end is None or end["converged"]:
        return None
    tolerance = "" if end["tol"] is None else f", {end['tol']:.2%} was asked for"
    return (
        f"The fit did not converge: after {end['iteration']} iterations its objective may still fall "
        f"by up to {end['gap']:.2%}{tolerance}."
    )


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
        if history:
            for entry in backend.list_activations(collection, limit=_LONGEST_HISTORY).activations:
                print_one(entry, as_json, _activation_line)
        else:
            _show_versions(backend, collection, as_json)


def _show_versions(backend: Backend, collection: str, as_json: bool) -> None:
    versions = backend.list_models(collection).models
    if not versions:
        typer.echo(f"collection {collection!r} has no models yet: run lrbs train {collection}", err=True)
    for model in versions:
        if as_json:
            print_json(backend.get_model(collection, model.version))  # with its whole report
            continue
        typer.echo(_model_line(model))
        for line in index_lines(model.report):
            typer.echo(f"       {line}")


def _model_line(model: Model) -> str:
    report, directions = model.report, model.report["held_out"]["directions"]
    maps = ", ".join(
        f"{name} {quality['map']:.4f}" for name, quality in directions.items() if quality["map"] is not None
    )
    graded = [
        f"{name} {', '.join(figures)}"
        for name, quality in directions.items()
        if (figures := graded_figures(report, quality))
    ]
    scores = "; ".join([*([f"MAP {maps}"] if maps else []), *graded])
    validation = f"validation {scores} ({item_counts(report)} items)" if scores else ""
    open_gap = "" if convergence_line(report) is None else "  did not converge"
    refused = f"  not activated: {report['not_activated']}" if report["not_activated"] else ""
    mark = "*" if model.is_active else " "
    when = f"{model.created_at:%Y-%m-%d %H:%M}"
    return f"{mark} {model.version:3d}  {when}  {report['method']:8}  {validation}{open_gap}{refused}"


def _activation_line(entry: Activation) -> str:
    before = "" if entry.previous is None else f" after {entry.previous}"
    why = f": {entry.reason}" if entry.reason else ""
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  version {entry.version}{before}, by {entry.by}{why}"
