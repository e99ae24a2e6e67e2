"""Following a solver from outside: progress, stopping by the certificate, patience."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray, LowRankMatrix
from solver.losses.base import CertifiableLoss, FactoredPoint
from solver.optimisation.certificate import Certificate, certify, lower_bound
from solver.optimisation.penalties import NuclearNorm
from solver.progress import IterationProgress
from solver.threads import single_threaded_blas

_PATIENCE = 30
_WORTHWHILE = 0.9
_LOOSE_GAIN = 0.05
_LOOSE_STEPS = 20


@dataclass(frozen=True, slots=True)
class Memory:
    """What a monitor remembers of the states it has followed.

    Parameters
    ----------
    alpha : float
        Penalty weight in the units of the problem; a bound for one says nothing of another.
    best_bound : float
        Largest lower bound on the optimum so far.
    best_gap : float
        Relative gap when it last fell by a worthwhile share.
    quiet : int
        Float64 iterations since.
    wanted : float
        Share of the tolerance at which the certificate is computed next.
    """

    alpha: float
    best_bound: float = 0.0
    best_gap: float = np.inf
    quiet: int = 0
    wanted: float = 1.0

    def after(self, gap: float | None, dtype: np.dtype[Any]) -> Memory:
        """Return the memory after an iteration in that precision."""
        if gap is not None and gap < _WORTHWHILE * self.best_gap:
            return replace(self, best_gap=gap, quiet=0)
        return replace(self, quiet=self.quiet + 1) if dtype == np.float64 else self


class SolverState(Protocol):
    """What every solver's states tell."""

    @property
    def iteration(self) -> int:
        """Number of steps taken; 0 before the first."""
        ...

    @property
    def M(self) -> LowRankMatrix:  # noqa: N802
        """Current iterate."""
        ...

    @property
    def objective(self) -> float:
        """Loss plus penalty at M."""
        ...

    @property
    def step_size(self) -> float:
        """The paper's eta."""
        ...

    @property
    def search_point(self) -> FactoredPoint:
        """Where the loss was differentiated last."""
        ...

    @property
    def search_value(self) -> float:
        """The loss there."""
        ...

    @property
    def gradient(self) -> FloatArray:
        """Its gradient there."""
        ...


class CertifiableProblem(Protocol):
    """A problem whose loss can be had in float64."""

    def loss(self, dtype: type) -> CertifiableLoss:
        """Return the smooth term in the given precision."""
        ...


_State = TypeVar("_State", bound=SolverState)


class ConvergenceMonitor:
    """Follows a sequence of states: records and reports them, and stops by the certificate.

    The gap is bounded from the gradient at hand. When that says "done", the certificate is
    computed anew in float64 and only its word counts.

    Parameters
    ----------
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Limit on the iterations of all `follow` calls together.
    callback : callable or None
        Called with each `IterationProgress`; may raise to end the fit.
    check_every : int
        Iterations between two bounds of the gap.

    Attributes
    ----------
    history : list of IterationProgress
        One entry per iteration, or one for a start that needs none.
    certificate : Certificate
        Of the last state of the last `follow`.
    memory : Memory
        Of `follow`, as it stood before the state yielded last.
    stalled : bool
        Whether `follow` gave up because the gap had stopped falling.
    """

    def __init__(
        self,
        tol: float,
        max_iter: int,
        callback: Callable[[IterationProgress], None] | None,
        check_every: int = 1,
    ) -> None:
        self.history: list[IterationProgress] = []
        self.certificate = Certificate(np.inf, 0.0)
        self.memory = Memory(np.nan)
        self.stalled = False
        self._tol = tol
        self._max_iter = max_iter
        self._callback = callback
        self._check_every = check_every
        self._begin = time.perf_counter()

    @property
    def converged(self) -> bool:
        """Whether the certificate of the last state meets the tolerance."""
        return self.certificate.relative_gap <= self._tol

    def approach(self, states: Iterator[_State], share: float) -> _State:
        """Take states on some of the pairs until they are a good start for more of them.

        Parameters
        ----------
        states : iterator of SolverState
            Endless.
        share : float
            Share of all pairs, for the record.

        Returns
        -------
        SolverState
            The first whose step gained little, or the twentieth.
        """
        previous = np.inf
        for state in states:
            if state.iteration > 0:
                self._record(state, None, share)
            # The first step down from zero may be held back by its first trial of a step size.
            is_flat = state.iteration > 1 and previous - state.objective < _LOOSE_GAIN * state.objective
            if is_flat or state.iteration >= _LOOSE_STEPS or self._out_of_steps:
                return state
            previous = state.objective
        raise NumericalError("the solver ended before it converged")

    def follow(
        self,
        problem: CertifiableProblem,
        alpha: float,
        states: Iterator[_State],
        patience: float = _PATIENCE,
        memory: Memory | None = None,
        kept: Callable[[LowRankMatrix], LowRankMatrix] = lambda M: M,
        enough: float = 0.0,
    ) -> Iterator[_State]:
        """Yield states until the certificate holds, progress dries up, or the limit is met.

        Parameters
        ----------
        problem : CertifiableProblem
            What the states solve.
        alpha : float
            Penalty weight in its units.
        states : iterator of SolverState
            Endless.
        patience : float
            How many float64 iterations may pass without a tenth off the gap; infinite for a solver
            that is slow by nature.
        memory : Memory, optional
            Of an interrupted `follow` whose last state comes first here; heeded for the same alpha only.
        kept : callable
            Returns what is kept of an iterate in the end: that is what the certificate is for.
        enough : float, >= 0
            Gap at which a certificate need not be any sharper, see `certify`.

        Raises
        ------
        NumericalError
            If a state is not finite.
        """
        if memory is None or memory.alpha != alpha:
            memory = Memory(alpha)
        for state in states:
            gap = None
            if not np.isfinite(state.gradient).all():
                raise NumericalError(
                    f"the similarity left the range of {state.gradient.dtype}: give a larger alpha, "
                    "or scale the samples"
                )
            if state.iteration % self._check_every == 0:
                with single_threaded_blas():
                    bound = lower_bound(state.search_value, state.gradient, state.search_point, alpha)
                memory = replace(memory, best_bound=max(memory.best_bound, bound))
                gap = Certificate(state.objective, memory.best_bound).relative_gap
            if state.iteration > 0:
                self._record(state, gap, 1.0)
            self.memory = memory
            yield state
            memory = memory.after(gap, state.M.s.dtype)
            self.stalled = memory.quiet >= patience
            is_near = gap is not None and gap <= memory.wanted * self._tol
            if self.stalled or self._out_of_steps or is_near:
                self.certificate = certify(
                    problem.loss(np.float64), NuclearNorm(alpha), kept(state.M), enough
                )
                if self.converged or self.stalled or self._out_of_steps:
                    if not self.history:
                        self._record(state, gap, 1.0)
                    return
                memory = replace(memory, wanted=0.5 * memory.wanted)

    @property
    def _out_of_steps(self) -> bool:
        return len(self.history) >= self._max_iter

    def _record(self, state: SolverState, gap: float | None, share: float) -> None:
        progress = IterationProgress(
            len(self.history) + 1,
            state.objective,
            gap,
            state.M.rank,
            state.step_size,
            time.perf_counter() - self._begin,
            share,
        )
        self.history.append(progress)
        if self._callback is not None:
            self._callback(progress)
