import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from solver.linalg import FloatArray, LowRankMatrix
from solver.losses.base import FactoredPoint
from solver.optimisation.convergence import ConvergenceMonitor, Memory
from solver.progress import IterationProgress
from solver.validation import NumericalError

ALPHA = 1.0


@dataclass(frozen=True)
class State:
    """At zero with a loss of one and a gradient of size 1 / bound: the bound on the optimum is `bound`."""

    iteration: int
    bound: float
    objective: float = 1.0
    dtype: type = np.float64
    step_size: float = 0.5
    search_value: float = 1.0

    @property
    def M(self) -> LowRankMatrix:
        return LowRankMatrix.zeros(1, 1, self.dtype)

    @property
    def search_point(self) -> FactoredPoint:
        return FactoredPoint.of(self.M)

    @property
    def gradient(self) -> FloatArray:
        return np.array([[1.0 / self.bound]])


class Loss:
    """Reports a given gap between objective and dual value."""

    shape = (1, 1)

    def __init__(self, gap: float) -> None:
        self._gap = gap

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        return 1.0, np.zeros((1, 1))

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        return 1.0 - self._gap

    def value(self, M: LowRankMatrix) -> float:
        raise NotImplementedError

    def value_and_factor_gradients(self, A: Any, B: Any) -> Any:
        raise NotImplementedError

    def mean_curvature(self, point: FactoredPoint) -> float:
        raise NotImplementedError


class Problem:
    """Certifies the given gaps, one after the other; the last one again and again."""

    def __init__(self, *gaps: float) -> None:
        self._gaps = itertools.chain(gaps, itertools.repeat(gaps[-1]))
        self.n_certificates = 0

    def loss(self, dtype: type) -> Loss:
        assert dtype == np.float64
        self.n_certificates += 1
        return Loss(next(self._gaps))


def _states(bounds: list[float], dtype: type = np.float64, start: int = 0) -> Iterator[State]:
    """Yield states of these bounds, the last one again and again."""
    for iteration in itertools.count(start):
        yield State(iteration, bounds[min(iteration, len(bounds) - 1)], dtype=dtype)


def _follow(
    bounds: list[float], *gaps: float, tol: float = 0.1, max_iter: int = 1000, **options: Any
) -> tuple[ConvergenceMonitor, Problem]:
    monitor, problem = ConvergenceMonitor(tol, max_iter, None), Problem(*gaps)
    for _ in monitor.follow(problem.loss, ALPHA, _states(bounds), **options):
        pass
    return monitor, problem


def test_gap_is_that_of_the_best_bound_so_far() -> None:
    monitor, _ = _follow([0.5, 0.8, 0.4, 0.85, 0.6], 0.0, max_iter=4)
    assert [entry.gap for entry in monitor.history] == pytest.approx([0.2, 0.2, 0.15, 0.15])


def test_a_good_bound_of_an_earlier_state_ends_the_search() -> None:
    # The objective falls to the bound found long before; the states' own bounds stay loose.
    states = [State(0, 0.9, 2.0), State(1, 0.5, 1.5), State(2, 0.5, 1.2), State(3, 0.5, 0.95)]
    monitor = ConvergenceMonitor(0.1, 1000, None)
    seen = list(monitor.follow(Problem(0.01).loss, ALPHA, iter(states)))
    assert len(seen) == 4
    assert monitor.converged


def test_gap_to_check_at_is_halved_each_time_the_certificate_disagrees() -> None:
    # Gaps of .1, .09, .06, .05, .04, .03, .025, .02: certified at .1, then .05 and .025 are waited for.
    bounds = [0.9, 0.91, 0.94, 0.95, 0.96, 0.97, 0.975 + 1e-12, 0.98]
    monitor, problem = _follow(bounds, 0.3, 0.2, 0.05, tol=0.1 + 1e-12)
    assert problem.n_certificates == 3
    assert [round(entry.gap or 0.0, 3) for entry in monitor.history] == [0.09, 0.06, 0.05, 0.04, 0.03, 0.025]
    assert monitor.converged


OTHERS = Memory(2.0 * ALPHA, best_bound=0.99, best_gap=0.01, n_stalled=29, check_at=0.1)
SEARCHES: dict[str, tuple[list[float], list[float], dict[str, Any], int, int, str]] = {
    "only the certificate says converged": ([0.94], [0.3], {"max_iter": 5}, 5, 2, ""),
    "a start may need no iteration": ([0.99], [0.01], {}, 1, 1, "converged"),
    "the limit is kept and certified": ([0.5], [0.4], {"max_iter": 7}, 7, 1, ""),
    "the gap no longer falls": ([0.5], [0.4], {"patience": 3}, 3, 1, "stalled"),
    "usual patience": ([0.5], [0.4], {}, 30, 1, "stalled"),
    "a certificate may hold after patience": ([0.5], [0.05], {"patience": 3}, 3, 1, "stalled, converged"),
    "a tenth off the gap renews patience": (
        [1.0 - 0.8 * 0.89**k for k in range(100)], [0.05], {"patience": 3}, 18, 1, "converged"
    ),
    "less does not": (
        [1.0 - 0.8 * 0.98**k for k in range(100)], [0.05], {"patience": 3, "tol": 0.01}, 3, 1, "stalled"
    ),
    "memory of another penalty is not used": ([0.5, 0.95], [0.05], {"memory": OTHERS}, 1, 1, "converged"),
}  # fmt: skip
"""Bounds, certified gaps and options; then the numbers of entries and of certificates, and how it ends."""


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_ends_where_its_bounds_and_certificates_say(name: str) -> None:
    bounds, gaps, options, n_entries, n_certificates, end = SEARCHES[name]
    monitor, problem = _follow(bounds, *gaps, **options)
    assert (len(monitor.history), problem.n_certificates) == (n_entries, n_certificates)
    assert (monitor.stalled, monitor.converged) == ("stalled" in end, "converged" in end)
    assert monitor.certificate.relative_gap == pytest.approx(gaps[-1])
    assert monitor.history[-1].gap == pytest.approx(1.0 - max(bounds[: n_entries + 1]))


def test_stalled_float32_iterations_do_not_count() -> None:
    monitor, problem = ConvergenceMonitor(0.1, 200, None), Problem(0.4)
    for _ in monitor.follow(problem.loss, ALPHA, _states([0.5], np.float32), patience=3):
        pass
    assert not monitor.stalled
    assert len(monitor.history) == 200


def test_bounds_are_computed_as_often_as_asked() -> None:
    monitor, problem = ConvergenceMonitor(0.1, 10, None, check_every=4), Problem(0.4)
    for _ in monitor.follow(problem.loss, ALPHA, _states([0.5])):
        pass
    assert [entry.gap is not None for entry in monitor.history] == [k % 4 == 0 for k in range(1, 11)]


def test_entries_say_what_the_states_say() -> None:
    seen: list[IterationProgress] = []
    monitor = ConvergenceMonitor(0.1, 3, seen.append)
    for _ in monitor.follow(Problem(0.4).loss, ALPHA, _states([0.5])):
        pass
    assert seen == monitor.history
    assert [entry.iteration for entry in seen] == [1, 2, 3]
    assert {(entry.objective, entry.rank, entry.step_size, entry.share) for entry in seen} == {
        (1.0, 0, 0.5, 1.0)
    }
    assert [entry.seconds for entry in seen] == sorted(entry.seconds for entry in seen)


BOUNDS = [0.2, 0.5, 0.905, 0.6, 0.7, 0.91, 0.91, 0.91, 0.8, 0.96, 0.97, 0.97, 0.97, 0.97, 0.98, 0.99]


@pytest.mark.parametrize(
    ("patience", "n_states", "interrupted_at"),
    [(8, 10, at) for at in range(10)] + [(5, 8, at) for at in range(8)],
)
def test_memory_makes_an_interrupted_search_end_where_the_whole_one_does(
    patience: int, n_states: int, interrupted_at: int
) -> None:
    def run(start: int, memory: Memory | None, *certified: float) -> tuple[list[int], list[Memory]]:
        monitor, iterations, memories = ConvergenceMonitor(0.1, 1000, None), [], []
        states, problem = _states(BOUNDS, start=start), Problem(*certified)
        for state in monitor.follow(problem.loss, ALPHA, states, patience=patience, memory=memory):
            iterations.append(state.iteration)
            memories.append(monitor.memory)
        return iterations, memories

    # The bound of .905 at iteration 2 looks good enough and is not, so that .95 is waited for.
    iterations, memories = run(0, None, 0.3, 0.05)
    assert iterations == list(range(n_states))
    again = (0.3, 0.05) if interrupted_at <= 2 else (0.05,)
    resumed, _ = run(interrupted_at, memories[interrupted_at], *again)
    assert resumed == list(range(interrupted_at, n_states))


def _falling(objectives: list[float]) -> Iterator[State]:
    """Yield states of these objectives, falling by a tenth each time after the last one."""
    for iteration in itertools.count():
        beyond = max(iteration - len(objectives) + 1, 0)
        yield State(iteration, 0.5, objectives[min(iteration, len(objectives) - 1)] * 0.9**beyond)


def test_approach_stops_after_the_first_step_that_gains_little_and_records_its_share() -> None:
    monitor = ConvergenceMonitor(1e-3, 1000, None)
    state = monitor.approach(_falling([1.0, 0.999, 0.9, 0.8, 0.77, 0.7]), 0.25)
    assert state.iteration == 4  # the first step alone may gain little
    assert [(entry.iteration, entry.share, entry.gap) for entry in monitor.history] == [
        (number, 0.25, None) for number in (1, 2, 3, 4)
    ]


def test_approach_gives_up_after_twenty_steps_or_at_the_limit_of_all_iterations() -> None:
    assert ConvergenceMonitor(1e-3, 1000, None).approach(_falling([1.0]), 0.5).iteration == 20
    assert ConvergenceMonitor(1e-3, 7, None).approach(_falling([1.0]), 0.5).iteration == 7


def test_solver_that_ends_by_itself_is_an_error_of_the_approach() -> None:
    with pytest.raises(NumericalError, match="ended before it converged"):
        ConvergenceMonitor(1e-3, 1000, None).approach(iter([State(0, 0.5)]), 0.5)


def test_iterations_on_parts_count_towards_the_limit() -> None:
    monitor = ConvergenceMonitor(1e-3, 10, None)
    monitor.approach(_falling([1.0, 0.5, 0.499]), 0.5)
    for _ in monitor.follow(Problem(0.4).loss, ALPHA, _states([0.5])):
        pass
    assert [entry.share for entry in monitor.history] == [0.5, 0.5] + [1.0] * 8
    assert [entry.iteration for entry in monitor.history] == list(range(1, 11))
