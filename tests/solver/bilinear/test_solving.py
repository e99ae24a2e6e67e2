from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.special

from solver import Labels, LowRankBilinear, alpha_max, make_low_rank_pairs
from solver.bilinear.solving import BilinearProblem, FactorRounding
from solver.datasets import SyntheticPairs
from solver.linalg import LowRankMatrix, from_factors
from solver.validation import NumericalError
from tests.solver.dense import DenseProblem

SIZES = [
    (1e40, 1.0), (1.0, 1e40), (1e-20, 1e-20), (1e-60, 1e-60), (1e-60, 1.0), (1e160, 1.0), (1e160, 1e-160),
    (2.0**-400, 2.0**300),
]  # fmt: skip


def _problem(X: Any, Z: Any, labels: Any, fit_intercept: bool = False) -> BilinearProblem:
    return BilinearProblem(X, Z, Labels(*labels), fit_intercept, 1)


def _fit(X: Any, Z: Any, supervision: Labels, **parameters: Any) -> LowRankBilinear:
    alpha = alpha_max(X, Z, supervision, fit_intercept=False) / 20
    return LowRankBilinear(alpha, fit_intercept=False, **parameters).fit(X, Z, supervision)


@pytest.mark.parametrize(("x_size", "z_size"), SIZES)
def test_samples_of_any_size_give_the_same_similarity(
    x_size: float, z_size: float, pairs: SyntheticPairs
) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    X, Z = x_size * pairs.X, z_size * pairs.Z
    plain = _fit(pairs.X, pairs.Z, supervision, dtype=np.float64)
    sized = _fit(X, Z, supervision, dtype=np.float64)
    # The same problem but for one rounding of each sample: eps, which the iterations may multiply.
    assert sized.objective_ == pytest.approx(plain.objective_, rel=1e-12)
    assert sized.duality_gap_ == pytest.approx(plain.duality_gap_, abs=1e-11)
    np.testing.assert_allclose(sized.similarity(X, Z), plain.similarity(pairs.X, pairs.Z), atol=1e-9)
    np.testing.assert_allclose(sized.singular_values_ * x_size * z_size, plain.singular_values_, rtol=1e-9)


@pytest.mark.parametrize(("x_size", "z_size"), [(1e40, 1.0), (1e-20, 1e-20), (1e-60, 1.0)])
def test_float32_factors_of_samples_of_any_size_give_the_same_similarity(
    x_size: float, z_size: float, pairs: SyntheticPairs
) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    X, Z = x_size * pairs.X, z_size * pairs.Z
    plain, sized = (_fit(*samples, supervision, tol=1e-6) for samples in ((pairs.X, pairs.Z), (X, Z)))
    # Rounding may end a line search earlier, so two fits promise no more than their certificates do.
    assert plain.converged_
    assert sized.converged_
    excesses = [model.objective_ * model.duality_gap_ for model in (plain, sized)]
    assert abs(sized.objective_ - plain.objective_) <= max(excesses) + 1e-12
    # What an objective exceeds the optimum by is at least the weighted sum of KL(optimal || own match
    # probability) over pairs (the loss's Bregman divergence), and that is twice the squared differences
    # (Pinsker). So the root of those is at most sqrt(excess / 2) from the optimum for either fit.
    apart = scipy.special.expit(sized.similarity(X, Z)) - scipy.special.expit(
        plain.similarity(pairs.X, pairs.Z)
    )
    similar = pairs.x_labels[:, None] == pairs.z_labels
    weighted_square = sum(np.mean(apart[part].astype(np.float64) ** 2) for part in (similar, ~similar))
    assert np.sqrt(weighted_square) <= sum(np.sqrt(excess / 2) for excess in excesses)


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e-60), (np.float32, 1e80), (np.float64, 1e-160)])
def test_factors_beyond_the_precision_are_a_numerical_error(
    dtype: type, size: float, pairs: SyntheticPairs
) -> None:
    with pytest.raises(NumericalError, match="scale the samples"):
        _fit(size * pairs.X, size * pairs.Z, Labels(pairs.x_labels, pairs.z_labels), dtype=dtype)


@pytest.mark.parametrize(("x_size", "z_size"), SIZES)
def test_alpha_max_scales_with_both_modalities(x_size: float, z_size: float, pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    plain = alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=False)
    sized = alpha_max(x_size * pairs.X, z_size * pairs.Z, supervision, fit_intercept=False)
    # Exact for powers of two, else one rounding of each sample by the caller.
    tolerance = 0.0 if np.log2(x_size) % 1 == np.log2(z_size) % 1 == 0 else 1e-14
    assert sized == pytest.approx(x_size * z_size * plain, rel=tolerance, abs=0.0)


def test_alpha_max_is_the_spectral_norm_of_the_gradient_at_zero(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    for fit_intercept in (False, True):
        dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels, fit_intercept)
        gradient = dense.gradient(np.zeros((dense.X.shape[1], dense.Z.shape[1])))
        found = alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=fit_intercept)
        assert found == pytest.approx(np.linalg.norm(gradient, 2), rel=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_samples_have_unit_size_with_their_constant_and_are_not_rounded(
    fit_intercept: bool, dtype: type, as_sparse: bool, pairs: SyntheticPairs
) -> None:
    X, Z = (np.asarray(samples, dtype) for samples in (30 * pairs.X, 1e-3 * pairs.Z))
    labels = pairs.x_labels, pairs.z_labels
    problem = _problem(
        *map(scipy.sparse.csr_array if as_sparse else np.asarray, (X, Z)), labels, fit_intercept
    )
    sizes = []
    for samples, original in ((problem.X, X), (problem.Z, Z)):
        dense = samples.toarray() if as_sparse else samples
        assert dense.dtype == dtype
        # Of unit size but for the rounding to a power of two, so that no sample is rounded itself.
        assert 0.49 < np.mean(np.sum(dense.astype(np.float64) ** 2, axis=1)) < 2.01
        size = original[0, 0] / dense[0, 0]
        assert np.log2(size) % 1 == 0
        np.testing.assert_array_equal(dense[:, : original.shape[1]], original / size)
        np.testing.assert_array_equal(dense[:, original.shape[1] :], 1 / size)
        sizes.append(size)
    assert problem.penalty_scale == sizes[0] * sizes[1]
    assert problem.n_features == (8 + fit_intercept, 6 + fit_intercept)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_lift_keeps_scores_and_penalty_and_lower_undoes_it(wide: bool, fit_intercept: bool) -> None:
    n_features = 60 if wide else 9
    data = make_low_rank_pairs(20, 30, n_features_x=n_features, n_features_z=7, random_state=0)
    X, Z = 5 * data.X, 0.1 * data.Z
    problem = _problem(X, Z, (data.x_labels, data.z_labels), fit_intercept)
    assert problem.shape == ((20 if wide else 9) + (fit_intercept and not wide), 7 + fit_intercept)
    rng = np.random.default_rng(1)
    M = from_factors(*(rng.standard_normal((size, 3)) for size in problem.shape))
    lifted = problem.lift(M)
    assert lifted.shape == (n_features + fit_intercept, 7 + fit_intercept)
    if fit_intercept:
        X, Z = (np.column_stack([samples, np.ones(len(samples))]) for samples in (X, Z))
    # A few eps of scores near one, times the condition of the change of basis.
    np.testing.assert_allclose(X @ lifted.dense() @ Z.T, problem.X @ M.dense() @ problem.Z.T, atol=1e-11)
    assert lifted.nuclear_norm * problem.penalty_scale == pytest.approx(M.nuclear_norm, rel=1e-12)
    for factor in (lifted.U, lifted.V):
        np.testing.assert_allclose(factor.T @ factor, np.eye(3), atol=1e-11)
    np.testing.assert_allclose(problem.lower(*lifted.balanced_factors()).dense(), M.dense(), atol=1e-11)


@pytest.mark.parametrize("size", [2e38, 1e-37])
def test_samples_at_the_limits_of_float32_are_of_unit_size(size: float) -> None:
    X = np.full((6, 20), size, np.float32)
    X[::2] *= -1
    problem = _problem(X, np.ones((6, 3)), (np.arange(6) % 2, np.arange(6) % 2))
    assert np.isfinite(problem.X).all()
    assert 1e-3 < np.linalg.norm(problem.X) < 1e3
    assert np.isfinite(problem.alpha_max)


def test_wide_samples_are_rotated_only_where_it_pays() -> None:
    for n_features, reduced in ((44, 44), (45, 40)):  # from a tenth more features than samples on
        data = make_low_rank_pairs(40, 30, n_features_x=n_features, random_state=0)
        assert _problem(data.X, data.Z, (data.x_labels, data.z_labels)).shape[0] == reduced


@pytest.mark.parametrize("shape", [(40, 8), (40, 70)])
def test_samples_that_are_all_zero_have_the_zero_solution(shape: tuple[int, int]) -> None:
    labels = np.arange(40) % 3
    Z = np.random.default_rng(0).standard_normal((40, 5))
    supervision = Labels(labels)
    assert alpha_max(np.zeros(shape), Z, supervision, fit_intercept=False) == 0.0
    model = LowRankBilinear(0.1, fit_intercept=False).fit(np.zeros(shape), Z, supervision)
    assert model.rank_ == 0
    assert model.converged_


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
