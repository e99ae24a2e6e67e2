import itertools
from typing import Any

import numpy as np
import pytest

from solver import Labels, LowRankBilinear, StopReason, alpha_max, make_low_rank_pairs
from solver.bilinear.solving import BilinearProblem
from solver.datasets import SyntheticPairs
from solver.linalg import FloatArray, LowRankMatrix, from_factors
from solver.losses.base import CertifiableLoss
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.descent import Descent, DescentState
from solver.validation import ConvergenceWarning, NumericalError
from tests.solver.dense import DenseProblem


def _problem(noise: float = 1.5, seed: int = 0) -> tuple[BilinearProblem, SyntheticPairs]:
    data = make_low_rank_pairs(
        60, 50, n_features_x=12, n_features_z=11, n_classes=4, noise=noise, random_state=seed
    )
    return BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), False, 1), data


def _dense(problem: BilinearProblem, data: SyntheticPairs) -> Any:
    return DenseProblem(problem.X, problem.Z, data.x_labels, data.z_labels)


def _run(descent: Descent, n_states: int, start: DescentState | None = None) -> list[DescentState]:
    return list(itertools.islice(descent.states(start or descent.start()), n_states))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fraction", [1 / 3, 1 / 30, 1 / 300])
def test_descent_from_zero_reaches_a_gap_of_rounding_size(dtype: type, fraction: float) -> None:
    problem, data = _problem()
    alpha = fraction * problem.alpha_max
    last = _run(Descent(problem, alpha, dtype), 25)[-1]
    # Float32 alone gets no further than 1e-5; float64 takes over and ends far below.
    assert last.M.s.dtype == np.float64
    assert _dense(problem, data).relative_gap(last.M.dense(), alpha) < 1e-6


def test_penalty_falls_fourfold_from_alpha_max_to_its_final_value() -> None:
    problem, _ = _problem()
    alpha = problem.alpha_max / 100
    states = _run(Descent(problem, alpha, np.float64), 8)
    expected = [problem.alpha_max / ratio for ratio in (1, 4, 16, 64, 100, 100, 100, 100)]
    assert [state.stage_alpha for state in states] == pytest.approx(expected, rel=1e-12)
    # Only at the final penalty does a step's target bind the next one.
    assert [np.isfinite(state.gradient_target) for state in states] == [False] * 4 + [True] * 4


def test_every_state_states_its_own_objective_and_gradient() -> None:
    problem, data = _problem()
    alpha = problem.alpha_max / 50
    dense = _dense(problem, data)
    for number, state in enumerate(_run(Descent(problem, alpha, np.float64), 8)):
        M = state.M.dense()
        assert state.iteration == number
        assert state.objective == pytest.approx(dense.objective(M, alpha), rel=1e-11)
        assert state.search_value == pytest.approx(dense.loss(M), rel=1e-11)
        np.testing.assert_allclose(state.gradient, dense.gradient(M), atol=1e-12)
        np.testing.assert_allclose(state.search_point.dense(), M, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_objective_never_rises_at_the_final_penalty(dtype: type) -> None:
    problem, _ = _problem()
    states = _run(Descent(problem, problem.alpha_max / 300, dtype), 30)
    final = [state for state in states if state.stage_alpha == states[-1].stage_alpha]
    assert len(final) > 20
    for before, after in itertools.pairwise(final):
        if before.M.s.dtype == after.M.s.dtype:
            noise = 10 * float(np.finfo(before.M.s.dtype).eps)  # of one evaluation
            assert after.objective <= before.objective * (1 + noise)


def test_float64_takes_over_once_and_for_good_where_float32_makes_no_progress() -> None:
    problem, _ = _problem()
    states = _run(Descent(problem, problem.alpha_max / 30, np.float32), 20)
    types = [state.M.s.dtype for state in states]
    switch = types.index(np.dtype(np.float64))
    assert types == [np.dtype(np.float32)] * switch + [np.dtype(np.float64)] * (20 - switch)
    before, after = states[switch - 1], states[switch]
    assert before.objective - after.objective < 2e-6 * after.objective  # the progress was rounding
    assert all(
        earlier.objective - later.objective > 5e-7 * later.objective
        for earlier, later in itertools.pairwise(states[: switch - 1])
        if earlier.stage_alpha == states[-1].stage_alpha
    )


def test_tolerance_beyond_rounding_ends_by_patience_with_a_warning() -> None:
    _, data = _problem()
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = alpha_max(data.X, data.Z, supervision) / 10
    with pytest.warns(ConvergenceWarning, match="the gap no longer decreased"):
        model = LowRankBilinear(alpha, tol=1e-18).fit(data.X, data.Z, supervision)
    assert not model.converged_
    assert model.stop_reason_ is StopReason.STALLED
    assert model.n_iter_ < 300  # of 2000
    # The gap is of first order in the gradient, which an objective known to eps hides below its root.
    assert model.duality_gap_ < 1e-7  # line searches see objectives, hence gradients to the root of eps


def test_given_start_is_left_at_the_final_penalty_at_once() -> None:
    problem, _ = _problem()
    alpha = problem.alpha_max / 100
    rng = np.random.default_rng(0)
    start = from_factors(rng.standard_normal((12, 2)), rng.standard_normal((11, 2)))
    copies = [array.copy() for array in (start.U, start.s, start.V)]
    descent = Descent(problem, alpha, np.float64)
    states = _run(descent, 20, descent.start(start))
    assert {state.stage_alpha for state in states} == {alpha}
    np.testing.assert_allclose(states[0].M.dense(), start.dense(), atol=1e-14)
    cold = _run(Descent(problem, alpha, np.float64), 20)
    assert states[-1].objective == pytest.approx(cold[-1].objective, rel=1e-6)  # one optimum
    for array, copy in zip((start.U, start.s, start.V), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_rank_is_that_of_the_solution_whatever_the_start() -> None:
    problem, _ = _problem()
    alpha = problem.alpha_max / 5
    rng = np.random.default_rng(1)
    full = from_factors(rng.standard_normal((12, 11)), rng.standard_normal((11, 11)))
    descent = Descent(problem, alpha, np.float64)
    ranks = {
        _run(descent, 30, descent.start(start))[-1].M.rank
        for start in (None, full, LowRankMatrix(full.U[:, :1], full.s[:1], full.V[:, :1]))
    }
    assert len(ranks) == 1
    assert ranks.pop() < 11


def test_states_are_not_changed_by_the_steps_after_them() -> None:
    problem, _ = _problem()
    states = Descent(problem, problem.alpha_max / 30, np.float32)
    kept: list[tuple[DescentState, list[FloatArray]]] = []
    for state in itertools.islice(states.states(states.start()), 12):
        arrays = [state.M.U, state.M.s, state.M.V, state.gradient]
        kept.append((state, [array.copy() for array in arrays]))
    for state, copies in kept:
        for array, copy in zip((state.M.U, state.M.s, state.M.V, state.gradient), copies, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_each_state_can_be_made_again_from_the_fields_that_are_not_computed() -> None:
    problem, _ = _problem()
    descent = Descent(problem, problem.alpha_max / 30, np.float32)
    for state in _run(descent, 12):
        again = Descent(problem, problem.alpha_max / 30, np.float32).resume(
            state.iteration, state.M, state.stage_alpha, state.step_size, state.gradient_target
        )
        assert (again.objective, again.search_value) == (state.objective, state.search_value)
        np.testing.assert_array_equal(again.gradient, state.gradient)


class _PoisonedProblem:
    """A problem whose loss is not a number away from zero."""

    def __init__(self, problem: BilinearProblem) -> None:
        self.shape, self.spectra, self.alpha_max = problem.shape, problem.spectra, problem.alpha_max
        self.first_step = problem.first_step
        self._problem = problem

    def loss(self, dtype: type) -> CertifiableLoss:
        return _PoisonedLoss(self._problem.X, self._problem.Z, self._problem.supervision, dtype)  # type: ignore[arg-type]


class _PoisonedLoss(PairLogisticLoss):
    def value(self, M: LowRankMatrix) -> float:
        return float("nan") if M.rank else super().value(M)


def test_loss_that_is_not_finite_is_a_numerical_error_that_names_the_iteration() -> None:
    problem, _ = _problem()
    with pytest.raises(NumericalError, match="the loss became nan at iteration 1"):
        _run(Descent(_PoisonedProblem(problem), problem.alpha_max / 10, np.float32), 3)
