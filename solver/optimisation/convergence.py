"""Monitoring a solver: the duality gap, progress, stopping by the certificate, giving up where it stalls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from solver.linalg import FloatArray, LowRankMatrix, spectral_norm
from solver.losses.base import CertifiableLoss, FactoredPoint
from solver.progress import IterationProgress, OnIteration
from solver.threads import single_threaded_blas
from solver.validation import NumericalError

if TYPE_CHECKING:
    from solver.optimisation.descent import DescentState
    from solver.optimisation.paper import PaperState


@dataclass(frozen=True, slots=True)
class Certificate:
    """Primal and dual value at a point: loss plus penalty, and a lower bound on the optimum."""

    objective: float
    dual_value: float

    @property
    def relative_gap(self) -> float:
        """``(objective - dual_value) / objective``, at least 0."""
        return max(self.objective - self.dual_value, 0.0) / self.objective


def certify(
    loss: CertifiableLoss, M: LowRankMatrix, alpha: float, sufficient_gap: float = 0.0
) -> Certificate:
    """Compute the duality gap of `M`; a loss in float64 makes it accurate to the last digits.
    A `lower_bound` that meets `sufficient_gap` (relative) spares the second pass over all pairs."""
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    objective = value + alpha * M.nuclear_norm
    cheap = Certificate(objective, lower_bound(value, gradient, point, alpha))
    if cheap.relative_gap < sufficient_gap:
        return cheap
    scale = _feasible_scale(gradient, alpha)
    return Certificate(objective, loss.dual_value(point, scale))


def lower_bound(value: float, gradient: FloatArray, point: FactoredPoint, alpha: float) -> float:
    """Return a lower bound on the optimum that needs only a value and a gradient of the loss at a point."""
    # H(p_ij) = l_ij + y_ij s_ij p_ij, so that the unscaled dual value is l(M) - <l'(M), M>; and H is concave
    # with H(0) = 0, so that H(c p) >= c H(p). The dual value of `certify` is slightly larger.
    along = float(np.vdot(point.left, gradient.astype(np.float64) @ point.right))
    return _feasible_scale(gradient, alpha) * (value - along)


def _feasible_scale(gradient: FloatArray, alpha: float) -> float:
    norm = spectral_norm(gradient)
    return 1.0 if norm <= alpha else alpha / norm


_PATIENCE = 30  # float64 iterations without a worthwhile decrease of the gap before a fit gives up
_WORTHWHILE = 0.9
"""A gap has fallen by a worthwhile amount when it is below this fraction of the last such gap."""
_LOOSE_DECREASE = 0.05
"""Relative decrease per step below which a fit moves on to more pairs, before it fits the noise of these."""
_LOOSE_STEPS = 20  # limit on the steps on one subsample, whose solution is only a starting point


class StopReason(StrEnum):
    """Why a fit ended."""

    CONVERGED = "converged"
    """The duality gap meets the tolerance."""
    STALLED = "stalled"
    """The gap no longer decreased: use a larger tolerance or penalty weight, or float64."""
    MAX_ITER = "max_iter"
    """The limit on the iterations was reached: raise it, the tolerance or the penalty weight."""


@dataclass(frozen=True, slots=True)
class Memory:
    """State of a monitor between two iterations."""

    alpha: float  # in the units of the problem; a bound for one is no bound for another
    best_bound: float = 0.0  # largest lower bound on the optimum so far
    best_gap: float = np.inf  # relative, when it last decreased by a worthwhile amount
    n_stalled: int = 0  # float64 iterations since then
    check_at: float = 1.0  # fraction of the tolerance at which to compute the certificate next

    def after(self, gap: float | None, dtype: np.dtype[Any]) -> Memory:
        """Return the memory after an iteration in that precision."""
        if gap is not None and gap < _WORTHWHILE * self.best_gap:
            return replace(self, best_gap=gap, n_stalled=0)
        return replace(self, n_stalled=self.n_stalled + 1) if dtype == np.float64 else self


State = TypeVar("State", "DescentState", "PaperState")


@dataclass(slots=True, eq=False)
class ConvergenceMonitor:
    """Records and reports the states of a solver (`history`), and stops it by the certificate.
    `max_iter` counts the iterations of all `follow` calls together; `callback` may raise to end the fit."""

    # The gap is bounded, every `check_every` iterations, by means of the gradient that the solver has
    # computed already. When that bound meets the tolerance, the certificate is computed in float64, and it
    # alone decides.

    tol: float
    max_iter: int
    callback: OnIteration | None
    check_every: int = 1
    history: list[IterationProgress] = field(default_factory=list, init=False)
    certificate: Certificate = field(default=Certificate(np.inf, 0.0), init=False)
    memory: Memory = field(default=Memory(np.nan), init=False)
    stalled: bool = field(default=False, init=False)
    _started: float = field(default_factory=time.perf_counter, init=False)

    @property
    def converged(self) -> bool:
        """Whether the certificate of the last state meets the tolerance."""
        return self.certificate.relative_gap <= self.tol

    @property
    def stop_reason(self) -> StopReason:
        """Why the last `follow` ended."""
        if self.converged:
            return StopReason.CONVERGED
        return StopReason.STALLED if self.stalled else StopReason.MAX_ITER

    def resume(self, history: Sequence[IterationProgress]) -> None:
        """Go on counting iterations and time where an interrupted fit was.
        `history` ends before the state that `follow` is given first."""
        self.history = list(history)
        if history:
            self._started -= history[-1].seconds

    def approach(self, states: Iterator[State], share: float) -> State:
        """Take steps on a subsample, a `share` of all pairs, until they give a good start for more pairs:
        the first state whose step decreased the objective by little, or the twentieth."""
        previous = np.inf
        for state in states:
            if state.iteration > 0:
                self._record(state, None, share)
            # The first step away from zero may be short because of its initial step size.
            is_flat = state.iteration > 1 and previous - state.objective < _LOOSE_DECREASE * state.objective
            if is_flat or state.iteration >= _LOOSE_STEPS or self._is_at_limit:
                return state
            previous = state.objective
        raise NumericalError("the solver ended before it converged")

    def follow(
        self,
        loss: Callable[[type], CertifiableLoss],
        alpha: float,
        states: Iterator[State],
        patience: float = _PATIENCE,
        memory: Memory | None = None,
        round_solution: Callable[[LowRankMatrix], LowRankMatrix] = lambda M: M,
        accept_lower_bound: bool = False,
    ) -> Iterator[State]:
        """Yield states until the certificate meets the tolerance, progress stalls, or the limit is reached.
        NumericalError if a state is not finite."""
        # `loss` returns the smooth term in a precision. `patience` limits the float64 iterations in which the
        # gap does not decrease by a tenth; it is infinite for a solver that is slow by design. `memory` is of
        # an interrupted `follow` whose last state comes first here, and is ignored for another alpha.
        # `round_solution` returns an iterate as the estimator will store it: the certificate is computed for
        # that. With `accept_lower_bound` a bound that meets the tolerance spares the sharper dual value.
        if memory is None or memory.alpha != alpha:
            memory = Memory(alpha)
        for state in states:
            gap = None
            if not np.isfinite(state.gradient).all():
                raise NumericalError(
                    f"the similarity left the range of {state.gradient.dtype}: give a larger alpha, "
                    "or scale the samples"
                )
            if state.iteration % self.check_every == 0:
                with single_threaded_blas():
                    bound = lower_bound(state.search_value, state.gradient, state.search_point, alpha)
                memory = replace(memory, best_bound=max(memory.best_bound, bound))
                gap = Certificate(state.objective, memory.best_bound).relative_gap
            if state.iteration > 0:
                self._record(state, gap, 1.0)
            self.memory = memory
            yield state
            memory = memory.after(gap, state.M.s.dtype)
            self.stalled = memory.n_stalled >= patience
            is_near = gap is not None and gap <= memory.check_at * self.tol
            if self.stalled or self._is_at_limit or is_near:
                self.certificate = certify(
                    loss(np.float64), round_solution(state.M), alpha, self.tol if accept_lower_bound else 0.0
                )
                if self.converged or self.stalled or self._is_at_limit:
                    if not self.history:
                        self._record(state, gap, 1.0)
                    return
                memory = replace(memory, check_at=0.5 * memory.check_at)

    @property
    def _is_at_limit(self) -> bool:
        return len(self.history) >= self.max_iter

    def _record(self, state: State, gap: float | None, share: float) -> None:
        progress = IterationProgress(
            len(self.history) + 1,
            state.objective,
            gap,
            state.M.rank,
            state.step_size,
            time.perf_counter() - self._started,
            share,
        )
        self.history.append(progress)
        if self.callback is not None:
            self.callback(progress)
