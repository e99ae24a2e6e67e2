"""Choosing scaling and penalty weight on a held-out part of the training data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.bilinear import LowRankBilinear
from solver.convergence import Progress
from solver.errors import ConvergenceWarning, InvalidInputError, SupervisionError
from solver.linalg import FloatArray, reduce_basis
from solver.metrics import mean_average_precision
from solver.pipeline import Projector
from solver.preprocessing import FeatureScaler
from solver.problem import alpha_max
from solver.supervision import Labels

DEFAULT_SCALINGS = ("center", "l2")
DEFAULT_FRACTIONS = (0.03, 0.01, 0.003)
_LOOSE_TOL = 1e-2
_MAX_STEPS = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice and what it reached on the held-out part.

    Parameters
    ----------
    scaling : str
        Kind of `FeatureScaler`, the same for both modalities.
    alpha_fraction : float
        Penalty weight as a share of `alpha_max`.
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


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPair:
    """Samples of both modalities with their classes.

    Parameters
    ----------
    X : ndarray of shape (n_samples_x, n_features_x)
        First modality.
    Z : ndarray of shape (n_samples_z, n_features_z)
        Second modality.
    x_labels : ndarray of shape (n_samples_x,)
        Classes of the first.
    z_labels : ndarray of shape (n_samples_z,)
        Classes of the second.
    """

    X: FloatArray
    Z: FloatArray
    x_labels: npt.NDArray[np.str_]
    z_labels: npt.NDArray[np.str_]

    def split(self, holdout: float, max_samples: int, seed: int) -> tuple[LabelledPair, LabelledPair]:
        """Return a fitting and a held-out part, each modality drawn class by class."""
        rng = np.random.default_rng(seed)
        x_fit, x_held = _stratified(self.x_labels, holdout, max_samples, rng)
        z_fit, z_held = _stratified(self.z_labels, holdout, max_samples, rng)
        return self._take(x_fit, z_fit), self._take(x_held, z_held)

    def _take(self, x_rows: npt.NDArray[np.intp], z_rows: npt.NDArray[np.intp]) -> LabelledPair:
        return LabelledPair(self.X[x_rows], self.Z[z_rows], self.x_labels[x_rows], self.z_labels[z_rows])


def fit_projector(
    data: LabelledPair,
    scaling: str,
    estimator: LowRankBilinear,
    alpha_fraction: float | None,
    callback: Callable[[Progress], None] | None = None,
) -> Projector:
    """Scale both modalities and fit the estimator.

    Parameters
    ----------
    data : LabelledPair
        Training samples.
    scaling : str
        Kind of `FeatureScaler`.
    estimator : LowRankBilinear
        Fitted in place.
    alpha_fraction : float, > 0, or None
        Set the estimator's `alpha` to this share of `alpha_max`; keep it as it is when None.
    callback : callable, optional
        Follows the fit.
    """
    x_scaler, z_scaler = FeatureScaler(scaling).fit(data.X), FeatureScaler(scaling).fit(data.Z)
    X, Z = x_scaler.transform(data.X), z_scaler.transform(data.Z)
    supervision = Labels(data.x_labels, data.z_labels)
    if alpha_fraction is not None:
        largest = alpha_max(X, Z, supervision, fit_intercept=estimator.fit_intercept)
        estimator.set_params(alpha=alpha_fraction * largest)
    estimator.fit(X, Z, supervision, callback=callback)
    return Projector.of(x_scaler, z_scaler, estimator)


def select(
    data: LabelledPair,
    *,
    scalings: tuple[str, ...] = DEFAULT_SCALINGS,
    alpha_fractions: tuple[float, ...] = DEFAULT_FRACTIONS,
    holdout: float = 0.2,
    max_samples: int = 3000,
    random_state: int = 0,
    on_candidate: Callable[[int, int, Candidate], None] | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> list[Candidate]:
    """Score every scaling along a warm-started path of penalty weights.

    Parameters
    ----------
    data : LabelledPair
        The training split; nothing else is looked at.
    scalings : tuple of str
        Kinds of `FeatureScaler` to try.
    alpha_fractions : tuple of float
        Shares of `alpha_max`, walked from the largest down.
    holdout : float in (0, 1)
        Share of each class that is held out.
    max_samples : int
        Samples of each modality used at most; a random part of each class.
    random_state : int
        Seed of the split.
    on_candidate : callable, optional
        Called with (number done, number of all, candidate).
    callback : callable, optional
        Follows each fit; what it raises ends the selection.

    Returns
    -------
    list of Candidate
        Best first; of equal ones the stronger penalty.

    Raises
    ------
    SupervisionError
        If the classes are too small to hold out a part of them.
    """
    fitting, held_out = data.split(holdout, max_samples, random_state)
    if min(len(held_out.X), len(held_out.Z)) == 0:
        raise SupervisionError("too few samples of each class to hold a part out for choosing alpha")
    candidates: list[Candidate] = []
    for scaling in scalings:
        for candidate in _walk_path(fitting, held_out, scaling, alpha_fractions, callback):
            candidates.append(candidate)
            if on_candidate is not None:
                on_candidate(len(candidates), len(scalings) * len(alpha_fractions), candidate)
    if all(np.isnan(candidate.mean) for candidate in candidates):
        raise InvalidInputError("the held-out parts of the two modalities have no class in common")
    return sorted(candidates, key=lambda candidate: (-candidate.mean, -candidate.alpha_fraction))


def _walk_path(
    fitting: LabelledPair,
    held_out: LabelledPair,
    scaling: str,
    alpha_fractions: tuple[float, ...],
    callback: Callable[[Progress], None] | None,
) -> Iterator[Candidate]:
    """Fit from the strongest penalty down, each from the solution before it."""
    X, held_X = _scaled(fitting.X, held_out.X, scaling)
    Z, held_Z = _scaled(fitting.Z, held_out.Z, scaling)
    supervision = Labels(fitting.x_labels, fitting.z_labels)
    largest = alpha_max(X, Z, supervision)
    estimator = LowRankBilinear(tol=_LOOSE_TOL, max_iter=_MAX_STEPS, warm_start=True)
    for fraction in sorted(alpha_fractions, reverse=True):
        estimator.set_params(alpha=fraction * largest)
        with warnings.catch_warnings():
            # A candidate only has to be good enough to be compared; the final fit has to converge.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X, Z, supervision, callback=callback)
        x, z = estimator.project_x(held_X), estimator.project_z(held_Z)
        yield Candidate(
            scaling,
            fraction,
            mean_average_precision(x, z, held_out.x_labels, held_out.z_labels),
            mean_average_precision(z, x, held_out.z_labels, held_out.x_labels),
            estimator.rank_,
        )


def _scaled(fitting: FloatArray, held_out: FloatArray, scaling: str) -> tuple[FloatArray, FloatArray]:
    """Scale both parts by the fitting one; wide samples are rotated into their span once for all fits."""
    scaler = FeatureScaler(scaling).fit(fitting)
    samples, held = scaler.transform(fitting), scaler.transform(held_out)
    if samples.shape[1] <= len(samples):
        return samples, held
    reduced, basis = reduce_basis(samples)
    return reduced, held @ basis


def _stratified(
    labels: npt.NDArray[np.str_], holdout: float, max_samples: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    share = min(1.0, max_samples / len(labels))
    fitting: list[npt.NDArray[np.intp]] = []
    held: list[npt.NDArray[np.intp]] = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        members = members[: max(round(share * len(members)), min(2, len(members)))]
        n_held = min(max(round(holdout * len(members)), 1), len(members) - 1)
        held.append(members[:n_held])
        fitting.append(members[n_held:])
    return np.concatenate(fitting), np.concatenate(held)
