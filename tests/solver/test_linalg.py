import decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from solver import InvalidInputError
from solver.linalg import (
    LowRankMatrix,
    RowSpaceBasis,
    check_samples,
    from_factors,
    leading_triplets,
    singular_triplets_above,
    spectral_norm,
    to_dense,
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


def _samples(kind: str) -> npt.NDArray[np.float64]:
    X = np.random.default_rng(4).standard_normal((6, 20))
    if kind == "dependent":  # no Cholesky factor: the eigenvectors have to do
        X[5] = X[0] + X[1]
    elif kind == "nearly dependent":  # there is one, but its inverse is worth nothing
        X[5] = X[0] + 1e-4 * X[5]
    elif kind == "mostly zero":
        X[:, 7:] = 0.0
    return X


RANKS = {"independent": 6, "dependent": 5, "nearly dependent": 6, "mostly zero": 6}
# Orthonormality is lost in proportion to the condition of the Gram matrix of the samples kept: about
# 100 times eps, and 1e10 times eps for near dependence, where few samples use the lost direction.
TOLERANCES = {"independent": 1e-13, "dependent": 1e-13, "nearly dependent": 1e-5, "mostly zero": 1e-12}


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kind", RANKS)
def test_reduced_samples_are_the_samples_in_an_orthonormal_basis_of_their_span(
    kind: str, as_sparse: bool
) -> None:
    X, tolerance = _samples(kind), TOLERANCES[kind]
    samples: Any = scipy.sparse.csr_array(X) if as_sparse else X
    basis = RowSpaceBasis(samples)
    rank = RANKS[kind]
    assert isinstance(basis.reduced, np.ndarray)
    assert basis.reduced.shape == (6, rank)
    Q = basis.lift(np.eye(rank))
    np.testing.assert_allclose(Q.T @ Q, np.eye(rank), atol=tolerance)
    np.testing.assert_allclose(basis.reduced @ Q.T, X, atol=10 * tolerance)
    np.testing.assert_allclose(basis.reduced @ basis.reduced.T, X @ X.T, atol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kind", ["independent", "dependent", "mostly zero"])
def test_lift_lower_and_rotate_are_products_with_one_basis(kind: str, as_sparse: bool) -> None:
    X, rng = _samples(kind), np.random.default_rng(5)
    samples: Any = scipy.sparse.csr_array(X) if as_sparse else X
    basis = RowSpaceBasis(samples)
    rank = RANKS[kind]
    Q = basis.lift(np.eye(rank))
    U, left, others = (rng.standard_normal(shape) for shape in ((rank, 3), (20, 3), (4, 20)))
    np.testing.assert_allclose(basis.lift(U), Q @ U, atol=1e-12)
    np.testing.assert_allclose(basis.lower(left), Q.T @ left, atol=1e-12)
    np.testing.assert_allclose(basis.lower(basis.lift(U)), U, atol=1e-12)
    np.testing.assert_allclose(basis.to_row_space(samples), basis.reduced, atol=1e-12)
    np.testing.assert_allclose(basis.to_row_space(others), others @ Q, atol=1e-12)
    if as_sparse:
        np.testing.assert_allclose(basis.to_row_space(scipy.sparse.csr_array(others)), others @ Q, atol=1e-12)


@pytest.mark.parametrize("kind", ["independent", "dependent"])
def test_float32_samples_are_reduced_in_float64(kind: str) -> None:
    X = _samples(kind).astype(np.float32)
    if kind == "dependent":
        X[5] = 2 * X[0]  # exact in float32
    basis = RowSpaceBasis(X)
    assert basis.reduced.dtype == np.float64
    assert basis.reduced.shape == (6, RANKS[kind])
    Q = basis.lift(np.eye(RANKS[kind]))
    np.testing.assert_allclose(Q.T @ Q, np.eye(RANKS[kind]), atol=1e-13)
    # The samples are taken for what they are and not rounded again.
    np.testing.assert_allclose(basis.reduced @ Q.T, X, atol=1e-13)


def test_samples_that_are_all_zero_span_nothing() -> None:
    basis = RowSpaceBasis(np.zeros((3, 8)))
    assert basis.reduced.shape == (3, 0)
    np.testing.assert_array_equal(basis.lift(np.zeros((0, 2))), np.zeros((8, 2)))


NUMBERS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])


class Tensor:
    """Offers its numbers as tensors of other libraries do."""

    def __dlpack__(self, **options: Any) -> Any:
        return NUMBERS.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return NUMBERS.__dlpack_device__()


def frame(*dtypes: Any) -> pd.DataFrame:
    columns = zip("abc", NUMBERS.T, dtypes, strict=True)
    return pd.DataFrame({name: pd.Series(values).astype(dtype) for name, values, dtype in columns})


FRAMES: dict[str, Any] = {
    "nullable": frame("boolean", "Int64", "Float64"),
    "of Arrow": frame("double[pyarrow]", "int64[pyarrow]", pd.ArrowDtype(pa.decimal128(5, 2))),
    "categories of numbers": frame("category", "int8", "category"),
    "bool beside float": frame(bool, float, float),
    "objects": frame(object, object, object),
    "sparse": frame(pd.SparseDtype(float, 0.0), pd.SparseDtype(int, 0), float),
    "no words for names": pd.DataFrame(NUMBERS).astype("Float32"),
    "equal names": pd.DataFrame(NUMBERS, columns=["a", "a", "a"], dtype="Int64"),
    "polars": pl.DataFrame(NUMBERS, schema={"a": pl.Int64, "b": pl.Float32, "c": pl.Float64}, strict=False),
    "polars, decimal": pl.DataFrame(NUMBERS).cast({"column_0": pl.Decimal(5, 2)}),
    "a table of Arrow": pa.table({"a": NUMBERS[:, 0], "b": [0, 3], "c": [2.0, 1.0]}),
}
SPARSE = {
    f"{kind} {dtype}": getattr(scipy.sparse, kind)(NUMBERS.astype(dtype))
    for kind in (f"{name}_{suffix}" for name in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
                 for suffix in ("array", "matrix"))
    for dtype in ("int8", "float64")
}  # fmt: skip
SPARSE["stored zeros"] = scipy.sparse.coo_array((NUMBERS.ravel(), np.divmod(np.arange(6), 3)), NUMBERS.shape)
SPARSE["long indices"] = scipy.sparse.csr_array(NUMBERS)
for name in ("indices", "indptr"):
    setattr(SPARSE["long indices"], name, getattr(SPARSE["long indices"], name).astype(np.int64))
ARRAYS: dict[str, Any] = {
    "lists": NUMBERS.tolist(),
    "decimal numbers": [[decimal.Decimal(value) for value in row] for row in NUMBERS.tolist()],
    "tensor": Tensor(),
    "masked, nothing hidden": np.ma.masked_greater(NUMBERS, 9.0),
    **{
        dtype: NUMBERS.astype(dtype) for dtype in ("float16", ">f4", ">f8", ">i2", "uint8", "longdouble", "O")
    },
}


@pytest.mark.parametrize("form", [*FRAMES, *SPARSE, *ARRAYS])
def test_numbers_of_any_form_are_taken(form: str) -> None:
    samples = {**FRAMES, **SPARSE, **ARRAYS}[form]
    checked = check_samples(samples, "X")
    assert checked.dtype in (np.float32, np.float64)
    assert checked.dtype.isnative
    np.testing.assert_array_equal(to_dense(checked), NUMBERS)


def test_a_memory_map_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", NUMBERS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(check_samples(mapped, "X"), mapped)


REFUSED: list[tuple[Any, str]] = [
    (FRAMES["nullable"].assign(b=pd.array([None, 1], "Int64")), "missing.*'b' of dtype Int64 does in row 0"),
    (FRAMES["of Arrow"].assign(a=pd.array([1, None], "double[pyarrow]")), r"missing.*'a' .*row 1"),
    (frame("category", "int8", "int8").assign(a=pd.Categorical([1, None])), "missing.*'a' of dtype category"),
    (frame(float, float, "Float64").replace(0.0, np.nan), r"missing.*'a' .*row 1; so do 1 more, .*'b'"),
    (frame(float, float, float).replace(3.0, -np.inf), "infinity: column 'b' of dtype float64 does in row 1"),
    (frame(float, float, str), "'c' of dtype str holds text in row 0: '2.0'"),
    (frame(float, "datetime64[ns]", float), "'b' of dtype datetime64"),
    (frame("datetime64[ns]", "datetime64[ns]", "datetime64[ns]"), "'a' of dtype datetime64"),
    (frame(float, complex, float), "'b' of dtype complex128"),
    (pd.DataFrame({"a": pd.Categorical(["low", "high"]), "b": [1, 2]}), "'a' of dtype category holds text"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": [None, 2]}), "missing.*'b' of dtype Int64 does in row 0"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": [True, None]}), "missing.*'b' of dtype Boolean does in row 1"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), "'b' of dtype String holds text in row 0: 'x'"),
    (pl.DataFrame({"a": [1.0], "b": [1]}).cast({"b": pl.Datetime}), "'b' of dtype Datetime"),
    (pl.DataFrame({"a": [1.0], "b": [[1]]}), r"'b' of dtype List\(Int64\) holds a ndarray"),
    (pl.LazyFrame({"a": [1.0]}), "got LazyFrame"),
    (pa.table({"a": [1.0, 2.0], "b": ["x", None]}), "column 1 holds text in row 0: 'x'"),
    ([[1.0, None], [2.0, 3.0]], "missing.*column 1 does in row 0"),
    ([[1.0, 2.0], [2.0, "much"]], "column 1 holds text in row 1: 'much'"),
    ([[1.0, {}], [2.0, 3.0]], "column 1 holds a dict in row 0"),
    (NUMBERS.astype(str), "column 0 holds text in row 0: '1.0'"),
    (NUMBERS.astype("M8[s]"), "must be numeric, got dtype datetime64"),
    (np.zeros(2, [("a", float)]), "must be numeric, got dtype"),
    (np.ma.masked_equal(NUMBERS, 3.0), "missing.*column 1 does in row 1"),
    (np.array([["1e4000"]], np.longdouble), "infinity: column 0"),
    (scipy.sparse.csc_array([[1.0, 0.0], [0.0, np.nan]]), "missing.*column 1 does in row 1"),
    (scipy.sparse.coo_array(np.ones((2, 2, 2))), "no two-dimensional sparse array"),
    (pd.DataFrame({"a": []}), "non-empty"),
    (pl.DataFrame({"a": []}), "non-empty"),
    ({"a": 1}, "array, got dict"),
    ("text", "array, got str"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_no_number_is_named_by_column(number: int) -> None:
    samples, words = REFUSED[number]
    with pytest.raises(InvalidInputError, match=f"^X .*{words}") as refused:
        check_samples(samples, "X")
    assert "dtype object" not in str(refused.value)
