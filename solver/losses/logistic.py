"""The smooth term: weighted logistic loss over all pairs, in tiles that fit the cache.

One exponential per pair gives the loss log(1 + exp(-y s)) and its derivative (`solver.losses.kernels`). The
derivatives themselves are summed, not their differences from a constant: where most pairs are
fitted well they are small, and so is the rounding of their sums. There is never an array of all pairs.
Blocks of pairs (`solver.losses.pair_blocks`) are computed on threads or by another engine
(`solver.losses.engine`), and their results are added in a fixed order, so that the result does not depend on
where that is done.
"""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.losses.base import FactoredPoint
from solver.losses.engine import Engine, LocalEngine
from solver.losses.pair_blocks import Block, PairBlocks
from solver.losses.products import SampleProducts
from solver.supervision.base import Indices, Supervision
from solver.supervision.sizes import check_sizes

_COPIED_ROWS = 1024  # rows that are reordered at a time, so that no second copy of all samples is needed


class PairLogisticLoss:
    """Weighted logistic loss of all pairs: problem (4) of Kang et al. (CIKM 2015) without its penalty.
    Pairs are computed in `dtype`, sums over tiles always in float64, blocks on threads or by an engine."""

    # l(M) = sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j)) with w = 1/|S| on similar and 1/|D| on dissimilar
    # pairs. Convex, and smooth with constant at most max w * ||X||_2^2 ||Z||_2^2 / 4.

    def __init__(
        self,
        X: Samples,
        Z: Samples,
        supervision: Supervision,
        dtype: type = np.float32,
        n_threads: int = 1,
        engine: Engine | None = None,
    ) -> None:
        check_sizes(X, Z, supervision)
        self.X = _in_order(X, supervision.x_order, dtype)
        self.Z = _in_order(Z, supervision.z_order, dtype)
        self._dtype = np.dtype(dtype)
        self._x_side, self._z_side = SampleProducts(self.X, n_threads), SampleProducts(self.Z, n_threads)
        self._pairs = PairBlocks.of(self.X, self.Z, supervision)
        self._blocks = (engine or LocalEngine()).open(self._pairs, n_threads)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        left, right = self._take_factors(FactoredPoint.of(M))
        return sum(self._blocks.map(PairBlocks.sum_values, self._pairs.split(), left, right))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient ``-X^T T Z``, an (n_features_x, n_features_z) array."""
        left, right = self._take_factors(point)
        value, blocks, sums = 0.0, self._pairs.split(), self._make_sums(self.Z.shape[1])
        parts = self._blocks.map(PairBlocks.weigh_columns, blocks, left, right)
        for block, (block_value, block_sums) in zip(blocks, parts, strict=True):
            value += block_value
            sums[self._place(block)] += block_sums
        gradient = self._pairs.w_dissimilar * self._gather(self._x_side, sums)
        return value, gradient.astype(self._dtype)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return l(A B^T) with ``l' B`` and ``l'^T A``, without forming the gradient l' itself."""
        left, right = self._take_factors(FactoredPoint(A, B))
        value, along_x, along_z = 0.0, self._make_sums(left.shape[1]), np.zeros(right.shape)
        blocks = self._pairs.split()
        parts = self._blocks.map(PairBlocks.weigh_factors, blocks, left, right)
        for block, (block_value, along_rows, along_columns) in zip(blocks, parts, strict=True):
            value += block_value
            along_x[self._place(block)] += along_rows
            along_z += along_columns
        on_A = self._pairs.w_dissimilar * self._gather(self._x_side, along_x)
        on_B = self._pairs.w_dissimilar * self._gather(self._z_side, along_z)
        return value, on_A, on_B

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` with q = sigma(-y s) and H the binary entropy in nats:
        the dual objective of the pair variables ``scale * q`` (`solver.optimisation.certificate`)."""
        left, right = self._take_factors(point)
        return sum(self._blocks.map(PairBlocks.sum_entropies, self._pairs.split(), left, right, scale))

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of ``sum_ij w_ij sigma'(s_ij)`` over the number of pairs, from some tiles."""
        left, right = self._take_factors(point)
        curvature, n_pairs = 0.0, 0
        # In this process whatever the engine: a tile takes less time than to ask another one for it.
        for block in self._pairs.sizes.sample():
            block_curvature, n_of_block = self._pairs.sum_curvatures(block, left, right)
            curvature, n_pairs = curvature + block_curvature, n_pairs + n_of_block
        return curvature / n_pairs

    def _take_factors(self, point: FactoredPoint) -> tuple[FloatArray, FloatArray]:
        """Return what blocks take as factors: those of all samples; in a grid, those of the point."""
        if self._pairs.is_grid:
            return point.left.astype(self._dtype, copy=False), point.right.astype(self._dtype, copy=False)
        return self._x_side.project(point.left), self._z_side.project(point.right)

    def _make_sums(self, width: int) -> FloatArray:
        if self._pairs.is_grid:
            return np.zeros((self.X.shape[1], width))
        return np.zeros((self.X.shape[0], width), self._dtype)

    def _place(self, block: Block) -> slice:
        return slice(None) if self._pairs.is_grid else block.rows

    def _gather(self, side: SampleProducts, sums: FloatArray) -> FloatArray:
        """Return a side's part of a gradient of the sums over blocks, which gathered it already in a grid."""
        return sums if self._pairs.is_grid else side.gather(sums.astype(self._dtype, copy=False))


def _in_order(samples: Samples, order: Indices, dtype: type) -> Samples:
    if not isinstance(samples, np.ndarray):
        return samples[order].astype(dtype)
    ordered: FloatArray = np.empty(samples.shape, dtype)
    for start in range(0, len(order), _COPIED_ROWS):
        ordered[start : start + _COPIED_ROWS] = samples[order[start : start + _COPIED_ROWS]]
    return ordered
