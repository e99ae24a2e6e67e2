import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from solver.kernels import sum_entropies, sum_logistic_losses

HALF_SCORES = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=11),
    elements=st.floats(-30.0, 30.0, allow_subnormal=False),
)


@settings(derandomize=True, deadline=None)
@given(half=HALF_SCORES, sign=st.sampled_from([-1.0, 1.0]))
def test_float64_sum_equals_logaddexp_of_the_scores(half: npt.NDArray[np.float64], sign: float) -> None:
    expected = np.logaddexp(0.0, -2.0 * sign * half).sum()
    # 1 + y t keeps all but exp(8) ~ 3e3 eps of its digits before the saturated branch takes over.
    assert sum_logistic_losses(half, np.tanh(half), sign) == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("largest", [0.5, 4.0, 7.9, 8.1, 20.0, 60.0])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 31])
def test_float32_sum_equals_float64_reference(largest: float, sign: float, width: int) -> None:
    half = np.random.default_rng(0).uniform(-largest / 2, largest / 2, (40, width)).astype(np.float32)
    expected = np.logaddexp(0.0, -2.0 * sign * half.astype(np.float64)).sum()
    # Just below |s| = 8 a factor has a relative error of eps * exp(8) = 3.6e-4, and its loss is 8.
    assert sum_logistic_losses(half, np.tanh(half), sign) == pytest.approx(expected, rel=5e-5)


def test_loss_at_zero_is_log_two_per_pair() -> None:
    zero = np.zeros((3, 5))
    assert sum_logistic_losses(zero, zero, 1.0) == pytest.approx(15 * np.log(2.0), rel=1e-15)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_loss_of_no_pairs_is_zero(shape: tuple[int, int]) -> None:
    assert sum_logistic_losses(np.zeros(shape), np.zeros(shape), 1.0) == 0.0


def test_kernels_leave_their_inputs_unmodified() -> None:
    half = np.random.default_rng(1).standard_normal((6, 9)).astype(np.float32)
    t = np.tanh(half)
    p = np.abs(t)
    copies = half.copy(), t.copy(), p.copy()
    sum_logistic_losses(half, t, -1.0)
    sum_entropies(p)
    for array, copy in zip((half, t, p), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_entropy_is_zero_at_certainty_and_log_two_at_a_half() -> None:
    assert sum_entropies(np.array([0.0, 1.0])) == 0.0
    assert sum_entropies(np.full((2, 2), 0.5)) == pytest.approx(4 * np.log(2.0), rel=1e-15)
