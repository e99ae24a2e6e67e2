"""Proximal gradient steps that decide the rank, quasi-Newton descent within it, and a walk down in alpha.

One step is the proximal gradient step of Algorithm 1 (Kang et al., CIKM 2015) followed by a refinement of
the factors it leaves (`solver.optimisation.refinement`). The proximal step adds the directions in which
the optimality condition ``||l'(M)||_2 <= alpha`` is violated and drops those that the penalty has emptied;
the refinement goes down within the rank as far as the next proximal step can use. From zero, the penalty
weight starts near alpha_max and falls geometrically, so that the rank grows no further than it must.
Float32 does most of the work; where its rounding hides any further progress, float64 takes over.

Each evaluation of a large problem is expensive, so the first steps are taken on a subsample of its pairs
(`solver.optimisation.subsample`), corrected to have the gradient of the whole at the current point, as long
as the whole objective falls by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray, LowRankMatrix
from solver.losses.base import FactoredPoint, SmoothLoss
from solver.optimisation.penalties import NuclearNorm
from solver.optimisation.preconditioner import GramSpectrum
from solver.optimisation.proximal import proximal_step
from solver.optimisation.refinement import refine_factors
from solver.optimisation.subsample import PairSubsample
from solver.threads import single_threaded_blas

_ALPHA_RATIO = 4.0
_STEP_GROWTH = 4.0
_STAGE_EVALUATIONS = 10
_EVALUATIONS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 30, np.dtype(np.float64): 60}
_REDUCTION = 0.1
_FLOAT32_TOLERANCE = 1e-9
_FLOAT32_PROGRESS = 1e-6
"""A step that lowers the objective by a smaller share may be nothing but float32 rounding."""


class DescendableProblem(Protocol):
    """What the descent needs to know of a problem."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        ...

    def loss(self, dtype: type) -> SmoothLoss:
        """Return the smooth term in the given precision."""
        ...

    @property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]:
        """Spectra of both modalities."""
        ...

    @property
    def alpha_max(self) -> float:
        """Penalty weight from which on zero is optimal."""
        ...

    @property
    def first_step(self) -> float:
        """A step of the right order of size."""
        ...

    @property
    def subsample(self) -> PairSubsample | None:
        """A subsample, where the problem is large."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DescentState:
    """Where a descent stands; never changed after it was made.

    Parameters
    ----------
    iteration : int
        Number of steps taken.
    M : LowRankMatrix
        Current iterate, in the precision of the steps that led to it.
    stage_alpha : float
        Penalty weight of the last step: the final one, or a larger one on the way down to it.
    step_size : float
        The paper's eta, as accepted by the last proximal step.
    gradient_target : float
        Norm of the scaled gradient that the last refinement strove for; infinite before the final alpha.
    objective : float
        Loss plus final penalty at M.
    search_value : float
        Loss at M.
    gradient : ndarray of shape (n_features_x, n_features_z)
        Gradient of the loss at M.
    is_subsampled : bool
        Whether the next step is taken on the subsample.
    """

    iteration: int
    M: LowRankMatrix
    stage_alpha: float
    step_size: float
    gradient_target: float
    objective: float
    search_value: float
    gradient: FloatArray
    is_subsampled: bool = False

    @property
    def search_point(self) -> FactoredPoint:
        """M, where value and gradient belong."""
        return FactoredPoint.of(self.M)


class Descent:
    """The algorithm for one problem and penalty weight.

    Parameters
    ----------
    problem : DescendableProblem
        Samples and supervision.
    alpha : float, > 0
        Penalty weight, in the units of the problem.
    dtype : {float32, float64}
        Precision to begin with.
    """

    def __init__(self, problem: DescendableProblem, alpha: float, dtype: type) -> None:
        self._alpha = alpha
        self._problem = problem
        self._first_dtype = dtype
        self._spectra = problem.spectra
        self._loss = problem.loss(dtype)
        self._loss_dtype: np.dtype[Any] = np.dtype(dtype)

    def start(self, M: LowRankMatrix | None = None, *, is_subsampled: bool = False) -> DescentState:
        """Return the state before the first step.

        Parameters
        ----------
        M : LowRankMatrix, optional
            Where to begin; at zero, with a larger penalty weight first, when left out or zero.
        is_subsampled : bool
            Take the first steps on the subsample of the problem, which then has one.
        """
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
        """Return the state with these fields, the others computed anew."""
        loss = self._loss_in(M.s.dtype)
        value, gradient = loss.value_and_gradient(FactoredPoint.of(M))
        objective = value + self._alpha * M.nuclear_norm
        return DescentState(
            iteration, M, stage_alpha, step_size, gradient_target, objective, value, gradient, is_subsampled
        )

    def states(self, start: DescentState) -> Iterator[DescentState]:
        """Yield `start` and the states after it, without end.

        Raises
        ------
        NumericalError
            If an objective is not finite or no step decreases it.
        """
        state = start
        while True:
            yield state
            with single_threaded_blas():
                state = self._advance_on_subsample(state) if state.is_subsampled else self._advance(state)

    def _advance_on_subsample(self, state: DescentState) -> DescentState:
        subsample, iteration = self._problem.subsample, state.iteration + 1
        if subsample is None:
            raise ValueError("a subsampled state of a problem without a subsample")
        taken_back = replace(state, iteration=iteration, is_subsampled=False)
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
            return taken_back
        M, _ = self._refined(loss, M, self._alpha, np.inf)
        if not all(np.isfinite(array).all() for array in (M.U, M.s, M.V)):
            return taken_back
        new = self.resume(iteration, M.astype(self._first_dtype), self._alpha, step_size, np.inf, True)
        return new if new.objective < state.objective else taken_back

    def _advance(self, state: DescentState) -> DescentState:
        alpha = max(state.stage_alpha / _ALPHA_RATIO, self._alpha)
        if state.iteration == 0 and state.M.rank > 0:
            # Elsewhere a good start: first see how far its own directions carry, before others are added.
            moved, _ = self._refined(self._loss_in(state.M.s.dtype), state.M, alpha, np.inf)
            return self.resume(1, moved, alpha, state.step_size, np.inf)
        try:
            moved, _, step_size = proximal_step(
                self._loss_in(state.M.s.dtype),
                NuclearNorm(alpha),
                state.search_point,
                state.search_value,
                state.gradient,
                _STEP_GROWTH * state.step_size,
                state.M.rank,
            )
        except NumericalError as error:
            raise NumericalError(f"{error} at iteration {state.iteration + 1}") from error
        moved, target = self._refined(self._loss_in(moved.s.dtype), moved, alpha, state.gradient_target)
        new = self.resume(state.iteration + 1, moved, alpha, step_size, target)
        return self._in_float64(new) if self._is_drowned(state, new) else new

    def _refined(
        self, loss: SmoothLoss, M: LowRankMatrix, alpha: float, gradient_target: float
    ) -> tuple[LowRankMatrix, float]:
        """Return M moved within its rank, and the gradient norm striven for if alpha is the final one."""
        if M.rank == 0:
            return M, np.inf
        dtype, is_final = M.s.dtype, alpha == self._alpha
        refinement = refine_factors(
            loss,
            self._spectra,
            alpha,
            M,
            max_evaluations=_EVALUATIONS[dtype] if is_final else _STAGE_EVALUATIONS,
            reduction=_REDUCTION,
            gradient_target=gradient_target,
            relative_tolerance=_FLOAT32_TOLERANCE if dtype == np.float32 else 0.0,
        )
        return refinement.M, refinement.gradient_target if is_final else np.inf

    def _is_drowned(self, old: DescentState, new: DescentState) -> bool:
        """Return whether float32 rounding hides what further steps could gain."""
        is_final = old.stage_alpha == new.stage_alpha == self._alpha
        gained = old.objective - new.objective
        return new.M.s.dtype == np.float32 and is_final and gained < _FLOAT32_PROGRESS * new.objective

    def _in_float64(self, state: DescentState) -> DescentState:
        M = state.M.astype(np.float64)
        return self.resume(state.iteration, M, state.stage_alpha, state.step_size, state.gradient_target)

    def _loss_in(self, dtype: np.dtype[Any]) -> SmoothLoss:
        if dtype != self._loss_dtype:
            self._loss, self._loss_dtype = self._problem.loss(dtype.type), dtype
        return self._loss
