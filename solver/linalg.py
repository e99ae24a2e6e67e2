"""Low-rank matrices and the few decompositions the solvers need.

`LowRankMatrix` is the value every solver works on: an SVD ``U diag(s) V^T`` that is only
expanded to a dense array when someone asks for it. The functions below compute the leading
singular triplets of a dense matrix in the cheapest exact way for its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse.linalg

FloatArray = npt.NDArray[Any]
"""A float32 or float64 array; which one is part of each function's contract."""

_GRAM_LIMIT = 320
_FIRST_GUESS = 8


@dataclass(frozen=True, slots=True, eq=False)
class LowRankMatrix:
    """A matrix ``M = U diag(s) V^T`` with orthonormal columns in `U` and `V`.

    Parameters
    ----------
    U : ndarray of shape (n_features_x, rank)
        Left singular vectors.
    s : ndarray of shape (rank,)
        Singular values, positive, in descending order.
    V : ndarray of shape (n_features_z, rank)
        Right singular vectors.
    """

    U: FloatArray
    s: FloatArray
    V: FloatArray

    @classmethod
    def zeros(cls, n_features_x: int, n_features_z: int, dtype: npt.DTypeLike) -> LowRankMatrix:
        """Return the zero matrix, as factors of rank 0."""
        return cls(np.zeros((n_features_x, 0), dtype), np.zeros(0, dtype), np.zeros((n_features_z, 0), dtype))

    @property
    def rank(self) -> int:
        """Number of stored singular values."""
        return len(self.s)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the dense matrix."""
        return self.U.shape[0], self.V.shape[0]

    @property
    def nuclear_norm(self) -> float:
        """Sum of the singular values, accumulated in float64."""
        return float(self.s.sum(dtype=np.float64))

    def dense(self) -> FloatArray:
        """Return the (n_features_x, n_features_z) array."""
        dense: FloatArray = (self.U * self.s) @ self.V.T
        return dense

    def balanced_factors(self) -> tuple[FloatArray, FloatArray]:
        """Return ``U sqrt(S)`` and ``V sqrt(S)``, whose rows' inner products are the entries of M."""
        root = np.sqrt(self.s)
        return self.U * root, self.V * root

    def astype(self, dtype: npt.DTypeLike) -> LowRankMatrix:
        """Return the same matrix in another precision."""
        return LowRankMatrix(self.U.astype(dtype), self.s.astype(dtype), self.V.astype(dtype))


def singular_triplets_above(A: FloatArray, threshold: float, rank_guess: int = _FIRST_GUESS) -> LowRankMatrix:
    """Return the part of the SVD of `A` whose singular values exceed `threshold`.

    Parameters
    ----------
    A : ndarray of shape (p, q)
        Not modified.
    threshold : float, >= 0
        Singular values at or below it are left out, as are those under the rounding noise
        ``max(p, q) * eps * s[0]``.
    rank_guess : int, >= 0
        How many are expected; a wrong guess costs time, never accuracy.

    Returns
    -------
    LowRankMatrix
        In the dtype of `A`.

    Notes
    -----
    Small matrices go through the eigenvectors of the smaller Gram matrix in float64 (for float32
    input this is as exact as a direct SVD), large ones through implicitly restarted Lanczos with
    a growing number of triplets, and through a full SVD when many are needed.
    """
    smaller = min(A.shape)
    if smaller == 0 or not A.any():
        return LowRankMatrix.zeros(A.shape[0], A.shape[1], A.dtype)
    if smaller <= _GRAM_LIMIT and A.dtype == np.float32:
        return _gram_triplets(A, threshold)
    count = rank_guess + _FIRST_GUESS
    while smaller > _GRAM_LIMIT and count < smaller // 4:
        triplets = _lanczos_triplets(A, count)
        if triplets.s[-1] <= threshold:
            return _truncate(triplets, threshold, A.shape)
        count *= 2
    U, s, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return _truncate(LowRankMatrix(U, s, Vt.T), threshold, A.shape)


def spectral_norm(A: FloatArray) -> float:
    """Return the largest singular value of `A`, computed in float64 unless `A` is very large."""
    smaller = min(A.shape)
    if smaller == 0 or not A.any():
        return 0.0
    if smaller <= _GRAM_LIMIT:
        exact = A.astype(np.float64)
        gram = exact.T @ exact if A.shape[0] >= A.shape[1] else exact @ exact.T
        largest = scipy.linalg.eigvalsh(gram, subset_by_index=[smaller - 1, smaller - 1])[0]
        return float(np.sqrt(max(largest, 0.0)))
    return float(_lanczos_triplets(A.astype(np.float64), 1).s[0])


def reduce_basis(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rotate the samples of a wide matrix into the space they span.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features) with n_features >= n_samples
        Not modified.

    Returns
    -------
    reduced : ndarray of shape (n_samples, n_samples)
        ``X @ basis``: the same inner products between samples.
    basis : ndarray of shape (n_features, n_samples)
        Orthonormal columns whose span holds every sample. A bilinear matrix fitted on `reduced` maps
        back by ``basis @ M`` with the same scores, the same nuclear norm and hence the same optimum.
    """
    basis, triangle = scipy.linalg.qr(X.T.astype(np.float64), mode="economic", check_finite=False)
    return triangle.T.astype(X.dtype), basis.astype(X.dtype)


def _gram_triplets(A: FloatArray, threshold: float) -> LowRankMatrix:
    if A.shape[0] < A.shape[1]:
        flipped = _gram_triplets(np.ascontiguousarray(A.T), threshold)
        return LowRankMatrix(flipped.V, flipped.s, flipped.U)
    exact = A.astype(np.float64)
    squares, vectors = scipy.linalg.eigh(exact.T @ exact, check_finite=False)
    s = np.sqrt(np.maximum(squares[::-1], 0.0))
    # Squaring loses half the digits: below sqrt(eps) of the largest there is only noise.
    keep = s > max(threshold, float(np.sqrt(np.finfo(np.float64).eps)) * s[0])
    s, V = s[keep], vectors[:, ::-1][:, keep]
    U = (exact @ V) / s
    return LowRankMatrix(U, s, V).astype(A.dtype)


def _lanczos_triplets(A: FloatArray, count: int) -> LowRankMatrix:
    start = np.random.default_rng(0).standard_normal(min(A.shape)).astype(A.dtype)
    U, s, Vt = scipy.sparse.linalg.svds(A, k=count, v0=start)
    order = np.argsort(-s, kind="stable")
    return LowRankMatrix(U[:, order], s[order], Vt[order].T)


def _truncate(triplets: LowRankMatrix, threshold: float, shape: tuple[int, int]) -> LowRankMatrix:
    s = triplets.s
    keep = s > max(threshold, _noise(shape, s.dtype, s[0]))
    return LowRankMatrix(triplets.U[:, keep], s[keep], triplets.V[:, keep])


def _noise(shape: tuple[int, int], dtype: npt.DTypeLike, largest: float) -> float:
    return float(max(shape) * np.finfo(np.dtype(dtype)).eps * largest)
