"""Supervision by a list of signed pairs, and the loss over them alone."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special

from solver.errors import SupervisionError
from solver.linalg import FloatArray, LowRankMatrix, Samples, is_sparse
from solver.losses import FactoredPoint, check_sizes
from solver.supervision import Indices

_PAIRS_AT_ONCE = 1 << 16


class SignedPairs:
    """Pairs known to be similar (+1) or dissimilar (-1); absent ones are unknown and not counted.

    Parameters
    ----------
    signs : sparse array of shape (n_samples_x, n_samples_z)
        +1 and -1 at the known pairs. Not modified.
    weights : sparse array of shape (n_samples_x, n_samples_z), optional
        Positive weight of each known pair, stored at the same places; they are scaled so that the
        similar and the dissimilar pairs weigh 1 in all. Equal weights when left out, which are the
        paper's 1/|S| and 1/|D|. Not modified.

    Raises
    ------
    SupervisionError
        If `signs` holds anything else, `weights` does not fit it, or no similar or no dissimilar pair
        is left.

    Examples
    --------
    >>> import scipy.sparse
    >>> supervision = SignedPairs(scipy.sparse.coo_array(([1, -1], ([0, 1], [2, 0])), shape=(2, 3)))
    >>> supervision.n_similar, supervision.n_dissimilar
    (1, 1)
    """

    def __init__(self, signs: Any, weights: Any | None = None) -> None:
        table = _csr(signs, "signs")
        if not np.isin(table.data, (-1, 1)).all():
            raise SupervisionError("signs must hold +1 and -1 only, where a pair is known")
        self.shape: tuple[int, int] = table.shape
        self.indptr: Indices = table.indptr.astype(np.intp)
        self.columns: Indices = table.indices.astype(np.intp)
        self.signs: npt.NDArray[np.float64] = table.data.astype(np.float64)
        if self.n_similar == 0 or self.n_dissimilar == 0:
            kind = "similar (+1)" if self.n_similar == 0 else "dissimilar (-1)"
            raise SupervisionError(f"no {kind} pair in signs")
        self.weights = self._balanced(None if weights is None else _csr(weights, "weights"))

    @property
    def x_order(self) -> Indices:
        """The samples as they are."""
        return np.arange(self.shape[0])

    @property
    def z_order(self) -> Indices:
        """The samples as they are."""
        return np.arange(self.shape[1])

    @property
    def n_similar(self) -> int:
        """Number of pairs marked +1."""
        return int(np.count_nonzero(self.signs > 0))

    @property
    def n_dissimilar(self) -> int:
        """Number of pairs marked -1."""
        return int(np.count_nonzero(self.signs < 0))

    @property
    def rows(self) -> Indices:
        """Row of each pair, beside `columns`, `signs` and `weights`."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs marked +1, in float64."""
        similar = scipy.sparse.csr_array(
            ((self.signs > 0).astype(np.float64), self.columns, self.indptr), shape=self.shape
        )
        total: Any = X.T @ (similar @ Z)
        return total.toarray() if is_sparse(total) else np.asarray(total, np.float64)

    def restricted(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the pairs among some samples of each modality."""
        table = scipy.sparse.csr_array((self.signs, self.columns, self.indptr), shape=self.shape)
        weights = scipy.sparse.csr_array((self.weights, self.columns, self.indptr), shape=self.shape)
        return type(self)(table[x_rows][:, z_rows], weights[x_rows][:, z_rows])

    def _balanced(self, given: Any | None) -> npt.NDArray[np.float64]:
        weights = np.ones(len(self.signs))
        if given is not None:
            if given.shape != self.shape or not (
                np.array_equal(given.indptr, self.indptr) and np.array_equal(given.indices, self.columns)
            ):
                raise SupervisionError("weights must be stored at the same pairs as signs")
            weights = given.data.astype(np.float64)
            if not (np.isfinite(weights).all() and (weights > 0).all()):
                raise SupervisionError("weights must be finite and > 0")
        for sign in (1.0, -1.0):
            chosen = self.signs == sign
            weights[chosen] /= weights[chosen].sum()
        return weights


class ListedPairLoss:
    """Weighted logistic loss of listed pairs; work and memory grow with their number alone.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples_x, n_features_x)
        Samples of the first modality. Not modified.
    Z : ndarray or CSR array of shape (n_samples_z, n_features_z)
        Samples of the second modality. Not modified.
    pairs : SignedPairs
        Signs and weights.
    dtype : {float32, float64}
        Precision of the pair computations; sums are always float64.
    """

    def __init__(self, X: Samples, Z: Samples, pairs: SignedPairs, dtype: type = np.float32) -> None:
        check_sizes(X, Z, pairs)
        self.X: Samples = X.astype(dtype, copy=False)
        self.Z: Samples = Z.astype(dtype, copy=False)
        self._pairs = pairs
        self._rows = pairs.rows
        self._dtype = np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        """Return l(M)."""
        return self._value(self._scores(FactoredPoint.of(M)))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient, an (n_features_x, n_features_z) array."""
        scores = self._scores(point)
        gradient: Any = self.X.T @ (self._derivatives(scores) @ self.Z)
        return self._value(scores), gradient.toarray() if is_sparse(gradient) else np.asarray(gradient)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return l(A B^T) with ``l' B`` and ``l'^T A``; neither factor is modified."""
        point = FactoredPoint(A.astype(self._dtype), B.astype(self._dtype))
        scores = self._scores(point)
        derivatives = self._derivatives(scores)
        on_A = self.X.T @ (derivatives @ (self.Z @ point.right))
        on_B = self.Z.T @ (derivatives.T @ (self.X @ point.left))
        return self._value(scores), np.asarray(on_A, np.float64), np.asarray(on_B, np.float64)

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` over the listed pairs, q = sigma(-y s)."""
        q = scale * scipy.special.expit(-self._pairs.signs * self._scores(point).astype(np.float64))
        entropies = scipy.special.entr(q) + scipy.special.entr(1.0 - q)
        return float(np.vdot(self._pairs.weights, entropies))

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return ``sum_ij w_ij sigma'(s_ij)`` over the number of all pairs, listed or not."""
        p = scipy.special.expit(self._scores(point).astype(np.float64))
        total = float(np.vdot(self._pairs.weights, p * (1.0 - p)))
        return total / float(self.X.shape[0] * self.Z.shape[0])

    def _scores(self, point: FactoredPoint) -> FloatArray:
        left = np.asarray(self.X @ point.left.astype(self._dtype, copy=False))
        right = np.asarray(self.Z @ point.right.astype(self._dtype, copy=False))
        scores = np.empty(len(self._rows), self._dtype)
        for start in range(0, len(scores), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            np.einsum("ij,ij->i", left[self._rows[some]], right[self._pairs.columns[some]], out=scores[some])
        return scores

    def _value(self, scores: FloatArray) -> float:
        margins = self._pairs.signs * scores
        return float(np.vdot(self._pairs.weights, np.logaddexp(0.0, -margins)))

    def _derivatives(self, scores: FloatArray) -> Any:
        signs = self._pairs.signs
        data = -self._pairs.weights * signs * scipy.special.expit(-signs * scores)
        return scipy.sparse.csr_array(
            (data.astype(self._dtype), self._pairs.columns, self._pairs.indptr), shape=self._pairs.shape
        )


def _csr(table: Any, name: str) -> Any:
    if not is_sparse(table):
        raise SupervisionError(f"{name} must be a scipy sparse array of shape (n_samples_x, n_samples_z)")
    if table.ndim != 2 or 0 in table.shape:
        raise SupervisionError(f"{name} must be non-empty and two-dimensional, got shape {table.shape}")
    converted = scipy.sparse.csr_array(table, copy=True)
    converted.sum_duplicates()
    converted.sort_indices()
    return converted
