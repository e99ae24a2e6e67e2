"""Losses of pairs: logistic over all pairs or over a list of them, squared, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special
from scipy.special import logsumexp, xlogy

from solver.linalg import FloatArray, LowRankMatrix, Samples, Sides, to_dense
from solver.losses.base import FactoredPoint
from solver.losses.pair_blocks import Block, BlockMap, Engine, LocalBlockMap, PairBlocks, SampleProducts
from solver.supervision.annotations import check_sizes
from solver.supervision.kinds import Indices, SignedPairs, Supervision, similarity_mask
from solver.threads import row_blocks

_COPIED_ROWS = 1024  # rows that are reordered at a time, so that no second copy of all samples is needed


class PairLogisticLoss:
    """Weighted logistic loss of all pairs: problem (4) of Kang et al. (CIKM 2015) without its penalty.
    Pairs are computed in `dtype`, sums over tiles always in float64, blocks on threads or by an engine."""

    # l(M) = sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j)) with w = 1/|S| on similar and 1/|D| on dissimilar
    # pairs. Convex, and smooth with constant at most max w * ||X||_2^2 ||Z||_2^2 / 4. The derivatives
    # themselves are summed, not their differences from a constant: where most pairs are fitted well they are
    # small, and so is the rounding of their sums. There is never an array of all pairs. The results of blocks
    # are added in a fixed order, so that the result does not depend on where they are computed.

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
        self._blocks: BlockMap = (LocalBlockMap if engine is None else engine.open)(self._pairs, n_threads)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[1], self.Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        factors = self._take_factors(FactoredPoint.of(M))
        return sum(self._blocks.map(PairBlocks.sum_values, self._pairs.sizes.split(), factors))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient ``-X^T T Z``, an (n_features_x, n_features_z) array."""
        factors = self._take_factors(point)
        value, blocks, sums = 0.0, self._pairs.sizes.split(), self._make_sums(self.Z.shape[1])
        parts = self._blocks.map(PairBlocks.weigh_columns, blocks, factors)
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
        blocks = self._pairs.sizes.split()
        parts = self._blocks.map(PairBlocks.weigh_factors, blocks, (left, right))
        for block, (block_value, along_rows, along_columns) in zip(blocks, parts, strict=True):
            value += block_value
            along_x[self._place(block)] += along_rows
            along_z += along_columns
        on_A = self._pairs.w_dissimilar * self._gather(self._x_side, along_x)
        on_B = self._pairs.w_dissimilar * self._gather(self._z_side, along_z)
        return value, on_A, on_B

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` with q = sigma(-y s) and H the binary entropy in nats:
        the dual objective of the pair variables ``scale * q`` (`solver.optimisation.convergence`)."""
        factors = self._take_factors(point)
        return sum(self._blocks.map(PairBlocks.sum_entropies, self._pairs.sizes.split(), factors, scale))

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of ``sum_ij w_ij sigma'(s_ij)`` over the number of pairs, from some tiles."""
        factors = self._take_factors(point)
        curvature, n_pairs = 0.0, 0
        # In this process whatever the engine: a tile takes less time than to ask another one for it.
        for block in self._pairs.sizes.sample():
            block_curvature, n_of_block = self._pairs.sum_curvatures(block, factors)
            curvature, n_pairs = curvature + block_curvature, n_pairs + n_of_block
        return curvature / n_pairs

    def _take_factors(self, point: FactoredPoint) -> Sides:
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
    for rows in row_blocks(len(order), _COPIED_ROWS):
        ordered[rows] = samples[order[rows]]
    return ordered


_PAIRS_AT_ONCE = 1 << 16  # pairs whose factors are gathered at a time, to bound the memory of the copies


class ListedPairLoss:
    """Weighted logistic loss of listed pairs; time and memory are proportional to their number.
    Pairs are computed in `dtype`, sums always in float64."""

    def __init__(self, X: Samples, Z: Samples, pairs: SignedPairs, dtype: type = np.float32) -> None:
        check_sizes(X, Z, pairs)
        self.X: Samples = X.astype(dtype, copy=False)
        self.Z: Samples = Z.astype(dtype, copy=False)
        self._pairs = pairs
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
        scores = np.empty(len(self._pairs.rows), self._dtype)
        for block in row_blocks(len(scores), _PAIRS_AT_ONCE):
            np.einsum(
                "ij,ij->i",
                left[self._pairs.rows[block]],
                right[self._pairs.columns[block]],
                out=scores[block],
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
        the dual objective of the pair variables ``scale * p`` (`solver.optimisation.convergence`)."""
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
    for rows in row_blocks(samples.shape[0]):
        exact = samples[rows].astype(np.float64)
        product = exact.T @ exact
        gram += to_dense(product)
    return gram


def _exact(left: FloatArray, right: FloatArray) -> Sides:
    return left.astype(np.float64), right.astype(np.float64)


_BLOCK_BYTES = 1 << 24  # size of the similarities of a block of rows: 16 MiB
_MODERATE_SCORE = 40.0
"""Similarities up to which a sum of a million exponentials is far from overflow in float32."""


@dataclass(frozen=True, slots=True)
class _Side:
    """The samples of one modality as queries."""

    weights: FloatArray  # (n,), one over twice the number of samples with a match, or 0 without one
    shares: FloatArray  # (n,), of each pair of a sample with one of its matches

    @classmethod
    def of(cls, n_matches: FloatArray) -> _Side:
        has_any = n_matches > 0
        weights = np.where(has_any, 0.5 / has_any.sum(), 0.0)
        return cls(weights, weights / np.maximum(n_matches, 1.0))

    def at(self, samples: slice) -> _Side:
        """Return the part of a slice of samples."""
        return _Side(self.weights[samples], self.shares[samples])

    def entropy(self, softmax: FloatArray, matches: npt.NDArray[np.bool_], scale: float) -> float:
        """Return the weighted entropies of the distributions in the rows, mixed with their targets."""
        weighted = scale * self.weights[:, None] * softmax + (1.0 - scale) * self.shares[:, None] * matches
        # weights * H(mixed), simplified: each row of `weighted` sums to its weight.
        sums = np.log(np.maximum(self.weights, np.finfo(np.float64).tiny))[:, None] * weighted
        return float(np.sum(sums) - np.sum(xlogy(weighted, weighted)))


class PairSoftmaxLoss:
    """Supervised contrastive loss, convex in M; pairs in `dtype`, sums in float64.
    Khosla et al., NeurIPS 2020, equation (2), between two modalities and without normalisation."""

    # l(M) = 1/(2m) sum_i [log sum_j exp(s_ij) - mean_{j matches i} s_ij] plus the same by columns, with s_ij
    # = x_i^T M z_j: the cross entropy between a uniform choice among a sample's matches and the softmax of
    # its similarities. Samples without a match have no term. There is no temperature, because M is not
    # normalised.

    def __init__(self, X: Samples, Z: Samples, supervision: Supervision, dtype: type = np.float32) -> None:
        check_sizes(X, Z, supervision)
        self._dtype = np.dtype(dtype)
        self._supervision = supervision
        self._X, self._Z = X[supervision.x_order].astype(dtype), Z[supervision.z_order].astype(dtype)
        m, n = X.shape[0], Z.shape[0]
        self._height = max(_BLOCK_BYTES // (n * self._dtype.itemsize), 1)
        by_row, by_column = np.zeros(m), np.zeros(n)
        for rows in self._blocks():
            matches = self._matches(rows)
            by_row[rows] = matches.sum(axis=1)
            by_column += matches.sum(axis=0)
        self._rows, self._columns = _Side.of(by_row), _Side.of(by_column)
        # The similarities of matches enter linearly: their sum over samples is computed once.
        weighted_Z = np.zeros((m, Z.shape[1]))
        for rows in self._blocks():
            shares = self._rows.shares[rows, None] + self._columns.shares
            weighted_Z[rows] = (shares * self._matches(rows)) @ self._Z
        self._linear = np.asarray(self._X.T @ weighted_Z, np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        return self._X.shape[1], self._Z.shape[1]

    def value(self, M: LowRankMatrix) -> float:
        point = FactoredPoint.of(M)
        return self._value(point, *self._log_sums(*self._score_factors(point)))

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        weighted_Z = np.zeros((self._X.shape[0], self._Z.shape[1]), self._dtype)

        def visit(rows: slice, derivatives: FloatArray) -> None:
            weighted_Z[rows] = derivatives @ self._Z

        value = self._differentiate(point, visit)
        gradient = self._X.T @ weighted_Z - self._linear
        return value, np.asarray(gradient).astype(self._dtype)

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        point = FactoredPoint(A, B)
        XA, ZB = self._score_factors(point)
        along_x, along_z = np.zeros_like(XA), np.zeros(ZB.shape)

        def visit(rows: slice, derivatives: FloatArray) -> None:
            along_x[rows] = derivatives @ ZB
            along_z[:] += derivatives.T @ XA[rows]

        value = self._differentiate(point, visit)
        on_A = self._X.T @ along_x - self._linear @ B
        on_B = self._Z.T @ along_z.astype(self._dtype) - self._linear.T @ A
        return value, np.asarray(on_A), np.asarray(on_B)

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return the dual objective of the softmax rows and columns, mixed with their targets."""
        # For any distribution p of a row, log sum_j exp(s_j) >= <p, s> + H(p). With p the softmax itself,
        # mixed as scale * p + (1 - scale) * target, the gradient is multiplied by `scale`, and the dual
        # objective is the weighted sum of the entropies H.
        total = 0.0

        def visit(rows: slice, by_row: FloatArray, by_column: FloatArray) -> None:
            nonlocal total
            matches = self._matches(rows)
            total += self._rows.at(rows).entropy(by_row, matches, scale)
            total += self._columns.entropy(by_column.T, matches.T, scale)

        self._visit(point, visit)
        return total

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return the mean over all pairs of the second derivative of the loss in one similarity."""
        total = 0.0

        def visit(rows: slice, by_row: FloatArray, by_column: FloatArray) -> None:
            nonlocal total
            along_rows = (by_row * (1.0 - by_row)).sum(axis=1, dtype=np.float64)
            along_columns = (by_column * (1.0 - by_column)).sum(axis=0, dtype=np.float64)
            total += float(self._rows.weights[rows] @ along_rows + self._columns.weights @ along_columns)

        self._visit(point, visit)
        return total / (int(self._X.shape[0]) * int(self._Z.shape[0]))

    def _differentiate(self, point: FactoredPoint, take: Callable[[slice, FloatArray], None]) -> float:
        """Pass the derivatives of the softmax terms to `take`, by blocks of rows; return the loss."""

        def visit(rows: slice, by_row: FloatArray, by_column: FloatArray) -> None:
            by_row *= self._rows.weights[rows, None].astype(self._dtype)
            by_column *= self._columns.weights.astype(self._dtype)
            by_row += by_column
            take(rows, by_row)

        return self._visit(point, visit)

    def _visit(self, point: FactoredPoint, visit: Callable[[slice, FloatArray, FloatArray], None]) -> float:
        """Pass the softmax of each row and each column to `visit`, by blocks of rows; return the loss."""
        left, right = self._score_factors(point)
        if _largest_score(left, right) <= _MODERATE_SCORE:
            by_row, by_column = self._visit_moderate(left, right, visit)
            return self._value(point, by_row, by_column)
        by_row, by_column = self._log_sums(left, right)
        for rows in self._blocks():
            scores = left[rows] @ right.T
            visit(
                rows,
                np.exp(scores - by_row[rows, None].astype(self._dtype)),
                np.exp(scores - by_column.astype(self._dtype)),
            )
        return self._value(point, by_row, by_column)

    def _visit_moderate(
        self, left: FloatArray, right: FloatArray, visit: Callable[[slice, FloatArray, FloatArray], None]
    ) -> Sides:
        """Do so with one exponential per pair, where none overflows; return the `_log_sums`."""
        by_row, by_column = np.zeros(len(left)), np.zeros(len(right))
        blocks, exponentials = list(self._blocks()), np.empty((0, 0), self._dtype)
        for rows in blocks:
            exponentials = _exponentials(left[rows], right)
            by_row[rows] = exponentials.sum(axis=1, dtype=np.float64)
            by_column += exponentials.sum(axis=0, dtype=np.float64)
        of_column = (1.0 / by_column).astype(self._dtype)
        for rows in blocks:
            if len(blocks) > 1:  # otherwise the array still holds the only block
                exponentials = _exponentials(left[rows], right)
            along_columns = exponentials * of_column
            exponentials *= (1.0 / by_row[rows, None]).astype(self._dtype)
            visit(rows, exponentials, along_columns)
        return np.log(by_row), np.log(by_column)

    def _value(self, point: FactoredPoint, by_row: FloatArray, by_column: FloatArray) -> float:
        left, right = point.left.astype(np.float64), point.right.astype(np.float64)
        of_matches = float(np.vdot(left, self._linear @ right))
        return float(self._rows.weights @ by_row + self._columns.weights @ by_column) - of_matches

    def _log_sums(self, left: FloatArray, right: FloatArray) -> Sides:
        by_row = np.zeros(len(left))
        peaks, sums = np.full(len(right), -np.inf), np.zeros(len(right))
        for rows in self._blocks():
            scores = left[rows] @ right.T
            by_row[rows] = logsumexp(scores, axis=1)
            higher = np.maximum(peaks, scores.max(axis=0))
            added = np.exp(scores - higher.astype(self._dtype)).sum(axis=0, dtype=np.float64)
            sums = sums * np.exp(peaks - higher) + added
            peaks = higher
        return by_row, peaks + np.log(sums)

    def _score_factors(self, point: FactoredPoint) -> Sides:
        left, right = (side.astype(self._dtype) for side in (point.left, point.right))
        return np.asarray(self._X @ left), np.asarray(self._Z @ right)

    def _matches(self, rows: slice) -> npt.NDArray[np.bool_]:
        return similarity_mask(self._supervision, rows, slice(0, self._Z.shape[0]))

    def _blocks(self) -> Iterator[slice]:
        return row_blocks(self._X.shape[0], self._height)


def _largest_score(left: FloatArray, right: FloatArray) -> float:
    """Return an upper bound on the absolute similarities, by Cauchy-Schwarz."""
    squares = (np.einsum("ij,ij->i", side, side, dtype=np.float64).max(initial=0.0) for side in (left, right))
    return math.sqrt(math.prod(float(square) for square in squares))


def _exponentials(left: FloatArray, right: FloatArray) -> FloatArray:
    scores: FloatArray = left @ right.T
    return np.exp(scores, out=scores)
