"""Following a solver from outside: progress, stopping by the certificate, patience."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solver.apg import ApgState
from solver.certificate import Certificate, certify, dual_value
from solver.errors import NumericalError
from solver.penalties import NuclearNorm
from solver.problem import BilinearProblem

_PATIENCE = 8
_WORTHWHILE = 1e-3


@dataclass(frozen=True, slots=True)
class Progress:
    """One iteration as seen from outside.

    Parameters
    ----------
    iteration : int
        Counted from 1.
    objective : float
        Loss plus penalty.
    gap : float or None
        Relative duality gap, where it was computed.
    rank : int
        Rank of M.
    step_size : float
        The paper's eta.
    seconds : float
        Since the fit began.
    """

    iteration: int
    objective: float
    gap: float | None
    rank: int
    step_size: float
    seconds: float


class ConvergenceMonitor:
    """Follows a sequence of states: records and reports them, and stops by the certificate.

    Every few steps the gap is estimated from the gradient at hand. When that says "done", the
    certificate is computed anew in float64 and only its word counts.

    Parameters
    ----------
    problem : BilinearProblem
        What is being solved.
    alpha : float
        Penalty weight.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the iterations of all `follow` calls together.
    callback : callable or None
        Called with each `Progress`; may raise to end the fit.
    check_every : int
        Iterations between two estimates of the gap.

    Attributes
    ----------
    history : list of Progress
        One entry per iteration.
    certificate : Certificate
        Of the last state returned by `follow`.
    """

    def __init__(
        self,
        problem: BilinearProblem,
        alpha: float,
        tol: float,
        max_iter: int,
        callback: Callable[[Progress], None] | None,
        check_every: int = 1,
    ) -> None:
        self.history: list[Progress] = []
        self.certificate = Certificate(np.inf, 0.0)
        self._exact_loss = problem.loss(np.float64)
        self._penalty = NuclearNorm(alpha)
        self._tol = tol
        self._max_iter = max_iter
        self._callback = callback
        self._check_every = check_every
        self._begin = time.perf_counter()
        self._best_dual_value = 0.0

    @property
    def converged(self) -> bool:
        """Whether the certificate of the last returned state meets the tolerance."""
        return self.certificate.relative_gap <= self._tol

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: converged, or out of iterations."""
        return self.converged or len(self.history) >= self._max_iter

    def follow(self, states: Iterator[ApgState], patience: float = _PATIENCE) -> ApgState:
        """Take states until the certificate holds, progress dries up, or the limit is met.

        Parameters
        ----------
        states : iterator of ApgState
            Endless.
        patience : float
            How many iterations may pass without gaining ``tol / 1000`` of the objective; infinite
            for a solver whose objective oscillates.
        """
        wanted_gap, best_objective, best_iteration = self._tol, np.inf, 0
        for state in states:
            gap = self._estimate_gap(state) if state.iteration % self._check_every == 0 else None
            self._record(state, gap)
            if state.objective < best_objective * (1.0 - _WORTHWHILE * self._tol):
                best_objective, best_iteration = state.objective, state.iteration
            stalled = state.iteration - best_iteration >= patience
            out_of_steps = len(self.history) >= self._max_iter
            if stalled or out_of_steps or (gap is not None and gap <= wanted_gap):
                self.certificate = certify(self._exact_loss, self._penalty, state.M)
                if stalled or self.finished:
                    return state
                wanted_gap *= 0.5
        raise NumericalError("the solver ended before it converged")

    def _estimate_gap(self, state: ApgState) -> float:
        lower_bound = dual_value(self._exact_loss, self._penalty, state.search_point, state.gradient)
        self._best_dual_value = max(self._best_dual_value, lower_bound)
        return Certificate(state.objective, self._best_dual_value).relative_gap

    def _record(self, state: ApgState, gap: float | None) -> None:
        seconds = time.perf_counter() - self._begin
        progress = Progress(
            len(self.history) + 1, state.objective, gap, state.M.rank, state.step_size, seconds
        )
        self.history.append(progress)
        if self._callback is not None:
            self._callback(progress)
