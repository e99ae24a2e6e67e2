"""Problem (4), prepared in a small basis, and the algorithms from its first state to its solution."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg import (
    FloatArray,
    LowRankMatrix,
    RowSpaceBasis,
    Samples,
    Sides,
    check_samples,
    from_factors,
    is_sparse,
    lift_factors,
    lower_factors,
    spectral_norm,
)
from solver.losses.base import CertifiableLoss, FactoredPoint
from solver.losses.pair_blocks import current_engine
from solver.losses.pair_losses import ListedPairLoss, PairLogisticLoss, PairSoftmaxLoss, PairSquaredLoss
from solver.optimisation.checkpoints import Checkpoint
from solver.optimisation.convergence import ConvergenceMonitor
from solver.optimisation.descent import RESUMED, Descent, DescentState, GramSpectrum
from solver.optimisation.paper import DensePairs, iterate_paper
from solver.optimisation.subsample import PairSubsample, SubsampledLoss, assign_blocks
from solver.progress import OnIteration
from solver.supervision.annotations import AnyLabels, check_sizes, supervision_of
from solver.supervision.kinds import AnySupervision, Indices, SignedPairs
from solver.threads import row_blocks, single_threaded_blas
from solver.validation import InvalidInputError, NumericalError, SupervisionError

_MOST_REDUCED_SPARSE_SAMPLES = 5000
"""Sparse samples up to which they are reduced to a dense basis, of 200 MB in float64."""


class BilinearProblem:
    """Samples and supervision, prepared for any solver; `SignedPairs` support the logistic loss only.
    `n_features` counts constants; the power of two `penalty_scale` is a weight of 1 in the user's units."""

    # Each modality is divided by the root-mean-square norm of its samples, rounded to a power of two so that
    # the division is exact; this multiplies M and divides the penalty weight by both norms. A modality with
    # more features than samples is then expressed in a basis of the span of its samples, in float64. Neither
    # changes scores or penalty, hence not the optimum; `lift` undoes both.

    def __init__(
        self,
        X: Samples,
        Z: Samples,
        supervision: AnySupervision,
        fit_intercept: bool,
        n_threads: int | None,
        loss: str = "logistic",
    ) -> None:
        check_sizes(X, Z, supervision)
        if isinstance(supervision, SignedPairs) and loss != "logistic":
            raise SupervisionError(f"SignedPairs need loss='logistic', not {loss!r}")
        self._loss_name = loss
        self._n_threads = n_threads or os.cpu_count() or 1
        self.supervision = supervision
        self._losses: dict[type, CertifiableLoss] = {}
        self.n_features = X.shape[1] + fit_intercept, Z.shape[1] + fit_intercept
        x_norm, z_norm = _typical_norm(X, fit_intercept), _typical_norm(Z, fit_intercept)
        x_size, z_size = _power_of_two(x_norm, X.dtype), _power_of_two(z_norm, Z.dtype)
        self.penalty_scale = x_size * z_size
        self._typical_score = (x_norm / x_size) * (z_norm / z_size)
        self.X, self._x_basis = self._smallest_basis(
            _of_unit_size(X, x_size, fit_intercept), supervision.x_order
        )
        self.Z, self._z_basis = self._smallest_basis(
            _of_unit_size(Z, z_size, fit_intercept), supervision.z_order
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix in the basis of this problem."""
        return self.X.shape[1], self.Z.shape[1]

    def loss(self, dtype: type) -> CertifiableLoss:
        """Return the smooth term in the given precision; created on first use."""
        if dtype not in self._losses:
            self._losses[dtype] = self._make_loss(dtype)
        return self._losses[dtype]

    def _gradient_at_zero(self) -> FloatArray:
        """Return l'(0) in float64; from sums alone for the logistic loss, whose derivatives there are 1/2."""
        if isinstance(self.supervision, SignedPairs) or self._loss_name != "logistic":
            zero = LowRankMatrix.zeros(*self.shape, dtype=np.float64)
            return self.loss(np.float64).value_and_gradient(FactoredPoint.of(zero))[1]
        similar, dissimilar = 1.0 / self.supervision.n_similar, 1.0 / self.supervision.n_dissimilar
        of_similar = self.supervision.sum_over_similar(self.X, self.Z)
        sums = (np.asarray(samples.sum(axis=0, dtype=np.float64)) for samples in (self.X, self.Z))
        return 0.5 * dissimilar * np.outer(*sums) - 0.5 * (similar + dissimilar) * of_similar

    def _make_loss(self, dtype: type) -> CertifiableLoss:
        if isinstance(self.supervision, SignedPairs):
            return ListedPairLoss(self.X, self.Z, self.supervision, dtype)
        if self._loss_name == "squared":
            return PairSquaredLoss(self.X, self.Z, self.supervision, dtype)
        if self._loss_name == "softmax":
            return PairSoftmaxLoss(self.X, self.Z, self.supervision, dtype)
        return PairLogisticLoss(self.X, self.Z, self.supervision, dtype, self._n_threads, current_engine())

    @cached_property
    def subsample(self) -> PairSubsample | None:
        """A subsample of the pairs for the first steps; None for a small problem."""
        if isinstance(self.supervision, SignedPairs) or self._loss_name != "logistic":
            return None
        blocks, n_assigned = assign_blocks(self.supervision)
        return PairSubsample(self.X, self.Z, blocks, n_assigned, self._n_threads) if len(blocks) > 1 else None

    @cached_property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]:
        """Leading eigenvectors of both modalities' Gram matrices, for preconditioning."""
        with single_threaded_blas():
            return GramSpectrum.of(self.X), GramSpectrum.of(self.Z)

    @cached_property
    def alpha_max(self) -> float:
        """``||l'(0)||_2`` in the units of this problem, computed in float64."""
        with single_threaded_blas():
            return spectral_norm(self._gradient_at_zero())

    @property
    def largest_alpha(self) -> float:
        """`alpha_max` in the user's units, as the function of that name returns it."""
        return self.alpha_max * self.penalty_scale

    def to_problem_units(self, alpha: float) -> float:
        """Convert a penalty weight from the user's units to those of this problem, without rounding error."""
        return float(alpha) / self.penalty_scale

    @property
    def first_step(self) -> float:
        """Initial step size: with it the first step changes a typical score by about 1."""
        return 1.0 / (self.alpha_max * self._typical_score) if self.alpha_max > 0 else 1.0

    @property
    def fingerprint(self) -> float:
        """A number that differs, almost surely, for other samples or labels."""
        return self.alpha_max * self._typical_score

    def lift(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return `M` in the original features and units; the constant features, if any, come last."""
        U, V = lift_factors(self._x_basis, M.U), lift_factors(self._z_basis, M.V)
        with np.errstate(over="ignore"):  # infinite where float64 overflows
            return LowRankMatrix(U, M.s.astype(np.float64) / self.penalty_scale, V)

    def lower(self, left: FloatArray, right: FloatArray) -> LowRankMatrix:
        """Return ``left @ right.T``, given in the original features and units, as a point of this problem."""
        left, right = lower_factors(self._x_basis, left), lower_factors(self._z_basis, right)
        M = from_factors(left.astype(np.float64), right.astype(np.float64))
        return LowRankMatrix(M.U, M.s * self.penalty_scale, M.V)

    def _smallest_basis(self, samples: Samples, order: Indices) -> tuple[Samples, RowSpaceBasis | None]:
        n_samples, n_features = samples.shape
        # A few features more than samples are not worth a decomposition.
        too_many = is_sparse(samples) and n_samples > _MOST_REDUCED_SPARSE_SAMPLES
        if n_features <= 1.1 * n_samples or too_many:
            return samples, None
        # In the order in which the loss visits the samples, so that the loss gets a triangular factor.
        with single_threaded_blas():
            basis = RowSpaceBasis(samples[order], self._n_threads)
        reduced = np.empty_like(basis.reduced)
        reduced[order] = basis.reduced
        return reduced, basis


def alpha_max(
    X: npt.ArrayLike,
    Z: npt.ArrayLike,
    supervision: AnyLabels = None,
    *,
    fit_intercept: bool = True,
    loss: str = "logistic",
) -> float:
    """Return the smallest penalty weight at which the solution is zero.

    Parameters
    ----------
    X, Z, supervision
        As of `LowRankBilinear.fit`.
    fit_intercept, loss
        As of the estimator that will use the value.

    Returns
    -------
    float
        ``||l'(0)||_2``: zero is optimal exactly when the gradient there is a subgradient of
        ``alpha ||.||_*``, that is when no singular value of it exceeds alpha.
    """
    x, z = check_samples(X, "X"), check_samples(Z, "Z")
    return BilinearProblem(x, z, supervision_of(supervision, x, z), fit_intercept, None, loss).largest_alpha


def _typical_norm(samples: Samples, with_constant: bool) -> float:
    """Return the root-mean-square norm of the samples, without overflow; 1 if all are zero."""
    entries = samples.data if is_sparse(samples) else samples
    largest = max(
        float(np.max(entries, initial=0.0)), -float(np.min(entries, initial=0.0)), float(with_constant)
    )
    if largest == 0.0:
        return 1.0
    total = float(with_constant) * samples.shape[0] / largest / largest
    for rows in row_blocks(entries.shape[0]):
        scaled = np.asarray(entries[rows], np.float64) / largest
        total += float(np.vdot(scaled, scaled))
    return largest * float(np.sqrt(total / samples.shape[0]))


def _power_of_two(size: float, dtype: npt.DTypeLike) -> float:
    mantissa, exponent = math.frexp(size)
    limits = np.finfo(np.dtype(dtype))
    return math.ldexp(1.0, min(max(exponent - (mantissa < math.sqrt(0.5)), limits.minexp), limits.maxexp - 1))


def _of_unit_size(samples: Samples, size: float, with_constant: bool) -> Samples:
    """Return the samples over `size`, with the constant feature over `size` as the last column."""
    if is_sparse(samples):
        scaled = scipy.sparse.csr_array(samples, copy=True)
        scaled.data = scaled.data / samples.dtype.type(size)
        if not with_constant:
            return scaled
        constant = np.full((samples.shape[0], 1), 1.0 / size, samples.dtype)
        return scipy.sparse.hstack([scaled, scipy.sparse.csr_array(constant)], format="csr")
    wide = np.empty((samples.shape[0], samples.shape[1] + with_constant), samples.dtype)
    np.divide(samples, samples.dtype.type(size), out=wide[:, : samples.shape[1]])
    wide[:, samples.shape[1] :] = 1.0 / size
    return wide


@dataclass(frozen=True, slots=True, eq=False)
class PathPoint:
    """The solution for one penalty weight, in the original features; the constant features come last."""

    M: LowRankMatrix
    duality_gap: float  # certified, relative to the objective

    def project(self, X: FloatArray, Z: FloatArray) -> Sides:
        """Return the samples of both modalities, without constant features, in the common space."""
        left, right = self.M.balanced_factors()
        return _affine(X, left), _affine(Z, right)


def regularisation_path(
    problem: BilinearProblem,
    alphas: Sequence[float],
    *,
    tol: float,
    max_iter: int,
    callback: OnIteration | None = None,
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

    def factors(self, M: LowRankMatrix) -> Sides:
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
    return np.asarray(samples.mean(axis=0, dtype=np.float64)).ravel()


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
    if start is not None:
        state = _resume(problem, descent, start)
    elif warm.rank > 0:
        state = descent.start(warm)
    else:
        M = _approach(problem, alpha, monitor)
        state = descent.start(M, is_subsampled=M.rank > 0)
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


def _approach(problem: BilinearProblem, alpha: float, monitor: ConvergenceMonitor) -> LowRankMatrix:
    """Fit growing subsamples of a large problem's pairs, each from the solution of the one before."""
    M = LowRankMatrix.zeros(*problem.shape, np.float64)
    if alpha >= problem.alpha_max:
        return M
    for part in subsampled_problems(problem):
        descent = Descent(part, alpha * part.penalty_growth, np.float32)
        M = monitor.approach(descent.states(descent.start(M)), part.share).M
    return M
