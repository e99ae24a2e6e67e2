"""The logistic loss of a list of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import scipy.special

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples, to_dense
from solver.losses.base import FactoredPoint
from solver.supervision.signed_pairs import SignedPairs
from solver.supervision.sizes import check_sizes

_PAIRS_AT_ONCE = 1 << 16  # pairs whose factors are gathered at a time, to bound the memory of the copies


class ListedPairLoss:
    """Weighted logistic loss of listed pairs; time and memory are proportional to their number.
    Pairs are computed in `dtype`, sums always in float64."""

    def __init__(self, X: Samples, Z: Samples, pairs: SignedPairs, dtype: type = np.float32) -> None:
        check_sizes(X, Z, pairs)
        self.X: Samples = X.astype(dtype, copy=False)
        self.Z: Samples = Z.astype(dtype, copy=False)
        self._pairs = pairs
        self._rows = pairs.rows
        self._dtype = np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        return self._value(self._scores(FactoredPoint.of(M)))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        scores = self._scores(point)
        gradient: Any = self.X.T @ (self._derivatives(scores) @ self.Z)
        return self._value(scores), to_dense(gradient)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
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
        """Return ``sum_ij w_ij sigma'(s_ij)`` over the number of all pairs, including unlisted ones."""
        p = scipy.special.expit(self._scores(point).astype(np.float64))
        total = float(np.vdot(self._pairs.weights, p * (1.0 - p)))
        return total / float(self.X.shape[0] * self.Z.shape[0])

    def _scores(self, point: FactoredPoint) -> FloatArray:
        left = np.asarray(self.X @ point.left.astype(self._dtype, copy=False))
        right = np.asarray(self.Z @ point.right.astype(self._dtype, copy=False))
        scores = np.empty(len(self._rows), self._dtype)
        for start in range(0, len(scores), _PAIRS_AT_ONCE):
            block = slice(start, start + _PAIRS_AT_ONCE)
            np.einsum(
                "ij,ij->i", left[self._rows[block]], right[self._pairs.columns[block]], out=scores[block]
            )
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
