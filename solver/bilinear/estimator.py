"""The low-rank bilinear similarity: one loss, one penalty, one algorithm, one certificate."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.base import LinearCrossModalEstimator
from solver.bilinear.solving import BilinearProblem, FactorRounding, solve_apg, solve_paper
from solver.linalg import FloatArray, LowRankMatrix, Samples
from solver.losses.base import LOSSES
from solver.optimisation.checkpoints import Checkpoint, FitRecord, current_checkpoints
from solver.optimisation.convergence import ConvergenceMonitor, StopReason
from solver.progress import IterationProgress
from solver.supervision.annotations import AnyLabels
from solver.supervision.kinds import AnySupervision
from solver.validation import (
    BOOL,
    COUNT,
    POSITIVE,
    ConvergenceWarning,
    InvalidParameterError,
    NumericalError,
    Rule,
    SupervisionError,
    number_within,
    one_of,
    optional,
    parameter,
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
        callback: Callable[[IterationProgress], None] | None = None,
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
        callback: Callable[[IterationProgress], None] | None = None,
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
        callback: Callable[[IterationProgress], None] | None = None,
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
        callback: Callable[[IterationProgress], None] | None,
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
            f"stopped after {self.n_iter_} iterations with {gap}: {advice}",
            ConvergenceWarning,
            stacklevel=4,
        )
