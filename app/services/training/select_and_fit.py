"""Selection and fit of a model: what the caller left open is chosen by held-out quality."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.domain.errors import ConflictError
from app.domain.reports import (
    Convergence,
    Fit,
    HeldOutQuality,
    Objective,
    Selection,
    TrainingParameters,
    measure_of,
)
from app.services.models.model_bundles import HeldOutModel
from app.services.training.data import with_names
from app.services.training.evaluation import held_out_quality, measure
from app.services.training.items import LabelledItems
from app.services.training.methods import (
    FullFit,
    TrainingMethod,
    affordable_methods,
    evaluate_all,
    iteration_of,
)
from app.services.training.progress import Report, StagedReport
from solver import (
    InvalidInputError,
    IterationProgress,
    LowRankBilinear,
    Projector,
    SupervisionError,
    objective_value,
)

__all__ = ["SelectedModel", "Report", "select_and_fit"]

_HELD_OUT_SHARE = 0.2  # of the items of each modality: as in five-fold cross-validation
_MOST_SAMPLES = 3000
"""Items of a modality that methods are compared on: more hardly change which one is better."""
_EVALUATION_SHARE = 0.65
"""Of the time of a training, as measured of "composite": choosing takes longer than the final fit."""
_LONGEST_HISTORY = 1000  # iterations in a report: more than a curve on a page can show


@dataclass(frozen=True, slots=True, eq=False)
class SelectedModel:
    """The result of `select_and_fit`."""

    projector: Projector  # fitted on all training items: the one that serves
    method: str
    items: Mapping[str, int]  # number of training items, by modality
    classes: tuple[str, ...]  # with items of both modalities
    unmatched_labels: Mapping[str, tuple[str, ...]]  # classes with items of one modality only
    selection: Selection
    fit: Fit
    held_out_quality: HeldOutQuality
    judged: HeldOutModel | None  # fitted without the held-out items; None if too few could be held out
    held_out: LabelledItems | None


def select_and_fit(
    data: LabelledItems, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> SelectedModel:
    """Select method and parameters by the held-out value of the objective, then fit on all training items.
    Raises SolverError if these cannot be learned from; `report` raises to end the training."""
    objective = parameters.objective or data.default_objective
    staged = StagedReport(report)
    named = with_names(data)
    methods, too_costly = affordable_methods(parameters, named, staged)
    evaluation = _evaluate(methods, data, parameters, objective, staged)
    held_out, best = evaluation.held_out, methods[0]
    judged, quality = None, HeldOutQuality()
    if held_out is not None:
        evaluated = [method for method in methods if method.name in evaluation.values]
        best = max(evaluated, key=lambda method: evaluation.values[method.name])
        judged = HeldOutModel(evaluation.fits[best.name], evaluation.fitting_ids)
        quality = held_out_quality(evaluation.fits, best.name, held_out, names)
    staged.enter(_EVALUATION_SHARE, 1.0)
    full_fit = best.fit(named)
    x_classes, z_classes = (
        {label for label in labels.tolist() if label} for labels in (data.x_labels, data.z_labels)
    )
    return SelectedModel(
        full_fit.projector,
        best.name,
        {names[0]: len(data.x_ids), names[1]: len(data.z_ids)},
        tuple(sorted(x_classes & z_classes)),
        {
            names[0]: tuple(sorted(x_classes - z_classes)),
            names[1]: tuple(sorted(z_classes - x_classes)),
        },
        Selection(
            evaluation.held_out_map,
            too_costly | evaluation.refused,
            full_fit.candidates,
            objective,
            evaluation.values,
        ),
        _fit_report(full_fit, parameters.tol),
        quality,
        judged,
        held_out,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluation:
    """Methods fitted without the held-out items, and their values on these, by method."""

    fits: Mapping[str, Projector]
    values: Mapping[str, float]  # of the objective
    held_out_map: Mapping[str, float]  # MAP by label
    refused: dict[str, str]  # why others were not evaluated
    held_out: LabelledItems | None  # None if methods could not be compared on any
    fitting_ids: frozenset[str]  # items that the methods were fitted on


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
        return _without_evaluation(methods[0].name, str(error))
    values = {name: objective_value(quality, objective) for name, quality in qualities.items()}
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    if not values:
        reason = f"its {measure_of(objective)} cannot be measured on the held-out items"
        if parameters.objective is not None or methods[0].must_choose:
            raise ConflictError("training-data", f"objective {objective!r}: {reason}")
        return _without_evaluation(methods[0].name, reason)
    maps = {name: quality.mean.map for name, quality in qualities.items() if held_out.main_label}
    return _Evaluation(
        fits,
        values,
        {name: value for name, value in maps.items() if math.isfinite(value)},
        refused,
        held_out,
        frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()]),
    )


def _without_evaluation(method: str, reason: str) -> _Evaluation:
    return _Evaluation({}, {}, {}, {method: f"without held-out items: {reason}"}, None, frozenset())


def _fit_report(full_fit: FullFit, tol: float) -> Fit:
    bilinear = full_fit.bilinear
    if bilinear is None:
        rank = full_fit.projector.rank
        return Fit(
            None,
            full_fit.scaling,
            rank,
            (),
            None,
            (),
            full_fit.posteriors,
            full_fit.weights,
            full_fit.dimensions,
        )
    return Fit(
        bilinear.alpha_,
        full_fit.scaling,
        bilinear.rank_,
        tuple(bilinear.singular_values_.tolist()),
        _convergence(bilinear, tol),
        tuple(iteration_of(step) for step in _thin(bilinear.history_)),
        full_fit.posteriors,
        full_fit.weights,
    )


def _convergence(bilinear: LowRankBilinear, tol: float) -> Convergence:
    return Convergence(
        bilinear.n_iter_,
        bilinear.objective_,
        bilinear.duality_gap_,
        bilinear.rank_,
        bilinear.converged_,
        tol,
        bilinear.history_[-1].seconds,
    )


def _thin(history: Sequence[IterationProgress]) -> list[IterationProgress]:
    """Return at most `_LONGEST_HISTORY` iterations, evenly spaced, including the first and the last."""
    if len(history) <= _LONGEST_HISTORY:
        return list(history)
    return [history[place] for place in np.linspace(0, len(history) - 1, _LONGEST_HISTORY).astype(int)]
