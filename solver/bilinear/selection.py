"""Choice of scaling and penalty weight on a held-out part of the training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.bilinear.estimator import LowRankBilinear
from solver.bilinear.problem import BilinearProblem
from solver.bilinear.solving import regularisation_path
from solver.evaluation.metrics import bidirectional_map
from solver.evaluation.splits import LabelledPair
from solver.linalg.centered import Centered
from solver.linalg.matrices import Samples
from solver.linalg.row_space import RowSpaceBasis, compact
from solver.progress import IterationProgress, Progress
from solver.projector import AffineProjector
from solver.scaling.estimator import FeatureScaler
from solver.scaling.scaler import SCALINGS
from solver.supervision.labels import Labels
from solver.validation.errors import InvalidInputError, OutOfRangeError
from solver.validation.parameters import POSITIVE, list_of, some_of

DEFAULT_SCALINGS = ("center", "l2")
DEFAULT_FRACTIONS = (0.03, 0.01, 0.003)
_LOOSE_TOL = 1e-2  # relative duality gap along the path: accurate enough to compare candidates
_MAX_STEPS = 30  # iterations per path point, each of which has a warm start


@dataclass(frozen=True, slots=True)
class Candidate:
    """A combination of scaling and penalty weight, and its score on the held-out part.

    Parameters
    ----------
    scaling : str
        Kind of `FeatureScaler`, the same for both modalities.
    alpha_fraction : float
        Penalty weight as a fraction of `alpha_max`.
    map_x_to_z, map_z_to_x : float
        Held-out MAP in both directions.
    rank : int
        Rank of the solution.
    """

    scaling: str
    alpha_fraction: float
    map_x_to_z: float
    map_z_to_x: float
    rank: int

    @property
    def mean(self) -> float:
        """MAP averaged over both directions."""
        return (self.map_x_to_z + self.map_z_to_x) / 2.0


@dataclass(frozen=True, slots=True)
class CandidateProgress(Progress):
    """A candidate of a selection has its score.

    Parameters
    ----------
    number : int
        How many candidates have been scored, this one included.
    total : int
        How many there are.
    candidate : Candidate
        The choice and its score.
    """

    number: int
    total: int
    candidate: Candidate


def fit_projector(
    data: LabelledPair,
    scaling: str,
    estimator: LowRankBilinear,
    alpha_fraction: float | None,
    callback: Callable[[IterationProgress], None] | None = None,
) -> AffineProjector:
    """Scale both modalities and fit the estimator.

    Parameters
    ----------
    data : LabelledPair
    scaling : str
        Kind of `FeatureScaler`.
    estimator : LowRankBilinear
        Fitted in place.
    alpha_fraction : float in (0, 1], or None
        Set the estimator's `alpha_fraction` to this, and its `alpha` to None; keep both when None.
    callback : callable, optional
        Called with an `IterationProgress` after each iteration.
    """
    x_scaler, z_scaler = FeatureScaler(scaling).fit(data.X), FeatureScaler(scaling).fit(data.Z)
    (X, x_basis), (Z, z_basis) = compact(x_scaler.transform(data.X)), compact(z_scaler.transform(data.Z))
    supervision = Labels(data.x_labels, data.z_labels)
    if alpha_fraction is not None:
        estimator.set_params(alpha=None, alpha_fraction=alpha_fraction)
    estimator.fit(X, Z, supervision, callback=callback)
    return AffineProjector.of(x_scaler, z_scaler, estimator, (x_basis, z_basis))


def select_on(
    fitting: LabelledPair,
    held_out: LabelledPair,
    *,
    scalings: tuple[str, ...] = DEFAULT_SCALINGS,
    alpha_fractions: tuple[float, ...] = DEFAULT_FRACTIONS,
    loss: str = "logistic",
    callback: Callable[[Progress], None] | None = None,
) -> list[Candidate]:
    """Score each scaling on a held-out part, along a warm-started path of penalty weights.

    Parameters
    ----------
    fitting, held_out : LabelledPair
        Two parts of the training split.
    scalings : tuple of str, not empty
        Kinds of `FeatureScaler` to try.
    alpha_fractions : tuple of float, not empty, each > 0
        Fractions of `alpha_max`, walked from the largest down; from 1 on the solution is zero.
    loss : {"logistic", "squared", "softmax"}
        As in `LowRankBilinear`.
    callback : callable, optional
        Called with an `IterationProgress` after each iteration and a `CandidateProgress` after each
        candidate; an exception it raises ends the selection.

    Returns
    -------
    list of Candidate
        Best first; among equals the stronger penalty first.

    Raises
    ------
    InvalidParameterError
        If `scalings` or `alpha_fractions` is invalid.
    InvalidInputError
        If samples cannot be scaled, or the held-out parts have no class in common.
    """
    some_of(*SCALINGS).check("scalings", scalings)
    list_of(POSITIVE).check("alpha_fractions", alpha_fractions)
    candidates: list[Candidate] = []
    total = len(scalings) * len(alpha_fractions)
    for scaling in scalings:
        for candidate in _walk_path(fitting, held_out, scaling, alpha_fractions, loss, callback):
            candidates.append(candidate)
            if callback is not None:
                callback(CandidateProgress(len(candidates), total, candidate))
    if all(np.isnan(candidate.mean) for candidate in candidates):
        raise InvalidInputError("the held-out parts of the two modalities have no class in common")
    return sorted(candidates, key=lambda candidate: (-candidate.mean, -candidate.alpha_fraction))


def _walk_path(
    fitting: LabelledPair,
    held_out: LabelledPair,
    scaling: str,
    alpha_fractions: tuple[float, ...],
    loss: str,
    callback: Callable[[Progress], None] | None,
) -> Iterator[Candidate]:
    """Yield the candidates of one scaling, from the strongest penalty to the weakest."""
    x_scaler, z_scaler = FeatureScaler(scaling).fit(fitting.X), FeatureScaler(scaling).fit(fitting.Z)
    X, x_basis = compact(x_scaler.transform(fitting.X))
    Z, z_basis = compact(z_scaler.transform(fitting.Z))
    problem = BilinearProblem(
        X,
        Z,
        Labels(fitting.x_labels, fitting.z_labels),
        fit_intercept=True,
        n_threads=None,
        loss=loss,
    )
    held_X, x_labels = _prepare_held_out(x_scaler, x_basis, held_out.X, held_out.x_labels)
    held_Z, z_labels = _prepare_held_out(z_scaler, z_basis, held_out.Z, held_out.z_labels)
    fractions = sorted(alpha_fractions, reverse=True)
    path = regularisation_path(
        problem,
        [fraction * problem.largest_alpha for fraction in fractions],
        tol=_LOOSE_TOL,
        max_iter=_MAX_STEPS,
        callback=callback,
    )
    for fraction, point in zip(fractions, path, strict=True):
        quality = bidirectional_map(*point.project(held_X, held_Z), x_labels, z_labels)
        yield Candidate(scaling, fraction, quality.x_to_z, quality.z_to_x, point.M.rank)


def _prepare_held_out(
    scaler: FeatureScaler, basis: RowSpaceBasis | None, samples: Samples, labels: npt.NDArray[Any]
) -> tuple[Samples, npt.NDArray[Any]]:
    """Return held-out samples in the form of the fitted ones, and labels; drop samples out of range."""
    try:
        scaled = scaler.transform(samples)
    except OutOfRangeError as error:
        is_inside = ~error.is_outside
        if not is_inside.any():
            raise InvalidInputError("all held-out samples of a modality are out of range") from error
        scaled, labels = scaler.transform(samples[is_inside]), labels[is_inside]
    if basis is not None:
        return basis.to_row_space(scaled), labels
    return scaled.toarray() if isinstance(scaled, Centered) else scaled, labels
