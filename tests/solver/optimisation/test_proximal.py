import itertools

import numpy as np
import numpy.typing as npt
import pytest

from solver import Labels, alpha_max
from solver.datasets import SyntheticPairs
from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray, LowRankMatrix, singular_triplets_above
from solver.losses.base import FactoredPoint
from solver.losses.logistic import PairLogisticLoss
from solver.optimisation.penalties import NuclearNorm
from solver.optimisation.proximal import ApgState, iterate


class Quadratic:
    """``sum_ij h_ij (M_ij - target_ij)^2 / 2``; with h = 1 the penalised minimum is a shrunken target."""

    def __init__(self, target: FloatArray, curvature: npt.ArrayLike = 1.0) -> None:
        self.target = target
        self.curvature = np.asarray(curvature, target.dtype)

    def value(self, M: LowRankMatrix) -> float:
        return float(np.sum(self.curvature * (M.dense() - self.target) ** 2, dtype=np.float64)) / 2

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        rest = point.dense() - self.target
        value = float(np.sum(self.curvature * rest**2, dtype=np.float64)) / 2
        return value, self.curvature * rest


class Poisoned(Quadratic):
    """Turns into NaN away from zero."""

    def value(self, M: LowRankMatrix) -> float:
        return float("nan") if M.rank else super().value(M)


class Undecreasable(Quadratic):
    """Promises less than any point has, so that no step keeps the promise."""

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        value, gradient = super().value_and_gradient(point)
        return value / 2, gradient


def _target(dtype: type = np.float64) -> FloatArray:
    target: FloatArray = np.random.default_rng(0).standard_normal((9, 6)).astype(dtype)
    return target


def _run(smooth: Quadratic, n_iter: int) -> list[ApgState]:
    zero = LowRankMatrix.zeros(*smooth.target.shape, smooth.target.dtype)
    states = iterate(smooth, NuclearNorm(1.5), zero, 0.01)
    return list(itertools.islice(states, n_iter))


@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        np.float64,
    ],
)
def test_quadratic_reaches_its_closed_form_minimum_within_sixty_steps(dtype: type) -> None:
    target = _target(dtype)
    U, s, Vt = np.linalg.svd(target.astype(np.float64), full_matrices=False)
    last = _run(Quadratic(target), 60)[-1]
    assert last.M.U.dtype == last.M.s.dtype == dtype
    assert last.M.rank == np.count_nonzero(s > 1.5)
    # Accepted steps fall short of 1/L by the growth and shrinkage factors only; float32 allows
    # moves below sqrt(4 eps * value) = 3e-3 to be accepted whatever their size.
    tolerance = 3e-3 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(last.M.dense(), (U * np.maximum(s - 1.5, 0)) @ Vt, atol=tolerance)


def test_badly_conditioned_quadratic_agrees_with_plain_proximal_gradient() -> None:
    curvature = np.geomspace(1.0, 100.0, 54).reshape(9, 6)
    smooth, penalty = Quadratic(_target(), curvature), NuclearNorm(1.5)
    M = LowRankMatrix.zeros(9, 6, np.float64)
    for _ in range(6000):
        _, gradient = smooth.value_and_gradient(FactoredPoint.of(M))
        M = penalty.prox(M.dense() - 0.01 * gradient, 0.01)
    last = _run(smooth, 600)[-1]
    # Linear rate 1 - 1/100 of the plain method: exp(-60) after 6000 steps.
    assert last.objective == pytest.approx(smooth.value(M) + penalty.value(M), rel=1e-10)


def test_each_state_states_its_own_objective() -> None:
    smooth, penalty = Quadratic(_target()), NuclearNorm(1.5)
    for number, state in enumerate(_run(smooth, 10), start=1):
        assert state.iteration == number
        assert state.objective == pytest.approx(smooth.value(state.M) + penalty.value(state.M), rel=1e-14)


def test_accepted_step_satisfies_the_quadratic_model() -> None:
    smooth = Quadratic(_target(), np.geomspace(1.0, 100.0, 54).reshape(9, 6))
    for state in _run(smooth, 50):
        value, gradient = smooth.value_and_gradient(state.search_point)
        np.testing.assert_array_equal(gradient, state.gradient)
        move = state.M.dense() - state.search_point.dense()
        model = value + np.vdot(gradient, move) + np.sum(move**2) / (2 * state.step_size)
        assert smooth.value(state.M) <= model + 1e-12 * (1 + abs(value))  # rounding


def test_momentum_carries_on_and_restarts_where_it_points_uphill_or_the_objective_rises() -> None:
    states = _run(Quadratic(_target(), np.geomspace(1.0, 100.0, 54).reshape(9, 6)), 120)
    restarts = 0
    for before, state in itertools.pairwise(states):
        grown = (1.0 + np.sqrt(1.0 + 4.0 * before.momentum**2)) / 2.0
        M, last = before.M.dense(), before.previous.dense()
        expected = M + (before.momentum - 1.0) / grown * (M - last)
        np.testing.assert_allclose(state.search_point.dense(), expected, atol=1e-12)  # a few eps
        np.testing.assert_array_equal(state.previous.dense(), M)
        uphill = np.vdot(state.M.dense() - state.search_point.dense(), state.M.dense() - M) < 0
        restarted = uphill or state.objective > before.objective
        assert state.momentum == pytest.approx(1.0 if restarted else grown, rel=1e-14)
        restarts += restarted
    assert 2 <= restarts <= 30  # the slowest of the directions swings once in some tens of steps
    assert max(state.momentum for state in states) > 5.0


def test_step_grows_beyond_a_too_small_first_step() -> None:
    assert _run(Quadratic(_target()), 30)[-1].step_size > 0.3  # L = 1 allows 1, halved at worst twice


def test_start_is_unmodified() -> None:
    start = singular_triplets_above(_target(), 0.0)
    copies = start.U.copy(), start.s.copy(), start.V.copy()
    list(itertools.islice(iterate(Quadratic(_target()), NuclearNorm(1.0), start, 1.0), 5))
    for array, copy in zip((start.U, start.s, start.V), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_nan_loss_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="nan at iteration 1"):
        _run(Poisoned(10 * _target()), 5)


def test_unreachable_model_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="no step decreased the objective at iteration 1"):
        _run(Undecreasable(10 * _target()), 5)


def test_pair_loss_satisfies_the_optimality_condition_after_two_hundred_steps(
    pairs: SyntheticPairs,
) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    loss = PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64)
    alpha = alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=False) / 10
    states = iterate(loss, NuclearNorm(alpha), LowRankMatrix.zeros(8, 6, np.float64), 1.0)
    M = next(itertools.islice(states, 200, None)).M
    gradient = loss.value_and_gradient(FactoredPoint.of(M))[1]
    # -l'(M) / alpha = U V^T + W with ||W||_2 <= 1; 1e-5 allows for the steps not taken.
    np.testing.assert_allclose(-gradient @ M.V / alpha, M.U, atol=1e-5)
    np.testing.assert_allclose(-gradient.T @ M.U / alpha, M.V, atol=1e-5)
    assert np.linalg.norm(gradient, 2) <= alpha * (1 + 1e-5)
