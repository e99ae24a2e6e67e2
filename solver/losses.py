"""The smooth term: weighted logistic loss over all pairs, in blocks that fit the cache.

For a pair with score s and sign y the loss is log(1 + exp(-y s)). With t = tanh(s / 2)

    log(1 + exp(-y s)) = log 2 - log(1 + y t),        d/ds = (t - y) / 2,

so one hyperbolic tangent per pair gives value and derivative. Signs and weights are constant on the
rectangles that the supervision names, hence they cost no pass of their own: the constant part
``-y/2`` of the derivative is summed once per class, and logarithms are taken of products of factors.
No array of all pairs is ever made; blocks run on threads and are added up in a fixed order, so the
result does not depend on their number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from solver.errors import SupervisionError
from solver.kernels import sum_entropies, sum_logistic_losses
from solver.linalg import FloatArray, LowRankMatrix
from solver.supervision import Supervision

_BLOCK_BYTES = 1 << 20
_MIN_BLOCK_ROWS = 16
_LANES = 16
"""Blocks are dealt to this many lanes, whatever the number of threads: sums keep their order."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class FactoredPoint:
    """A point ``left @ right.T`` at which the loss is evaluated, of any (small) inner dimension."""

    left: FloatArray
    right: FloatArray

    @classmethod
    def of(cls, M: LowRankMatrix) -> FactoredPoint:
        """Return `M` with its singular values on the left."""
        return cls(M.U * M.s, M.V)

    def dense(self) -> FloatArray:
        """Return the (n_features_x, n_features_z) array."""
        dense: FloatArray = self.left @ self.right.T
        return dense


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    stop: int
    similar: list[tuple[slice, slice]]


class PairLogisticLoss:
    """Weighted logistic loss of all pairs (problem (4) of [1]_ without its penalty).

    ``l(M) = sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j))`` with w = 1/|S| on similar and 1/|D| on
    dissimilar pairs. Convex, and smooth with constant at most ``max w * ||X||_2^2 ||Z||_2^2 / 4``.

    Parameters
    ----------
    X : ndarray of shape (n_samples_x, n_features_x)
        Samples of the first modality. Not modified.
    Z : ndarray of shape (n_samples_z, n_features_z)
        Samples of the second modality. Not modified.
    supervision : Supervision
        Which pairs are similar.
    dtype : {float32, float64}
        Precision of the pair computations; sums over blocks are always float64.
    n_threads : int
        Threads over blocks.

    References
    ----------
    .. [1] C. Kang et al., "Cross-Modal Similarity Learning: A Low Rank Bilinear Formulation",
       CIKM 2015.
    """

    def __init__(
        self,
        X: FloatArray,
        Z: FloatArray,
        supervision: Supervision,
        dtype: type = np.float32,
        n_threads: int = 1,
    ) -> None:
        _check_sizes(X, Z, supervision)
        self.X: FloatArray = np.ascontiguousarray(X[supervision.x_order], dtype=dtype)
        self.Z: FloatArray = np.ascontiguousarray(Z[supervision.z_order], dtype=dtype)
        self._dtype = np.dtype(dtype)
        self._n_threads = n_threads
        self._blas = ThreadpoolController()
        self._w_similar = 1.0 / supervision.n_similar
        self._w_dissimilar = 1.0 / supervision.n_dissimilar
        blocks = list(_split_rows(len(self.X), len(self.Z), self._dtype.itemsize, supervision))
        n_lanes = min(_LANES, len(blocks))
        self._lanes = [
            blocks[i * len(blocks) // n_lanes : (i + 1) * len(blocks) // n_lanes] for i in range(n_lanes)
        ]
        self._sign_left, self._sign_right = self._factor_sign_gradient()

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        """Return l(M)."""
        left, right = self._half_score_factors(FactoredPoint.of(M))

        def evaluate(lane: list[_Block]) -> float:
            value = 0.0
            for block in lane:
                half = left[block.start : block.stop] @ right.T
                value += self._block_value(block, half, np.tanh(half))
            return value

        return sum(self._map(evaluate))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient ``-X^T T Z``, an (n_features_x, n_features_z) array."""
        left, right = self._half_score_factors(point)
        weighted_Z = np.empty((len(self.X), self.Z.shape[1]), self._dtype)

        def evaluate(lane: list[_Block]) -> float:
            value = 0.0
            for block in lane:
                half = left[block.start : block.stop] @ right.T
                t = np.tanh(half)
                value += self._block_value(block, half, t)
                self._weigh(block, t)
                np.matmul(t, self.Z, out=weighted_Z[block.start : block.stop])
            return value

        value = sum(self._map(evaluate))
        gradient = (0.5 * self._w_dissimilar) * (self.X.T @ weighted_Z).astype(np.float64)
        gradient += self._sign_left @ self._sign_right.T
        return value, gradient.astype(self._dtype)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return l(A B^T) with ``l' B`` and ``l'^T A``, without forming the gradient l' itself.

        Parameters
        ----------
        A : ndarray of shape (n_features_x, k)
            Not modified.
        B : ndarray of shape (n_features_z, k)
            Not modified.
        """
        XA, ZB = self.X @ A.astype(self._dtype), self.Z @ B.astype(self._dtype)
        half_XA = XA * self._dtype.type(0.5)
        along_x = np.empty_like(XA)

        def evaluate(lane: list[_Block]) -> tuple[float, FloatArray]:
            value, along_z = 0.0, np.zeros_like(ZB)
            for block in lane:
                rows = slice(block.start, block.stop)
                half = half_XA[rows] @ ZB.T
                t = np.tanh(half)
                value += self._block_value(block, half, t)
                self._weigh(block, t)
                np.matmul(t, ZB, out=along_x[rows])
                along_z += t.T @ XA[rows]
            return value, along_z

        value, along_z = 0.0, np.zeros(ZB.shape)
        for lane_value, lane_along_z in self._map(evaluate):
            value += lane_value
            along_z += lane_along_z
        scale = 0.5 * self._w_dissimilar
        on_A = scale * (self.X.T @ along_x) + self._sign_left @ (self._sign_right.T @ B)
        on_B = scale * (self.Z.T @ along_z.astype(self._dtype)) + self._sign_right @ (self._sign_left.T @ A)
        return value, on_A, on_B

    def dual_entropy(self, point: FactoredPoint, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * p_ij)`` with p = sigma(-y s) and H the binary entropy in nats.

        This is the dual objective of the pair variables ``scale * p`` (see `solver.certificate`).
        """
        left, right = self._half_score_factors(point)

        def evaluate(lane: list[_Block]) -> float:
            total = 0.0
            for block in lane:
                t = np.tanh((left[block.start : block.stop] @ right.T).astype(np.float64))
                total += self._w_dissimilar * sum_entropies(scale * (1.0 + t) / 2.0)
                for rectangle in block.similar:
                    t_similar = t[rectangle]
                    total += self._w_similar * sum_entropies(scale * (1.0 - t_similar) / 2.0)
                    total -= self._w_dissimilar * sum_entropies(scale * (1.0 + t_similar) / 2.0)
            return total

        return sum(self._map(evaluate))

    def _half_score_factors(self, point: FactoredPoint) -> tuple[FloatArray, FloatArray]:
        """Return two factors, one row per sample, whose inner products are the scores s / 2."""
        if point.left.shape[1] > min(self.shape):
            return (0.5 * (self.X @ point.dense())).astype(self._dtype), self.Z
        left = self.X @ (0.5 * point.left).astype(self._dtype)
        return left, self.Z @ point.right.astype(self._dtype)

    def _block_value(self, block: _Block, half: FloatArray, t: FloatArray) -> float:
        total = self._w_dissimilar * sum_logistic_losses(half, t, -1.0)
        for rectangle in block.similar:
            similar = half[rectangle], t[rectangle]
            total += self._w_similar * sum_logistic_losses(*similar, 1.0)
            total -= self._w_dissimilar * sum_logistic_losses(*similar, -1.0)
        return total

    def _factor_sign_gradient(self) -> tuple[FloatArray, FloatArray]:
        """Return factors of ``-1/2 sum_ij w_ij y_ij x_i z_j^T``: one column per class, one for all pairs."""
        x_sums: dict[tuple[int, int], FloatArray] = {}
        for block in itertools.chain.from_iterable(self._lanes):
            for rows, columns in block.similar:
                x_sum = self.X[block.start : block.stop][rows].sum(0, dtype=np.float64)
                key = columns.start, columns.stop
                x_sums[key] = x_sums[key] + x_sum if key in x_sums else x_sum
        excess = -0.5 * (self._w_similar + self._w_dissimilar)
        left = [excess * x_sum for x_sum in x_sums.values()]
        right = [self.Z[start:stop].sum(0, dtype=np.float64) for start, stop in x_sums]
        left.append(0.5 * self._w_dissimilar * self.X.sum(0, dtype=np.float64))
        right.append(self.Z.sum(0, dtype=np.float64))
        return np.stack(left, axis=1), np.stack(right, axis=1)

    def _weigh(self, block: _Block, t: FloatArray) -> None:
        """Multiply t by the pairs' weights relative to a dissimilar pair's, in place."""
        for rectangle in block.similar:
            t[rectangle] *= self._w_similar / self._w_dissimilar

    def _map(self, evaluate: Callable[[list[_Block]], _Result]) -> list[_Result]:
        if len(self._lanes) == 1:
            return [evaluate(self._lanes[0])]
        with self._blas.limit(limits=1, user_api="blas"):
            if self._n_threads == 1:
                return [evaluate(lane) for lane in self._lanes]
            with ThreadPoolExecutor(self._n_threads) as pool:
                return list(pool.map(evaluate, self._lanes))


def _split_rows(n_rows: int, n_columns: int, itemsize: int, supervision: Supervision) -> Iterator[_Block]:
    height = min(max(_BLOCK_BYTES // (n_columns * itemsize), _MIN_BLOCK_ROWS), n_rows)
    for start in range(0, n_rows, height):
        stop = min(start + height, n_rows)
        yield _Block(start, stop, supervision.similar_rectangles(start, stop))


def _check_sizes(X: FloatArray, Z: FloatArray, supervision: Supervision) -> None:
    for name, samples, order in (("X", X, supervision.x_order), ("Z", Z, supervision.z_order)):
        if len(samples) != len(order):
            raise SupervisionError(f"{name} has {len(samples)} samples, the supervision has {len(order)}")
