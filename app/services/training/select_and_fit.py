"""Learning a projector from labelled items: what was not asked for is chosen on a held-out part."""

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
    LowRankRecipe,
    Recipe,
    Report,
    SemanticRecipe,
    Trial,
    default_scalings,
    iteration_of,
    try_each,
)
from solver import (
    InvalidInputError,
    IterationProgress,
    LowRankBilinear,
    Projector,
    SupervisionError,
    is_sparse,
)

__all__ = ["Learned", "Report", "learn", "training_data"]

_HELD_OUT_SHARE = 0.2
_MOST_SAMPLES = 3000
_LONGEST_HISTORY = 1000
_USUAL_SHARE, _OUTLYING = 0.9, 1e4


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What `learn` gives.

    Parameters
    ----------
    projector : Projector
        Fitted on all training items: the one that serves.
    method : str
        The chosen one.
    items : mapping of str to int
        Training items, by modality.
    classes : tuple of str
        Classes on items of both modalities.
    unmatched_labels : mapping of str to tuple of str
        Classes on items of one modality alone.
    selection : Selection
        Why this method.
    fit : Fit
        How it was fitted.
    held_out_quality : HeldOutQuality
        How good it is.
    judged : HeldOutModel or None
        The same recipe without the held-out items; None when too few items could be held out.
    held_out : LabelledItems or None
        Those items.
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
        found = item_features(chosen, encoders[name])
        # Rows that an encoder made are of one scale.
        is_outlier = np.zeros(len(chosen), np.bool) if is_sparse(found) else _are_outliers(found)
        if is_outlier.any():
            outliers[name] = [item.id for item, far in zip(chosen, is_outlier, strict=True) if far]
            chosen = [item for item, far in zip(chosen, is_outlier, strict=True) if not far]
            found = found[~is_outlier]
        features.append(found)
        labels.append(np.asarray([class_of(item.labels) for item in chosen], dtype=np.str_))
        ids.append(np.asarray([item.id for item in chosen], dtype=np.str_))
        for part in (found.indptr, found.indices, found.data) if is_sparse(found) else (found,):
            digest.update(part.tobytes())
        digest.update("\x00".join(labels[-1].tolist()).encode())
    x, z = zip(features, labels, ids, strict=True)
    return LabelledItems(x[0], z[0], x[1], z[1], x[2], z[2]), digest.hexdigest(), outliers


def _are_outliers(features: Matrix) -> npt.NDArray[np.bool]:
    """Return which rows are larger than nine tenths of the others by more than any unit would explain."""
    sizes = np.abs(features).max(axis=1).astype(np.float64)
    usual = float(np.quantile(sizes, _USUAL_SHARE, method="lower"))
    return sizes > _OUTLYING * usual if usual > 0.0 else np.zeros(len(sizes), np.bool)


def learn(
    data: LabelledItems, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> Learned:
    """Choose what was not given, judge the choice on held-out items, then fit on all training items.

    Parameters
    ----------
    data : LabelledItems
        Training items.
    parameters : TrainingParameters
        What was asked for.
    names : tuple of str
        Both modalities.
    report : callable
        Takes progress; raises to end the training.

    Raises
    ------
    SolverError
        If the items cannot be learned from.
    """
    recipes, too_dear = _recipes(parameters, data, report)
    trials: dict[str, Trial] = {}
    refused: dict[str, str] = {}
    judged, held_out, best = None, None, recipes[0]
    quality = HeldOutQuality()
    try:
        # Where nothing dearer is compared, what is judged learns from as many items as what serves.
        is_cheap = all(recipe.method == "squared" for recipe in recipes)
        fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, parameters.seed, is_cheap)
        trials, refused = try_each(recipes, fitting, held_out)
    except (SupervisionError, InvalidInputError) as error:
        # Too few items to hold a part out: what needs no choice is trained without a figure.
        if recipes[0].must_choose:
            raise
        refused, held_out = {recipes[0].method: f"without held-out items: {error}"}, None
    if held_out is not None:
        tried = [recipe for recipe in recipes if recipe.method in trials]
        best = max(tried, key=lambda recipe: trials[recipe.method].held_out_map)
        projector = trials[best.method].projector
        judged = HeldOutModel(projector, frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()]))
        quality = held_out_quality(projector, held_out, names)
    fitted = best.fitted(data)
    bilinear = fitted.bilinear
    x_classes, z_classes = set(data.x_labels.tolist()), set(data.z_labels.tolist())
    held_out_map = {method: trial.held_out_map for method, trial in trials.items()}
    return Learned(
        fitted.projector,
        best.method,
        {names[0]: len(data.x_ids), names[1]: len(data.z_ids)},
        tuple(sorted(x_classes & z_classes)),
        {
            names[0]: tuple(sorted(x_classes - z_classes)),
            names[1]: tuple(sorted(z_classes - x_classes)),
        },
        Selection(held_out_map, too_dear | refused, fitted.candidates),
        Fit(
            bilinear.alpha_,
            fitted.scaling,
            bilinear.rank_,
            tuple(bilinear.singular_values_.tolist()),
            _convergence(bilinear, parameters.tol),
            tuple(iteration_of(step) for step in _thinned(bilinear.history_)),
            fitted.posteriors,
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


def _recipes(
    parameters: TrainingParameters, data: LabelledItems, report: Report
) -> tuple[list[Recipe], dict[str, str]]:
    """Return the methods that come into question, the paper's first, and why others are too dear.

    Raises
    ------
    TrainingDataError
        If not even what was asked for fits into memory.
    """
    asked, sizes = parameters.method, Sizes.of(data)
    widths = min(data.X.shape), min(data.Z.shape)
    features, are_sparse = (data.X.shape[1], data.Z.shape[1]), (is_sparse(data.X), is_sparse(data.Z))
    if asked == "auto" and parameters.alpha is not None:
        asked = "lrbs"
    too_dear = {
        "lrbs": None if asked == "lrbs" else pairs_too_slow(sizes, min(widths)),
        "semantic": posteriors_too_large(sizes, features, are_sparse)
        or (posteriors_too_slow(sizes) if asked == "auto" else None),
        "squared": sums_too_large(*widths),
    }
    scalings = default_scalings(data)
    kinds: dict[str, Recipe] = {
        "lrbs": LowRankRecipe(parameters, report, scalings=scalings),
        "semantic": SemanticRecipe(parameters, report),
        "squared": LowRankRecipe(parameters, report, "squared", scalings),
    }
    names = [asked] if asked != "auto" else ["lrbs"] if parameters.scaling else ["lrbs", "semantic"]
    if asked == "auto" and any(too_dear[name] for name in names):
        names.append("squared")
    reasons = {name: reason for name in names if (reason := too_dear[name]) is not None}
    affordable = [kinds[name] for name in names if name not in reasons]
    if not affordable:
        raise TrainingDataError("; ".join(f"method {name!r}: {reason}" for name, reason in reasons.items()))
    return affordable, reasons


def _thinned(history: Sequence[IterationProgress]) -> list[IterationProgress]:
    """Return at most so many steps, evenly spread, the first and the last among them."""
    if len(history) <= _LONGEST_HISTORY:
        return list(history)
    return [history[place] for place in np.linspace(0, len(history) - 1, _LONGEST_HISTORY).astype(int)]
