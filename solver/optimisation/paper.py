"""A literal implementation of Algorithm 1 of Kang et al. (CIKM 2015): the reference for faster solvers.

Float64, dense arrays of all pairs, a full SVD each step, the paper's step rule: the step only shrinks.
It shares no code with the fast path except the value types and the threads, so that agreement of the two
is evidence. Products are taken in the cheapest order. Scores are linear in the matrix, so that those of
the search point follow from those of the last two iterates, and each trial step costs one product.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from solver.linalg import FloatArray, LowRankMatrix, Samples, to_dense
from solver.losses.base import FactoredPoint
from solver.supervision.kinds import SignedPairs, Supervision
from solver.threads import even_slices, map_chunks
from solver.validation import NumericalError

_PAIRS_AT_ONCE = 1 << 16
"""Pairs per chunk: their intermediate values, half a megabyte each, stay in the cache of a core."""


class DensePairs:
    """Signs and weights of all pairs as dense float64 arrays, and the loss on them.
    `n_threads` (None: all cores) work on rows of pairs; the result does not depend on it."""

    def __init__(
        self, X: Samples, Z: Samples, supervision: Supervision | SignedPairs, n_threads: int | None = None
    ) -> None:
        self.X = to_dense(X)[supervision.x_order].astype(np.float64)
        self.Z = to_dense(Z)[supervision.z_order].astype(np.float64)
        self._set_pairs(supervision)
        n_x, n_z = self.Y.shape
        self._chunks = even_slices(n_x, -(-n_x * n_z // _PAIRS_AT_ONCE))
        self._n_threads = n_threads or os.cpu_count() or 1

    def _set_pairs(self, supervision: Supervision | SignedPairs) -> None:
        shape = self.X.shape[0], self.Z.shape[0]
        if isinstance(supervision, SignedPairs):
            self.Y: FloatArray = np.ones(shape)
            self.W: FloatArray = np.zeros(shape)
            self.Y[supervision.rows, supervision.columns] = supervision.signs
            self.W[supervision.rows, supervision.columns] = supervision.weights
            return
        self.Y = np.full(shape, -1.0)
        for key in supervision.similar_pairs(slice(0, shape[0]), slice(0, shape[1])):
            self.Y[key] = 1.0
        self.W = np.where(self.Y > 0, 1.0 / supervision.n_similar, 1.0 / supervision.n_dissimilar)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[1], self.Z.shape[1]

    def scores(self, point: FactoredPoint) -> FloatArray:
        """Return ``X M Z^T`` of shape (n_samples_x, n_samples_z)."""
        return (self.X @ point.left) @ (self.Z @ point.right).T

    def loss(self, scores: FloatArray) -> float:
        """Return ``sum_ij w_ij log(1 + exp(-y_ij s_ij))``."""
        return sum(map_chunks(lambda rows: self._loss_of(rows, scores)[0], self._chunks, self._n_threads))

    def loss_and_gradient(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss, and ``-X^T T Z`` with ``T = W * Y / (1 + exp(Y * scores))``."""

        def evaluate(rows: slice) -> tuple[float, FloatArray]:
            loss, margins, decay = self._loss_of(rows, scores)
            # 1 / (1 + exp(m)), written so that no exponential overflows.
            T = np.where(margins < 0.0, 1.0, decay)
            T /= 1.0 + decay
            T *= self.W[rows]
            T *= self.Y[rows]
            return loss, T @ self.Z

        losses, weighted_Z = zip(*map_chunks(evaluate, self._chunks, self._n_threads), strict=True)
        return sum(losses), -(self.X.T @ np.vstack(weighted_Z))

    def _loss_of(self, rows: slice, scores: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss of some rows of pairs, their margins, and ``exp(-|margin|)``."""
        margins = self.Y[rows] * scores[rows]
        decay = np.exp(-np.abs(margins))
        losses = np.log1p(decay)
        losses -= np.minimum(margins, 0.0)
        losses *= self.W[rows]
        return float(losses.sum()), margins, decay


@dataclass(frozen=True, slots=True, eq=False)
class PaperState:
    """One iteration of Algorithm 1."""

    iteration: int  # number of steps taken
    M: LowRankMatrix  # M_t
    momentum: float  # the paper's alpha_t
    step_size: float  # the paper's eta, as accepted by the last backtracking
    objective: float  # loss plus penalty at M
    search_point: FactoredPoint  # Q_t, from which the last step was taken
    search_value: float  # the loss at the search point
    gradient: FloatArray  # (n_features_x, n_features_z), of the loss at the search point


def iterate_paper(pairs: DensePairs, alpha: float, step_size: float) -> Iterator[PaperState]:
    """Yield the states of Algorithm 1, endlessly; `alpha` is the paper's lambda, `step_size` its initial eta,
    halved until the quadratic model holds. NumericalError if the objective is not finite."""
    shape = pairs.shape
    M, Q, momentum = np.zeros(shape), np.zeros(shape), 1.0
    M_scores = Q_scores = np.zeros(pairs.Y.shape)
    iteration = 0
    while True:
        iteration += 1
        at_Q, gradient = pairs.loss_and_gradient(Q_scores)
        while True:
            new_factors = _shrink(Q - step_size * gradient, alpha * step_size)
            new_M = new_factors.dense()
            move = new_M - Q
            new_scores = pairs.scores(FactoredPoint.of(new_factors))
            loss = pairs.loss(new_scores)
            model = at_Q + np.vdot(gradient, move) + np.vdot(move, move) / (2.0 * step_size)
            if not np.isfinite(loss):
                raise NumericalError(f"the loss became {loss} at iteration {iteration}")
            if loss <= model + np.finfo(np.float64).eps * abs(at_Q):
                break
            step_size /= 2.0
        next_momentum = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        extrapolation = (momentum - 1.0) / next_momentum
        search_point = FactoredPoint(Q, np.eye(shape[1]))
        Q = new_M + extrapolation * (new_M - M)
        Q_scores = new_scores + extrapolation * (new_scores - M_scores)
        M, M_scores, momentum = new_M, new_scores, next_momentum
        objective = loss + alpha * new_factors.nuclear_norm
        yield PaperState(iteration, new_factors, momentum, step_size, objective, search_point, at_Q, gradient)


def _shrink(A: FloatArray, threshold: float) -> LowRankMatrix:
    U, s, Vt = scipy.linalg.svd(A, full_matrices=False)
    rank = int(np.count_nonzero(s > threshold))
    return LowRankMatrix(U[:, :rank], s[:rank] - threshold, Vt[:rank].T)
