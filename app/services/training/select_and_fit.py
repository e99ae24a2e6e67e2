"""Selection and fit of a model: what the caller left open is chosen by held-out quality."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import Collection, Item, Matrix, TrainingParameters
from app.domain.entities.training_report import Convergence, Fit, HeldOutQuality, Selection
from app.domain.errors import TrainingDataError
from app.services.models.features import item_features
from app.services.models.model_bundles import HeldOutModel
from app.services.training.costs import (
    Sizes,
    pairs_too_slow,
    posteriors_too_large,
    posteriors_too_slow,
    sums_too_large,
)
from app.services.training.eligibility import class_of
from app.services.training.evaluation import held_out_quality
from app.services.training.holdout import LabelledItems
from app.services.training.methods import (
    HeldOutFit,
    LowRankMethod,
    Report,
    SemanticMethod,
    TrainingMethod,
    default_scalings,
    evaluate_all,
    iteration_of,
)
from solver import (
    InvalidInputError,
    IterationProgress,
    LowRankBilinear,
    Projector,
    SupervisionError,
    is_sparse,
)

__all__ = ["SelectedModel", "Report", "select_and_fit", "training_data"]

_HELD_OUT_SHARE = 0.2
"""Of the items of each modality: as in five-fold cross-validation."""
_MOST_SAMPLES = 3000
"""Items of a modality that methods are compared on: more hardly change which one is better."""
_LONGEST_HISTORY = 1000
"""Iterations in a report: more than a curve on a page can show."""
_USUAL_SHARE, _OUTLYING = 0.9, 1e4
"""Outliers are this many times larger than nine tenths of the vectors: no mix of units explains that."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedModel:
    """The result of `select_and_fit`.

    Parameters
    ----------
    projector : Projector
        Fitted on all training items: the one that serves.
    method : str
        Name of the selected method.
    items : mapping of str to int
        Number of training items, by modality.
    classes : tuple of str
        Classes with items of both modalities.
    unmatched_labels : mapping of str to tuple of str
        Classes with items of one modality only.
    selection : Selection
        How method and parameters were selected.
    fit : Fit
        The fit on all training items.
    held_out_quality : HeldOutQuality
        Quality on the held-out items.
    judged : HeldOutModel or None
        The same method fitted without the held-out items; None if too few items could be held out.
    held_out : LabelledItems or None
        The held-out items.
    """

    projector: Projector
    method: str
    items: Mapping[str, int]
    classes: tuple[str, ...]
    unmatched_labels: Mapping[str, tuple[str, ...]]
    selection: Selection
    fit: Fit
    held_out_quality: HeldOutQuality
    judged: HeldOutModel | None
    held_out: LabelledItems | None


def training_data(
    collection: Collection, items: Sequence[Item], encoders: Mapping[str, Any]
) -> tuple[LabelledItems, str, dict[str, list[str]]]:
    """Return the labelled training items' features, a hash of all that was learned from, and outliers.

    Of features that clients bring, a few vectors beyond all proportion would decide the scale of all others:
    they are not learned from, and their ids returned by modality.
    """
    features, labels, ids, digest = [], [], [], hashlib.sha256()
    outliers: dict[str, list[str]] = {}
    for name in collection.modality_names:
        chosen = sorted(
            (item for item in items if item.modality == name and item.train and item.labels),
            key=lambda i: i.id,
        )
        if not chosen:
            raise TrainingDataError(f"no item of modality {name!r} has a label and may be trained on")
        rows = item_features(chosen, encoders[name])
        # Rows that an encoder made are of one scale.
        is_outlier = np.zeros(len(chosen), np.bool) if is_sparse(rows) else _are_outliers(rows)
        if is_outlier.any():
            outliers[name] = [item.id for item, far in zip(chosen, is_outlier, strict=True) if far]
            chosen = [item for item, far in zip(chosen, is_outlier, strict=True) if not far]
            rows = rows[~is_outlier]
        features.append(rows)
        labels.append(np.asarray([class_of(item.labels) for item in chosen], dtype=np.str_))
        ids.append(np.asarray([item.id for item in chosen], dtype=np.str_))
        for part in (rows.indptr, rows.indices, rows.data) if is_sparse(rows) else (rows,):
            digest.update(part.tobytes())
        digest.update("\x00".join(labels[-1].tolist()).encode())
    x, z = zip(features, labels, ids, strict=True)
    return LabelledItems(x[0], z[0], x[1], z[1], x[2], z[2]), digest.hexdigest(), outliers


def _are_outliers(features: Matrix) -> npt.NDArray[np.bool]:
    """Return which rows are larger than nine tenths of the others by more than any unit would explain."""
    sizes = np.abs(features).max(axis=1).astype(np.float64)
    usual = float(np.quantile(sizes, _USUAL_SHARE, method="lower"))
    return sizes > _OUTLYING * usual if usual > 0.0 else np.zeros(len(sizes), np.bool)


def select_and_fit(
    data: LabelledItems, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> SelectedModel:
    """Select method and parameters by held-out quality, then fit on all training items.

    Parameters
    ----------
    data : LabelledItems
        Training items.
    parameters : TrainingParameters
        Requested parameters.
    names : tuple of str
        Both modalities.
    report : callable
        Receives progress; raises to end the training.

    Raises
    ------
    SolverError
        If the items cannot be learned from.
    """
    methods, too_costly = _affordable_methods(parameters, data, report)
    held_out_fits: dict[str, HeldOutFit] = {}
    refused: dict[str, str] = {}
    judged, held_out, best = None, None, methods[0]
    quality = HeldOutQuality()
    try:
        # If no costlier method takes part, the evaluated model learns from as many items as the served one.
        is_cheap = all(method.name == "squared" for method in methods)
        fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, parameters.seed, is_cheap)
        held_out_fits, refused = evaluate_all(methods, fitting, held_out)
    except (SupervisionError, InvalidInputError) as error:
        # Too few items to hold some out: a method that needs no choice is trained without an evaluation.
        if methods[0].must_choose:
            raise
        refused, held_out = {methods[0].name: f"without held-out items: {error}"}, None
    if held_out is not None:
        evaluated = [method for method in methods if method.name in held_out_fits]
        best = max(evaluated, key=lambda method: held_out_fits[method.name].held_out_map)
        projector = held_out_fits[best.name].projector
        judged = HeldOutModel(projector, frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()]))
        quality = held_out_quality(projector, held_out, names)
    full_fit = best.fit(data)
    bilinear = full_fit.bilinear
    x_classes, z_classes = set(data.x_labels.tolist()), set(data.z_labels.tolist())
    held_out_map = {name: held_out_fit.held_out_map for name, held_out_fit in held_out_fits.items()}
    return SelectedModel(
        full_fit.projector,
        best.name,
        {names[0]: len(data.x_ids), names[1]: len(data.z_ids)},
        tuple(sorted(x_classes & z_classes)),
        {
            names[0]: tuple(sorted(x_classes - z_classes)),
            names[1]: tuple(sorted(z_classes - x_classes)),
        },
        Selection(held_out_map, too_costly | refused, full_fit.candidates),
        Fit(
            bilinear.alpha_,
            full_fit.scaling,
            bilinear.rank_,
            tuple(bilinear.singular_values_.tolist()),
            _convergence(bilinear, parameters.tol),
            tuple(iteration_of(step) for step in _thin(bilinear.history_)),
            full_fit.posteriors,
        ),
        quality,
        judged,
        held_out,
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


def _affordable_methods(
    parameters: TrainingParameters, data: LabelledItems, report: Report
) -> tuple[list[TrainingMethod], dict[str, str]]:
    """Return the candidate methods, the paper's first, and the reasons why others cost too much.

    Raises
    ------
    TrainingDataError
        If not even the requested method is affordable.
    """
    requested, sizes = parameters.method, Sizes.of(data)
    widths = min(data.X.shape), min(data.Z.shape)
    features, are_sparse = (data.X.shape[1], data.Z.shape[1]), (is_sparse(data.X), is_sparse(data.Z))
    if requested == "auto" and parameters.alpha is not None:
        requested = "lrbs"
    too_costly = {
        "lrbs": None if requested == "lrbs" else pairs_too_slow(sizes, min(widths)),
        "semantic": posteriors_too_large(sizes, features, are_sparse)
        or (posteriors_too_slow(sizes) if requested == "auto" else None),
        "squared": sums_too_large(*widths),
    }
    scalings = default_scalings(data)
    methods: dict[str, TrainingMethod] = {
        "lrbs": LowRankMethod(parameters, report, scalings=scalings),
        "semantic": SemanticMethod(parameters, report),
        "squared": LowRankMethod(parameters, report, "squared", scalings),
    }
    names = [requested] if requested != "auto" else ["lrbs"] if parameters.scaling else ["lrbs", "semantic"]
    if requested == "auto" and any(too_costly[name] for name in names):
        names.append("squared")
    reasons = {name: reason for name in names if (reason := too_costly[name]) is not None}
    affordable = [methods[name] for name in names if name not in reasons]
    if not affordable:
        raise TrainingDataError("; ".join(f"method {name!r}: {reason}" for name, reason in reasons.items()))
    return affordable, reasons


def _thin(history: Sequence[IterationProgress]) -> list[IterationProgress]:
    """Return at most `_LONGEST_HISTORY` iterations, evenly spaced, including the first and the last."""
    if len(history) <= _LONGEST_HISTORY:
        return list(history)
    return [history[place] for place in np.linspace(0, len(history) - 1, _LONGEST_HISTORY).astype(int)]
