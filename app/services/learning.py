"""Learning a projector from labelled items: what was not asked for is chosen on a held-out part."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from app.domain.entities import Collection, Item
from app.domain.errors import InvalidFieldError, TrainingDataError
from app.domain.names import listed
from app.services.bundles import Judged
from app.services.features import item_features
from app.services.holdout import LabelledItems
from app.services.judging import held_out_figures
from solver.bilinear import LowRankBilinear
from solver.convergence import Progress
from solver.errors import ConvergenceWarning, InvalidInputError, SupervisionError
from solver.metrics import mean_average_precision
from solver.pipeline import Projector
from solver.preprocessing import SCALINGS
from solver.problem import alpha_max
from solver.selection import DEFAULT_SCALINGS, Candidate, LabelledPair, fit_projector, select
from solver.supervision import Labels

_HELD_OUT_SHARE = 0.2
_MOST_SAMPLES = 3000
_LOOSE_TOL, _FEW_STEPS, _TRIAL_STEPS = 1e-2, 3, 30
_LONGEST_HISTORY = 1000

Report = Callable[[Mapping[str, Any]], None]
"""Takes progress; raises to end the training."""


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What a retrain can be told.

    Parameters
    ----------
    method : {"lrbs"}
        The paper's low-rank bilinear similarity.
    alpha : float or None
        Penalty weight; chosen on a held-out part of the training items when None.
    scaling : str or None
        Kind of feature scaling; chosen likewise when None.
    tol : float
        Relative duality gap of the final fit.
    max_iter : int
        Iteration limit of the final fit; seldom met, since a fit takes some twenty.
    seed : int
        Of the held-out split.
    """

    method: str = "lrbs"
    alpha: float | None = None
    scaling: str | None = None
    tol: float = 1e-3
    max_iter: int = 200
    seed: int = 0


def check_parameters(parameters: TrainingParameters) -> None:
    """Refuse parameters that no training could use; raises InvalidFieldError."""
    alpha, scaling = parameters.alpha, parameters.scaling
    if alpha is not None and not (math.isfinite(alpha) and alpha > 0):
        raise InvalidFieldError("alpha", f"expected a finite number above 0, got {alpha}")
    if scaling is not None and scaling not in SCALINGS:
        raise InvalidFieldError("scaling", f"expected {listed(SCALINGS)}, got {scaling!r}")
    if not 0.0 < parameters.tol < 1.0:
        raise InvalidFieldError("tol", f"expected a number between 0 and 1, got {parameters.tol}")
    if parameters.max_iter < 1:
        raise InvalidFieldError("max_iter", f"expected at least 1, got {parameters.max_iter}")


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What `learn` gives.

    Parameters
    ----------
    projector : Projector
        Fitted on all training items: the one that serves.
    facts : dict
        How it was learned and how good it is.
    judged : Judged or None
        The same recipe without the held-out items; None when too few items could be held out.
    held_out : LabelledItems or None
        Those items.
    """

    projector: Projector
    facts: dict[str, Any]
    judged: Judged | None
    held_out: LabelledItems | None


def training_data(
    collection: Collection, items: Sequence[Item], encoders: Mapping[str, Any]
) -> tuple[LabelledItems, str]:
    """Return the labelled training items' features and a hash of all that was learned from."""
    features, labels, ids, digest = [], [], [], hashlib.sha256()
    for name in collection.modality_names:
        chosen = sorted(
            (item for item in items if item.modality == name and item.train and item.labels),
            key=lambda i: i.id,
        )
        if not chosen:
            raise TrainingDataError(f"no item of modality {name!r} has a label and may be trained on")
        features.append(item_features(chosen, encoders[name]))
        # One class per item: of several labels the first is the class.
        labels.append(np.asarray([item.labels[0] for item in chosen], dtype=np.str_))
        ids.append(np.asarray([item.id for item in chosen], dtype=np.str_))
        digest.update(features[-1].tobytes())
        digest.update("\x00".join(labels[-1].tolist()).encode())
    x, z = zip(features, labels, ids, strict=True)
    return LabelledItems(x[0], z[0], x[1], z[1], x[2], z[2]), digest.hexdigest()


def learn(
    data: LabelledItems, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> Learned:
    """Choose what was not given, judge the choice on held-out items, then fit on all training items."""
    candidates = _choose(data, parameters, report)
    best = candidates[0] if candidates else None
    estimator = LowRankBilinear(tol=parameters.tol, max_iter=parameters.max_iter)
    fraction: float | None = best.alpha_fraction if best else None
    if parameters.alpha is not None:
        estimator.set_params(alpha=parameters.alpha)
        fraction = None
    scaling = parameters.scaling or (best.scaling if best else DEFAULT_SCALINGS[0])
    judged, held_out = None, None
    figures: dict[str, Any] = {"held_out": {}, "held_out_items": {}, "curves": {}}
    if best is not None:
        fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, parameters.seed)
        trial = LowRankBilinear(estimator.alpha, tol=_LOOSE_TOL, max_iter=_TRIAL_STEPS)
        projector = _fit(fitting, scaling, trial, fraction, "judging", report)
        judged = Judged(projector, frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()]))
        x, z = projector.project_x(held_out.X), projector.project_z(held_out.Z)
        figures = held_out_figures(x, z, held_out, names)
    projector = _fit(data, scaling, estimator, fraction, "fitting", report)
    facts = {
        "method": parameters.method,
        "scaling": scaling,
        "alpha": float(estimator.alpha),
        "seed": parameters.seed,
        "train_items": {names[0]: len(data.X), names[1]: len(data.Z)},
        "classes": sorted(set(data.x_labels.tolist()) & set(data.z_labels.tolist())),
        "rank": estimator.rank_,
        "singular_values": estimator.singular_values_.tolist(),
        "convergence": {
            "iteration": estimator.n_iter_,
            "objective": estimator.objective_,
            "gap": estimator.duality_gap_,
            "rank": estimator.rank_,
            "converged": estimator.converged_,
            "tol": parameters.tol,
            "seconds": estimator.history_[-1].seconds,
        },
        "history": [_shown(step) for step in _thinned(estimator.history_)],
        "candidates": [asdict(candidate) for candidate in candidates],
        **figures,
    }
    return Learned(projector, facts, judged, held_out)


def _fit(
    data: LabelledPair,
    scaling: str,
    estimator: LowRankBilinear,
    fraction: float | None,
    phase: str,
    report: Report,
) -> Projector:
    with warnings.catch_warnings():
        # Not converging is a fact of the model, told with it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit_projector(
            data, scaling, estimator, fraction, lambda step: report({"phase": phase, **_shown(step)})
        )


def _choose(data: LabelledPair, parameters: TrainingParameters, report: Report) -> list[Candidate]:
    """Return what comes into question with its held-out MAP, best first."""
    scalings = (parameters.scaling,) if parameters.scaling else DEFAULT_SCALINGS
    if parameters.alpha is not None:
        try:
            return _judge(data, parameters.alpha, scalings, parameters.seed, report)
        except (SupervisionError, InvalidInputError):
            # Too few samples to hold a part out: what was asked for is trained without a figure.
            return []

    def on_candidate(done: int, total: int, candidate: Candidate) -> None:
        report({"phase": "choosing", "candidate": done, "candidates": total})

    return select(
        data,
        scalings=scalings,
        holdout=_HELD_OUT_SHARE,
        max_samples=_MOST_SAMPLES,
        random_state=parameters.seed,
        on_candidate=on_candidate,
        callback=lambda progress: report({"phase": "choosing", **_shown(progress)}),
    )


def _judge(
    data: LabelledPair, alpha: float, scalings: tuple[str, ...], seed: int, report: Report
) -> list[Candidate]:
    """Score a given penalty weight with each scaling as `select` scores its own."""
    fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, seed)
    supervision = Labels(fitting.x_labels, fitting.z_labels)
    candidates: list[Candidate] = []
    for scaling in scalings:
        estimator = LowRankBilinear(alpha=alpha, tol=_LOOSE_TOL, max_iter=_FEW_STEPS)
        # As in `select`: it only has to be good enough to be compared.
        projector = _fit(fitting, scaling, estimator, None, "choosing", report)
        scaled = projector.x_scaler.transform(fitting.X), projector.z_scaler.transform(fitting.Z)
        x, z = projector.project_x(held_out.X), projector.project_z(held_out.Z)
        candidate = Candidate(
            scaling,
            alpha / alpha_max(*scaled, supervision),
            mean_average_precision(x, z, held_out.x_labels, held_out.z_labels),
            mean_average_precision(z, x, held_out.z_labels, held_out.x_labels),
            projector.rank,
        )
        if np.isfinite(candidate.mean):
            candidates.append(candidate)
    return sorted(candidates, key=lambda candidate: -candidate.mean)


def _thinned(history: Sequence[Progress]) -> list[Progress]:
    """Return at most so many steps, evenly spread, the first and the last among them."""
    if len(history) <= _LONGEST_HISTORY:
        return list(history)
    return [history[place] for place in np.linspace(0, len(history) - 1, _LONGEST_HISTORY).astype(int)]


def _shown(progress: Progress) -> dict[str, Any]:
    return {
        "iteration": progress.iteration,
        "objective": progress.objective,
        "gap": progress.gap if progress.gap is not None and math.isfinite(progress.gap) else None,
        "rank": progress.rank,
        "seconds": round(progress.seconds, 3),
    }
