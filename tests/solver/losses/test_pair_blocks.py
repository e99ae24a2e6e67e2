from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import FitCost, Labels, LowRankBilinear, Machines, PairSizes, make_low_rank_pairs
from solver.linalg import from_factors
from solver.losses import pair_blocks
from solver.losses.base import FactoredPoint
from solver.losses.pair_blocks import Block, PairBlocks
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.convergence import certify

MILLION = PairSizes(10**6, 10**6, n_features_x=64, n_features_z=64, itemsize=4)
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Small tiles, and grids of blocks of few of them."""
    monkeypatch.setattr(pair_blocks, "_TILE_COLUMNS", 60)
    monkeypatch.setattr(pair_blocks, "_TILE_BYTES", 1)
    monkeypatch.setattr(pair_blocks, "_BLOCK_PAIRS", 5000)
    return monkeypatch


def _arguments(n_rows: int, n_columns: int, *, is_sparse: bool = False) -> tuple[Any, Any, Labels]:
    data = make_low_rank_pairs(
        n_rows, n_columns, n_features_x=9, n_features_z=7, n_classes=5, noise=1.5, random_state=0
    )
    X, Z = data.X, data.Z
    if is_sparse:
        X, Z = (scipy.sparse.csr_array(np.where(side > 0, side, 0.0)) for side in (X, Z))
    return X, Z, Labels(data.x_labels, data.z_labels)


def _evaluate_both(grids: pytest.MonkeyPatch, evaluate: Callable[[], Any]) -> tuple[Any, Any]:
    """Return a result by a grid, and by blocks of rows."""
    results = []
    for block_pairs in (5000, 1 << 30):
        grids.setattr(pair_blocks, "_BLOCK_PAIRS", block_pairs)
        results.append(evaluate())
    return results[0], results[1]


@pytest.mark.parametrize("size", [(230, 510), (5000, 30), (20, 5000), (401, 399)])
def test_a_grid_holds_every_pair_once_in_blocks_of_whole_tiles(
    size: tuple[int, int], grids: pytest.MonkeyPatch
) -> None:
    sizes = PairSizes(*size, 9, 7, 4)
    assert sizes.is_grid
    counts = np.zeros(size, np.int8)
    for rows, columns in sizes.split():
        counts[rows, columns] += 1
        assert rows.start % sizes.tile_height == columns.start % sizes.tile_width == 0
    assert (counts == 1).all()


def test_blocks_are_of_rows_up_to_sixteen_times_the_pairs_of_one() -> None:
    rows = PairSizes(1 << 17, 1 << 17, 64, 64, 4)
    assert not rows.is_grid
    assert len(rows.split()) == len(rows.sample()) == 16
    assert {block.columns.stop for block in rows.split()} == {1 << 17}
    assert PairSizes(1 << 17, (1 << 17) + 1, 64, 64, 4).is_grid


@pytest.mark.parametrize(
    ("size", "most_sides"), [((10**6, 10**6), 1.1), ((10**7, 10**5), 1.2), ((10**9, 10**3), 1100.0)]
)
def test_blocks_of_a_grid_are_nearly_square_and_of_about_a_billion_pairs(
    size: tuple[int, int], most_sides: float
) -> None:
    for n_rows, n_columns in (size, size[::-1]):
        blocks = PairSizes(n_rows, n_columns, 64, 64, 4).split()
        assert 900 < len(blocks) < 1000
        sides = np.array([[side.stop - side.start for side in block] for block in blocks])
        assert sides.prod(axis=1).max() < 1.2 * (1 << 30)
        assert sides.prod(axis=1).min() > 0.7 * (1 << 30)
        ratios = sides[:, 0] / sides[:, 1]
        assert max(np.median(ratios), 1 / np.median(ratios)) < most_sides


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_grid_gives_what_blocks_of_rows_give(
    dtype: type, is_sparse: bool, grids: pytest.MonkeyPatch
) -> None:
    arguments, rng = _arguments(230, 510, is_sparse=is_sparse), np.random.default_rng(0)
    A, B = (rng.standard_normal((n_features, 3)).astype(dtype) for n_features in (9, 7))
    point, M, tolerance = FactoredPoint(A, B), from_factors(A, B), TOLERANCE[dtype]

    def evaluate() -> tuple[Any, ...]:
        loss = PairLogisticLoss(*arguments, dtype, n_threads=2)
        value, gradient = loss.value_and_gradient(point)
        at_zero = loss.value(M.zeros(9, 7, dtype))
        dual_value = loss.dual_value(point, 0.5)
        return value, gradient, *loss.value_and_factor_gradients(A, B), loss.value(M), dual_value, at_zero

    for found, expected in zip(*_evaluate_both(grids, evaluate), strict=True):
        size = float(np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)
        assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_the_curvature_is_sampled_in_few_tiles_of_a_grid(grids: pytest.MonkeyPatch) -> None:
    arguments, measure = _arguments(700, 800), PairBlocks.sum_curvatures
    point, blocks = FactoredPoint(0.1 * np.ones((9, 1)), np.ones((7, 1))), list[Block]()

    def record(pairs: PairBlocks, block: Block, *factors: Any) -> tuple[float, int]:
        blocks.append(block)
        return measure(pairs, block, *factors)

    grids.setattr(PairBlocks, "sum_curvatures", record)
    found, expected = _evaluate_both(
        grids, lambda: PairLogisticLoss(*arguments, np.float64).mean_curvature(point)
    )
    assert found == pytest.approx(expected, rel=0.5)
    in_grid = blocks[:-16]
    assert 8 < len(in_grid) <= 16
    assert len({block.rows.start for block in in_grid}) > 5
    assert len({block.columns.start for block in in_grid}) > 5


def test_a_fit_through_a_grid_is_certified_at_the_same_objective(grids: pytest.MonkeyPatch) -> None:
    arguments, rng = _arguments(230, 400), np.random.default_rng(1)
    in_grid, in_rows = _evaluate_both(
        grids, lambda: LowRankBilinear(alpha_fraction=1 / 100, tol=1e-5).fit(*arguments)
    )
    assert in_grid.converged_
    assert in_grid.rank_ == in_rows.rank_ > 1
    assert in_grid.duality_gap_ <= 1e-5
    assert in_grid.objective_ == pytest.approx(in_rows.objective_, rel=2e-5)

    M = from_factors(0.1 * rng.standard_normal((9, 2)), rng.standard_normal((7, 2)))
    found, expected = _evaluate_both(
        grids, lambda: certify(PairLogisticLoss(*arguments, np.float64), M, 0.05)
    )
    assert found.objective == pytest.approx(expected.objective, rel=1e-12)
    assert found.dual_value == pytest.approx(expected.dual_value, rel=1e-10)


def test_more_machines_are_expected_to_help_at_a_million_by_a_million() -> None:
    few, many = (
        FitCost.estimate(MILLION, Machines(16 * n_machines, 1e-8, 1.25e9)) for n_machines in (16, 64)
    )
    assert few.n_pairs == many.n_pairs == 10**12
    assert many.evaluation_seconds < 0.35 * few.evaluation_seconds
    assert many.evaluation_seconds < 15.0
    for cost in (few, many):
        assert cost.evaluation_bytes < 100e6
        assert cost.own_bytes < 1e6
        assert cost.evaluation_processor_seconds == pytest.approx(1e4, rel=0.01)
    # A round of a block of 32 000 x 32 000 samples, or four; all samples are 512 MB.
    assert 16e6 < many.worker_bytes < 50e6 < few.worker_bytes < 150e6


def test_what_blocks_of_rows_cost_is_expected_as_before() -> None:
    sizes = PairSizes(10**5, 10**5, n_features_x=32, n_features_z=64, itemsize=4)
    cost = FitCost.estimate(sizes, Machines(8, 1e-8, 1e9))
    factor = 10**5 * 32 * 4
    assert cost.n_blocks == 16
    assert cost.evaluation_bytes == (8 + 16 + 2) * factor
    assert cost.evaluation_seconds == pytest.approx(13.3848, rel=1e-3)
    assert cost.own_bytes == 3 * factor
    assert cost.worker_bytes == pytest.approx(10**5 * 64 * 4 + 2 * factor * (1 + 1 / 16), rel=0.01)
