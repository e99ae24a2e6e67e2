from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from solver import Labels, LowRankBilinear
from solver.datasets import SyntheticPairs
from solver.linalg import FloatArray, LowRankMatrix, from_factors
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.descent import NuclearNorm, proximal_step
from solver.validation import NumericalError


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


@dataclass(frozen=True)
class Step:
    """One accepted step: from a search point to M."""

    search_point: FactoredPoint
    M: LowRankMatrix
    value: float
    step_size: float


def _run(smooth: Quadratic, n_steps: int, start: LowRankMatrix | None = None) -> list[Step]:
    """Take proximal gradient steps, each from the point before it and with a larger first trial."""
    penalty, step_size, steps = NuclearNorm(1.5), 0.01, []
    M = LowRankMatrix.zeros(*smooth.target.shape, smooth.target.dtype) if start is None else start
    for _ in range(n_steps):
        point = FactoredPoint.of(M)
        M, value, step_size = proximal_step(
            smooth, penalty, point, *smooth.value_and_gradient(point), 1.5 * step_size, M.rank
        )
        steps.append(Step(point, M, value, step_size))
    return steps


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


def test_badly_conditioned_quadratic_agrees_with_steps_of_fixed_size() -> None:
    curvature = np.geomspace(1.0, 10.0, 54).reshape(9, 6)
    smooth, penalty = Quadratic(_target(), curvature), NuclearNorm(1.5)
    M = LowRankMatrix.zeros(9, 6, np.float64)
    for _ in range(600):
        _, gradient = smooth.value_and_gradient(FactoredPoint.of(M))
        M = penalty.prox(M.dense() - 0.1 * gradient, 0.1)
    last = _run(smooth, 600)[-1]
    # Linear rate 1 - 1/10 of the plain method: exp(-60) after 600 steps; at half its step size exp(-30).
    expected = smooth.value(M) + penalty.alpha * M.nuclear_norm
    assert last.value + penalty.alpha * last.M.nuclear_norm == pytest.approx(expected, rel=1e-10)


def test_each_step_returns_the_value_at_its_own_point() -> None:
    smooth = Quadratic(_target())
    for step in _run(smooth, 10):
        assert step.value == pytest.approx(smooth.value(step.M), rel=1e-14)


def test_accepted_step_satisfies_the_quadratic_model() -> None:
    smooth = Quadratic(_target(), np.geomspace(1.0, 100.0, 54).reshape(9, 6))
    for step in _run(smooth, 50):
        value, gradient = smooth.value_and_gradient(step.search_point)
        move = step.M.dense() - step.search_point.dense()
        model = value + np.vdot(gradient, move) + np.sum(move**2) / (2 * step.step_size)
        assert smooth.value(step.M) <= model + 1e-12 * (1 + abs(value))  # rounding


def test_a_larger_first_trial_is_accepted_as_far_as_the_curvature_allows() -> None:
    assert _run(Quadratic(_target()), 30)[-1].step_size > 0.3  # L = 1 allows 1, halved at worst twice


def test_nan_loss_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="the loss became nan"):
        _run(Poisoned(10 * _target()), 5)


def test_unreachable_model_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="no step decreased the objective"):
        _run(Undecreasable(10 * _target()), 5)


def test_solution_is_a_fixed_point_of_the_step_and_satisfies_the_optimality_condition(
    pairs: SyntheticPairs,
) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    loss = PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64)
    model = LowRankBilinear(alpha_fraction=0.1, fit_intercept=False, dtype=np.float64, tol=1e-12)
    model.fit(pairs.X, pairs.Z, supervision)
    M, alpha = from_factors(model.x_factors_, model.z_factors_), model.alpha_
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    moved, _, _ = proximal_step(loss, NuclearNorm(alpha), point, value, gradient, 1.0, M.rank)
    np.testing.assert_allclose(moved.dense(), M.dense(), atol=1e-5)
    # -l'(M) / alpha = U V^T + W with ||W||_2 <= 1; 1e-5 allows for the gap.
    np.testing.assert_allclose(-gradient @ M.V / alpha, M.U, atol=1e-5)
    np.testing.assert_allclose(-gradient.T @ M.U / alpha, M.V, atol=1e-5)
    assert np.linalg.norm(gradient, 2) <= alpha * (1 + 1e-5)
