"""Low-rank matrices and the few decompositions the solvers need.

`LowRankMatrix` is the value every solver works on: an SVD ``U diag(s) V^T`` that is expanded to a dense
array only on request. The functions below compute the leading singular triplets of a dense matrix in the
cheapest exact way for its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

FloatArray = npt.NDArray[Any]
"""A float32 or float64 array; which one is part of each function's contract."""

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
    dense: FloatArray = samples.toarray() if is_sparse(samples) else np.asarray(samples)
    return dense


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
        dense: FloatArray = (self.U * self.s) @ self.V.T
        return dense

    def balanced_factors(self) -> tuple[FloatArray, FloatArray]:
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
            return _truncate(triplets, threshold, A.shape)
        count *= 2
    U, s, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return _truncate(LowRankMatrix(U, s, Vt.T), threshold, A.shape)


def leading_triplets(A: FloatArray, count: int) -> LowRankMatrix:
    """Return, in the dtype of `A`, the part of its SVD with at most `count` largest singular values.
    Those at noise level are left out."""
    smaller = min(A.shape)
    if smaller > _GRAM_LIMIT and count < smaller // 4 and A.any():
        return _truncate(_lanczos_triplets(A, count), 0.0, A.shape)
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


def _truncate(triplets: LowRankMatrix, threshold: float, shape: tuple[int, int]) -> LowRankMatrix:
    s = triplets.s
    keep = s > max(threshold, _noise(shape, s.dtype, s[0]))
    return LowRankMatrix(triplets.U[:, keep], s[keep], triplets.V[:, keep])


def _noise(shape: tuple[int, int], dtype: npt.DTypeLike, largest: float) -> float:
    return float(max(shape) * np.finfo(np.dtype(dtype)).eps * largest)
