from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from solver.losses.pair_blocks import TileBuffers, differentiate, sum_entropies, sum_losses
from solver.supervision.kinds import PairKey

# The largest difference between the products and sums of a kernel and a dense float64 formula, per pair:
# a loss is log(F) with a relative error of eps in F, plus eps times the score where it is subtracted.
EPS = {dtype: float(np.finfo(dtype).eps) for dtype in (np.float32, np.float64)}

KEY_KINDS = ["rectangles", "indices", "mask", "none", "all", "empty rectangle", "empty indices"]


def _keys(kind: str, shape: tuple[int, int]) -> tuple[list[PairKey], npt.NDArray[np.bool_]]:
    """Return keys of one kind with the dense mask of the same pairs."""
    rows, columns = shape
    mask = np.zeros(shape, bool)
    keys: list[PairKey] = []
    if kind == "rectangles":
        keys = [
            (slice(0, rows // 2), slice(0, columns // 3)),
            (slice(rows // 2, rows), slice(columns // 3, columns)),
        ]
    elif kind == "indices":
        diagonal = np.arange(min(shape))
        keys = [(diagonal, diagonal)]
    elif kind == "mask":
        keys = [np.random.default_rng(7).random(shape) < 0.3]
    elif kind == "all":
        keys = [(slice(0, rows), slice(0, columns))]
    elif kind == "empty rectangle":
        keys = [(slice(1, 1), slice(0, columns))]
    elif kind == "empty indices":
        keys = [(np.arange(0), np.arange(0))]
    for key in keys:
        mask[key] = True
    return keys, mask


def _dense_losses(scores: Any, mask: npt.NDArray[np.bool_]) -> tuple[float, float]:
    exact = np.asarray(scores, np.float64)
    return float(np.logaddexp(0.0, exact[~mask]).sum()), float(np.logaddexp(0.0, -exact[mask]).sum())


def _dense_derivatives(scores: Any, mask: npt.NDArray[np.bool_], ratio: float) -> npt.NDArray[np.float64]:
    exact = np.asarray(scores, np.float64)
    with np.errstate(over="ignore"):  # exp of 1000 and more is infinity here, and its inverse zero
        derivatives: npt.NDArray[np.float64] = np.where(
            mask, -ratio / (1.0 + np.exp(exact)), 1.0 / (1.0 + np.exp(-exact))
        )
    return derivatives


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KEY_KINDS)
@pytest.mark.parametrize("largest", [0.5, 8.0, 30.0, 200.0, 3000.0])
def test_losses_and_derivatives_equal_the_dense_float64_formula(
    dtype: type, kind: str, largest: float
) -> None:
    for width in (1, 2, 3, 4, 5, 8, 31):
        scores = np.random.default_rng(0).uniform(-largest, largest, (40, width)).astype(dtype)
        keys, mask = _keys(kind, scores.shape)
        expected = _dense_losses(scores, mask)
        slopes = _dense_derivatives(scores, mask, 2.5)
        factors = np.empty_like(scores)
        found = sum_losses(scores, factors, keys)
        # Eight roundings of relative size eps: of F, of three products, of the logarithm and of the score.
        tolerance = 8 * EPS[dtype] * scores.size * (1.0 + min(largest, 150.0))
        assert found == pytest.approx(expected, rel=8 * EPS[dtype], abs=tolerance)
        # Scores beyond the largest that four factors hold count as that: 1 / F is off by its 1 / F, rounded.
        clipped = 2.5 * np.exp(-20.0 if dtype == np.float32 else -150.0) * (1.0 + 8 * EPS[dtype])
        derivatives = differentiate(scores, factors, keys, 2.5)
        assert derivatives.dtype == dtype
        np.testing.assert_allclose(derivatives, slopes, rtol=8 * EPS[dtype], atol=clipped)


@given(
    scores=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=11),
        elements=st.floats(-400.0, 400.0, allow_subnormal=False),
    ),
    seed=st.integers(0, 99),
)
def test_float64_losses_of_any_scores_and_mask_equal_logaddexp(
    scores: npt.NDArray[np.float64], seed: int
) -> None:
    mask = np.random.default_rng(seed).random(scores.shape) < 0.5
    expected = _dense_losses(scores, mask)
    # Eps times a score of up to 400 for each of up to 121 pairs, a few times over.
    assert sum_losses(scores.copy(), np.empty_like(scores), [mask]) == pytest.approx(
        expected, rel=1e-13, abs=1e-10
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_derivatives_keep_their_relative_precision(dtype: type) -> None:
    # -1 / F of a similar pair at s > 0, exp(s) / F of a dissimilar one at s < 0: both near exp(-|s|).
    scores = np.linspace(-18.0, 18.0, 73, dtype=dtype)[None, :].copy()
    mask = scores > 0
    expected = _dense_derivatives(scores, mask, 1.0)
    factors = np.empty_like(scores)
    sum_losses(scores, factors, [mask])
    np.testing.assert_allclose(differentiate(scores, factors, [mask], 1.0), expected, rtol=20 * EPS[dtype])


def test_loss_at_zero_is_log_two_per_pair() -> None:
    zero = np.zeros((3, 5))
    dissimilar, similar = sum_losses(zero, np.empty_like(zero), [(slice(0, 3), slice(0, 2))])
    assert dissimilar == pytest.approx(9 * np.log(2.0), rel=1e-14)
    assert similar == pytest.approx(6 * np.log(2.0), rel=1e-14)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (1, 3)])
def test_score_that_is_not_finite_never_gives_a_finite_loss(poison: float, place: tuple[int, int]) -> None:
    scores = np.zeros((2, 4), np.float32)
    scores[place] = poison
    key = (slice(0, 1), slice(0, 2))
    with np.errstate(invalid="ignore"):
        losses = sum_losses(scores, np.empty_like(scores), [key])
    assert not np.isfinite(sum(losses))


def test_scores_of_a_tile_are_the_inner_products_of_its_factors() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    buffers = TileBuffers.of(40, np.float64)
    scores = buffers.score(left, right)
    np.testing.assert_allclose(scores, left @ right.T, rtol=1e-14)
    factors = buffers.factors_like(scores)
    assert factors.shape == scores.shape
    assert np.shares_memory(scores, buffers.scores)
    assert not np.shares_memory(scores, factors)


def test_entropy_is_zero_at_certainty_and_log_two_at_a_half() -> None:
    assert sum_entropies(np.array([0.0, 1.0])) == 0.0
    assert sum_entropies(np.full((2, 2), 0.5)) == pytest.approx(4 * np.log(2.0), rel=1e-15)
