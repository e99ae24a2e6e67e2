"""The low-rank bilinear similarity: one loss, one penalty, one certificate; its penalty chosen, too."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from solver.base import LinearCrossModalEstimator
from solver.bilinear.solving import (
    BilinearProblem,
    FactorRounding,
    regularisation_path,
    solve_apg,
    solve_paper,
)
from solver.evaluation.metrics import bidirectional_map
from solver.evaluation.splits import LabelledPair, stratified_folds
from solver.linalg import Centered, FloatArray, LowRankMatrix, RowSpaceBasis, Samples, compact
from solver.losses.base import LOSSES
from solver.optimisation.checkpoints import Checkpoint, FitRecord, current_checkpoints
from solver.optimisation.convergence import ConvergenceMonitor, StopReason
from solver.progress import OnIteration, OnProgress, Progress
from solver.projector import AffineProjector
from solver.scaling.estimator import FeatureScaler
from solver.scaling.scaler import SCALINGS
from solver.supervision.annotations import AnyLabels
from solver.supervision.kinds import AnySupervision, Indices, Labels, MultiLabels, PairedRows
from solver.validation import (
    BOOL,
    COUNT,
    FRACTION,
    N_FOLDS,
    POSITIVE,
    SEED,
    ConvergenceWarning,
    InvalidInputError,
    InvalidParameterError,
    NumericalError,
    OutOfRangeError,
    Rule,
    SupervisionError,
    list_of,
    number_within,
    one_of,
    optional,
    parameter,
    some_of,
)

PRECISION = Rule(lambda v: bool(v in (np.float32, np.float64)), "numpy.float32 or numpy.float64")
_DEFAULT_ALPHA = 1e-3
"""Kept from the first version; it suits no samples in particular, for which there is `alpha_fraction`."""
_PAPER_CHECK_EVERY = 10
"""Iterations of Algorithm 1 between two bounds of the gap; it takes hundreds, and each bound needs a norm."""


@dataclass(eq=False, repr=False)
class LowRankBilinear(LinearCrossModalEstimator):
    """Bilinear similarity ``x^T M z`` with a nuclear-norm penalty.

    Solves problem (4) of [1]_,

        min_M  sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j)) + alpha ||M||_*

    with y = +1, w = 1/|S| on similar pairs and y = -1, w = 1/|D| on dissimilar ones; or the same with
    another loss.

    Parameters
    ----------
    alpha : float, > 0, or None
        Penalty weight; lambda in the paper. At or above `alpha_max` the solution is zero. When it and
        `alpha_fraction` are both None, the weight is 1e-3.
    alpha_fraction : float in (0, 1], or None
        The weight as a fraction of `alpha_max` of the samples that are fitted, given instead of `alpha`; at 1
        the solution is zero.
    loss : {"logistic", "squared", "softmax"}
        "logistic" is the paper's, above. "squared" fits the probability of a match, with equal weights of all
        pairs, and needs no pass over the pairs. "softmax" is a contrastive loss on the ranking of each sample
        (`solver.losses.pair_losses`).
    solver : {"apg", "paper"}
        "apg": proximal gradient steps with preconditioned quasi-Newton descent on the factors between
        them, first in float32, then in float64 (see `solver.optimisation.descent`); large problems start on
        subsamples of their pairs (see `solver.optimisation.subsample`).
        "paper": a literal Algorithm 1 in float64 with a full SVD each step; the reference, for the logistic
        loss only.
    tol : float, > 0
        Stop when the duality gap relative to the objective is at most this.
    max_iter : int, >= 1
        Iteration limit. `fit` gives a `ConvergenceWarning` where it ends with a larger gap than `tol`, at the
        limit or because the gap no longer decreases; `iter_fit` gives none.
    fit_intercept : bool
        Append a constant feature 1 to both modalities, penalised like the others.
    dtype : {numpy.float32, numpy.float64}
        Precision of the pair computations under "apg".
    n_threads : int or None
        Threads over blocks of pairs; all cores when None. The result does not depend on it.
    warm_start : bool
        Start from the previous solution when `fit` is called again on the same number of features.

    Attributes
    ----------
    x_factors_, z_factors_ : ndarray of shape (n_features, rank)
        ``U sqrt(S)`` and ``V sqrt(S)`` of M, without the constant features' rows.
    x_intercept_, z_intercept_ : ndarray of shape (rank,)
        The constant features' rows; zero without `fit_intercept`.
    singular_values_ : ndarray of shape (rank,)
        Of M, in descending order.
    rank_ : int
    alpha_ : float
        Penalty weight of the fit: `alpha`, or `alpha_fraction` times `alpha_max_`.
    alpha_max_ : float
        Smallest penalty weight at which the solution for these samples is zero, see `alpha_max`.
    objective_ : float
        Loss plus penalty at the M of the rounded factors, computed in float64.
    duality_gap_ : float
        (objective - dual value) / objective at the same M, computed in float64: an upper bound on how
        far the objective is from the optimum.
    n_iter_ : int
    converged_ : bool
        Whether ``duality_gap_ <= tol``.
    stop_reason_ : StopReason
        Why the fit ended: "converged", "stalled" or "max_iter".
    history_ : list of IterationProgress
        One entry per iteration.

    References
    ----------
    .. [1] C. Kang et al., "Cross-Modal Similarity Learning", CIKM 2015, problem (4) and Algorithm 1.

    Examples
    --------
    >>> from solver import LowRankBilinear, Labels, make_low_rank_pairs
    >>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
    >>> supervision = Labels(data.x_labels, data.z_labels)
    >>> model = LowRankBilinear(alpha_fraction=0.1).fit(data.X, data.Z, supervision)
    >>> model.converged_, model.similarity(data.X, data.Z).shape
    (True, (60, 50))
    """

    alpha: float | None = parameter(None, optional(POSITIVE))
    _: KW_ONLY
    alpha_fraction: float | None = parameter(None, optional(number_within(0.0, 1.0, closed="right")))
    loss: str = parameter("logistic", one_of(*LOSSES))
    solver: str = parameter("apg", one_of("apg", "paper"))
    tol: float = parameter(1e-3, POSITIVE)
    max_iter: int = parameter(2000, COUNT)
    fit_intercept: bool = parameter(True, BOOL)
    dtype: type = parameter(np.float32, PRECISION)
    n_threads: int | None = parameter(None, optional(COUNT))
    warm_start: bool = parameter(False, BOOL)

    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        callback: OnIteration | None = None,
        start: Checkpoint | None = None,
    ) -> Self:
        """Learn M.

        Parameters
        ----------
        X, Z, supervision
            As of `CrossModalEstimator.fit`, with its errors.
        callback : callable, optional
            Called after each iteration; an exception it raises ends the fit and reaches the caller.
        start : Checkpoint, optional
            Resume from this state, which `iter_fit` yielded for the same samples.

        Raises
        ------
        NumericalError
            If the objective becomes infinite or NaN.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        return self._fit_problem(self._problem((x, z), checked), (x, z), callback, start)

    def iter_fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        callback: OnIteration | None = None,
        start: Checkpoint | None = None,
    ) -> Iterator[Checkpoint]:
        """Return an iterator that fits the estimator while it is consumed, one step at a time.

        Nothing is computed before the first step; the estimator is fitted once the iterator is exhausted.

        Parameters
        ----------
        X, Z, supervision, callback, start
            As in `fit`.

        Yields
        ------
        Checkpoint
            Before the first step and after each; `solver="paper"`, and the first steps of a large problem,
            on a subsample alone, yield none.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        yield from self._solve(self._problem((x, z), checked), (x, z), callback, start)

    def _problem(self, samples: tuple[Samples, Samples], supervision: AnySupervision) -> BilinearProblem:
        if self.alpha is not None and self.alpha_fraction is not None:
            raise InvalidParameterError("alpha_fraction", self.alpha_fraction, "None where alpha is given")
        return BilinearProblem(*samples, supervision, self.fit_intercept, self.n_threads, self.loss)

    def _fit_problem(
        self,
        problem: BilinearProblem,
        samples: tuple[Samples, Samples],
        callback: OnIteration | None = None,
        start: Checkpoint | None = None,
    ) -> Self:
        for _ in self._solve(problem, samples, callback, start):
            pass
        if not self.converged_:
            self._warn()
        return self

    def _solve(
        self,
        problem: BilinearProblem,
        samples: tuple[Samples, Samples],
        callback: OnIteration | None,
        start: Checkpoint | None,
    ) -> Iterator[Checkpoint]:
        is_paper = self.solver == "paper"
        if is_paper and self.loss != "logistic":
            raise InvalidParameterError("solver", self.solver, f"'apg' with loss={self.loss!r}")
        user_alpha = self._penalty_weight(problem)
        alpha = problem.to_problem_units(user_alpha)
        monitor = ConvergenceMonitor(self.tol, self.max_iter, callback, _PAPER_CHECK_EVERY if is_paper else 1)
        dtype = np.float64 if is_paper else self.dtype
        rounding = FactorRounding(problem, *samples, self.fit_intercept, dtype)
        if is_paper:
            M = solve_paper(problem, alpha, monitor, self.n_threads)
        else:
            record = self._open_record(problem, samples, start)
            if record is not None:
                start = record.start
                monitor.resume(record.history)
            warm = self._previous_solution(problem)
            states = solve_apg(problem, alpha, monitor, rounding, dtype, warm=warm, start=start)
            M = yield from (states if record is None else record.keep(states, monitor.history))
        self.alpha_, self.alpha_max_ = user_alpha, problem.largest_alpha
        self._set_solution(problem.lift(M).s, *rounding.factors(M), monitor)

    def _open_record(
        self, problem: BilinearProblem, samples: tuple[Samples, Samples], start: Checkpoint | None
    ) -> FitRecord | None:
        """Return the record of checkpoints, None where none are asked for or the fit begins elsewhere."""
        checkpoints = current_checkpoints()
        if checkpoints is None or start is not None or self.warm_start:
            return None
        parameters = {name: value for name, value in self.get_params().items() if name != "n_threads"}
        # Equal to the bit, the fingerprint says that processor and libraries compute alike, too.
        return checkpoints.open(parameters, problem.fingerprint, *samples, problem.supervision)

    def _penalty_weight(self, problem: BilinearProblem) -> float:
        if self.alpha_fraction is None:
            return _DEFAULT_ALPHA if self.alpha is None else float(self.alpha)
        alpha = float(self.alpha_fraction) * problem.largest_alpha
        if alpha == 0.0:
            raise SupervisionError(
                "alpha_max is zero: no feature separates similar pairs from dissimilar ones, so there is "
                "nothing to learn with alpha_fraction"
            )
        if not math.isfinite(alpha):
            raise NumericalError(f"alpha_max is {problem.largest_alpha}: scale the samples")
        return alpha

    def _previous_solution(self, problem: BilinearProblem) -> LowRankMatrix:
        zero = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
        if not (self.warm_start and hasattr(self, "x_factors_")):
            return zero
        left, right = self.x_factors_, self.z_factors_
        if self.fit_intercept:
            left, right = np.vstack([left, self.x_intercept_]), np.vstack([right, self.z_intercept_])
        if problem.n_features != (len(left), len(right)) or left.shape[1] == 0:
            return zero
        return problem.lower(left, right)

    def _set_solution(
        self, singular_values: FloatArray, left: FloatArray, right: FloatArray, monitor: ConvergenceMonitor
    ) -> None:
        self.singular_values_, self.rank_ = singular_values, len(singular_values)
        if self.fit_intercept:
            self.x_factors_, self.x_intercept_ = left[:-1], left[-1]
            self.z_factors_, self.z_intercept_ = right[:-1], right[-1]
        else:
            self.x_factors_, self.x_intercept_ = left, np.zeros(self.rank_, left.dtype)
            self.z_factors_, self.z_intercept_ = right, np.zeros(self.rank_, right.dtype)
        self.objective_ = monitor.certificate.objective
        self.duality_gap_ = monitor.certificate.relative_gap
        self.converged_, self.stop_reason_ = monitor.converged, monitor.stop_reason
        self.n_iter_ = len(monitor.history)
        self.history_ = monitor.history

    def _warn(self) -> None:
        gap = f"a relative duality gap of {self.duality_gap_:.2e} > tol={self.tol:g}"
        advice = "raise max_iter, tol or alpha"
        if self.stop_reason_ is StopReason.STALLED:
            advice = "the gap no longer decreased: raise tol or alpha, or use dtype=numpy.float64"
        warnings.warn(
            f"stopped after {self.n_iter_} iterations with {gap}: {advice}", ConvergenceWarning, stacklevel=4
        )


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
    callback: OnIteration | None = None,
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
    callback: OnProgress | None = None,
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
    callback: OnProgress | None,
) -> Iterator[Candidate]:
    """Yield the candidates of one scaling, from the strongest penalty to the weakest."""
    x_scaler, z_scaler = FeatureScaler(scaling).fit(fitting.X), FeatureScaler(scaling).fit(fitting.Z)
    X, x_basis = compact(x_scaler.transform(fitting.X))
    Z, z_basis = compact(z_scaler.transform(fitting.Z))
    problem = BilinearProblem(
        X, Z, Labels(fitting.x_labels, fitting.z_labels), fit_intercept=True, n_threads=None, loss=loss
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
        callback: OnIteration | None = None,
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
        callback: OnIteration | None,
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
