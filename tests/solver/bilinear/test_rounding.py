from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import Labels, make_low_rank_pairs
from solver.bilinear.solving import BilinearProblem, FactorRounding
from solver.linalg import LowRankMatrix, from_factors
from solver.validation import NumericalError


def _instance(
    n_features: int = 9, fit_intercept: bool = True
) -> tuple[Any, Any, BilinearProblem, LowRankMatrix]:
    data = make_low_rank_pairs(20, 30, n_features_x=n_features, n_features_z=7, random_state=0)
    X, Z = 5 * data.X + 100 * np.linspace(0, 1, n_features), 0.1 * data.Z - 10
    problem = BilinearProblem(X, Z, Labels(data.x_labels, data.z_labels), fit_intercept, 1)
    rng = np.random.default_rng(1)
    return X, Z, problem, from_factors(*(rng.standard_normal((size, 3)) for size in problem.shape))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_float64_factors_are_the_balanced_ones(fit_intercept: bool) -> None:
    X, Z, problem, M = _instance(fit_intercept=fit_intercept)
    rounding = FactorRounding(problem, X, Z, fit_intercept, np.float64)
    for found, expected in zip(rounding.factors(M), problem.lift(M).balanced_factors(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert rounding.round(M) is M


@pytest.mark.parametrize("n_features", [9, 60])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_what_is_kept_is_what_the_rounded_factors_stand_for(n_features: int, fit_intercept: bool) -> None:
    X, Z, problem, M = _instance(n_features, fit_intercept)
    rounding = FactorRounding(problem, X, Z, fit_intercept, np.float32)
    left, right = rounding.factors(M)
    assert left.dtype == right.dtype == np.float32
    if fit_intercept:
        X, Z = (np.column_stack([samples, np.ones(len(samples))]) for samples in (X, Z))
    kept = problem.X @ rounding.round(M).dense() @ problem.Z.T
    np.testing.assert_allclose(
        X @ left.astype(np.float64) @ (Z @ right.astype(np.float64)).T, kept, atol=1e-9
    )
    np.testing.assert_allclose(kept, problem.X @ M.dense() @ problem.Z.T, atol=1e-3)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_intercepts_make_up_for_the_rounding_at_the_mean_sample(as_sparse: bool) -> None:
    X, Z, problem, M = _instance()
    samples = map(scipy.sparse.csr_array, (X, Z)) if as_sparse else (X, Z)
    rounded = FactorRounding(problem, *samples, True, np.float32).factors(M)
    exact = problem.lift(M).balanced_factors()
    for side, found, expected in zip((X, Z), rounded, exact, strict=True):
        mean = np.append(side.mean(axis=0), 1.0)
        error = mean @ found.astype(np.float64) - mean @ expected
        # One rounding of the intercept is left, of eight or ten products a hundred times its size.
        assert np.abs(error).max() <= 6e-8 * np.abs(found[-1]).max()
        uncorrected = mean @ expected.astype(np.float32).astype(np.float64) - mean @ expected
        assert np.abs(error).max() < np.abs(uncorrected).max() / 3


@pytest.mark.parametrize("size", [1e42, 1e-50])
def test_factors_beyond_float32_are_a_numerical_error(size: float) -> None:
    X, Z, problem, M = _instance()
    scaled = LowRankMatrix(M.U, M.s * size**2, M.V)
    with pytest.raises(NumericalError, match=r"out of range of float32: scale the samples"):
        FactorRounding(problem, X, Z, True, np.float32).factors(scaled)


def test_zero_has_factors_of_rank_zero() -> None:
    X, Z, problem, _ = _instance()
    zero = LowRankMatrix.zeros(*problem.shape, np.float64)
    rounding = FactorRounding(problem, X, Z, True, np.float32)
    left, right = rounding.factors(zero)
    assert (left.shape, right.shape) == ((10, 0), (8, 0))
    assert rounding.round(zero).rank == 0
