"""A contrastive loss: the softmax of each sample's similarities to the other modality, in both directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, xlogy

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.losses.base import FactoredPoint
from solver.supervision.base import Supervision
from solver.supervision.sizes import check_sizes

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
    ) -> tuple[FloatArray, FloatArray]:
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

    def _log_sums(self, left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
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

    def _score_factors(self, point: FactoredPoint) -> tuple[FloatArray, FloatArray]:
        left, right = (side.astype(self._dtype) for side in (point.left, point.right))
        return np.asarray(self._X @ left), np.asarray(self._Z @ right)

    def _matches(self, rows: slice) -> npt.NDArray[np.bool_]:
        columns = slice(0, self._Z.shape[0])
        matches = np.zeros((rows.stop - rows.start, columns.stop), np.bool_)
        for key in self._supervision.similar_pairs(rows, columns):
            matches[key] = True
        return matches

    def _blocks(self) -> Iterator[slice]:
        n_rows = self._X.shape[0]
        for start in range(0, n_rows, self._height):
            yield slice(start, min(start + self._height, n_rows))


def _largest_score(left: FloatArray, right: FloatArray) -> float:
    """Return an upper bound on the absolute similarities, by Cauchy-Schwarz."""
    squares = (np.einsum("ij,ij->i", side, side, dtype=np.float64).max(initial=0.0) for side in (left, right))
    return math.sqrt(math.prod(float(square) for square in squares))


def _exponentials(left: FloatArray, right: FloatArray) -> FloatArray:
    scores: FloatArray = left @ right.T
    return np.exp(scores, out=scores)
