"""Dense and sparse matrices: types, checks, low rank, centred products, samples and their row space."""

from __future__ import annotations

import decimal
import math
import numbers
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from solver.threads import even_slices, map_chunks
from solver.validation import InvalidInputError

FloatArray = npt.NDArray[Any]
"""A float32 or float64 array; which one is part of each function's contract."""

Sides = tuple[FloatArray, FloatArray]
"""An array for each modality."""

Samples = Any
"""A two-dimensional array of samples by features: dense, or sparse by rows (`scipy.sparse.csr_array`)."""

_GRAM_LIMIT = 600
"""Smaller dimension up to which a full eigendecomposition of the Gram matrix is faster than Lanczos."""
_FIRST_GUESS = 8
"""Triplets computed beyond the expected rank, so that the last one usually falls below the threshold."""


def is_sparse(samples: Any) -> bool:
    """Return whether `samples` is a scipy sparse array."""
    return bool(scipy.sparse.issparse(samples))


def to_dense(samples: Any) -> FloatArray:
    """Return a sparse array, or one that counts as an array, as a dense array; a dense one is not copied."""
    return samples.toarray() if is_sparse(samples) else np.asarray(samples)


@dataclass(frozen=True, slots=True, eq=False)
class LowRankMatrix:
    """A matrix ``M = U diag(s) V^T`` with orthonormal columns in `U` and `V`."""

    U: FloatArray  # (n_features_x, rank), left singular vectors
    s: FloatArray  # (rank,), singular values, positive, in descending order
    V: FloatArray  # (n_features_z, rank), right singular vectors

    @classmethod
    def zeros(cls, n_features_x: int, n_features_z: int, dtype: npt.DTypeLike) -> LowRankMatrix:
        """Return the zero matrix, as factors of rank 0."""
        return cls(np.zeros((n_features_x, 0), dtype), np.zeros(0, dtype), np.zeros((n_features_z, 0), dtype))

    @property
    def rank(self) -> int:
        return len(self.s)

    @property
    def shape(self) -> tuple[int, int]:
        return self.U.shape[0], self.V.shape[0]

    @property
    def nuclear_norm(self) -> float:
        """Sum of the singular values, accumulated in float64."""
        return float(self.s.sum(dtype=np.float64))

    def dense(self) -> FloatArray:
        return (self.U * self.s) @ self.V.T

    def balanced_factors(self) -> Sides:
        """Return ``U sqrt(S)`` and ``V sqrt(S)``, whose rows' inner products are the entries of M."""
        root = np.sqrt(self.s)
        return self.U * root, self.V * root

    def astype(self, dtype: npt.DTypeLike) -> LowRankMatrix:
        return LowRankMatrix(self.U.astype(dtype), self.s.astype(dtype), self.V.astype(dtype))


def singular_triplets_above(
    A: FloatArray, threshold: float, rank_guess: int = _FIRST_GUESS, relative_noise: float | None = None
) -> LowRankMatrix:
    """Return, in the dtype of `A`, the part of its SVD whose singular values exceed `threshold` and noise.
    A wrong `rank_guess` costs time, never accuracy; the same input gives the same bits."""
    # `relative_noise` (1e-7 or more) is the noise level of a float64 matrix as a fraction of its largest
    # singular value; by default it is the rounding error max(p, q) * eps. Small matrices of float32 or of
    # known noise go through the eigenvectors of the smaller Gram matrix in float64, large ones through
    # implicitly restarted Lanczos with a growing number of triplets, and through a full SVD when many are
    # needed.
    smaller = min(A.shape)
    if smaller == 0 or not A.any():
        return LowRankMatrix.zeros(A.shape[0], A.shape[1], A.dtype)
    if smaller <= _GRAM_LIMIT and (A.dtype == np.float32 or relative_noise is not None):
        return _gram_triplets(A, threshold, relative_noise or max(A.shape) * float(np.finfo(A.dtype).eps))
    count = rank_guess + _FIRST_GUESS
    while smaller > _GRAM_LIMIT and count < smaller // 4:
        triplets = _lanczos_triplets(A, count)
        if triplets.s[-1] <= threshold:
            return _truncate(triplets, threshold)
        count *= 2
    U, s, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return _truncate(LowRankMatrix(U, s, Vt.T), threshold)


def leading_triplets(A: FloatArray, count: int) -> LowRankMatrix:
    """Return, in the dtype of `A`, the part of its SVD with at most `count` largest singular values.
    Those at noise level are left out."""
    smaller = min(A.shape)
    if smaller > _GRAM_LIMIT and count < smaller // 4 and A.any():
        return _truncate(_lanczos_triplets(A, count), 0.0)
    triplets = singular_triplets_above(A, 0.0, rank_guess=smaller)
    return LowRankMatrix(triplets.U[:, :count], triplets.s[:count], triplets.V[:, :count])


def spectral_norm(A: FloatArray) -> float:
    """Return the largest singular value of `A`, computed in float64."""
    if A.size == 0 or not A.any():
        return 0.0
    largest_entry = float(np.abs(A).max())
    scaled: FloatArray = A.astype(np.float64) / largest_entry
    if min(A.shape) > _GRAM_LIMIT:
        return largest_entry * float(_lanczos_triplets(scaled, 1).s[0])
    gram: FloatArray = scaled.T @ scaled if A.shape[0] >= A.shape[1] else scaled @ scaled.T
    last = len(gram) - 1
    largest = scipy.linalg.eigvalsh(gram, subset_by_index=[last, last])[0]
    return largest_entry * float(np.sqrt(max(largest, 0.0)))


def from_factors(left: FloatArray, right: FloatArray) -> LowRankMatrix:
    """Return the SVD of ``left @ right.T`` from QR decompositions of the factors."""
    q_left, r_left = scipy.linalg.qr(left, mode="economic")
    q_right, r_right = scipy.linalg.qr(right, mode="economic")
    U, s, Vt = scipy.linalg.svd(r_left @ r_right.T)
    is_nonzero = s > np.finfo(s.dtype).eps * max(len(left), len(right)) * s.max(initial=0.0)
    U, V = q_left @ U[:, : len(s)], q_right @ Vt[: len(s)].T
    return LowRankMatrix(U[:, is_nonzero], s[is_nonzero], V[:, is_nonzero])


def _gram_triplets(A: FloatArray, threshold: float, relative_noise: float) -> LowRankMatrix:
    if A.shape[0] < A.shape[1]:
        flipped = _gram_triplets(np.ascontiguousarray(A.T), threshold, relative_noise)
        return LowRankMatrix(flipped.V, flipped.s, flipped.U)
    exact = A.astype(np.float64)
    squares, vectors = scipy.linalg.eigh(exact.T @ exact, check_finite=False)
    s = np.sqrt(np.maximum(squares[::-1], 0.0))
    keep = s > max(threshold, relative_noise * float(s[0]))
    s, V = s[keep], vectors[:, ::-1][:, keep]
    U = (exact @ V) / s
    return LowRankMatrix(U, s, V).astype(A.dtype)


def _lanczos_triplets(A: FloatArray, count: int) -> LowRankMatrix:
    if A.shape[0] < A.shape[1]:
        flipped = _lanczos_triplets(A.T, count)
        return LowRankMatrix(flipped.V, flipped.s, flipped.U)
    size = A.shape[1]
    operator: Any = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=lambda v: A.T @ (A @ v), matmat=lambda V: A.T @ (A @ V), dtype=A.dtype
    )
    start = np.random.default_rng(0).standard_normal((size,)).astype(A.dtype)
    eigenpairs: Any = scipy.sparse.linalg.eigsh(operator, k=count, v0=start, rng=np.random.default_rng(1))
    # The Gram matrix squares the condition number: a small exact SVD of the projected matrix corrects for it.
    V, _ = np.linalg.qr(np.asarray(eigenpairs[1], np.float64))
    U, s, Wt = scipy.linalg.svd(A.astype(np.float64) @ V, full_matrices=False)
    return LowRankMatrix(U, s, V @ Wt.T).astype(A.dtype)


def _truncate(triplets: LowRankMatrix, threshold: float) -> LowRankMatrix:
    s = triplets.s
    noise = float(max(triplets.shape) * np.finfo(s.dtype).eps * s[0])
    keep = s > max(threshold, noise)
    return LowRankMatrix(triplets.U[:, keep], s[keep], triplets.V[:, keep])


_FEW_ENTRIES = 2**16  # entries up to which a dense product is faster, however sparse the samples


@dataclass(frozen=True, slots=True, eq=False)
class Centered:
    """The dense samples ``S - 1 shift^T``, stored as the sparse S and the shift, in the precision of S."""

    sparse: Any
    shift: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        n_samples, n_features = self.sparse.shape
        return n_samples, n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.sparse.dtype
        return dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Centered:
        return Centered(self.sparse[rows], self.shift)

    def __matmul__(self, factors: FloatArray) -> FloatArray:
        """Return the (n_samples, k) product with `factors` of shape (n_features, k)."""
        product: FloatArray = np.asarray(self.sparse @ factors) - self.shift @ factors
        return product

    def gather(self, weighted: FloatArray) -> FloatArray:
        """Return the (n_features, k) product of the transpose with `weighted` of shape (n_samples, k)."""
        product: FloatArray = np.asarray(self.sparse.T @ weighted)
        return product - np.outer(self.shift, weighted.sum(axis=0))

    def inner_products(self, other: Centered) -> FloatArray:
        """Return the (n_samples, n_others) inner products with samples of the same shift, in float64."""
        exact, shift = self.sparse.astype(np.float64), self.shift.astype(np.float64)
        others = other.sparse.astype(np.float64)
        products: FloatArray = (exact @ others.T).toarray()
        products -= np.asarray(exact @ shift)[:, None]
        products -= np.asarray(others @ shift)[None, :]
        products += float(shift @ shift)
        return products

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> Centered:
        return Centered(self.sparse.astype(dtype, copy=copy), self.shift.astype(dtype, copy=copy))

    def toarray(self) -> FloatArray:
        dense: FloatArray = self.sparse.toarray()
        dense -= self.shift
        return dense


def dense_where_small(samples: Any) -> Any:
    """Return small sparse samples as a dense array, large ones by rows, and dense ones unchanged."""
    if not is_sparse(samples):
        return samples
    if samples.shape[0] * samples.shape[1] <= _FEW_ENTRIES:
        return samples.toarray()
    return scipy.sparse.csr_array(samples)


def first_columns(samples: Samples, n_columns: int) -> Samples:
    """Return the first columns of samples, as `samples[:, :n_columns]`, which takes longer of sparse ones."""
    if not is_sparse(samples):
        return samples[:, :n_columns]
    is_first = samples.indices < n_columns
    if is_first.all():
        entries = samples.data, samples.indices, samples.indptr
    else:
        ends = np.concatenate([[0], np.cumsum(is_first)])[samples.indptr]
        entries = samples.data[is_first], samples.indices[is_first], ends
    return scipy.sparse.csr_array(entries, shape=(samples.shape[0], n_columns))


def is_finite(samples: Any) -> bool:
    """Return whether dense or sparse samples contain neither NaN nor infinity."""
    return bool(np.isfinite(samples.data if is_sparse(samples) else samples).all())


_FLOATS = (np.float32, np.float64)
_NUMERIC = "fiub"  # kinds of dtypes that are numbers
_READ_ONE_BY_ONE = "OUST"  # kinds whose values may be numbers all the same, or have become text beside it


def check_samples(samples: npt.ArrayLike, name: str, *, n_features: int | None = None) -> Samples:
    """Return `samples` as a finite, non-empty, two-dimensional float array, sparse ones by rows.
    InvalidInputError, which says `name` and the column, if they are not or have other `n_features`."""
    # Not copied if it is such an array already; duplicate entries of a sparse one are summed. Columns of
    # numbers of any type are taken, as scikit-learn takes them, and text is none. Float32 and float64 stay as
    # they are.
    if _is_plain(samples, n_features):
        return samples  # as most are: what follows takes longer than to project one
    array: Samples = _read_sparse(samples, name) if is_sparse(samples) else _read_dense(samples, name)
    if not is_frame(samples) and array.dtype.kind not in _NUMERIC + _READ_ONE_BY_ONE:
        raise InvalidInputError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        got = array.shape if array.ndim else type(samples).__name__
        raise InvalidInputError(f"{name} must be a non-empty (n_samples, n_features) array, got {got}")
    if array.dtype.kind not in _NUMERIC:
        array = _read_columns(samples, name)
    if n_features is not None and array.shape[1] != n_features:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, the model expects {n_features}")
    if is_sparse(array) and not array.has_canonical_format:
        # Duplicate entries are summed in a copy: the caller may still own the original.
        array = array.copy()
        array.sum_duplicates()
    if array.dtype not in _FLOATS:
        with np.errstate(over="ignore"):  # infinity is refused below
            array = array.astype(np.float64, copy=False)
    if not is_finite(array):
        _refuse_gaps(samples, array, name)
    return array


def _is_plain(samples: Any, n_features: int | None) -> bool:
    """Return whether these are a finite array as asked for."""
    is_rows = type(samples) is scipy.sparse.csr_array and samples.ndim == 2 and samples.has_canonical_format
    if not is_rows and (type(samples) is not np.ndarray or samples.ndim != 2):
        return False
    if 0 in samples.shape or samples.dtype not in _FLOATS or n_features not in (None, samples.shape[1]):
        return False
    return is_finite(samples)


def feature_names(samples: Any) -> npt.NDArray[np.object_] | None:
    """Return the names of the columns of a data frame; None of anything else, or where one is no word."""
    names = list(samples.columns) if is_frame(samples) else []
    return np.asarray(names, object) if names and all(isinstance(name, str) for name in names) else None


def is_frame(samples: Any) -> bool:
    """Return whether these are a data frame of pandas or polars, or one like them."""
    return all(hasattr(samples, attribute) for attribute in ("shape", "columns", "dtypes"))


def _read_sparse(samples: Any, name: str) -> Samples:
    if isinstance(samples, scipy.sparse.csr_array) and samples.ndim == 2:
        return samples
    try:
        return scipy.sparse.csr_array(samples)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{name} is no two-dimensional sparse array of numbers: {error}") from error


def _read_dense(samples: Any, name: str) -> npt.NDArray[Any]:
    if is_frame(samples) and not all(isinstance(dtype, np.dtype) for dtype in samples.dtypes):
        # As one array, missing categories would become numbers, and dates, too.
        return _read_columns(samples, name) if 0 not in samples.shape else np.empty(samples.shape)
    try:
        if hasattr(samples, "__dlpack__") and not hasattr(samples, "__array__"):
            return np.from_dlpack(samples)
        if isinstance(samples, np.ma.MaskedArray) and np.ma.is_masked(samples):
            return np.ma.filled(samples.astype(np.float64), np.nan)
        return np.asarray(samples)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InvalidInputError(f"{name} is not an array: {error}") from error


def _read_columns(samples: Any, name: str) -> npt.NDArray[Any]:
    """Return the numbers of columns that have no dtype of NumPy in common, such as nullable ones."""
    is_whole = isinstance(samples, np.ndarray) or is_frame(samples)
    cells = samples if is_whole else np.asarray(samples, object)  # numbers beside text have become text
    return np.column_stack([_read_column(cells, number, name) for number in range(cells.shape[1])])


def _read_column(cells: Any, number: int, name: str) -> npt.NDArray[Any]:
    if hasattr(cells, "iloc"):
        column = cells.iloc[:, number]
        if column.dtype.kind in _NUMERIC and not isinstance(column.dtype, np.dtype):
            numeric: FloatArray = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return numeric
    else:
        column = cells.to_series(number).to_numpy() if is_frame(cells) else cells[:, number]
    values = np.asarray(column)
    if values.dtype.kind in _NUMERIC and values.ndim == 1:
        return values
    place = _describe_column(cells, number)
    if values.dtype.kind not in _READ_ONE_BY_ONE:
        raise InvalidInputError(f"{name} must be numeric: {place} holds {values.dtype}")
    for row, value in enumerate(values):
        if not (is_missing(value) or isinstance(value, numbers.Real | decimal.Decimal | np.bool)):
            kind = "text" if isinstance(value, str | bytes) else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"{name} must be numeric: {place} holds {kind} in row {row}: {str(value)!r:.50}"
            )
    return np.asarray([np.nan if is_missing(value) else float(value) for value in values], np.float64)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, NaT or the NA of pandas."""
    is_itself = value is not None and value == value
    return np.ndim(is_itself) == 0 and not (isinstance(is_itself, bool | np.bool) and bool(is_itself))


def _describe_column(samples: Any, number: int) -> str:
    if not is_frame(samples):
        return f"column {number}"
    return f"column {list(samples.columns)[number]!r} of dtype {list(samples.dtypes)[number]}"


def _refuse_gaps(samples: Any, array: Samples, name: str) -> NoReturn:
    """Raise InvalidInputError that names the columns with NaN or infinity."""
    if is_sparse(array):
        entries = scipy.sparse.coo_array(array)
        is_gap = ~np.isfinite(entries.data)
        rows, columns = (axis[is_gap] for axis in entries.coords)
        values = entries.data[is_gap]
    else:
        rows, columns = np.nonzero(~np.isfinite(array))
        values = array[rows, columns]
    first = np.lexsort((rows, columns))[0]
    what = "missing values (NaN)" if np.isnan(values[first]) else "infinity"
    others = np.unique(columns)[1:].tolist()
    rest = f"; so do {len(others)} more, such as {_describe_column(samples, others[0])}" if others else ""
    place = _describe_column(samples, int(columns[first]))
    raise InvalidInputError(f"{name} contains {what}: {place} does in row {rows[first]}{rest}")


def project_affinely(
    samples: npt.ArrayLike, factors: FloatArray, intercept: FloatArray, name: str
) -> FloatArray:
    """Return ``samples @ factors + intercept`` in the dtype of the factors; InvalidInputError says `name`."""
    array = check_samples(samples, name, n_features=factors.shape[0])
    # In the wider of both precisions: large samples may meet small factors, or the reverse.
    return np.asarray(array @ factors + intercept).astype(factors.dtype, copy=False)


def check_array(name: str, array: FloatArray, shape: tuple[int | None, ...]) -> None:
    """Raise InvalidInputError, which says `name`, unless an array has finite floats and the shape.
    None in the shape stands for any length."""
    if array.dtype not in _FLOATS:
        raise InvalidInputError(f"{name} must hold floats, got dtype {array.dtype}")
    fits = array.ndim == len(shape) and all(
        size in (None, length) for size, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = tuple("any" if size is None else size for size in shape)
        raise InvalidInputError(f"{name} must have shape {expected}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")


_CHOLESKY_CONDITION = 1e-8
"""Reciprocal condition of the Gram matrix above which its Cholesky factor is accurate to half the digits."""
_GRAM_CHUNKS = 8  # chunks of rows, a fixed number so that the result does not depend on the number of threads
_MOST_ENTRIES = 2**27  # limit on the entries of a dense array that replaces sparse samples: 1 GiB in float64


class RowSpaceBasis:
    """Coordinates of wide samples (n_features >= n_samples) in the space they span. `reduced`, R of shape
    (n_samples, rank), is float64: at small penalties its rounding would show in the gap."""

    # With X X^T = R R^T the rows of R have the same inner products as those of X, and R = X Q for the
    # orthonormal Q = X^T W, W^T R = I. A bilinear matrix fitted on R maps back by Q M with the same scores
    # and the same nuclear norm, hence the same optimum. Q itself is never formed. R is the lower Cholesky
    # factor of the Gram matrix if that is well conditioned. Otherwise it consists of the eigenvectors times
    # the square roots of the eigenvalues, without those at rounding level.

    def __init__(self, X: Samples, n_threads: int = 1) -> None:
        self._X = X
        gram = _gram(X, n_threads)
        factor = _well_conditioned_cholesky(gram)
        self._weights: FloatArray | None = None
        if factor is None:
            values, vectors = scipy.linalg.eigh(gram, check_finite=False)
            is_nonzero = values > max(X.shape) * np.finfo(np.float64).eps * values[-1]
            roots, vectors = np.sqrt(values[is_nonzero]), vectors[:, is_nonzero]
            factor, self._weights = vectors * roots, vectors / roots
        self.reduced: FloatArray = factor

    def lift(self, U: FloatArray) -> FloatArray:
        """Return ``Q @ U``, of shape (n_features, k), from U of shape (rank, k)."""
        if self._weights is None:
            weighted = scipy.linalg.solve_triangular(
                self.reduced, U, trans="T", lower=True, check_finite=False
            )
        else:
            weighted = self._weights @ U
        if isinstance(self._X, Centered):
            return self._X.gather(weighted)
        return np.asarray(self._X.T @ weighted)

    def lower(self, left: FloatArray) -> FloatArray:
        """Return ``Q.T @ left``, of shape (rank, k), from `left` of shape (n_features, k)."""
        return self._from_products(np.asarray(self._X @ left))

    def to_row_space(self, samples: Samples) -> FloatArray:
        """Return ``samples @ Q``: the projection of any samples onto the span, in this basis."""
        if isinstance(self._X, Centered):
            return self._from_products(self._X.inner_products(samples)).T
        products = self._X @ samples.T
        return self._from_products(to_dense(products)).T

    def _from_products(self, products: FloatArray) -> FloatArray:
        if self._weights is None:
            return scipy.linalg.solve_triangular(self.reduced, products, lower=True, check_finite=False)
        return self._weights.T @ products


def _gram(X: Samples, n_threads: int) -> FloatArray:
    if isinstance(X, Centered):
        return X.inner_products(X)
    if is_sparse(X):
        product = X.astype(np.float64)
        return np.asarray((product @ product.T).toarray())
    exact = X.astype(np.float64, copy=False)
    gram = np.empty((len(exact), len(exact)))

    def evaluate(rows: slice) -> None:
        # The Cholesky and eigenvector routines read the lower triangle only.
        np.matmul(exact[rows], exact[: rows.stop].T, out=gram[rows, : rows.stop])

    map_chunks(evaluate, even_slices(len(exact), _GRAM_CHUNKS), n_threads)
    return gram


def _well_conditioned_cholesky(gram: FloatArray) -> FloatArray | None:
    try:
        factor = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    # The squared 1-norm of the factor bounds the norm of the Gram matrix up to a factor of its dimension,
    # which is accurate enough here.
    norm = float(np.abs(factor).sum(axis=0).max()) ** 2
    reciprocal_condition, _ = scipy.linalg.lapack.dpocon(factor, norm, uplo="L")
    return factor if reciprocal_condition > _CHOLESKY_CONDITION else None


def lift_factors(basis: RowSpaceBasis | None, factors: FloatArray) -> FloatArray:
    """Return factors of all features, in float64, from those in a basis; unchanged where there is none."""
    return factors if basis is None else basis.lift(factors.astype(np.float64, copy=False))


def lower_factors(basis: RowSpaceBasis | None, factors: FloatArray) -> FloatArray:
    """Return factors in a basis from those of all features; unchanged where there is no basis."""
    return factors if basis is None else basis.lower(factors)


def compact(samples: Samples) -> tuple[Samples, RowSpaceBasis | None]:
    """Return samples in a form that a bilinear method can use, and their basis, if any.

    Dense and sparse samples are returned unchanged. `Centered` samples are expressed in a basis of their row
    space if there are fewer samples than features, and made dense otherwise; InvalidInputError if that
    would take too much memory.
    """
    if not isinstance(samples, Centered):
        return samples, None
    n_samples, n_features = samples.shape
    if not can_be_compact(n_samples, n_features):
        raise InvalidInputError(
            f"{n_samples} x {n_features} sparse features are too many to be centred: choose the "
            "scaling 'l2', or fewer features"
        )
    if n_features <= n_samples:
        return samples.toarray(), None
    basis = RowSpaceBasis(samples)
    return basis.reduced, basis


def most_compact(n_features: int) -> int:
    """Return the largest number of sparse samples with `n_features` features that `can_be_compact`."""
    return max(math.isqrt(_MOST_ENTRIES), _MOST_ENTRIES // n_features)


def can_be_compact(n_samples: int, n_features: int) -> bool:
    """Return whether centred sparse samples fit into 1 GiB, the limit for their dense form."""
    return n_samples * min(n_samples, n_features) <= _MOST_ENTRIES
