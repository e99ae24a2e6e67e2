"""Learning a projector from labelled items: what was not asked for is chosen on a held-out part."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from app.domain.entities import Collection, Item
from app.domain.errors import InvalidFieldError, TrainingDataError
from app.domain.names import listed
from app.services.features import item_features
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
_LOOSE_TOL, _FEW_STEPS = 1e-2, 3

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


def training_data(
    collection: Collection, items: list[Item], encoders: Mapping[str, Any]
) -> tuple[LabelledPair, str]:
    """Return the labelled training items' features and a hash of all that was learned from."""
    features, labels, digest = [], [], hashlib.sha256()
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
        digest.update(features[-1].tobytes())
        digest.update("\x00".join(labels[-1].tolist()).encode())
    return LabelledPair(features[0], features[1], labels[0], labels[1]), digest.hexdigest()


def learn(
    data: LabelledPair, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> tuple[Projector, dict[str, Any]]:
    """Choose what was not given, then fit on all training items."""
    candidates = _choose(data, parameters, report)
    best = candidates[0] if candidates else None
    estimator = LowRankBilinear(tol=parameters.tol, max_iter=parameters.max_iter)
    fraction: float | None = best.alpha_fraction if best else None
    if parameters.alpha is not None:
        estimator.set_params(alpha=parameters.alpha)
        fraction = None
    scaling = parameters.scaling or (best.scaling if best else DEFAULT_SCALINGS[0])
    with warnings.catch_warnings():
        # Not converging is a fact of the model, told with it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        projector = fit_projector(
            data, scaling, estimator, fraction, lambda step: report({"phase": "fitting", **_shown(step)})
        )
    last = estimator.history_[-1]
    facts = {
        "method": parameters.method,
        "scaling": scaling,
        "alpha": float(estimator.alpha),
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
            "seconds": last.seconds,
        },
        "held_out": _held_out(best, names),
        "held_out_items": _held_out_items(data, names, parameters.seed) if best else {},
        "candidates": [asdict(candidate) for candidate in candidates],
    }
    return projector, facts


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
        with warnings.catch_warnings():
            # As in `select`: it only has to be good enough to be compared.
            warnings.simplefilter("ignore", ConvergenceWarning)
            projector = fit_projector(
                fitting, scaling, estimator, None, lambda p: report({"phase": "choosing", **_shown(p)})
            )
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


def _held_out(best: Candidate | None, names: tuple[str, str]) -> dict[str, float]:
    if best is None:
        return {}
    return {f"{names[0]}-to-{names[1]}": best.map_x_to_z, f"{names[1]}-to-{names[0]}": best.map_z_to_x}


def _held_out_items(data: LabelledPair, names: tuple[str, str], seed: int) -> dict[str, int]:
    """Return how many items of each modality the held-out figures rest on."""
    _, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, seed)
    return {names[0]: len(held_out.X), names[1]: len(held_out.Z)}


def _shown(progress: Progress) -> dict[str, Any]:
    return {
        "iteration": progress.iteration,
        "objective": progress.objective,
        "gap": progress.gap,
        "rank": progress.rank,
        "seconds": round(progress.seconds, 3),
    }
