"""The smooth term: weighted logistic loss over all pairs, in tiles that fit the cache.

One exponential per pair gives the loss log(1 + exp(-y s)) and its derivative (`solver.losses.kernels`). The
derivatives themselves are summed, not their differences from a constant: where most pairs are
fitted well they are small, and so is the rounding of their sums. There is never an array of all pairs.
Chunks of rows run on threads, and their results are added in a fixed order, so that the result does not
depend on the number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.losses.base import FactoredPoint
from solver.losses.kernels import TileBuffers, differentiate, sum_entropies, sum_losses
from solver.losses.products import SampleProducts
from solver.supervision.base import Indices, PairKey, Supervision
from solver.supervision.sizes import check_sizes
from solver.threads import map_chunks

_TILE_BYTES = 3 << 19
"""Size of the scores of a tile, 1.5 MiB: small enough to stay in cache between the passes of the kernels."""
_TILE_COLUMNS = 1280
"""Columns of a tile, long enough for the matrix products to run at full speed."""
_COPIED_ROWS = 1024
"""Rows that are reordered at a time, so that no second copy of all samples is needed."""
_CHUNKS = 16
"""Chunks of rows, independent of the number of threads; fewer where the sums of each are large."""
_CHUNK_BYTES = 1 << 28
"""Limit on the memory of the sums of all chunks together: 256 MiB."""


@dataclass(frozen=True, slots=True)
class _Tile:
    rows: slice
    columns: slice


class PairLogisticLoss:
    """Weighted logistic loss of all pairs (problem (4) of [1]_ without its penalty).

    ``l(M) = sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j))`` with w = 1/|S| on similar and 1/|D| on
    dissimilar pairs. Convex, and smooth with constant at most ``max w * ||X||_2^2 ||Z||_2^2 / 4``.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples_x, n_features_x)
        Samples of the first modality.
    Z : ndarray or CSR array of shape (n_samples_z, n_features_z)
        Samples of the second modality.
    supervision : Supervision
        Which pairs are similar.
    dtype : {float32, float64}
        Precision of the pair computations; sums over tiles are always float64.
    n_threads : int
        Threads over chunks of rows.

    References
    ----------
    .. [1] C. Kang et al., "Cross-Modal Similarity Learning: A Low Rank Bilinear Formulation",
       CIKM 2015.
    """

    def __init__(
        self,
        X: Samples,
        Z: Samples,
        supervision: Supervision,
        dtype: type = np.float32,
        n_threads: int = 1,
    ) -> None:
        check_sizes(X, Z, supervision)
        self.X = _in_order(X, supervision.x_order, dtype)
        self.Z = _in_order(Z, supervision.z_order, dtype)
        self._supervision = supervision
        self._dtype = np.dtype(dtype)
        self._n_threads = n_threads
        self._w_similar = 1.0 / supervision.n_similar
        self._w_dissimilar = 1.0 / supervision.n_dissimilar
        m, n = self.X.shape[0], self.Z.shape[0]
        self._width = -(-n // -(-n // _TILE_COLUMNS))
        self._x_side, self._z_side = SampleProducts(self.X, n_threads), SampleProducts(self.Z, n_threads)
        self._height = min(max(_TILE_BYTES // (self._width * self._dtype.itemsize), 16), m)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        """Return l(M)."""
        left, right = self._score_factors(FactoredPoint.of(M))

        def evaluate(chunk: slice) -> float:
            value, buffers = 0.0, self._buffers()
            for tile in self._tiles(chunk):
                scores = buffers.score(left[tile.rows], right[tile.columns])
                value += self._weigh(sum_losses(scores, buffers.factors_like(scores), self._keys(tile)))
            return value

        return sum(map_chunks(evaluate, self._chunks(1), self._n_threads))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient ``-X^T T Z``, an (n_features_x, n_features_z) array."""
        left, right = self._score_factors(point)
        Z = self.Z
        weighted_Z = np.zeros((self.X.shape[0], Z.shape[1]), self._dtype)

        def evaluate(chunk: slice) -> float:
            value, buffers = 0.0, self._buffers()
            for tile in self._tiles(chunk):
                scores = buffers.score(left[tile.rows], right[tile.columns])
                tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
                value += tile_value
                weighted_Z[tile.rows] += derivatives @ Z[tile.columns]
            return value

        value = sum(map_chunks(evaluate, self._chunks(1), self._n_threads))
        gradient = self._w_dissimilar * self._x_side.gather(weighted_Z)
        return value, gradient.astype(self._dtype)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return l(A B^T) with ``l' B`` and ``l'^T A``, without forming the gradient l' itself.

        Parameters
        ----------
        A : ndarray of shape (n_features_x, k)

        B : ndarray of shape (n_features_z, k)

        """
        XA, ZB = self._x_side.project(A), self._z_side.project(B)
        along_x = np.zeros_like(XA)

        def evaluate(chunk: slice) -> tuple[float, FloatArray]:
            value, along_z, buffers = 0.0, np.zeros_like(ZB), self._buffers()
            for tile in self._tiles(chunk):
                scores = buffers.score(XA[tile.rows], ZB[tile.columns])
                tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
                value += tile_value
                along_x[tile.rows] += derivatives @ ZB[tile.columns]
                along_z[tile.columns] += derivatives.T @ XA[tile.rows]
            return value, along_z

        value, along_z = 0.0, np.zeros(ZB.shape)
        for chunk_value, chunk_along_z in map_chunks(evaluate, self._chunks(ZB.shape[1]), self._n_threads):
            value += chunk_value
            along_z += chunk_along_z
        on_A = self._w_dissimilar * self._x_side.gather(along_x)
        on_B = self._w_dissimilar * self._z_side.gather(along_z.astype(self._dtype))
        return value, on_A, on_B

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` with q = sigma(-y s) and H the binary entropy in nats.

        This is the dual objective of the pair variables ``scale * q`` (`solver.optimisation.certificate`).
        """
        left, right = self._score_factors(point)

        def evaluate(chunk: slice) -> float:
            total, buffers = 0.0, self._buffers()
            for tile in self._tiles(chunk):
                scores = buffers.score(left[tile.rows], right[tile.columns])
                keys = self._keys(tile)
                _, derivatives = self._value_and_derivatives(tile, scores, buffers)
                q = np.multiply(derivatives, scale, dtype=np.float64)
                for key in keys:
                    total += self._w_similar * sum_entropies(q[key] * (-self._w_dissimilar / self._w_similar))
                    q[key] = 0.0
                total += self._w_dissimilar * sum_entropies(q)
            return total

        return sum(map_chunks(evaluate, self._chunks(1), self._n_threads))

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of ``sum_ij w_ij sigma'(s_ij)`` over the number of pairs, from some tiles."""
        left, right = self._score_factors(point)
        curvature, n_pairs, buffers = 0.0, 0, self._buffers()
        for chunk in self._chunks(1):
            tile = next(self._tiles(chunk))
            scores = buffers.score(left[tile.rows], right[tile.columns])
            _, slopes = self._value_and_derivatives(tile, scores, buffers)
            # sigma' = sigma(s) sigma(-s), where one factor is 1 / F and the other 1 - 1 / F.
            slopes /= buffers.factors_like(scores)
            for key in self._keys(tile):
                slopes[key] *= 1.0 - buffers.factors_like(scores)[key]
            curvature += self._w_dissimilar * float(slopes.sum(dtype=np.float64))
            n_pairs += slopes.size
        return curvature / n_pairs

    def _score_factors(self, point: FactoredPoint) -> tuple[FloatArray, FloatArray]:
        """Return two factors with a row per sample, whose inner products are the scores."""
        return self._x_side.project(point.left), self._z_side.project(point.right)

    def _value_and_derivatives(
        self, tile: _Tile, scores: FloatArray, buffers: TileBuffers
    ) -> tuple[float, FloatArray]:
        """Return the loss of a tile, and its derivatives divided by the weight of a dissimilar pair."""
        keys, factors = self._keys(tile), buffers.factors_like(scores)
        value = self._weigh(sum_losses(scores, factors, keys))
        return value, differentiate(scores, factors, keys, self._w_similar / self._w_dissimilar)

    def _weigh(self, losses: tuple[float, float]) -> float:
        return self._w_dissimilar * losses[0] + self._w_similar * losses[1]

    def _buffers(self) -> TileBuffers:
        return TileBuffers.of(self._height * self._width, self._dtype)

    def _keys(self, tile: _Tile) -> list[PairKey]:
        return self._supervision.similar_pairs(tile.rows, tile.columns)

    def _chunks(self, width: int) -> list[slice]:
        """Return slices of rows, as many as memory allows if each stores `width` numbers per column."""
        m, n = self.X.shape[0], self.Z.shape[0]
        n_blocks = -(-m // self._height)
        affordable = _CHUNK_BYTES // (n * max(width, 1) * self._dtype.itemsize)
        n_chunks = min(_CHUNKS, n_blocks, max(affordable, 2))
        edges = [min(i * n_blocks // n_chunks * self._height, m) for i in range(n_chunks + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    def _tiles(self, chunk: slice) -> Iterator[_Tile]:
        n = self.Z.shape[0]
        for start in range(chunk.start, chunk.stop, self._height):
            rows = slice(start, min(start + self._height, chunk.stop))
            for first in range(0, n, self._width):
                yield _Tile(rows, slice(first, min(first + self._width, n)))


def _in_order(samples: Samples, order: Indices, dtype: type) -> Samples:
    if not isinstance(samples, np.ndarray):
        return samples[order].astype(dtype)
    ordered: FloatArray = np.empty(samples.shape, dtype)
    for start in range(0, len(order), _COPIED_ROWS):
        ordered[start : start + _COPIED_ROWS] = samples[order[start : start + _COPIED_ROWS]]
    return ordered
