"""Proximal gradient on M, accelerated by quasi-Newton steps on its factors, with continuation in alpha."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.optimize

from solver.linalg import (
    FloatArray,
    LowRankMatrix,
    Samples,
    Sides,
    from_factors,
    is_sparse,
    singular_triplets_above,
    to_dense,
)
from solver.losses.base import FactoredPoint, SmoothLoss
from solver.optimisation.subsample import PairSubsample
from solver.threads import single_threaded_blas
from solver.validation import NOT_NEGATIVE, POSITIVE, NumericalError

_FULL_LIMIT = 400
"""Features up to which all eigenvectors are computed; the time for that grows with their cube."""
_LEADING = 160  # eigenvectors computed of more features; the mean eigenvalue stands for the others
_OVERSAMPLING = 32
"""Extra directions of the randomised range finder, more than the usual 10 for a flat spectrum."""
_MAX_SAMPLES = 4096  # samples of which the spectrum is computed, ten per feature that is computed in full
_POWER_ITERATIONS = 2  # Halko, Martinsson and Tropp (SIAM Review 53, 2011) find one or two sufficient


@dataclass(frozen=True, slots=True, eq=False)
class GramSpectrum:
    """Eigenvectors of ``X^T X``: all of them, or the leading ones and the mean of the other eigenvalues."""

    vectors: FloatArray  # (n_features, q), orthonormal
    values: FloatArray  # (q,), eigenvalues
    rest: float  # mean of the omitted eigenvalues; 0 if there are none

    @classmethod
    def of(cls, X: Samples) -> GramSpectrum:
        """Compute the spectrum of samples, in float64: of an even selection of very many samples, and only a
        leading subspace of very many features, since a preconditioner need not be exact."""
        stride = -(-X.shape[0] // _MAX_SAMPLES)
        sample = X[::stride].astype(np.float64)
        if sample.shape[1] <= _FULL_LIMIT:
            values, vectors = scipy.linalg.eigh(to_dense(sample.T @ sample), check_finite=False)
            return cls(vectors, stride * np.maximum(values, 0.0), 0.0)
        probe = np.random.default_rng(0).standard_normal((sample.shape[1], _LEADING + _OVERSAMPLING))
        for _ in range(_POWER_ITERATIONS):
            probe, _ = scipy.linalg.qr(sample.T @ (sample @ probe), mode="economic", check_finite=False)
        projected = sample @ probe
        values, rotation = scipy.linalg.eigh(projected.T @ projected, check_finite=False)
        leading = slice(_OVERSAMPLING, None)
        values, vectors = np.maximum(values[leading], 0.0), probe @ rotation[:, leading]
        trace = float((sample.multiply(sample) if is_sparse(sample) else sample * sample).sum())
        rest = max(trace - float(values.sum()), 0.0) / (sample.shape[1] - len(values))
        return cls(vectors, stride * values, stride * rest)

    def quadratic_form(self, B: FloatArray) -> FloatArray:
        """Return ``B^T X^T X B``, of shape (k, k), from B of shape (n_features, k)."""
        along = self.vectors.T @ B
        form: FloatArray = along.T @ ((self.values - self.rest)[:, None] * along) + self.rest * (B.T @ B)
        return form


class FactorPreconditioner:
    """A linear change of variable for one factor that turns the approximate Hessian into the identity.
    `inner` is ``(Z B)^T (Z B)`` (k, k) of the other factor, `curvature` the mean of ``w sigma'``."""

    def __init__(self, spectrum: GramSpectrum, inner: FloatArray, curvature: float, alpha: float) -> None:
        values, self._rotation = scipy.linalg.eigh(inner, check_finite=False)
        inner_values = curvature * np.maximum(values, 0.0)
        self._vectors = spectrum.vectors
        self._along = np.sqrt(spectrum.values[:, None] * inner_values + alpha)
        self._rest = np.sqrt(spectrum.rest * inner_values + alpha)

    def scale(self, A: FloatArray) -> FloatArray:
        """Return the new variable for the factor `A` of shape (n_features, k)."""
        return self._apply(A @ self._rotation, self._along, self._rest)

    def factor(self, scaled: FloatArray) -> FloatArray:
        """Return the factor of a new variable."""
        return self._apply(scaled, 1.0 / self._along, 1.0 / self._rest) @ self._rotation.T

    def scale_gradient(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient with respect to the new variable, from that with respect to the factor."""
        return self._apply(gradient @ self._rotation, 1.0 / self._along, 1.0 / self._rest)

    def _apply(self, A: FloatArray, along: FloatArray, rest: FloatArray) -> FloatArray:
        product: FloatArray = A * rest + self._vectors @ ((along - rest) * (self._vectors.T @ A))
        return product


class NuclearNorm:
    """``alpha * ||M||_*``, the sum of the singular values times the paper's lambda."""

    def __init__(self, alpha: float) -> None:
        NOT_NEGATIVE.check("alpha", alpha)
        self.alpha = float(alpha)

    def prox(
        self, A: FloatArray, step_size: float, rank_guess: int = 0, relative_noise: float | None = None
    ) -> LowRankMatrix:
        """Shrink the singular values s of `A` to ``max(s - step_size * alpha, 0)``, as Algorithm 1 does.
        The minimiser of ``alpha * ||N||_* + ||N - A||_F**2 / (2 * step_size)``, in the dtype of `A`."""
        # A wrong `rank_guess` of singular values above the threshold only costs time; for `relative_noise` of
        # `A` see `solver.linalg.singular_triplets_above`.
        POSITIVE.check("step_size", step_size)
        threshold = step_size * self.alpha
        triplets = singular_triplets_above(A, threshold, rank_guess, relative_noise)
        return LowRankMatrix(triplets.U, (triplets.s - threshold).astype(A.dtype), triplets.V)


_SHRINKAGE = 0.5  # factor of a rejected step size, as in the paper
_MAX_BACKTRACKS = 60
"""Halvings after which a step size has shrunk by 1e18, which float64 cannot distinguish from no step."""
_FLOAT32_NOISE = 1e-6
"""Assumed relative noise of a float32 gradient: about ten times the machine epsilon of 1.2e-7."""


def proximal_step(
    smooth: SmoothLoss,
    penalty: NuclearNorm,
    point: FactoredPoint,
    value: float,
    gradient: FloatArray,
    step_size: float,
    rank_guess: int,
) -> tuple[LowRankMatrix, float, float]:
    """Move from a point against the gradient and apply the proximal operator, with backtracking.
    Returns the new point, the smooth term there, and the accepted step size."""
    # The first step size is halved until the objective lies below its quadratic model. The dtype of the
    # gradient is that of the result. NumericalError if the smooth term is not finite or no step decreases the
    # model.
    dtype = gradient.dtype
    # In float64: where the point is large and the step small, float32 would round new directions away.
    exact = FactoredPoint(point.left.astype(np.float64), point.right.astype(np.float64))
    dense, slope = exact.dense(), gradient.astype(np.float64)
    noise = _FLOAT32_NOISE if dtype == np.float32 else None
    for _ in range(_MAX_BACKTRACKS):
        M = penalty.prox(dense - step_size * slope, step_size, rank_guess, noise).astype(dtype)
        move = M.dense() - dense
        new_value = smooth.value(M)
        if not np.isfinite(new_value):
            raise NumericalError(f"the loss became {new_value}")
        if new_value <= _quadratic_model(value, gradient, move, step_size):
            return M, new_value, step_size
        step_size *= _SHRINKAGE
    raise NumericalError("no step decreased the objective")


def _quadratic_model(value: float, gradient: FloatArray, move: FloatArray, step_size: float) -> float:
    """Return the model's value after `move`, plus the rounding noise of a float32 loss."""
    linear = float(np.vdot(gradient, move))
    noise = 4.0 * float(np.finfo(gradient.dtype).eps) * abs(value)
    return value + linear + float(np.vdot(move, move)) / (2.0 * step_size) + noise


_MEMORY = 20
"""Pairs of vectors that L-BFGS stores, instead of its usual 10: vectors are small beside the pairs."""


def refine_factors(
    loss: SmoothLoss,
    spectra: tuple[GramSpectrum, GramSpectrum],
    alpha: float,
    M: LowRankMatrix,
    *,
    max_evaluations: int,
    reduction: float,
    gradient_target: float = np.inf,
    relative_tolerance: float = 0.0,
) -> tuple[LowRankMatrix, float]:
    """Descend from `M`, of rank 1 at least, within its rank; in its dtype. Return the refined point, and the
    norm of the scaled gradient to stop at. The objective is at most that of `M`, up to rounding."""
    # It stops when the norm of the scaled gradient is at most the fraction `reduction` of its first value and
    # no larger than `gradient_target`, when a step decreases the objective by less than the fraction
    # `relative_tolerance` of max(objective, 1), or after `max_evaluations` of the loss.
    descent = _FactorDescent(loss, spectra, alpha, M)
    first = float(np.linalg.norm(descent.evaluate(descent.start)[1]))
    target = min(gradient_target, reduction * first)

    def stop_at_target(intermediate_result: Any) -> None:
        if descent.gradient_norm <= target:
            raise StopIteration

    result = scipy.optimize.minimize(
        descent.evaluate,
        descent.start,
        jac=True,
        method="L-BFGS-B",
        callback=stop_at_target,
        options={
            "maxcor": _MEMORY,
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
            "ftol": relative_tolerance,
            "gtol": 0.0,
        },
    )
    refined = from_factors(*descent.factors(result.x)).astype(M.U.dtype)
    return refined, target


class _FactorDescent:
    """The objective as a function of one flat vector of preconditioned factors."""

    def __init__(
        self, loss: SmoothLoss, spectra: tuple[GramSpectrum, GramSpectrum], alpha: float, M: LowRankMatrix
    ) -> None:
        A, B = (factor.astype(np.float64) for factor in M.balanced_factors())
        curvature = loss.mean_curvature(FactoredPoint.of(M))
        self._loss, self._alpha, self._rank, self._split = loss, alpha, M.rank, A.size
        self._left = FactorPreconditioner(spectra[0], spectra[1].quadratic_form(B), curvature, alpha)
        self._right = FactorPreconditioner(spectra[1], spectra[0].quadratic_form(A), curvature, alpha)
        self.start = np.concatenate([self._left.scale(A).ravel(), self._right.scale(B).ravel()])
        self.gradient_norm = np.inf
        self._last_evaluation: tuple[FloatArray, tuple[float, FloatArray]] | None = None

    def factors(self, flat: FloatArray) -> Sides:
        shape = (-1, self._rank)
        left, right = flat[: self._split].reshape(shape), flat[self._split :].reshape(shape)
        return self._left.factor(left), self._right.factor(right)

    def evaluate(self, flat: FloatArray) -> tuple[float, FloatArray]:
        if self._last_evaluation is not None and np.array_equal(flat, self._last_evaluation[0]):
            return self._last_evaluation[1]
        A, B = self.factors(flat)
        value, on_A, on_B = self._loss.value_and_factor_gradients(A, B)
        on_left = self._left.scale_gradient(on_A + self._alpha * A)
        on_right = self._right.scale_gradient(on_B + self._alpha * B)
        gradient = np.concatenate([on_left.ravel(), on_right.ravel()])
        self.gradient_norm = float(np.linalg.norm(gradient))
        objective = value + 0.5 * self._alpha * float(np.vdot(A, A) + np.vdot(B, B))
        self._last_evaluation = flat.copy(), (objective, gradient)
        return objective, gradient


_ALPHA_RATIO = 4.0
"""Factor between penalty weights on the way down: seven stages from alpha_max to alpha_max / 10,000."""
_STEP_GROWTH = 4.0
"""First trial of a step size over the last accepted one; a rejected trial costs one loss evaluation."""
_STAGE_EVALUATIONS = 10
"""Loss evaluations of a refinement before the final alpha, whose result is only a starting point."""
_EVALUATIONS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 30, np.dtype(np.float64): 60}
"""Loss evaluations of a refinement at the final alpha; float64 has more digits to gain."""
_REDUCTION = 0.1
"""Factor by which a refinement reduces the gradient norm before the next proximal step checks the rank."""
_FLOAT32_TOLERANCE = 1e-9
"""Relative decrease per L-BFGS step below which a float32 refinement ends: its gradients are no better."""
_FLOAT32_PROGRESS = 1e-6
"""A smaller relative decrease of the objective by one step may be nothing but float32 rounding."""


class DescendableProblem(Protocol):
    """What the descent requires of a problem: see `solver.bilinear.solving.BilinearProblem`."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def loss(self, dtype: type) -> SmoothLoss: ...

    @property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]: ...

    @property
    def alpha_max(self) -> float: ...

    @property
    def first_step(self) -> float: ...

    @property
    def subsample(self) -> PairSubsample | None: ...


RESUMED = ("iteration", "M", "stage_alpha", "step_size", "gradient_target", "is_subsampled")
"""Fields of a state from which the others can be computed again."""


@dataclass(frozen=True, slots=True, eq=False)
class DescentState:
    """State of a descent, immutable."""

    iteration: int  # number of steps taken
    M: LowRankMatrix  # in the precision of the steps that led to it
    stage_alpha: float  # of the last step: the final weight, or a larger one on the way down
    step_size: float  # the paper's eta, as accepted by the last proximal step
    gradient_target: float  # norm, scaled, in the last refinement; infinite before the final alpha
    objective: float  # loss plus final penalty at M
    search_value: float  # loss at M
    gradient: FloatArray  # (n_features_x, n_features_z), of the loss at M
    is_subsampled: bool = False  # whether the next step is taken on the subsample

    @property
    def search_point(self) -> FactoredPoint:
        """M, the point at which value and gradient were computed."""
        return FactoredPoint.of(self.M)


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """The algorithm for one problem and penalty weight (in its units); `dtype` is that of the first steps."""

    _problem: DescendableProblem
    _alpha: float
    _first_dtype: type

    def start(self, M: LowRankMatrix | None = None, *, is_subsampled: bool = False) -> DescentState:
        """Return the state before the first step; without M, or at zero, with a larger penalty weight first.
        `is_subsampled`: the first steps use the subsample, which the problem must then have."""
        stage_alpha = self._alpha
        if M is None or M.rank == 0:
            M = LowRankMatrix.zeros(*self._problem.shape, dtype=np.float64)
            stage_alpha = max(self._problem.alpha_max, stage_alpha)
        M = M.astype(self._first_dtype)
        return self.resume(0, M, stage_alpha, self._problem.first_step, np.inf, is_subsampled)

    def resume(
        self,
        iteration: int,
        M: LowRankMatrix,
        stage_alpha: float,
        step_size: float,
        gradient_target: float,
        is_subsampled: bool = False,
    ) -> DescentState:
        """Return the state with these fields and recompute the others."""
        loss = self._problem.loss(M.s.dtype.type)
        value, gradient = loss.value_and_gradient(FactoredPoint.of(M))
        objective = value + self._alpha * M.nuclear_norm
        return DescentState(
            iteration, M, stage_alpha, step_size, gradient_target, objective, value, gradient, is_subsampled
        )

    def states(self, start: DescentState) -> Iterator[DescentState]:
        """Yield `start` and its successors, endlessly.
        NumericalError if an objective is not finite or no step decreases it."""
        state = start
        while True:
            yield state
            with single_threaded_blas():
                state = self._advance_on_subsample(state) if state.is_subsampled else self._advance(state)

    def _advance_on_subsample(self, state: DescentState) -> DescentState:
        subsample, iteration = self._problem.subsample, state.iteration + 1
        if subsample is None:
            raise ValueError("a subsampled state of a problem without a subsample")
        rejected = replace(state, iteration=iteration, is_subsampled=False)
        loss = subsample.gradient_corrected(state.search_point, state.gradient)
        try:
            M, _, step_size = proximal_step(
                loss,
                NuclearNorm(self._alpha),
                state.search_point,
                loss.value(state.M),
                state.gradient.astype(np.float32),
                _STEP_GROWTH * state.step_size,
                state.M.rank,
            )
        except NumericalError:
            # The subsample with its linear term may have no minimum where the whole has one.
            return rejected
        M, _ = self._refine(loss, M, self._alpha, np.inf)
        if not all(np.isfinite(array).all() for array in (M.U, M.s, M.V)):
            return rejected
        new = self.resume(iteration, M.astype(self._first_dtype), self._alpha, step_size, np.inf, True)
        return new if new.objective < state.objective else rejected

    def _advance(self, state: DescentState) -> DescentState:
        alpha = max(state.stage_alpha / _ALPHA_RATIO, self._alpha)
        if state.iteration == 0 and state.M.rank > 0:
            # A solution of a similar problem: exhaust its own directions before adding others.
            M, _ = self._refine(self._problem.loss(state.M.s.dtype.type), state.M, alpha, np.inf)
            return self.resume(1, M, alpha, state.step_size, np.inf)
        try:
            M, _, step_size = proximal_step(
                self._problem.loss(state.M.s.dtype.type),
                NuclearNorm(alpha),
                state.search_point,
                state.search_value,
                state.gradient,
                _STEP_GROWTH * state.step_size,
                state.M.rank,
            )
        except NumericalError as error:
            raise NumericalError(f"{error} at iteration {state.iteration + 1}") from error
        M, target = self._refine(self._problem.loss(M.s.dtype.type), M, alpha, state.gradient_target)
        new = self.resume(state.iteration + 1, M, alpha, step_size, target)
        if not self._is_at_float32_floor(state, new):
            return new
        return self.resume(new.iteration, M.astype(np.float64), alpha, step_size, target)

    def _refine(
        self, loss: SmoothLoss, M: LowRankMatrix, alpha: float, gradient_target: float
    ) -> tuple[LowRankMatrix, float]:
        """Return M refined within its rank, and the target gradient norm; infinite before the final alpha."""
        if M.rank == 0:
            return M, np.inf
        dtype, is_final = M.s.dtype, alpha == self._alpha
        refined, target = refine_factors(
            loss,
            self._problem.spectra,
            alpha,
            M,
            max_evaluations=_EVALUATIONS[dtype] if is_final else _STAGE_EVALUATIONS,
            reduction=_REDUCTION,
            gradient_target=gradient_target,
            relative_tolerance=_FLOAT32_TOLERANCE if dtype == np.float32 else 0.0,
        )
        return refined, target if is_final else np.inf

    def _is_at_float32_floor(self, old: DescentState, new: DescentState) -> bool:
        """Return whether float32 rounding hides any further decrease."""
        is_final = old.stage_alpha == new.stage_alpha == self._alpha
        decrease = old.objective - new.objective
        return new.M.s.dtype == np.float32 and is_final and decrease < _FLOAT32_PROGRESS * new.objective
