"""Selection and fit of a model: what the caller left open is chosen by held-out quality."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from app.domain.errors import ConflictError
from app.domain.reports import (
    Doubt,
    Fit,
    HeldOutQuality,
    Objective,
    Selection,
    TrainingParameters,
    cut,
    measure_of,
)
from app.services.models.model_bundles import HeldOutModel
from app.services.training.data import LabelledItems, with_names
from app.services.training.evaluation import describe_progress, held_out_quality, is_better, measure
from app.services.training.methods import FullFit, TrainingMethod, affordable_methods, evaluate_all
from app.services.training.progress import Report, StagedReport
from solver import (
    EngineError,
    InvalidInputError,
    Projector,
    SolverError,
    SupervisionError,
    objective_value,
)

__all__ = ["SelectedModel", "Report", "select_and_fit"]

_HELD_OUT_SHARE = 0.2  # of the items of each modality: as in five-fold cross-validation
_MOST_SAMPLES = 3000
"""Items of a modality that methods are compared on: more hardly change which one is better."""
_SPACE_LOSS = 0.05
"""Of the objective, relative, for a method that keeps what a space of both modalities knows beside labels."""
_EVALUATION_SHARE = 0.65
"""Of the time of a training, as measured of "composite": choosing takes longer than the final fit."""
_HALF_SHARE = 0.7  # likewise, once half of the items were learned from
_FEWEST_FORESEEN = 50  # held-out items of a modality by which a gain is foreseen
_MOST_DOUBTFUL, _DIGITS = 50, 4
_Parts = tuple[LabelledItems, LabelledItems]


@dataclass(frozen=True, slots=True, eq=False)
class SelectedModel:
    """The result of `select_and_fit`."""

    projector: Projector  # fitted on all training items: the one that serves
    method: str
    selection: Selection
    fit: Fit
    held_out_quality: HeldOutQuality
    unused: Mapping[str, str]  # why facets have no term
    doubtful: tuple[Doubt, ...]
    judged: HeldOutModel | None  # fitted without the held-out items; None if too few could be held out
    held_out: LabelledItems | None


def select_and_fit(
    data: LabelledItems,
    parameters: TrainingParameters,
    names: tuple[str, str],
    report: Report,
    served: Mapping[str, float] = MappingProxyType({}),
) -> SelectedModel:
    """Select method and parameters by the held-out value of the objective, then fit on all training items.
    Raises SolverError if these cannot be learned from; `report` raises to end the training."""
    objective = parameters.objective or data.default_objective
    staged = StagedReport(report)
    named = with_names(data)
    methods, too_costly = affordable_methods(parameters, named, staged)
    for method in methods:
        method.served = served
    evaluation = _evaluate(methods, data, parameters, objective, staged)
    held_out, selection, best = None, evaluation.selection, methods[0]
    judged, quality = None, HeldOutQuality()
    if evaluation.parts is not None:
        fitting, held_out = evaluation.parts
        evaluated = [method for method in methods if method.name in selection.values]
        best = max(evaluated, key=lambda method: selection.values[method.name])
        if parameters.objective is None:
            best, selection = _keep_space(evaluated, best, selection)
        best, selection = _keep_placement(evaluated, best, selection, evaluation.fits, held_out)
        fitting_ids = frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()])
        judged = HeldOutModel(evaluation.fits[best.name], fitting_ids)
        quality = held_out_quality(evaluation.fits, best.name, held_out, names, data)
        staged.enter(_EVALUATION_SHARE, _HALF_SHARE)
        n_items = dict(zip(names, (len(data.x_ids), len(data.z_ids)), strict=True))
        gain = _foresee(best, quality, evaluation.parts, sum(n_items.values()))
        quality = replace(quality, progress=describe_progress(quality, gain, n_items))
    staged.enter(_HALF_SHARE, 1.0)
    full_fit = best.fit(named)
    return SelectedModel(
        full_fit.projector,
        best.name,
        replace(selection, refused={**too_costly, **selection.refused}, candidates=full_fit.candidates),
        full_fit.report,
        quality,
        full_fit.unused,
        _doubts(full_fit, named, names),
        judged,
        held_out,
    )


def _foresee(method: TrainingMethod, quality: HeldOutQuality, parts: _Parts, n_items: int) -> float | None:
    """Return about how much nDCG@10, by content among all items, as many items again would bring; None where
    too few are held out, or the method says nothing of all items."""
    # What is missing falls by a power of the number of items, and by which one, a fit on half of them says.
    directions = [(one.ndcg_at_10, one.served) for one in quality.directions.values()]
    figures = [(own or 0.0, among_all.ndcg_at_10 or 0.0) for own, among_all in directions if among_all]
    fitting, held_out = parts
    n_fitted = len(fitting.x_ids) + len(fitting.z_ids)
    if not figures or min(quality.items.values()) < _FEWEST_FORESEEN or 2 * n_fitted < n_items:
        return None
    try:
        half, _ = fitting.split(0.5, _MOST_SAMPLES, 0)
        before = 1.0 - measure(method.fit(with_names(half)).projector, held_out).mean.ndcg
    except EngineError:
        raise
    except (SolverError, ConflictError):
        return None
    after, missing = (1.0 - float(value) for value in np.mean(figures, axis=0))
    if not (math.isfinite(before) and after > 0.0):
        return None
    if after >= before:
        return 0.0
    power = math.log(before / after) / math.log(n_fitted / (len(half.x_ids) + len(half.z_ids)))
    gain: float = missing * (n_items / n_fitted) ** -power * (1.0 - 2.0**-power)
    return gain


def _keep_space(
    evaluated: Sequence[TrainingMethod], best: TrainingMethod, selection: Selection
) -> tuple[TrainingMethod, Selection]:
    """Return the method that keeps a space of both modalities rather than a slightly better one, and why."""
    least = (1.0 - _SPACE_LOSS) * selection.values[best.name]
    for method in evaluated:
        if method.keeps_space and method is not best and selection.values[method.name] >= least:
            reason = f"it is better by less than {_SPACE_LOSS:.0%}, and forgets the space that both share"
            return method, replace(selection, refused={**selection.refused, best.name: reason})
    return best, selection


def _keep_placement(
    evaluated: Sequence[TrainingMethod],
    best: TrainingMethod,
    selection: Selection,
    fits: Mapping[str, Projector],
    held_out: LabelledItems,
) -> tuple[TrainingMethod, Selection]:
    """Return the method that ranks items by all that they carry, too, rather than one that may be better by
    chance, and why: held-out items are compared by their content alone."""
    for method in evaluated:
        if fits[method.name].uses_partners and not fits[best.name].uses_partners:
            if is_better(fits[best.name], fits[method.name], held_out, selection.objective):
                break
            reason = "it is not better beyond chance, and ranks items without their partners and values"
            return method, replace(selection, refused={**selection.refused, best.name: reason})
    return best, selection


def _doubts(fit: FullFit, items: LabelledItems, names: tuple[str, str]) -> tuple[Doubt, ...]:
    ids = items.x_ids, items.z_ids
    return tuple(
        Doubt(
            str(ids[entry.side][entry.row]),
            names[entry.side],
            cut(entry.facet),
            cut(entry.carried),
            cut(entry.likely),
            round(entry.probability, _DIGITS),
        )
        for entry in fit.contradictions[:_MOST_DOUBTFUL]
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluation:
    """Methods fitted without the held-out items, by name, and what their values on these are."""

    selection: Selection  # whose candidates are not known yet
    fits: Mapping[str, Projector] = field(default_factory=dict)
    # what the methods were fitted on, and what was held out; None if methods could not be compared on any
    parts: _Parts | None = None


def _evaluate(
    methods: Sequence[TrainingMethod],
    data: LabelledItems,
    parameters: TrainingParameters,
    objective: Objective,
    staged: StagedReport,
) -> _Evaluation:
    """Fit each method without the held-out items, and measure it on them.
    Where that is impossible, a method that needs no choice is trained without an evaluation."""
    step = _EVALUATION_SHARE / len(methods)

    def begin(number: int) -> None:
        staged.enter(number * step, (number + 1) * step)

    # If no costlier method takes part, the evaluated model learns from as many items as the served one.
    is_cheap = all(method.name == "squared" for method in methods)
    try:
        fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, parameters.seed, is_cheap)
        fits, refused = evaluate_all(methods, with_names(fitting), held_out, begin)
        qualities = {name: measure(fit, held_out) for name, fit in fits.items()}
    except (SupervisionError, InvalidInputError) as error:
        if methods[0].must_choose:
            raise
        return _without_evaluation(methods[0].name, str(error), objective)
    values = {name: objective_value(quality, objective) for name, quality in qualities.items()}
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    if not values:
        reason = f"its {measure_of(objective)} cannot be measured on the held-out items"
        if parameters.objective is not None or methods[0].must_choose:
            raise ConflictError("training-data", f"objective {objective!r}: {reason}")
        return _without_evaluation(methods[0].name, reason, objective)
    maps = {name: quality.mean.map for name, quality in qualities.items() if held_out.main_label}
    finite_maps = {name: value for name, value in maps.items() if math.isfinite(value)}
    return _Evaluation(
        Selection(finite_maps, refused, (), objective, values),
        fits,
        (fitting, held_out),
    )


def _without_evaluation(method: str, reason: str, objective: Objective) -> _Evaluation:
    refused = {method: f"without held-out items: {reason}"}
    return _Evaluation(Selection({}, refused, (), objective, {}))
