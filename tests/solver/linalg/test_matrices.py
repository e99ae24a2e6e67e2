import numpy as np
import numpy.typing as npt
import pytest

from solver.linalg import (
    LowRankMatrix,
    from_factors,
    leading_triplets,
    singular_triplets_above,
    spectral_norm,
)


def _with_singular_values(
    shape: tuple[int, int], values: npt.ArrayLike, seed: int = 0
) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    s = np.asarray(values, np.float64)
    U = np.linalg.qr(rng.standard_normal((shape[0], len(s))))[0]
    V = np.linalg.qr(rng.standard_normal((shape[1], len(s))))[0]
    dense: npt.NDArray[np.float64] = (U * s) @ V.T
    return dense


def test_zeros_is_the_zero_matrix_of_rank_zero() -> None:
    M = LowRankMatrix.zeros(3, 2, np.float32)
    assert M.rank == 0
    assert M.shape == (3, 2)
    assert M.nuclear_norm == 0.0
    assert M.dense().dtype == np.float32
    np.testing.assert_array_equal(M.dense(), np.zeros((3, 2)))


def test_balanced_factors_multiply_to_the_matrix_and_share_the_nuclear_norm() -> None:
    M = singular_triplets_above(np.random.default_rng(0).standard_normal((7, 5)), 0.0)
    A, B = M.balanced_factors()
    np.testing.assert_allclose(A @ B.T, M.dense(), rtol=0, atol=1e-14)  # a few eps of entries near 1
    half_squares = (np.sum(A**2) + np.sum(B**2)) / 2
    assert half_squares == pytest.approx(M.nuclear_norm, rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (40, 40), (1, 9), (9, 1)])
def test_small_triplets_agree_with_numpy_svd(dtype: type, shape: tuple[int, int]) -> None:
    A = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    U, s, Vt = np.linalg.svd(A.astype(np.float64), full_matrices=False)
    threshold = float(s[len(s) // 2]) * 1.0001 if len(s) > 1 else 0.0
    kept = s > threshold
    found = singular_triplets_above(A, threshold)
    tolerance = 20 * float(np.finfo(dtype).eps) * float(s[0])  # backward stable: a few eps * ||A||
    assert found.U.dtype == found.s.dtype == found.V.dtype == dtype
    np.testing.assert_allclose(found.s, s[kept], rtol=0, atol=tolerance)
    # The gap at the cut is not small here, so the truncated matrix is as stable as the values.
    np.testing.assert_allclose(found.dense(), (U[:, kept] * s[kept]) @ Vt[kept], rtol=0, atol=20 * tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(350, 400), (400, 350)])
@pytest.mark.parametrize("rank_guess", [0, 5, 100])
def test_large_triplets_agree_with_numpy_svd(dtype: type, shape: tuple[int, int], rank_guess: int) -> None:
    values = np.concatenate([np.linspace(10.0, 2.0, 20), np.linspace(1.0, 0.0, 330)])
    A = _with_singular_values(shape, values).astype(dtype)
    s = np.linalg.svd(A.astype(np.float64), compute_uv=False)
    found = singular_triplets_above(A, 1.5, rank_guess)
    assert found.rank == 20
    assert found.s.dtype == dtype
    np.testing.assert_allclose(found.s, s[:20], rtol=50 * float(np.finfo(dtype).eps))  # Lanczos at tol=0
    np.testing.assert_allclose(
        found.U.T @ found.U, np.eye(20), atol=400 * float(np.finfo(dtype).eps)
    )  # length of the sums times eps
    np.testing.assert_allclose(found.V.T @ found.V, np.eye(20), atol=400 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("count", [1, 13, 40, 500])
@pytest.mark.parametrize(("shape", "rank"), [((40, 30), 12), ((700, 650), 13), ((620, 700), 620)])
def test_leading_triplets_agree_with_numpy_svd(shape: tuple[int, int], rank: int, count: int) -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    kept = min(count, rank)
    triplets = leading_triplets(A, count)
    np.testing.assert_allclose(triplets.s, s[:kept], rtol=1e-9)
    expected = (U[:, :kept] * s[:kept]) @ Vt[:kept]
    np.testing.assert_allclose(triplets.dense(), expected, atol=1e-9 * s[0])
    assert not leading_triplets(np.zeros(shape), count).rank


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanczos_finds_every_copy_of_a_repeated_singular_value(dtype: type) -> None:
    values = np.concatenate([np.full(12, 3.0), np.full(318, 0.5), np.full(20, 0.1)])
    found = singular_triplets_above(_with_singular_values((350, 350), values).astype(dtype), 1.0)
    assert found.rank == 12


@pytest.mark.parametrize("size", [5, 350])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_matrix_has_no_triplets(size: int, dtype: type) -> None:
    assert singular_triplets_above(np.zeros((size, size), dtype), 0.0).rank == 0
    assert spectral_norm(np.zeros((size, size), dtype)) == 0.0


def test_triplets_of_an_empty_matrix_are_empty() -> None:
    assert singular_triplets_above(np.zeros((0, 4)), 0.0).shape == (0, 4)
    assert spectral_norm(np.zeros((0, 4))) == 0.0


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (330, 340)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spectral_norm_is_the_largest_singular_value(shape: tuple[int, int], dtype: type) -> None:
    A = np.random.default_rng(2).standard_normal(shape).astype(dtype)
    # Computed in float64 whatever the dtype; squaring costs nothing at the largest value.
    assert spectral_norm(A) == pytest.approx(np.linalg.norm(A.astype(np.float64), 2), rel=1e-12)


def test_triplets_leave_their_input_unmodified() -> None:
    for size in (10, 350):
        A = np.random.default_rng(3).standard_normal((size, size)).astype(np.float32)
        before = A.copy()
        singular_triplets_above(A, 1.0)
        np.testing.assert_array_equal(A, before)


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
