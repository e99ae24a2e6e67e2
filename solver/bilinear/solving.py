"""The algorithms on a prepared problem: from its first state to its solution, or along a path of penalties.

At small penalties the rounding of the factors can show in the duality gap, so the certificate is computed for
the rounded factors. An intercept, where there is one, compensates for the rounding of the other rows at the
mean sample, which is most of the error when the samples are not centred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.bilinear.problem import BilinearProblem
from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.optimisation.checkpoint import Checkpoint
from solver.optimisation.convergence import ConvergenceMonitor
from solver.optimisation.descent import RESUMED, Descent, DescentState
from solver.optimisation.paper import DensePairs, iterate_paper
from solver.optimisation.subsample import PairSubsample, SubsampledLoss
from solver.progress import IterationProgress
from solver.validation.errors import InvalidInputError, NumericalError


@dataclass(frozen=True, slots=True, eq=False)
class PathPoint:
    """The solution for one penalty weight, in the original features; the constant features come last."""

    M: LowRankMatrix
    duality_gap: float  # certified, relative to the objective

    def project(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the samples of both modalities, without constant features, in the common space."""
        left, right = self.M.balanced_factors()
        return _affine(X, left), _affine(Z, right)


def regularisation_path(
    problem: BilinearProblem,
    alphas: Sequence[float],
    *,
    tol: float,
    max_iter: int,
    callback: Callable[[IterationProgress], None] | None = None,
) -> Iterator[PathPoint]:
    """Yield the solution for each of several penalty weights in the user's units, fastest when descending.
    `tol` (relative duality gap) and `max_iter` are those of each; `callback` may raise to end the path."""
    M = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
    for alpha in alphas:
        scaled = problem.to_problem_units(alpha)
        monitor = ConvergenceMonitor(tol, max_iter, callback)
        descent = Descent(problem, scaled, np.float32)
        for state in monitor.follow(problem.loss, scaled, descent.states(descent.start(M))):
            M = state.M
        yield PathPoint(problem.lift(M), monitor.certificate.relative_gap)


def _affine(samples: FloatArray, factors: FloatArray) -> FloatArray:
    n_features = samples.shape[1]
    projected: FloatArray = np.asarray(samples @ factors[:n_features])
    projected += factors[n_features:].sum(axis=0)
    return projected


class SubsampledProblem:
    """A problem restricted to some blocks of its pairs, in the coordinates of the whole problem."""

    # `penalty_growth` is its penalty weight over that of the whole problem. A gradient over fewer pairs is
    # noisier; without a stronger penalty this problem would learn noise that the fit on all pairs has to
    # undo.

    subsample = None

    def __init__(
        self, whole: BilinearProblem, subsample: PairSubsample, n_blocks: int, penalty_growth: float
    ) -> None:
        self._loss = subsample.loss(n_blocks)
        self.shape, self.spectra, self.alpha_max = whole.shape, whole.spectra, whole.alpha_max
        self.first_step = whole.first_step
        self.share = subsample.share(n_blocks)
        self.penalty_growth = penalty_growth

    def loss(self, dtype: type) -> SubsampledLoss:
        """Return the smooth term, always in float32."""
        return self._loss


def subsampled_problems(problem: BilinearProblem) -> Iterator[SubsampledProblem]:
    """Yield increasing subsamples of a problem: the first block, then all; none if it has no subsample."""
    subsample = problem.subsample
    if subsample is not None:
        yield SubsampledProblem(problem, subsample, 1, math.sqrt(subsample.n_blocks))
        yield SubsampledProblem(
            problem, subsample, subsample.n_blocks, math.sqrt(math.sqrt(subsample.n_blocks))
        )


class FactorRounding:
    """Rounds the solutions of one problem; X and Z are as passed to `fit`.
    With `fit_intercept` the last rows of the factors are intercepts."""

    def __init__(
        self, problem: BilinearProblem, X: Samples, Z: Samples, fit_intercept: bool, dtype: npt.DTypeLike
    ) -> None:
        self._problem = problem
        self._dtype = np.dtype(dtype)
        self._means = [_mean(side) if fit_intercept else None for side in (X, Z)]

    def factors(self, M: LowRankMatrix) -> tuple[FloatArray, FloatArray]:
        """Return the rounded, balanced factors of a point of the problem.
        NumericalError if they are too large or too small for the precision."""
        left, right = self._problem.lift(M).balanced_factors()
        return self._round(left, self._means[0]), self._round(right, self._means[1])

    def round(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return the point of the problem that the rounded factors represent."""
        if self._dtype == np.float64:
            return M
        left, right = self.factors(M)
        return self._problem.lower(left.astype(np.float64), right.astype(np.float64))

    def _round(self, factor: FloatArray, mean: FloatArray | None) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            rounded: FloatArray = factor.astype(self._dtype)
        if not (np.isfinite(rounded).all() and rounded.any(axis=0).all()):
            largest = float(np.abs(factor).max())
            raise NumericalError(
                f"factors of size {largest:.1e} are out of range of {self._dtype}: scale the samples"
            )
        if mean is not None:
            rounded[-1] = factor[-1] + mean @ (factor[:-1] - rounded[:-1].astype(np.float64))
        return rounded


def _mean(samples: Samples) -> FloatArray:
    mean: FloatArray = np.asarray(samples.mean(axis=0, dtype=np.float64)).ravel()
    return mean


def solve_paper(
    problem: BilinearProblem, alpha: float, monitor: ConvergenceMonitor, n_threads: int | None
) -> LowRankMatrix:
    """Return the solution by Algorithm 1 to the letter, in float64; alpha is in the units of the problem."""
    pairs = DensePairs(problem.X, problem.Z, problem.supervision, n_threads)
    states = iterate_paper(pairs, alpha, problem.first_step)
    M = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
    for state in monitor.follow(problem.loss, alpha, states, patience=math.inf):
        M = state.M
    return M


def solve_apg(
    problem: BilinearProblem,
    alpha: float,
    monitor: ConvergenceMonitor,
    rounding: FactorRounding,
    dtype: type,
    *,
    warm: LowRankMatrix,
    start: Checkpoint | None,
) -> Generator[Checkpoint, None, LowRankMatrix]:
    """Yield the state before the first step and after each one, and return the solution.
    InvalidInputError if `start` is of another problem, NumericalError if an objective is not finite."""
    # The certificate is computed for what `rounding` makes of a state. `warm` is the solution of a similar
    # problem, or zero; it does not matter where `start` says how far an earlier call on the same problem was.
    descent = Descent(problem, alpha, np.dtype(dtype).type)
    if start is None:
        state = _first_state(problem, alpha, monitor, descent, warm)
    else:
        state = _resume(problem, descent, start)
    states = monitor.follow(
        problem.loss,
        alpha,
        descent.states(state),
        memory=None if start is None else start.memory,
        round_solution=rounding.round,
        # A large problem is spared the extra pass over all pairs that the sharper bound takes.
        accept_lower_bound=problem.subsample is not None,
    )
    for state in states:
        yield Checkpoint.of(state, problem.fingerprint, monitor.memory)
    return state.M


def _resume(problem: BilinearProblem, descent: Descent, start: Checkpoint) -> DescentState:
    is_same = start.M.shape == problem.shape and math.isclose(
        start.fingerprint, problem.fingerprint, rel_tol=1e-9
    )
    if not is_same:
        raise InvalidInputError("start was made from other samples, labels or parameters")
    return descent.resume(**{name: getattr(start, name) for name in RESUMED})


def _first_state(
    problem: BilinearProblem,
    alpha: float,
    monitor: ConvergenceMonitor,
    descent: Descent,
    warm: LowRankMatrix,
) -> DescentState:
    if warm.rank > 0:
        return descent.start(warm)
    M = _approach(problem, alpha, monitor)
    return descent.start(M, is_subsampled=M.rank > 0)


def _approach(problem: BilinearProblem, alpha: float, monitor: ConvergenceMonitor) -> LowRankMatrix:
    """Fit growing subsamples of a large problem's pairs, each from the solution of the one before."""
    M = LowRankMatrix.zeros(*problem.shape, np.float64)
    if alpha >= problem.alpha_max:
        return M
    for part in subsampled_problems(problem):
        descent = Descent(part, alpha * part.penalty_growth, np.float32)
        M = monitor.approach(descent.states(descent.start(M)), part.share).M
    return M
