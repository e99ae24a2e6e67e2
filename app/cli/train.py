"""The command `lrbs train`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from app.api.schemas.versions import ModelOut
from app.cli.console import (
    JsonFlag,
    choice_lines,
    convergence_line,
    data_lines,
    index_lines,
    known_method,
    known_objective,
    known_scaling,
    label_lines,
    positive,
    progress,
    read_objective,
    validation_lines,
)
from app.cli.local_training import train as run_training
from app.cli.ready import ready_services
from app.domain.entities import Supervision, TrainingReport
from app.domain.names import join_words
from app.services.training.parameters import LARGEST_SEED, METHODS
from app.services.training.requests import TrainingParameters
from solver import OBJECTIVES, SCALINGS

_out, _log = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


MethodOption = Annotated[
    str,
    typer.Option(
        callback=known_method,
        help=f"{join_words(METHODS)}: the best on held-out items, the paper's, that of class posteriors, "
        "the paper's with the squared loss, fast for any number of labels, or the sum of similarities "
        "that learns from all that items carry",
    ),
]
AlphaOption = Annotated[
    float | None, typer.Option(callback=positive, help="penalty weight; chosen on held-out items when absent")
]
ScalingOption = Annotated[
    str | None, typer.Option(callback=known_scaling, help=f"{join_words(SCALINGS)}; chosen when absent")
]
SeedOption = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="of the held-out part")]
FacetOption = Annotated[
    list[str] | None,
    typer.Option(help="metadata key to learn from, once for each; all that look categorical when absent"),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        callback=known_objective,
        help=f"{join_words(OBJECTIVES)}, or weights such as ndcg=2,recall=1: what held-out quality is; "
        "when absent, ndcg with facets or pairs, map otherwise",
    ),
]


def train(
    collection: str,
    method: MethodOption = METHODS[0],
    alpha: AlphaOption = None,
    scaling: ScalingOption = None,
    seed: SeedOption = 0,
    labels: Annotated[bool, typer.Option(help="learn from labels")] = True,
    facet: FacetOption = None,
    facets: Annotated[bool, typer.Option(help="learn from metadata")] = True,
    pairs: Annotated[bool, typer.Option(help="learn from equal pair_id")] = True,
    feedback: Annotated[bool, typer.Option(help="learn from feedback")] = True,
    objective: ObjectiveOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Retrain a collection and activate the new version unless it is worse."""
    if facet and not facets:
        raise typer.BadParameter("give --facet or --no-facets, not both")
    services = ready_services()
    keys: tuple[str, ...] | Literal["auto"] = "auto" if facets else ()
    parameters = TrainingParameters(
        method=method,
        alpha=alpha,
        scaling=scaling,
        seed=seed,
        supervision=Supervision(labels, tuple(facet) if facet else keys, pairs, feedback),
        objective=None if objective is None else read_objective(objective),
    )
    _, counts = services.catalogue.collection(collection)
    size = " and ".join(f"{count} {name}" for name, count in counts.items())
    what = f"Training on {collection!r}, which has {size} items: a minute or two for some thousands."
    with progress(_log, what) as show:
        version = run_training(services, collection, parameters, show)
    model = services.versions.model(collection, version)
    if as_json:
        typer.echo(ModelOut.of(model).model_dump_json(indent=2))
        return
    _print_report(version, model.report)


def _print_report(version: int, report: TrainingReport) -> None:
    fit = report.fit
    scaled = f"scaling {fit.scaling}, " if fit.scaling else ""
    penalty = "" if fit.alpha is None else f"alpha {fit.alpha:.3g}, "
    learned_from = " and ".join(f"{count} {name}" for name, count in report.data.items.items())
    what = f"version {version}: {report.method}, {scaled}{penalty}rank {fit.rank}"
    _out.print(f"{what}, learned from {learned_from} items")
    for line in [*choice_lines(report), *data_lines(report), *label_lines(report), *index_lines(report)]:
        _out.print(line, markup=False)
    print_quality(report)
    if report.not_activated is not None:
        _out.print(f"stored, but not activated: {report.not_activated}")


def print_quality(report: TrainingReport) -> None:
    """Print the held-out quality, and on standard error a warning if the fit did not converge."""
    for line in validation_lines(report):
        _out.print(line, highlight=False)
    unconverged = convergence_line(report)
    if unconverged is not None:
        _log.print(unconverged, highlight=False)
