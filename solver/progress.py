"""Events that a long computation reports to its callback.
Every `callback` of the library takes `Progress`; each function documents which kinds it reports. An exception
that a callback raises ends the computation and reaches the caller."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class IterationProgress(Progress):
    """An iteration of a solver is done.

    Parameters
    ----------
    iteration : int
        Counted from 1.
    objective : float
        Loss plus penalty, over the pairs that the iteration used.
    gap : float or None
        Upper bound on the relative duality gap, up to the rounding of the iteration; None where no bound was
        computed.
    rank : int
    step_size : float
        The paper's eta.
    seconds : float
        Since the start of the fit.
    share : float
        Fraction of all pairs that the objective covers; below 1 while a large problem is solved on a
        subsample of its pairs.
    """

    iteration: int
    objective: float
    gap: float | None
    rank: int
    step_size: float
    seconds: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class StepProgress(Progress):
    """A step without an objective of its own begins, such as fitting one classifier of many.

    Parameters
    ----------
    number : int
        Counted from 1.
    share : float or None
        Share of the whole computation's work that is done, an estimate from 0 to 1 that never falls; None
        where there is none.
    """

    number: int
    share: float | None = None


OnProgress = Callable[[Progress], None]
OnIteration = Callable[[IterationProgress], None]

Heartbeat = Callable[[], None]
"""Called before each of many short steps; what it raises ends the computation."""


class WorkPlan:
    """Counts steps of planned stages; calling it begins a step, and passes on the share (0 to 1) of the
    work."""

    # A stage that ends early counts as done once the next one begins, and one that takes more steps than were
    # planned stays within its part, so that the share never falls and ends at 1.

    def __init__(self, on_step: Callable[[float], None]) -> None:
        self._on_step = on_step
        self._costs: Mapping[str, float] = {}
        self._start, self._cost = 0.0, 0.0  # of the stage that was begun: both as shares of the whole
        self._n_steps, self._n_begun = 1, 0

    def plan(self, costs: Mapping[str, float]) -> None:
        """Set the stages' relative costs, in the order in which they are begun; one of 0 may be left out."""
        total = sum(costs.values())
        self._costs = {stage: cost / total for stage, cost in costs.items()}

    def begin(self, stage: str, n_steps: int) -> None:
        """Begin a stage of `n_steps` at most; those before it are done."""
        stages = list(self._costs)
        self._start = sum(self._costs[name] for name in stages[: stages.index(stage)])
        self._cost, self._n_steps, self._n_begun = self._costs[stage], max(n_steps, 1), 0

    def __call__(self) -> None:
        done = min(self._n_begun / self._n_steps, 1.0)
        self._n_begun += 1
        self._on_step(self._start + done * self._cost)

    def finish(self) -> None:
        self._on_step(1.0)


def number_steps(callback: OnProgress | None) -> Callable[[float], None]:
    """Return what passes shares of the work on to a callback, if there is one, as numbered steps."""
    steps = itertools.count(1)

    def report(share: float) -> None:
        if callback is not None:
            callback(StepProgress(next(steps), share))

    return report
