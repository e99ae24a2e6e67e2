"""Accelerated proximal gradient with growing steps, backtracking and adaptive restart.

Algorithm 1 of Kang et al. (CIKM 2015) made quick: the iterates stay in factored form, the step grows
again after it was cut (so that it follows the local curvature), and the momentum restarts when it
points uphill (O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes", 2015).
Between steps a refinement may move the iterate further down within its rank; the proximal steps keep
deciding the rank, and the momentum carries on wherever refinement has nothing left to gain.
The algorithm sees a smooth and a proximable term through two Protocols and yields immutable states;
stopping, history and cancellation belong to whoever iterates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from solver.errors import NumericalError
from solver.linalg import FloatArray, LowRankMatrix
from solver.losses import FactoredPoint

_GROWTH = 1.5
_SHRINKAGE = 0.5
_MAX_BACKTRACKS = 60
_WORTHWHILE_GAIN = 1e-5


class SmoothTerm(Protocol):
    """A convex function with a Lipschitz-continuous gradient."""

    def value(self, M: LowRankMatrix) -> float:
        """Return the value at `M`."""
        ...

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return value and dense gradient at a factored point."""
        ...


class ProximableTerm(Protocol):
    """A convex function with a cheap proximal operator."""

    def value(self, M: LowRankMatrix) -> float:
        """Return the value at `M`."""
        ...

    def prox(self, A: FloatArray, step_size: float, rank_guess: int = 0) -> LowRankMatrix:
        """Return the proximal point of `A`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ApgState:
    """Everything one step needs to know; never changed after it was made.

    Parameters
    ----------
    iteration : int
        Number of steps taken.
    M : LowRankMatrix
        Current iterate M_t.
    previous : LowRankMatrix
        M_{t-1}, for the extrapolation.
    momentum : float
        The paper's alpha_t; 1 right after a restart.
    step_size : float
        The paper's eta, as accepted by the last backtracking.
    objective : float
        Smooth plus proximable term at M.
    search_point : FactoredPoint
        Q_t, from which the last step was taken.
    gradient : ndarray of shape (n_features_x, n_features_z)
        Gradient of the smooth term at the search point.
    """

    iteration: int
    M: LowRankMatrix
    previous: LowRankMatrix
    momentum: float
    step_size: float
    objective: float
    search_point: FactoredPoint
    gradient: FloatArray


def iterate(
    smooth: SmoothTerm,
    penalty: ProximableTerm,
    start: LowRankMatrix,
    step_size: float,
    refine: Callable[[LowRankMatrix], LowRankMatrix] | None = None,
) -> Iterator[ApgState]:
    """Yield the states of accelerated proximal gradient, without end.

    Parameters
    ----------
    smooth : SmoothTerm
        Convex with Lipschitz gradient; the constant need not be known.
    penalty : ProximableTerm
        Convex, with a proximal operator.
    start : LowRankMatrix
        M_0.
    step_size : float, > 0
        First trial step.
    refine : callable, optional
        Maps an iterate to one that is no worse, such as `solver.refinement.refine_factors`; what it
        returns is used only where it lowers the objective.

    Raises
    ------
    NumericalError
        If an objective is not finite or no step decreases the model.
    """
    state = ApgState(
        iteration=0,
        M=start,
        previous=start,
        momentum=1.0,
        step_size=step_size,
        objective=smooth.value(start) + penalty.value(start),
        search_point=FactoredPoint.of(start),
        gradient=np.zeros(start.shape, start.U.dtype),
    )
    while True:
        state = _advance(smooth, penalty, state)
        if refine is not None and state.M.rank > 0:
            state = _refined(smooth, penalty, state, refine(state.M))
        yield state


def _advance(smooth: SmoothTerm, penalty: ProximableTerm, state: ApgState) -> ApgState:
    momentum = (1.0 + math.sqrt(1.0 + 4.0 * state.momentum**2)) / 2.0
    Q = _extrapolate(state.M, state.previous, (state.momentum - 1.0) / momentum)
    value, gradient = smooth.value_and_gradient(Q)
    dense_Q = Q.dense()
    step_size = state.step_size * _GROWTH
    for _ in range(_MAX_BACKTRACKS):
        M = penalty.prox(dense_Q - step_size * gradient, step_size, state.M.rank)
        move = M.dense() - dense_Q
        new_value = smooth.value(M)
        if not np.isfinite(new_value):
            raise NumericalError(f"the loss became {new_value} at iteration {state.iteration + 1}")
        if new_value <= _quadratic_model(value, gradient, move, step_size):
            break
        step_size *= _SHRINKAGE
    else:
        raise NumericalError(f"no step decreased the objective at iteration {state.iteration + 1}")
    objective = new_value + penalty.value(M)
    uphill = float(np.vdot(move, M.dense() - state.M.dense())) < 0.0
    if uphill or objective > state.objective:
        momentum = 1.0
    return ApgState(state.iteration + 1, M, state.M, momentum, step_size, objective, Q, gradient)


def _refined(smooth: SmoothTerm, penalty: ProximableTerm, state: ApgState, M: LowRankMatrix) -> ApgState:
    """Continue from `M` without momentum, if that gains enough to be worth the momentum."""
    objective = smooth.value(M) + penalty.value(M)
    if not objective < state.objective * (1.0 - _WORTHWHILE_GAIN):
        return state
    return replace(state, M=M, previous=M, momentum=1.0, objective=objective)


def _extrapolate(M: LowRankMatrix, previous: LowRankMatrix, weight: float) -> FactoredPoint:
    """Return ``M + weight * (M - previous)`` without leaving the factored form."""
    if weight == 0.0:
        return FactoredPoint.of(M)
    left = np.hstack([(1.0 + weight) * (M.U * M.s), -weight * (previous.U * previous.s)])
    return FactoredPoint(left, np.hstack([M.V, previous.V]))


def _quadratic_model(value: float, gradient: FloatArray, move: FloatArray, step_size: float) -> float:
    """Return the model's value after `move`, plus the rounding noise of a float32 loss."""
    linear = float(np.vdot(gradient, move))
    noise = 4.0 * float(np.finfo(gradient.dtype).eps) * abs(value)
    return value + linear + float(np.vdot(move, move)) / (2.0 * step_size) + noise
