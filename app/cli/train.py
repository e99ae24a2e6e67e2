"""The commands `lrbs train` (a retrain, waited for in the process) and `lrbs worker` (jobs until stopped)."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, Any, Literal

import msgspec
import typer

from app.api.shown import encode, show_model
from app.bootstrap import Services, build, build_on_existing
from app.cli.backend import ready_services
from app.cli.commands import (
    DOUBTS_SHOWN,
    column_lines,
    convergence_line,
    count_words,
    data_lines,
    index_lines,
    label_lines,
    validation_lines,
)
from app.cli.console import ENCODER_HELP, LOG, OUT, PERCENT, JsonFlag, progress, time_left
from app.cli.encoders import read_encoders
from app.domain import errors
from app.domain.entities import Job, JobState
from app.domain.names import join_words
from app.domain.reports import Objective, Supervision, TrainingParameters, TrainingReport, measure_of
from app.logs import log_to_stderr
from app.services.training.reencoding import Encoders
from app.services.training.requests import LARGEST_SEED, METHODS
from app.settings import Settings
from app.worker.worker import make_worker
from solver import AT_LEAST, FLOORS, OBJECTIVES, SCALINGS

_logger = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_TOUCH_SECONDS = 1.0
"""Between signs of life of a worker, which asks many times a second whether it should stop."""
ENGINES = ("local", "dask")
"""Where large fits are evaluated."""
_ELSEWHERE = (
    "A worker of a running service trains instead: --engine and --scheduler do not apply to it, but its own "
    "settings LRBS_TRAINING_ENGINE and LRBS_DASK_SCHEDULER."
)


def positive(value: float | None) -> float | None:
    """Validate that an option is a positive number."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"expected a finite number above 0, got {value}")
    return value


def one_of(names: Sequence[str]) -> Callable[[str | None], str | None]:
    """Return what validates that an option is one of some names."""

    def validate(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"expected {join_words(names)}, got {value!r}")
        return value

    return validate


_EXAMPLE = f"ndcg=2,recall=1 or map=1,{AT_LEAST}.recall_1=0.97"


def known_objective(value: str | None) -> str | None:
    """Validate what `read_objective` reads."""
    if value is not None:
        read_objective(value)
    return value


def read_objective(text: str) -> Objective:
    """Return an objective: its name, or the weights of ``ndcg=2,recall=1``, with floors such as
    ``at_least.recall_1=0.97``; raises BadParameter."""
    if text in OBJECTIVES:
        return text
    weights: dict[str, float] = {}
    floors: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        measure = name.removeprefix(f"{AT_LEAST}.")
        target, names = (weights, OBJECTIVES) if measure == name else (floors, FLOORS)
        if measure not in names or measure in target or not _is_weight(number):
            expected = f"{join_words(OBJECTIVES)}, or weights such as {_EXAMPLE}"
            raise typer.BadParameter(f"expected {expected}, got {text!r}")
        target[measure] = float(number)
    return {**weights, AT_LEAST: floors} if floors else weights


def _is_weight(text: str) -> bool:
    try:
        return 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def known_engine(value: str | None) -> str | None:
    """Validate where large fits are evaluated."""
    if value == "dask" and importlib.util.find_spec("distributed") is None:
        raise typer.BadParameter("'dask' needs the extra `dask`")
    return one_of(ENGINES)(value)


def known_scheduler(value: str | None) -> str | None:
    """Validate the form of a scheduler's address."""
    if value is not None and not value.startswith(("tcp://", "tls://")):
        raise typer.BadParameter(f"expected an address such as tcp://host:8786, got {value!r}")
    return value


MethodOption = Annotated[
    str,
    typer.Option(
        callback=one_of(METHODS),
        help=f"{join_words(METHODS)}: the best on held-out items, the paper's, that of class posteriors, "
        "the paper's with the squared loss, fast for any number of labels, or the sum of similarities "
        "that learns from all that items carry",
    ),
]
AlphaOption = Annotated[
    float | None, typer.Option(callback=positive, help="penalty weight; default: chosen on held-out items")
]
ScalingOption = Annotated[
    str | None,
    typer.Option(
        callback=one_of(SCALINGS), help=f"{join_words(SCALINGS)}; default: chosen on held-out items"
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="of the held-out part")]
FacetOption = Annotated[
    list[str] | None,
    typer.Option(help="metadata key to learn from, once for each; default: all that look categorical"),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        callback=known_objective,
        help=f"{join_words(OBJECTIVES)}, or weights such as {_EXAMPLE}: what held-out quality is, by which "
        "the weights are chosen, too; default: ndcg=2,map=1 with facets or pairs, ndcg for pairs alone, map "
        "for labels alone",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        callback=known_engine,
        help="local or dask: where large fits are evaluated, with the same result; "
        "default: LRBS_TRAINING_ENGINE; a worker that claims the job goes by its own settings",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        callback=known_scheduler,
        metavar="ADDRESS",
        help="of Dask, such as tcp://host:8786, whose workers see the data folder under the same path; "
        "default: LRBS_DASK_SCHEDULER, or worker processes of this machine",
    ),
]


def train_and_wait(
    services: Services,
    name: str,
    parameters: TrainingParameters,
    on_progress: Callable[[str, int, int, str], None],
    encoders: Encoders | None = None,
    on_elsewhere: Callable[[], None] = lambda: None,
) -> int:
    """Queue a retrain, run it here unless a worker claims it, and return the new version."""
    # Raises ConflictError with the job's reason if it fails or is cancelled, as it is when `on_progress`
    # raises, or on Ctrl-C. One that was requested in the same words and is not closed yet is joined: it is
    # run here if the process that ran it is gone. `on_progress` gets (what, done, total, remark);
    # `on_elsewhere` is called once if another worker claims the job, which goes by the settings of that
    # worker. The schema must be current.
    with ThreadPoolExecutor(1) as pool:
        # In a thread of its own, so that an interrupt cannot lose the job id.
        request = pool.submit(services.training.request_or_join, name, parameters, encoders)
        try:
            job = request.result()
            worker = pool.submit(_work_until_closed, services, job, on_elsewhere)
            while not worker.done():
                wait([worker], timeout=_POLL_SECONDS)
                _show_progress(services, job.id, on_progress)
            closed = worker.result()
        except BaseException:
            with contextlib.suppress(errors.ServiceError):
                services.training.cancel(request.result().id)
            raise
    if closed.state is not JobState.SUCCEEDED or closed.model_version is None:
        raise errors.not_trainable(f"the retrain {closed.state.value}: {closed.error}")
    return closed.model_version


def _work_until_closed(services: Services, job: Job, on_elsewhere: Callable[[], None]) -> Job:
    """Run the job, or wait for the worker that claimed it; take over if that worker dies."""
    name = job.collection
    worker = make_worker(services)
    is_elsewhere = False
    try:
        while job.state.is_open:
            if worker.run_once(job.id) is None:
                if job.state is JobState.RUNNING and not is_elsewhere:
                    is_elsewhere = True
                    on_elsewhere()
                time.sleep(_POLL_SECONDS)
            job = services.training.job(job.id)
    except errors.NotFoundError as error:
        raise errors.not_trainable(f"collection {name!r} was deleted during its retrain") from error
    return job


def _show_progress(
    services: Services, job_id: str, on_progress: Callable[[str, int, int, str], None]
) -> None:
    try:
        progress = services.training.job(job_id).progress
    except errors.ServiceError:
        return  # the thread that works on the job gets the same error and handles it
    gap, seconds_left = progress.get("gap"), progress.get("seconds_left")
    remarks = [] if gap is None else [f"gap {gap:.1e}"]
    remarks += [] if seconds_left is None else [time_left(seconds_left)]
    percent = int(progress.get("percent", 0.0))
    on_progress(
        f"training: {progress.get('phase', 'waiting')}", percent, PERCENT, ", ".join(filter(None, remarks))
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
    reason: Annotated[str | None, typer.Option(help="why, which the version keeps")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Retrain a collection and activate the new version unless it is worse."""
    if facet and no_facets:
        raise typer.BadParameter("give --facet or --no-facets, not both")
    if scheduler is not None and engine != "dask":
        raise typer.BadParameter("needs --engine dask", param_hint="--scheduler")
    settings: dict[str, Any] = {"training_engine": engine, "dask_scheduler": scheduler}
    settings = {name: value for name, value in settings.items() if value is not None}
    services = ready_services(may_create=False, **settings)
    keys: tuple[str, ...] | Literal["auto"] = () if no_facets else "auto"
    parameters = TrainingParameters(
        method=method,
        alpha=alpha,
        scaling=scaling,
        seed=seed,
        supervision=Supervision(labels, tuple(facet) if facet else keys, pairs, feedback),
        objective=None if objective is None else read_objective(objective),
        reason=reason,
    )
    encoders = read_encoders("--encoder", encoder or ())
    _, counts = services.catalogue.collection(collection)
    size, estimate = count_words(counts) or "no", "the time left is shown once it can be estimated"
    what = f"Training on {collection!r}, which has {size} items: {estimate}."

    def tell_of_worker() -> None:
        if engine is not None or scheduler is not None:
            LOG.print(_ELSEWHERE)

    with progress(LOG, what) as show:
        version = train_and_wait(services, collection, parameters, show, encoders, tell_of_worker)
    model = services.versions.model(collection, version)
    if as_json:
        typer.echo(msgspec.json.format(encode(show_model(model)), indent=2).decode())
        return
    doubtful = [doubt.id for doubt in model.report.data.doubtful[:DOUBTS_SHOWN]]
    items = services.catalogue.page(collection, None, 0, DOUBTS_SHOWN, ids=doubtful).rows if doubtful else ()
    names = {item.id: item.text or str(item.metadata.get("source") or "") for _, item in items}
    _print_report(collection, version, model.report, names)


def _print_report(collection: str, version: int, report: TrainingReport, names: Mapping[str, str]) -> None:
    fit, answer = report.fit, report.to_answer(is_whole=True)
    scaled = f"scaling {fit.scaling}, " if fit.scaling else ""
    penalty = "" if fit.alpha is None else f"alpha {fit.alpha:.3g}, "
    what = f"version {version}: {report.method}, {scaled}{penalty}rank {fit.rank}"
    OUT.print(f"{what}, learned from {count_words(report.data.items)} items")
    rows = [*data_lines(answer), *column_lines(answer, names), *label_lines(answer), *index_lines(answer)]
    for line in [*choice_lines(report), *rows]:
        OUT.print(line, markup=False)
    print_quality(report)
    for line in gate_lines(report):
        OUT.print(line, highlight=False)
    if report.not_activated is not None:
        OUT.print(f"stored, but not activated: {report.not_activated}", highlight=False)
        overrule = f"lrbs models {shlex.quote(collection)} --activate {version}"
        OUT.print(f"If you know better, activate it all the same: {overrule}", highlight=False)


def choice_lines(report: TrainingReport) -> list[str]:
    """Return lines that explain the choice of the method, where there was one."""
    selection = report.selection
    lines = []
    for method, reason in selection.refused.items():
        if method == report.method:
            lines.append(f"nothing was measured {reason}")
        else:
            verb = "was not taken" if method in selection.values else "was left out"
            lines.append(f"method {method!r} {verb}: {reason}")
    if len(selection.values) < 2:
        return lines
    figures = ", ".join(f"{method} {value:.4f}" for method, value in selection.values.items())
    return [f"chose {report.method!r} by held-out {selection.measure}: {figures}", *lines]


def gate_lines(report: TrainingReport) -> list[str]:
    """Return a line that compares the version with the active one, and says how sure the difference is."""
    gate = report.gate
    if gate.new_value is None or gate.active_value is None:
        return []
    certainty = "" if gate.certainty is None else f", different {gate.certainty}"
    return [
        f"{measure_of(gate.objective)} {gate.new_value:.4f} against {gate.active_value:.4f} of version "
        f"{gate.compared_with}, on {count_words(gate.items)} new to both{certainty}"
    ]


def print_quality(report: TrainingReport) -> None:
    """Print the held-out quality, and on standard error a warning if the fit did not converge."""
    answer = report.to_answer(is_whole=True)
    remarks = [f"{line}." for line in (report.held_out.progress, report.held_out.caution) if line]
    for line in [*validation_lines(answer), *remarks]:
        OUT.print(line, highlight=False)
    unconverged = convergence_line(answer)
    if unconverged is not None:
        LOG.print(unconverged, highlight=False)


def worker(
    parent: Annotated[int | None, typer.Option(hidden=True, help="exit when this process has ended")] = None,
) -> None:
    """Run retrain jobs until stopped."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    settings = Settings()
    log_to_stderr(settings.log_format)
    for fault in settings.faults_in(os.environ).values():
        _logger.warning(fault)
    # In a folder that is there its database may come back; one that is not is mistyped.
    services = build(settings) if settings.data_dir.exists() else build_on_existing(settings)
    # Without the right database it claims no job, until that is back.
    with contextlib.suppress(errors.DatabaseUnavailableError):
        services.schema.require_current()
    alive_file, due_at = settings.alive_file, 0.0
    if alive_file is not None:
        alive_file.touch()

    def should_stop() -> bool:
        nonlocal due_at
        if alive_file is not None and time.monotonic() >= due_at:
            due_at = time.monotonic() + _TOUCH_SECONDS
            with contextlib.suppress(OSError):  # a full disk ends no training
                alive_file.touch()
        return stopping or (parent is not None and os.getppid() != parent)

    _logger.info("the worker looks for jobs")
    make_worker(services, should_stop).run_forever()
    _logger.info("the worker has stopped")
