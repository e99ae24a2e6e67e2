"""Accelerated proximal gradient with growing steps, backtracking and adaptive restart.

Algorithm 1 of Kang et al. (CIKM 2015) made quicker: the iterates stay in factored form, the step grows
again after it was cut (so that it follows the local curvature), and the momentum restarts when it
points uphill (O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes", 2015).
The algorithm sees a smooth and a proximable term through two Protocols and yields immutable states;
stopping, history and cancellation belong to whoever iterates. `solver.optimisation.descent` goes faster still
by quasi-Newton steps between its proximal steps; this plain form is what it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray, LowRankMatrix
from solver.losses.base import FactoredPoint

_GROWTH = 1.5
_SHRINKAGE = 0.5
_MAX_BACKTRACKS = 60
_FLOAT32_NOISE = 1e-6


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

    def prox(
        self, A: FloatArray, step_size: float, rank_guess: int = 0, relative_noise: float | None = None
    ) -> LowRankMatrix:
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
    search_value : float
        The smooth term at the search point.
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
    search_value: float
    gradient: FloatArray


def iterate(
    smooth: SmoothTerm,
    penalty: ProximableTerm,
    start: LowRankMatrix,
    step_size: float,
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

    Raises
    ------
    NumericalError
        If an objective is not finite or no step decreases the model.
    """
    value = smooth.value(start)
    state = ApgState(
        iteration=0,
        M=start,
        previous=start,
        momentum=1.0,
        step_size=step_size,
        objective=value + penalty.value(start),
        search_point=FactoredPoint.of(start),
        search_value=value,
        gradient=np.zeros(start.shape, start.U.dtype),
    )
    while True:
        state = _advance(smooth, penalty, state)
        yield state


def proximal_step(
    smooth: SmoothTerm,
    penalty: ProximableTerm,
    point: FactoredPoint,
    value: float,
    gradient: FloatArray,
    step_size: float,
    rank_guess: int,
) -> tuple[LowRankMatrix, float, float]:
    """Move from a point against the gradient and apply the proximal operator, with backtracking.

    Parameters
    ----------
    smooth, penalty : SmoothTerm, ProximableTerm
        The objective.
    point : FactoredPoint
        Where to start.
    value, gradient : float, ndarray of shape (n_features_x, n_features_z)
        Of the smooth term at `point`.
    step_size : float, > 0
        First trial; halved until the objective lies below its quadratic model.
    rank_guess : int
        See `NuclearNorm.prox`.

    Returns
    -------
    M : LowRankMatrix
        The new point.
    value : float
        The smooth term there.
    step_size : float
        As accepted.

    Raises
    ------
    NumericalError
        If the smooth term is not finite or no step decreases the model.
    """
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


def _advance(smooth: SmoothTerm, penalty: ProximableTerm, state: ApgState) -> ApgState:
    iteration = state.iteration + 1
    momentum = (1.0 + math.sqrt(1.0 + 4.0 * state.momentum**2)) / 2.0
    Q = _extrapolate(state.M, state.previous, (state.momentum - 1.0) / momentum)
    value, gradient = smooth.value_and_gradient(Q)
    try:
        M, new_value, step_size = proximal_step(
            smooth, penalty, Q, value, gradient, state.step_size * _GROWTH, state.M.rank
        )
    except NumericalError as error:
        raise NumericalError(f"{error} at iteration {iteration}") from error
    objective = new_value + penalty.value(M)
    dense = M.dense()
    uphill = float(np.vdot(dense - Q.dense(), dense - state.M.dense())) < 0.0
    if uphill or objective > state.objective:
        momentum = 1.0
    return ApgState(iteration, M, state.M, momentum, step_size, objective, Q, value, gradient)


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
