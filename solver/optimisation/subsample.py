"""A subsample of the pairs of a large problem.

All samples of both modalities are assigned to blocks at random, and only pairs within a block are used: 1/K
of all pairs with K blocks. That is an incomplete U-statistic, whose noise is that of its number of pairs
and not that of fewer samples (Clémençon, Colin and Bellet, "Scaling-up Empirical Risk Minimization:
Optimization of Incomplete U-statistics", JMLR 17, 2016).

With the linear term ``<l'(M_0) - s'(M_0), M>`` the subsampled loss s has at M_0 the gradient of the whole
loss l. Its minimiser is closer to the optimum of the whole, at the cost of one gradient over all pairs
(Shamir, Srebro and Zhang, "Communication-Efficient Distributed Optimization using an Approximate Newton-type
Method", ICML 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.linalg import FloatArray, LowRankMatrix, Samples
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from solver.supervision.kinds import Indices, PairedRows, Supervision
from solver.validation import SupervisionError

_BLOCK_SAMPLES = 3000
"""Samples per block: 9 million pairs, few enough to be cheap and enough for their noise to be small."""
_SEED = 0  # fixed, so that a fit is deterministic


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows of both modalities, in ascending order, and the supervision of their pairs."""

    x_rows: Indices
    z_rows: Indices
    supervision: Supervision


def assign_blocks(supervision: Supervision) -> tuple[list[Block], int]:
    """Assign all samples to blocks at random, with a fixed seed; return the blocks, and their number.
    The number counts blocks omitted for want of similar or dissimilar pairs; none if there are too few."""
    # A block has about 3000 samples, as a geometric mean over both modalities.
    m, n = len(supervision.x_order), len(supervision.z_order)
    n_blocks = round(float(np.sqrt(float(m) * n)) / _BLOCK_SAMPLES)
    if n_blocks < 2:
        return [], n_blocks
    rng = np.random.default_rng(_SEED)
    x_order = rng.permutation(m)
    z_order = x_order if isinstance(supervision, PairedRows) else rng.permutation(n)
    blocks = []
    for x_rows, z_rows in zip(
        np.array_split(x_order, n_blocks), np.array_split(z_order, n_blocks), strict=True
    ):
        x_rows, z_rows = np.sort(x_rows), np.sort(z_rows)
        try:
            blocks.append(Block(x_rows, z_rows, supervision.subset(x_rows, z_rows)))
        except SupervisionError:
            continue
    return blocks, n_blocks


@dataclass(frozen=True, slots=True, eq=False)
class SubsampledLoss:
    """Mean of the losses of blocks of pairs, and a linear term with gradient `shift` (zero when None)."""

    _losses: Sequence[PairLogisticLoss]
    _n_assigned: int  # counts omitted blocks too; it only scales the curvature
    _shift: FloatArray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self._losses[0].shape

    def value(self, M: LowRankMatrix) -> float:
        mean = sum(loss.value(M) for loss in self._losses) / len(self._losses)
        point = FactoredPoint.of(M)
        return mean + self._linear(point.left, point.right)

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        value, gradient = 0.0, np.zeros(self.shape)
        for loss in self._losses:
            block_value, block_gradient = loss.value_and_gradient(point)
            value, gradient = value + block_value, gradient + block_gradient
        value, gradient = value / len(self._losses), gradient / len(self._losses)
        if self._shift is not None:
            gradient += self._shift
        return value + self._linear(point.left, point.right), gradient.astype(np.float32)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        value, on_A, on_B = 0.0, np.zeros(A.shape), np.zeros(B.shape)
        for loss in self._losses:
            block_value, block_on_A, block_on_B = loss.value_and_factor_gradients(A, B)
            value, on_A, on_B = value + block_value, on_A + block_on_A, on_B + block_on_B
        n_losses = len(self._losses)
        value, on_A, on_B = value / n_losses, on_A / n_losses, on_B / n_losses
        if self._shift is not None:
            on_A += self._shift @ B
            on_B += self._shift.T @ A
        return value + self._linear(A, B), on_A, on_B

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of ``sum_ij w_ij sigma'(s_ij)`` over the number of all pairs, for the whole."""
        # A block has 1/K of the samples of each modality, hence weights K^2 times as large.
        return self._losses[0].mean_curvature(point) / self._n_assigned**2

    def _linear(self, left: FloatArray, right: FloatArray) -> float:
        return 0.0 if self._shift is None else float(np.vdot(left, self._shift @ right))


class PairSubsample:
    """The subsample of one problem, in float32, of two or more blocks of prepared samples.
    `n_assigned` counts omitted blocks too; threads work on chunks of rows within a block."""

    def __init__(
        self, X: Samples, Z: Samples, blocks: Sequence[Block], n_assigned: int, n_threads: int
    ) -> None:
        self._n_assigned = n_assigned
        self._losses = [
            PairLogisticLoss(X[block.x_rows], Z[block.z_rows], block.supervision, np.float32, n_threads)
            for block in blocks
        ]

    @property
    def n_blocks(self) -> int:
        return len(self._losses)

    def share(self, n_blocks: int) -> float:
        """Return the approximate fraction of all pairs in the first `n_blocks` blocks."""
        return n_blocks / self._n_assigned**2

    def loss(self, n_blocks: int) -> SubsampledLoss:
        """Return the loss of the first `n_blocks` blocks."""
        return SubsampledLoss(self._losses[:n_blocks], self._n_assigned)

    def gradient_corrected(self, point: FactoredPoint, gradient: FloatArray) -> SubsampledLoss:
        """Return the loss of all blocks, plus the linear term that gives it a certain gradient at a point."""
        _, own = self.loss(self.n_blocks).value_and_gradient(point)
        return SubsampledLoss(self._losses, self._n_assigned, gradient.astype(np.float64) - own)
