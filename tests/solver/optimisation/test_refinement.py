from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solver import Labels, make_low_rank_pairs
from solver.datasets import SyntheticPairs
from solver.linalg import FloatArray, LowRankMatrix, from_factors, singular_triplets_above
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.descent import GramSpectrum, Refinement, refine_factors

ALPHA = 0.01


def _loss(pairs: SyntheticPairs, dtype: type = np.float64) -> PairLogisticLoss:
    return PairLogisticLoss(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), dtype)


class _CountingLoss(PairLogisticLoss):
    n_evaluations = 0

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        self.n_evaluations += 1
        return super().value_and_factor_gradients(A, B)


def _point(rank: int, seed: int = 0) -> LowRankMatrix:
    rng = np.random.default_rng(seed)
    return singular_triplets_above(rng.standard_normal((8, rank)) @ rng.standard_normal((rank, 6)), 1e-8)


def _refine(pairs: SyntheticPairs, M: LowRankMatrix, **options: Any) -> Refinement:
    loss = _loss(pairs, M.s.dtype.type)
    spectra = GramSpectrum.of(pairs.X), GramSpectrum.of(pairs.Z)
    return refine_factors(loss, spectra, ALPHA, M, **{"max_evaluations": 1000, "reduction": 0.0, **options})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_evaluations", [1, 3, 150])
def test_refinement_never_raises_the_objective_nor_the_rank(
    pairs: SyntheticPairs, dtype: type, max_evaluations: int, dense_problem: Callable[..., Any]
) -> None:
    dense = dense_problem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    for rank in (1, 3, 6):
        M = _point(rank).astype(dtype)
        refined = _refine(pairs, M, max_evaluations=max_evaluations, relative_tolerance=1e-9).M
        before, after = dense.objective(M.dense(), ALPHA), dense.objective(refined.dense(), ALPHA)
        assert after <= before * (1 + 10 * float(np.finfo(dtype).eps))  # rounding of one evaluation
        assert refined.rank <= rank
        assert refined.U.dtype == refined.s.dtype == refined.V.dtype == dtype


def test_refined_point_is_stationary_on_its_own_subspaces(pairs: SyntheticPairs) -> None:
    refined = _refine(pairs, _point(2), max_evaluations=5000).M
    gradient = _loss(pairs).value_and_gradient(FactoredPoint.of(refined))[1]
    # l' V = -alpha U and l'^T U = -alpha V; float64 hides decreases of 1e-15, the square of this.
    np.testing.assert_allclose(gradient @ refined.V, -ALPHA * refined.U, atol=1e-6)
    np.testing.assert_allclose(gradient.T @ refined.U, -ALPHA * refined.V, atol=1e-6)


def test_neither_modality_is_preferred_where_one_has_features_of_very_different_sizes() -> None:
    data = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=4, random_state=0)
    sizes = np.geomspace(1.0, 0.01, 8)
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((8, 2)) / sizes[:, None], rng.standard_normal((6, 2))
    sides = (data.X * sizes, data.x_labels, A), (data.Z, data.z_labels, B)
    counts, points = [], []
    for (X, x_labels, left), (Z, z_labels, right) in (sides, sides[::-1]):
        loss = _CountingLoss(X, Z, Labels(x_labels, z_labels), np.float64)
        spectra = GramSpectrum.of(X), GramSpectrum.of(Z)
        start = from_factors(left, right)
        points.append(refine_factors(loss, spectra, 1e-4, start, max_evaluations=500, reduction=0.01).M)
        counts.append(loss.n_evaluations)
    # The two descents mirror each other, up to rounding: a scaling of one side alone would differ by itself.
    assert counts[0] == counts[1]
    assert counts[0] < 20  # 9 were counted, 25 without a change of variables
    np.testing.assert_allclose(points[0].dense(), points[1].dense().T, rtol=1e-6, atol=1e-6)
