"""The command `lrbs train`."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

import msgspec
import typer

from app.api.shown import encode, show_model
from app.cli.console import ENCODER_HELP, LOG, OUT, JsonFlag, progress
from app.cli.encoder_options import read_encoders
from app.cli.local_training import train as run_training
from app.cli.ready import ready_services
from app.cli.report_lines import (
    choice_lines,
    convergence_line,
    data_lines,
    gate_lines,
    index_lines,
    label_lines,
    validation_lines,
)
from app.cli.training_options import (
    AlphaOption,
    EngineOption,
    FacetOption,
    MethodOption,
    ObjectiveOption,
    ScalingOption,
    SchedulerOption,
    SeedOption,
    engine_settings,
    read_objective,
)
from app.domain.reports import Supervision, TrainingReport
from app.services.training.parameters import METHODS
from app.services.training.requests import TrainingParameters

_ELSEWHERE = (
    "A worker of a running service trains instead: --engine and --scheduler do not apply to it, but its own "
    "settings LRBS_TRAINING_ENGINE and LRBS_DASK_SCHEDULER."
)


def train(
    collection: str,
    method: MethodOption = METHODS[0],
    alpha: AlphaOption = None,
    scaling: ScalingOption = None,
    seed: SeedOption = 0,
    labels: Annotated[bool, typer.Option(help="learn from labels")] = True,
    facet: FacetOption = None,
    no_facets: Annotated[bool, typer.Option("--no-facets", help="learn nothing from metadata")] = False,
    pairs: Annotated[bool, typer.Option(help="learn from equal pair_id")] = True,
    feedback: Annotated[bool, typer.Option(help="learn from feedback")] = True,
    objective: ObjectiveOption = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODALITY=ENCODER",
            help="another encoder for a modality, once for each: its stored originals are encoded again, and "
            f"version and encoder change together; {ENCODER_HELP}",
        ),
    ] = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Retrain a collection and activate the new version unless it is worse."""
    if facet and no_facets:
        raise typer.BadParameter("give --facet or --no-facets, not both")
    services = ready_services(may_create=False, **engine_settings(engine, scheduler))
    keys: tuple[str, ...] | Literal["auto"] = () if no_facets else "auto"
    parameters = TrainingParameters(
        method=method,
        alpha=alpha,
        scaling=scaling,
        seed=seed,
        supervision=Supervision(labels, tuple(facet) if facet else keys, pairs, feedback),
        objective=None if objective is None else read_objective(objective),
    )
    encoders = read_encoders("--encoder", encoder or ())
    _, counts = services.catalogue.collection(collection)
    size = " and ".join(f"{count} {name}" for name, count in counts.items()) or "no"
    estimate = "the time left is shown once it can be estimated"
    what = f"Training on {collection!r}, which has {size} items: {estimate}."

    def tell_of_worker() -> None:
        if engine is not None or scheduler is not None:
            LOG.print(_ELSEWHERE)

    with progress(LOG, what) as show:
        version = run_training(services, collection, parameters, show, encoders, tell_of_worker)
    model = services.versions.model(collection, version)
    if as_json:
        typer.echo(msgspec.json.format(encode(show_model(model)), indent=2).decode())
        return
    _print_report(collection, version, model.report)


def _print_report(collection: str, version: int, report: TrainingReport) -> None:
    fit = report.fit
    scaled = f"scaling {fit.scaling}, " if fit.scaling else ""
    penalty = "" if fit.alpha is None else f"alpha {fit.alpha:.3g}, "
    learned_from = " and ".join(f"{count} {name}" for name, count in report.data.items.items())
    what = f"version {version}: {report.method}, {scaled}{penalty}rank {fit.rank}"
    OUT.print(f"{what}, learned from {learned_from} items")
    for line in [*choice_lines(report), *data_lines(report), *label_lines(report), *index_lines(report)]:
        OUT.print(line, markup=False)
    print_quality(report)
    for line in gate_lines(report):
        OUT.print(line, highlight=False)
    if report.not_activated is not None:
        OUT.print(f"stored, but not activated: {report.not_activated}", highlight=False)
        overrule = f"lrbs models {shlex.quote(collection)} --activate {version}"
        OUT.print(f"If you know better, activate it all the same: {overrule}", highlight=False)


def print_quality(report: TrainingReport) -> None:
    """Print the held-out quality, and on standard error a warning if the fit did not converge."""
    for line in validation_lines(report):
        OUT.print(line, highlight=False)
    unconverged = convergence_line(report)
    if unconverged is not None:
        LOG.print(unconverged, highlight=False)
