"""The two algorithms on a prepared problem: from its first state to its solution."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from solver.bilinear.problem import BilinearProblem
from solver.bilinear.rounding import FactorRounding
from solver.bilinear.subsampled import subsampled_problems
from solver.linalg.matrices import LowRankMatrix
from solver.optimisation.checkpoint import Checkpoint
from solver.optimisation.convergence import ConvergenceMonitor
from solver.optimisation.descent import Descent, DescentState
from solver.optimisation.paper import DensePairs, iterate_paper
from solver.validation.errors import InvalidInputError


def solve_paper(
    problem: BilinearProblem, alpha: float, monitor: ConvergenceMonitor, n_threads: int | None
) -> LowRankMatrix:
    """Return the solution by Algorithm 1 to the letter, in float64; alpha is in the units of the problem."""
    pairs = DensePairs(problem.X, problem.Z, problem.supervision, n_threads)
    states = iterate_paper(pairs, alpha, problem.first_step)
    M = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
    for state in monitor.follow(problem.loss, alpha, states, patience=math.inf):
        M = state.M
    return M


def solve_apg(
    problem: BilinearProblem,
    alpha: float,
    monitor: ConvergenceMonitor,
    rounding: FactorRounding,
    dtype: type,
    *,
    warm: LowRankMatrix,
    start: Checkpoint | None,
) -> Generator[Checkpoint, None, LowRankMatrix]:
    """Yield the state before the first step and after each one, and return the solution.
    InvalidInputError if `start` is of another problem, NumericalError if an objective is not finite."""
    # The certificate is computed for what `rounding` makes of a state. `warm` is the solution of a similar
    # problem, or zero; it does not matter where `start` says how far an earlier call on the same problem was.
    descent = Descent(problem, alpha, np.dtype(dtype).type)
    if start is None:
        state = _first_state(problem, alpha, monitor, descent, warm)
    else:
        state = _resume(problem, descent, start)
    states = monitor.follow(
        problem.loss,
        alpha,
        descent.states(state),
        memory=None if start is None else start.memory,
        round_solution=rounding.round,
        # A large problem is spared the extra pass over all pairs that the sharper bound takes.
        accept_lower_bound=problem.subsample is not None,
    )
    for state in states:
        yield Checkpoint.of(state, problem.fingerprint, monitor.memory)
    return state.M


def _resume(problem: BilinearProblem, descent: Descent, start: Checkpoint) -> DescentState:
    is_same = start.M.shape == problem.shape and math.isclose(
        start.fingerprint, problem.fingerprint, rel_tol=1e-9
    )
    if not is_same:
        raise InvalidInputError("start was made from other samples, labels or parameters")
    return descent.resume(
        start.iteration,
        start.M,
        start.stage_alpha,
        start.step_size,
        start.gradient_target,
        start.is_subsampled,
    )


def _first_state(
    problem: BilinearProblem,
    alpha: float,
    monitor: ConvergenceMonitor,
    descent: Descent,
    warm: LowRankMatrix,
) -> DescentState:
    if warm.rank > 0:
        return descent.start(warm)
    M = _approach(problem, alpha, monitor)
    return descent.start(M, is_subsampled=M.rank > 0)


def _approach(problem: BilinearProblem, alpha: float, monitor: ConvergenceMonitor) -> LowRankMatrix:
    """Fit growing subsamples of a large problem's pairs, each from the solution of the one before."""
    M = LowRankMatrix.zeros(*problem.shape, np.float64)
    if alpha >= problem.alpha_max:
        return M
    for part in subsampled_problems(problem):
        descent = Descent(part, alpha * part.penalty_growth, np.float32)
        M = monitor.approach(descent.states(descent.start(M)), part.share).M
    return M
