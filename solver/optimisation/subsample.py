"""A large problem seen through a few of its pairs.

All samples of both modalities are dealt at random to blocks, and only pairs within a block are looked at:
1/K of them with K blocks. That is an incomplete U-statistic, whose noise is that of its number of pairs
and not that of fewer samples (Clémençon, Colin and Bellet, "Scaling-up Empirical Risk Minimization:
Optimization of Incomplete U-statistics", JMLR 17, 2016).

With the linear term ``<l'(M_0) - s'(M_0), M>`` the subsampled loss s has at M_0 the gradient of the whole
loss l. Its minimiser comes nearer to the optimum of the whole at the price of one gradient over all pairs
(Shamir, Srebro and Zhang, "Communication-Efficient Distributed Optimization using an Approximate Newton-type
Method", ICML 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.errors import SupervisionError
from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.losses.base import FactoredPoint
from solver.losses.logistic import PairLogisticLoss
from solver.supervision.base import Indices, Supervision
from solver.supervision.paired_rows import PairedRows

_BLOCK_SAMPLES = 3000
_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows of both modalities, ascending, and which of their pairs are similar."""

    x_rows: Indices
    z_rows: Indices
    supervision: Supervision


def deal_blocks(supervision: Supervision) -> tuple[list[Block], int]:
    """Deal all samples to blocks at random, with a fixed seed.

    Parameters
    ----------
    supervision : Supervision
        Of all samples.

    Returns
    -------
    blocks : list of Block
        Of a geometric mean of about 3000 samples each; those without any similar or any dissimilar pair are
        left out. Empty where all samples make less than two blocks.
    n_dealt : int
        Into how many blocks the samples were dealt, with those that are left out.
    """
    m, n = len(supervision.x_order), len(supervision.z_order)
    n_blocks = round(float(np.sqrt(float(m) * n)) / _BLOCK_SAMPLES)
    if n_blocks < 2:
        return [], n_blocks
    rng = np.random.default_rng(_SEED)
    x_drawn = rng.permutation(m)
    z_drawn = x_drawn if isinstance(supervision, PairedRows) else rng.permutation(n)
    blocks = []
    for x_rows, z_rows in zip(
        np.array_split(x_drawn, n_blocks), np.array_split(z_drawn, n_blocks), strict=True
    ):
        x_rows, z_rows = np.sort(x_rows), np.sort(z_rows)
        try:
            blocks.append(Block(x_rows, z_rows, supervision.subset(x_rows, z_rows)))
        except SupervisionError:
            continue
    return blocks, n_blocks


class SubsampledLoss:
    """Mean of the losses of blocks of pairs, and a linear term.

    Parameters
    ----------
    losses : sequence of PairLogisticLoss
        One per block, each with weights of its own.
    n_dealt : int
        Into how many blocks all samples were dealt; only scales the curvature.
    shift : ndarray of shape (n_features_x, n_features_z), optional
        Gradient of the linear term; zero when None.
    """

    def __init__(
        self, losses: Sequence[PairLogisticLoss], n_dealt: int, shift: FloatArray | None = None
    ) -> None:
        self._losses = losses
        self._n_dealt = n_dealt
        self._shift = shift

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self._losses[0].shape

    def value(self, M: LowRankMatrix) -> float:
        """Return the loss at M."""
        mean = sum(loss.value(M) for loss in self._losses) / len(self._losses)
        point = FactoredPoint.of(M)
        return mean + self._linear(point.left, point.right)

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return the loss and its gradient, an (n_features_x, n_features_z) array."""
        value, gradient = 0.0, np.zeros(self.shape)
        for loss in self._losses:
            of_block = loss.value_and_gradient(point)
            value, gradient = value + of_block[0], gradient + of_block[1]
        value, gradient = value / len(self._losses), gradient / len(self._losses)
        if self._shift is not None:
            gradient += self._shift
        return value + self._linear(point.left, point.right), gradient.astype(np.float32)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss at A B^T and its gradients with respect to A and B."""
        value, on_A, on_B = 0.0, np.zeros(A.shape), np.zeros(B.shape)
        for loss in self._losses:
            of_block = loss.value_and_factor_gradients(A, B)
            value, on_A, on_B = value + of_block[0], on_A + of_block[1], on_B + of_block[2]
        n_losses = len(self._losses)
        value, on_A, on_B = value / n_losses, on_A / n_losses, on_B / n_losses
        if self._shift is not None:
            on_A += self._shift @ B
            on_B += self._shift.T @ A
        return value + self._linear(A, B), on_A, on_B

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of the whole's ``sum_ij w_ij sigma'(s_ij)`` over the number of all pairs."""
        # A block has 1/K of the samples of either modality, hence weights K^2 times as large.
        return self._losses[0].mean_curvature(point) / self._n_dealt**2

    def _linear(self, left: FloatArray, right: FloatArray) -> float:
        return 0.0 if self._shift is None else float(np.vdot(left, self._shift @ right))


class PairSubsample:
    """The subsample of one problem, in float32.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples_x, n_features_x)
        First modality, as prepared. Not modified.
    Z : ndarray or CSR array of shape (n_samples_z, n_features_z)
        Second modality, as prepared. Not modified.
    blocks : sequence of Block
        Two or more.
    n_dealt : int
        Into how many blocks all samples were dealt.
    n_threads : int
        Threads over chunks of rows within a block.
    """

    def __init__(self, X: Samples, Z: Samples, blocks: Sequence[Block], n_dealt: int, n_threads: int) -> None:
        self._n_dealt = n_dealt
        self._losses = [
            PairLogisticLoss(X[block.x_rows], Z[block.z_rows], block.supervision, np.float32, n_threads)
            for block in blocks
        ]

    @property
    def n_blocks(self) -> int:
        """Number of blocks that are looked at."""
        return len(self._losses)

    def share(self, n_blocks: int) -> float:
        """Return about which share of all pairs so many blocks hold."""
        return n_blocks / self._n_dealt**2

    def loss(self, n_blocks: int) -> SubsampledLoss:
        """Return the loss of the first so many blocks."""
        return SubsampledLoss(self._losses[:n_blocks], self._n_dealt)

    def gradient_corrected(self, point: FactoredPoint, gradient: FloatArray) -> SubsampledLoss:
        """Return the loss of all blocks with the linear term that gives it a certain gradient at a point.

        Parameters
        ----------
        point : FactoredPoint
            The point.
        gradient : ndarray of shape (n_features_x, n_features_z)
            The gradient to have there.
        """
        _, own = self.loss(self.n_blocks).value_and_gradient(point)
        return SubsampledLoss(self._losses, self._n_dealt, gradient.astype(np.float64) - own)
