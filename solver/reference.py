"""Algorithm 1 of Kang et al. (CIKM 2015), to the letter: the reference for every faster solver.

Float64, dense arrays of all pairs, a full SVD each step, the paper's step rule: the step only shrinks.
It shares no code with the fast path except the value types, so that agreement means something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.special

from solver.apg import ApgState
from solver.errors import NumericalError
from solver.linalg import FloatArray, LowRankMatrix, Samples, is_sparse
from solver.losses import FactoredPoint
from solver.pair_list import SignedPairs
from solver.supervision import Supervision


class PairsOfDenseMatrix(Protocol):
    """A loss of a dense bilinear matrix."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        ...

    def loss(self, M: FloatArray) -> float:
        """Return the loss."""
        ...

    def gradient(self, M: FloatArray) -> FloatArray:
        """Return its gradient."""
        ...


class DensePairs:
    """Signs and weights of all pairs as dense float64 arrays, and the loss on them.

    Parameters
    ----------
    X : ndarray of shape (n_samples_x, n_features_x)
        First modality. Not modified.
    Z : ndarray of shape (n_samples_z, n_features_z)
        Second modality. Not modified.
    supervision : Supervision or SignedPairs
        Which pairs are similar.
    """

    def __init__(self, X: Samples, Z: Samples, supervision: Supervision | SignedPairs) -> None:
        self.X = _dense(X)[supervision.x_order].astype(np.float64)
        self.Z = _dense(Z)[supervision.z_order].astype(np.float64)
        if isinstance(supervision, SignedPairs):
            shape = self.X.shape[0], self.Z.shape[0]
            self.Y: FloatArray = np.ones(shape)
            self.W: FloatArray = np.zeros(shape)
            self.Y[supervision.rows, supervision.columns] = supervision.signs
            self.W[supervision.rows, supervision.columns] = supervision.weights
            return
        self.Y = np.full((self.X.shape[0], self.Z.shape[0]), -1.0)
        for key in supervision.similar_pairs(slice(0, len(self.X)), slice(0, len(self.Z))):
            self.Y[key] = 1.0
        self.W = np.where(self.Y > 0, 1.0 / supervision.n_similar, 1.0 / supervision.n_dissimilar)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""
        return self.X.shape[1], self.Z.shape[1]

    def loss(self, M: FloatArray) -> float:
        """Return ``sum_ij w_ij log(1 + exp(-y_ij x_i^T M z_j))``."""
        margins = self.Y * (self.X @ M @ self.Z.T)
        return float(np.sum(self.W * np.logaddexp(0.0, -margins)))

    def gradient(self, M: FloatArray) -> FloatArray:
        """Return ``-X^T T Z`` with ``T = W * Y / (1 + exp(Y * (X M Z^T)))``."""
        T = self.W * self.Y * scipy.special.expit(-self.Y * (self.X @ M @ self.Z.T))
        gradient: FloatArray = -(self.X.T @ T @ self.Z)
        return gradient


def iterate_paper(pairs: PairsOfDenseMatrix, alpha: float, step_size: float) -> Iterator[ApgState]:
    """Yield the states of Algorithm 1, without end.

    Parameters
    ----------
    pairs : PairsOfDenseMatrix
        Samples, signs and weights, such as `DensePairs`.
    alpha : float, >= 0
        The paper's lambda.
    step_size : float, > 0
        The paper's first eta; halved until the quadratic model holds, never enlarged.

    Raises
    ------
    NumericalError
        If the objective is not finite.
    """
    shape = pairs.shape
    M, Q, momentum = np.zeros(shape), np.zeros(shape), 1.0
    factors = LowRankMatrix.zeros(*shape, dtype=np.float64)
    iteration = 0
    while True:
        iteration += 1
        at_Q, gradient = pairs.loss(Q), pairs.gradient(Q)
        while True:
            new_factors = _shrink(Q - step_size * gradient, alpha * step_size)
            new_M = new_factors.dense()
            move = new_M - Q
            loss = pairs.loss(new_M)
            model = at_Q + np.vdot(gradient, move) + np.vdot(move, move) / (2.0 * step_size)
            if not np.isfinite(loss):
                raise NumericalError(f"the loss became {loss} at iteration {iteration}")
            if loss <= model + np.finfo(np.float64).eps * abs(at_Q):
                break
            step_size /= 2.0
        next_momentum = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        search_point = FactoredPoint(Q, np.eye(shape[1]))
        Q = new_M + (momentum - 1.0) / next_momentum * (new_M - M)
        previous, factors, M, momentum = factors, new_factors, new_M, next_momentum
        objective = loss + alpha * factors.nuclear_norm
        yield ApgState(
            iteration, factors, previous, momentum, step_size, objective, search_point, at_Q, gradient
        )


def _shrink(A: FloatArray, threshold: float) -> LowRankMatrix:
    U, s, Vt = scipy.linalg.svd(A, full_matrices=False)
    kept = int(np.count_nonzero(s > threshold))
    return LowRankMatrix(U[:, :kept], s[:kept] - threshold, Vt[:kept].T)


def _dense(samples: Samples) -> FloatArray:
    return np.asarray(samples.toarray() if is_sparse(samples) else samples)
