"""The squared loss: squared distance of the similarity from the indicator of a match."""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples, to_dense
from solver.losses.base import FactoredPoint
from solver.supervision.base import Supervision
from solver.supervision.sizes import check_sizes

_ROWS_AT_ONCE = 4096  # rows of which a float64 copy is made at a time


class PairSquaredLoss:
    """Squared loss of all pairs with equal weights; gradients in `dtype`, computed in float64.
    ``l(M) = 1/(2 m n) sum_ij (x_i^T M z_j - t_ij)^2`` with t = 1 on similar pairs and 0 on the others."""

    # Its minimum over all functions of a pair is the probability of a match, which is a bilinear function of
    # class posteriors: P(same | x, z) = sum_c p(c|x) p(c|z). It needs no pass over the pairs, only X^T X, Z^T
    # Z and the sum of x_i z_j^T over the similar ones.

    def __init__(self, X: Samples, Z: Samples, supervision: Supervision, dtype: type = np.float64) -> None:
        check_sizes(X, Z, supervision)
        self._dtype = np.dtype(dtype)
        self._x_gram, self._z_gram = _gram(X), _gram(Z)
        self._targets = supervision.sum_over_similar(X, Z)
        self._n_similar = supervision.n_similar
        self._n_pairs = int(X.shape[0]) * int(Z.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._x_gram), len(self._z_gram)

    def value(self, M: LowRankMatrix) -> float:
        point = FactoredPoint.of(M)
        return self._value(*_exact(point.left, point.right))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        left, right = _exact(point.left, point.right)
        gradient = ((self._x_gram @ left) @ (self._z_gram @ right).T - self._targets) / self._n_pairs
        return self._value(left, right), gradient.astype(self._dtype)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        A, B = _exact(A, B)
        along_x, along_z = self._x_gram @ A, self._z_gram @ B
        on_A = (along_x @ (B.T @ along_z) - self._targets @ B) / self._n_pairs
        on_B = (along_z @ (A.T @ along_x) - self._targets.T @ A) / self._n_pairs
        return self._value(A, B), on_A, on_B

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return ``1/(m n) sum_ij (scale p_ij t_ij - scale^2 p_ij^2 / 2)`` with p = t - s at `point`:
        the dual objective of the pair variables ``scale * p`` (`solver.optimisation.certificate`)."""
        left, right = _exact(point.left, point.right)
        along = (self._n_similar - self._agreement(left, right)) / self._n_pairs
        return scale * along - scale**2 * self._value(left, right)

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return the weight of a pair, which is the constant second derivative of its loss."""
        return 1.0 / self._n_pairs

    def _value(self, left: FloatArray, right: FloatArray) -> float:
        squares = np.vdot(left.T @ self._x_gram @ left, right.T @ self._z_gram @ right)
        distance = float(squares) - 2.0 * self._agreement(left, right) + self._n_similar
        return 0.5 * distance / self._n_pairs

    def _agreement(self, left: FloatArray, right: FloatArray) -> float:
        return float(np.vdot(left, self._targets @ right))


def _gram(samples: Samples) -> FloatArray:
    gram: FloatArray = np.zeros((samples.shape[1], samples.shape[1]))
    for start in range(0, samples.shape[0], _ROWS_AT_ONCE):
        exact = samples[start : start + _ROWS_AT_ONCE].astype(np.float64)
        product = exact.T @ exact
        gram += to_dense(product)
    return gram


def _exact(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    return left.astype(np.float64), right.astype(np.float64)
