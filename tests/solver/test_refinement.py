from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solver import Labels
from solver.datasets import SyntheticPairs
from solver.linalg import LowRankMatrix, singular_triplets_above
from solver.losses import FactoredPoint, PairLogisticLoss
from solver.refinement import from_factors, refine_factors

ALPHA = 0.01


def _loss(pairs: SyntheticPairs, dtype: type = np.float64) -> PairLogisticLoss:
    return PairLogisticLoss(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), dtype)


def _point(rank: int, seed: int = 0) -> LowRankMatrix:
    rng = np.random.default_rng(seed)
    return singular_triplets_above(rng.standard_normal((8, rank)) @ rng.standard_normal((rank, 6)), 1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_evaluations", [1, 3, 150])
def test_refinement_never_raises_the_objective_nor_the_rank(
    pairs: SyntheticPairs, dtype: type, max_evaluations: int, dense_problem: Callable[..., Any]
) -> None:
    dense = dense_problem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    for rank in (1, 3, 6):
        M = _point(rank).astype(dtype)
        refined = refine_factors(_loss(pairs, dtype), ALPHA, M, max_evaluations, 1e-9)
        before, after = dense.objective(M.dense(), ALPHA), dense.objective(refined.dense(), ALPHA)
        assert after <= before * (1 + 10 * float(np.finfo(dtype).eps))  # rounding of one evaluation
        assert refined.rank <= rank
        assert refined.U.dtype == refined.s.dtype == refined.V.dtype == dtype


def test_refined_point_is_stationary_on_its_own_subspaces(pairs: SyntheticPairs) -> None:
    refined = refine_factors(_loss(pairs), ALPHA, _point(2), 5000, 1e-15)
    gradient = _loss(pairs).value_and_gradient(FactoredPoint.of(refined))[1]
    # l' V = -alpha U and l'^T U = -alpha V; L-BFGS stops at relative decrease 1e-15, the square of this.
    np.testing.assert_allclose(gradient @ refined.V, -ALPHA * refined.U, atol=1e-6)
    np.testing.assert_allclose(gradient.T @ refined.U, -ALPHA * refined.V, atol=1e-6)


def test_refinement_leaves_its_start_unmodified(pairs: SyntheticPairs) -> None:
    M = _point(3)
    copies = M.U.copy(), M.s.copy(), M.V.copy()
    refine_factors(_loss(pairs), ALPHA, M, 50, 1e-9)
    for array, copy in zip((M.U, M.s, M.V), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("shape", [(8, 6, 3), (3, 9, 5), (2, 2, 7)])
def test_from_factors_is_the_svd_of_the_product(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((shape[0], shape[2])), rng.standard_normal((shape[1], shape[2]))
    M = from_factors(left, right)
    expected = np.linalg.svd(left @ right.T, compute_uv=False)[: min(shape)]
    tolerance = 1e-13 * expected[0]  # a few eps of the norm
    np.testing.assert_allclose(M.s, expected, atol=tolerance)
    np.testing.assert_allclose(M.dense(), left @ right.T, atol=tolerance)
    np.testing.assert_allclose(M.U.T @ M.U, np.eye(M.rank), atol=1e-13)
    np.testing.assert_allclose(M.V.T @ M.V, np.eye(M.rank), atol=1e-13)


def test_from_factors_drops_dependent_columns() -> None:
    left = np.ones((5, 3))
    M = from_factors(left, np.ones((4, 3)))
    assert M.rank == 1
    assert M.s[0] == pytest.approx(3 * np.sqrt(20), rel=1e-14)


def test_from_factors_of_zero_is_rank_zero() -> None:
    assert from_factors(np.zeros((5, 2)), np.zeros((4, 2))).rank == 0
