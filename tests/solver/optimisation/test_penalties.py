import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from solver.optimisation.descent import NuclearNorm
from solver.validation import InvalidParameterError

MATRICES = arrays(np.float64, (5, 4), elements=st.floats(-10.0, 10.0, allow_subnormal=False))


def _nuclear(A: npt.NDArray[np.float64]) -> float:
    return float(np.linalg.svd(A, compute_uv=False).sum())


@given(A=MATRICES, N=MATRICES, alpha=st.floats(0.01, 5.0), step=st.floats(0.01, 5.0))
def test_prox_satisfies_the_three_point_inequality(
    A: npt.NDArray[np.float64], N: npt.NDArray[np.float64], alpha: float, step: float
) -> None:
    P = NuclearNorm(alpha).prox(A, step).dense()
    at_prox = alpha * _nuclear(P) + np.sum((P - A) ** 2) / (2 * step)
    elsewhere = alpha * _nuclear(N) + np.sum((N - A) ** 2) / (2 * step)
    # Strong convexity 1/step around the minimiser; rounding is relative to the largest term.
    assert at_prox + np.sum((N - P) ** 2) / (2 * step) <= elsewhere + 1e-12 * (1.0 + at_prox + elsewhere)


@given(
    A=MATRICES,
    alpha=st.floats(0.01, 5.0),
    step=st.floats(0.01, 5.0),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_prox_satisfies_its_optimality_condition(
    A: npt.NDArray[np.float64], alpha: float, step: float, dtype: type
) -> None:
    A = A.astype(dtype)
    P = NuclearNorm(alpha).prox(A, step)
    rest = (A.astype(np.float64) - P.astype(np.float64).dense()) / step
    # The rest over alpha is a subgradient at P: U V^T on P's own subspaces, no longer than one elsewhere.
    tolerance = 100 * float(np.finfo(dtype).eps) * (1.0 + float(np.linalg.norm(A))) / step
    assert np.linalg.norm(rest, 2) <= alpha + tolerance
    assert np.vdot(rest, P.dense()) == pytest.approx(alpha * P.nuclear_norm, abs=40 * tolerance)
    np.testing.assert_allclose(rest @ P.V, alpha * P.U, atol=tolerance)
    np.testing.assert_allclose(rest.T @ P.U, alpha * P.V, atol=tolerance)


@given(A=MATRICES, B=MATRICES, threshold=st.floats(0.01, 20.0))
def test_prox_is_firmly_non_expansive(
    A: npt.NDArray[np.float64], B: npt.NDArray[np.float64], threshold: float
) -> None:
    penalty = NuclearNorm(threshold)
    move = penalty.prox(A, 1.0).dense() - penalty.prox(B, 1.0).dense()
    # Rounding: a few eps times squares of entries up to 10, twenty of them.
    assert np.sum(move**2) <= np.vdot(move, A - B) + 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (330, 340)])
def test_prox_keeps_singular_vectors_and_shrinks_values_by_step_times_alpha(
    dtype: type, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((shape[0], 6)))[0]
    V = np.linalg.qr(rng.standard_normal((shape[1], 6)))[0]
    s = np.array([9.0, 7.0, 5.0, 3.0, 0.9, 0.2])
    A = ((U * s) @ V.T).astype(dtype)
    P = NuclearNorm(2.0).prox(A, 0.5)
    tolerance = 100 * float(np.finfo(dtype).eps)  # backward error eps * s[0] over gaps of 2
    assert P.s.dtype == dtype
    np.testing.assert_allclose(P.s, [8.0, 6.0, 4.0, 2.0], atol=9 * tolerance)
    np.testing.assert_allclose(np.abs(np.diag(U[:, :4].T @ P.U)), 1.0, atol=tolerance)
    np.testing.assert_allclose(np.abs(np.diag(V[:, :4].T @ P.V)), 1.0, atol=tolerance)
    np.testing.assert_allclose(P.dense(), (U[:, :4] * (s[:4] - 1)) @ V[:, :4].T, atol=9 * tolerance)


def test_prox_is_zero_from_the_spectral_norm_on() -> None:
    A = np.random.default_rng(1).standard_normal((6, 5))
    norm = float(np.linalg.norm(A, 2))
    assert NuclearNorm(norm * (1 + 1e-12)).prox(A, 1.0).rank == 0
    assert NuclearNorm(norm * (1 - 1e-12)).prox(A, 1.0).rank == 1


def test_prox_without_a_penalty_is_the_identity() -> None:
    A = np.random.default_rng(2).standard_normal((6, 5))
    np.testing.assert_allclose(NuclearNorm(0.0).prox(A, 1.0).dense(), A, atol=1e-14)  # a few eps


def test_prox_does_not_depend_on_the_rank_guess() -> None:
    A = np.random.default_rng(3).standard_normal((340, 330))
    penalty = NuclearNorm(30.0)
    reference = penalty.prox(A, 1.0).dense()
    for guess in (1, 40, 400):
        # Lanczos and the full SVD are both accurate to a small multiple of eps * ||A||, ||A|| = 37.
        np.testing.assert_allclose(penalty.prox(A, 1.0, guess).dense(), reference, atol=1e-11)


@pytest.mark.parametrize("step_size", [0.0, -1.0, np.nan, np.inf])
def test_prox_refuses_a_step_that_is_not_finite_and_positive(step_size: float) -> None:
    with pytest.raises(InvalidParameterError, match="step_size") as caught:
        NuclearNorm(1.0).prox(np.eye(2), step_size)
    assert caught.value.name == "step_size"


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf])
def test_negative_or_infinite_weight_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidParameterError, match="alpha"):
        NuclearNorm(alpha)
