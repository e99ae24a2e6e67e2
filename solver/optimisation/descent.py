"""Proximal gradient on M, accelerated by quasi-Newton steps on its factors, with continuation in alpha.

The family is that of Burer-Monteiro methods for a nuclear norm: local descent on the factors of M, in
alternation with convex steps on M itself that adapt the rank and escape the saddle points of the factored
problem. (There are no constraints, hence no augmented Lagrangian as in Burer and Monteiro, Mathematical
Programming 95, 2003.) The closest relative is Zhang, Yu and Schuurmans, "Accelerated training for matrix-norm
regularization: a boosting approach" (NIPS 2012), which adds one singular pair at a time where this method
takes a whole proximal step. Continuation in alpha is that of Ma, Goldfarb and Chen, "Fixed point and Bregman
iterative methods for matrix rank minimization" (Mathematical Programming 128, 2011).

One step is the proximal gradient step of Algorithm 1 (Kang et al., CIKM 2015) followed by a refinement of
the factors of its result (`solver.optimisation.refinement`). The proximal step adds the directions in which
the optimality condition ``||l'(M)||_2 <= alpha`` is violated and drops those whose singular value the penalty
has reduced to zero; the refinement descends within the rank as far as the next proximal step can use. From
zero, the penalty weight starts near alpha_max and decreases geometrically, which keeps the rank small on the
way. Float32 does most of the work; float64 takes over where float32 rounding hides further progress.

Each evaluation of a large problem is expensive. Its first steps are therefore taken on a subsample of the
pairs (`solver.optimisation.subsample`) whose gradient at the current point is corrected to that of the whole
problem, for as long as they decrease the whole objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix
from solver.losses.base import FactoredPoint, SmoothLoss
from solver.optimisation.preconditioner import GramSpectrum
from solver.optimisation.proximal import NuclearNorm, proximal_step
from solver.optimisation.refinement import refine_factors
from solver.optimisation.subsample import PairSubsample
from solver.threads import single_threaded_blas
from solver.validation.errors import NumericalError

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
    """What the descent requires of a problem: see `solver.bilinear.problem.BilinearProblem`."""

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
        largest = self._problem.alpha_max
        if M is None or M.rank == 0:
            M, stage_alpha = LowRankMatrix.zeros(*self._problem.shape, dtype=np.float64), largest
        else:
            stage_alpha = self._alpha
        state = self.resume(
            0, M.astype(self._first_dtype), max(stage_alpha, self._alpha), self._problem.first_step, np.inf
        )
        return replace(state, is_subsampled=is_subsampled)

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
        return self._in_float64(new) if self._is_at_float32_floor(state, new) else new

    def _refine(
        self, loss: SmoothLoss, M: LowRankMatrix, alpha: float, gradient_target: float
    ) -> tuple[LowRankMatrix, float]:
        """Return M refined within its rank, and the target gradient norm; infinite before the final alpha."""
        if M.rank == 0:
            return M, np.inf
        dtype, is_final = M.s.dtype, alpha == self._alpha
        refinement = refine_factors(
            loss,
            self._problem.spectra,
            alpha,
            M,
            max_evaluations=_EVALUATIONS[dtype] if is_final else _STAGE_EVALUATIONS,
            reduction=_REDUCTION,
            gradient_target=gradient_target,
            relative_tolerance=_FLOAT32_TOLERANCE if dtype == np.float32 else 0.0,
        )
        return refinement.M, refinement.gradient_target if is_final else np.inf

    def _is_at_float32_floor(self, old: DescentState, new: DescentState) -> bool:
        """Return whether float32 rounding hides any further decrease."""
        is_final = old.stage_alpha == new.stage_alpha == self._alpha
        decrease = old.objective - new.objective
        return new.M.s.dtype == np.float32 and is_final and decrease < _FLOAT32_PROGRESS * new.objective

    def _in_float64(self, state: DescentState) -> DescentState:
        M = state.M.astype(np.float64)
        return self.resume(state.iteration, M, state.stage_alpha, state.step_size, state.gradient_target)
