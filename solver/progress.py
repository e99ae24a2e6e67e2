"""Events that a long computation reports to its callback.

Every `callback` of the library takes `Progress`; each function documents which kinds it reports. An exception
that a callback raises ends the computation and reaches the caller.
"""

from __future__ import annotations

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
        Rank of M.
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
    """

    number: int
