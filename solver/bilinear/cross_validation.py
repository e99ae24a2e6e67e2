"""The low-rank bilinear similarity with its penalty weight chosen by cross-validation."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from solver.base import LinearCrossModalEstimator
from solver.bilinear.estimator import PRECISION, LowRankBilinear
from solver.bilinear.problem import BilinearProblem
from solver.bilinear.solving import regularisation_path
from solver.evaluation.metrics import bidirectional_map
from solver.evaluation.splits import stratified_folds
from solver.linalg.matrices import FloatArray, Samples
from solver.progress import IterationProgress
from solver.supervision.base import Indices
from solver.supervision.conversion import AnyLabels
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import SupervisionError
from solver.validation.parameters import (
    BOOL,
    COUNT,
    FRACTION,
    N_FOLDS,
    POSITIVE,
    SEED,
    list_of,
    optional,
    parameter,
)

_PATH_MAX_ITER = 60  # iterations per path point: a fold has to be good enough to be compared, not certified


@dataclass(eq=False, repr=False, kw_only=True)
class LowRankBilinearCV(LinearCrossModalEstimator):
    """`LowRankBilinear` with `alpha` chosen by cross-validated mean average precision.

    In each fold a path of penalty weights is solved with warm starts. The weight with the best MAP, averaged
    over both directions and all folds, is used for a fit on all samples.

    Parameters
    ----------
    alphas : sequence of float, > 0, optional
        Penalty weights to try; `n_alphas` weights from `alpha_max` of all samples down to
        `alpha_max * smallest_fraction`, evenly spaced in logarithm, when omitted.
    n_alphas : int, >= 1
        Length of the path when `alphas` is omitted.
    smallest_fraction : float in (0, 1)
        End of the path when `alphas` is omitted, as a fraction of `alpha_max`.
    n_folds : int, >= 2
        Number of folds, stratified by label. Where the rows of both modalities are paired, both have the
        same folds, so that a pair is held out as a whole.
    one_standard_error : bool
        Choose the largest weight whose MAP is within one standard error of the best.
    tol : float, > 0
        Relative duality gap of the final fit.
    path_tol : float, > 0
        Relative duality gap along the paths.
    max_iter : int, >= 1
        Iteration limit of the final fit.
    fit_intercept : bool
        Append a constant feature to both modalities.
    dtype : {numpy.float32, numpy.float64}
        Precision of the final fit.
    random_state : int, >= 0
        Seed of the folds.
    n_jobs : int or None
        Number of folds to fit in parallel; all cores when None. The result does not depend on it.

    Attributes
    ----------
    alpha_ : float
        The chosen weight.
    best_estimator_ : LowRankBilinear
        Fitted on all samples with `alpha_`; the factors and intercepts here are its own.
    cv_results_ : dict of str to ndarray
        "alpha" (n_alphas,), "map_x_to_z" and "map_z_to_x" (n_alphas, n_folds), "mean_map" and
        "standard_error" (n_alphas,), "rank" and "duality_gap" (n_alphas, n_folds).

    Examples
    --------
    >>> from solver import Labels, LowRankBilinearCV, make_low_rank_pairs
    >>> data = make_low_rank_pairs(60, 60, n_classes=4, random_state=0)
    >>> supervision = Labels(data.x_labels, data.z_labels)
    >>> model = LowRankBilinearCV(n_alphas=5, n_folds=3).fit(data.X, data.Z, supervision)
    >>> model.cv_results_["map_x_to_z"].shape
    (5, 3)
    """

    alphas: npt.ArrayLike | None = parameter(None, optional(list_of(POSITIVE)))
    n_alphas: int = parameter(20, COUNT)
    smallest_fraction: float = parameter(1e-3, FRACTION)
    n_folds: int = parameter(5, N_FOLDS)
    one_standard_error: bool = parameter(False, BOOL)
    tol: float = parameter(1e-3, POSITIVE)
    path_tol: float = parameter(1e-2, POSITIVE)
    max_iter: int = parameter(2000, COUNT)
    fit_intercept: bool = parameter(True, BOOL)
    dtype: type = parameter(np.float32, PRECISION)
    random_state: int = parameter(0, SEED)
    n_jobs: int | None = parameter(None, optional(COUNT))

    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        callback: Callable[[IterationProgress], None] | None = None,
    ) -> Self:
        """Choose alpha and learn M.

        Parameters
        ----------
        X, Z, supervision
            As of `CrossModalEstimator.fit`, with its errors; `SignedPairs` cannot be held out.
        callback : callable, optional
            Called after each iteration of any fold, from the thread of that fold, and of the final fit; an
            exception it raises ends the fit and reaches the caller.

        Raises
        ------
        SupervisionError
            If a fold is left without similar or dissimilar pairs.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        final = LowRankBilinear(
            tol=self.tol, max_iter=self.max_iter, fit_intercept=self.fit_intercept, dtype=self.dtype
        )
        samples = x, z
        targets = _targets(checked)
        problem = BilinearProblem(*samples, checked, self.fit_intercept, None)
        alphas = self._path(problem)

        def run_fold(held_out: tuple[Indices, Indices]) -> list[tuple[float, float, int, float]]:
            return list(self._scores(samples, checked, targets, alphas, held_out, callback))

        folds = list(_folds(targets, self.n_folds, self.random_state))
        with ThreadPoolExecutor(min(self.n_jobs or os.cpu_count() or 1, len(folds))) as pool:
            scores = np.asarray(list(pool.map(run_fold, folds)), np.float64)
        self._choose(alphas, scores)
        final.set_params(alpha=self.alpha_)._fit_problem(problem, samples, callback)
        self.best_estimator_ = final
        self.x_factors_, self.x_intercept_ = final.x_factors_, final.x_intercept_
        self.z_factors_, self.z_intercept_ = final.z_factors_, final.z_intercept_
        return self

    def _path(self, problem: BilinearProblem) -> FloatArray:
        if self.alphas is None:
            return problem.largest_alpha * np.geomspace(1.0, self.smallest_fraction, self.n_alphas)
        return np.sort(np.atleast_1d(np.asarray(self.alphas, np.float64)))[::-1]

    def _scores(
        self,
        samples: tuple[Samples, Samples],
        supervision: AnySupervision,
        targets: tuple[npt.NDArray[Any], npt.NDArray[Any]],
        alphas: FloatArray,
        held_out: tuple[Indices, Indices],
        callback: Callable[[IterationProgress], None] | None,
    ) -> Iterator[tuple[float, float, int, float]]:
        """Yield the MAP of both directions, rank and gap along the path of one fold."""
        (X, Z), (x_held_out, z_held_out) = samples, held_out
        x_fitting = np.setdiff1d(np.arange(X.shape[0]), x_held_out)
        z_fitting = np.setdiff1d(np.arange(Z.shape[0]), z_held_out)
        problem = BilinearProblem(
            X[x_fitting], Z[z_fitting], supervision.subset(x_fitting, z_fitting), self.fit_intercept, 1
        )
        x_target, z_target = targets[0][x_held_out], targets[1][z_held_out]
        path = regularisation_path(
            problem, alphas.tolist(), tol=self.path_tol, max_iter=_PATH_MAX_ITER, callback=callback
        )
        for point in path:
            quality = bidirectional_map(*point.project(X[x_held_out], Z[z_held_out]), x_target, z_target)
            yield quality.x_to_z, quality.z_to_x, point.M.rank, point.duality_gap

    def _choose(self, alphas: FloatArray, scores: FloatArray) -> None:
        """Store the scores, of shape (n_folds, n_alphas, 4), and the best weight."""
        x_to_z, z_to_x, rank, gap = np.moveaxis(scores, (2, 1), (0, 1))
        both = (x_to_z + z_to_x) / 2.0
        mean = both.mean(axis=1)
        error = both.std(axis=1, ddof=1) / math.sqrt(both.shape[1])
        self.cv_results_ = {
            "alpha": alphas,
            "map_x_to_z": x_to_z,
            "map_z_to_x": z_to_x,
            "mean_map": mean,
            "standard_error": error,
            "rank": rank.astype(np.intp),
            "duality_gap": gap,
        }
        best = int(np.argmax(mean))
        if self.one_standard_error:
            best = int(np.argmax(mean >= mean[best] - error[best]))
        self.alpha_ = float(alphas[best])


def _targets(supervision: AnySupervision) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if isinstance(supervision, Labels | MultiLabels):
        return supervision.x_targets, supervision.z_targets
    if isinstance(supervision, PairedRows):
        return supervision.x_order, supervision.z_order
    raise SupervisionError(
        f"{type(supervision).__name__} does not define which held-out items are relevant: "
        "cross-validation needs Labels, MultiLabels or PairedRows"
    )


def _folds(
    targets: tuple[npt.NDArray[Any], npt.NDArray[Any]], n_folds: int, seed: int
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the held-out rows of each fold, in random order."""
    rng = np.random.default_rng(seed)
    x_folds = stratified_folds(targets[0], n_folds, rng)
    are_paired = targets[0].shape == targets[1].shape and bool((targets[0] == targets[1]).all())
    z_folds = x_folds if are_paired else stratified_folds(targets[1], n_folds, rng)
    for x_held_out, z_held_out in zip(x_folds, z_folds, strict=True):
        yield rng.permutation(x_held_out), rng.permutation(z_held_out)
