"""The problem of the paper written down directly in float64."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special

from solver import LowRankBilinear


class DenseProblem:
    """Problem (4) written down directly in float64, sharing no code with the package."""

    def __init__(self, X: Any, Z: Any, x_labels: Any, z_labels: Any, fit_intercept: bool = False) -> None:
        similar = np.asarray(x_labels)[:, None] == np.asarray(z_labels)[None, :]
        self._set(X, Z, np.where(similar, 1.0, -1.0), np.ones(similar.shape), fit_intercept)

    @classmethod
    def of_pairs(cls, X: Any, Z: Any, Y: Any, W: Any = None, fit_intercept: bool = False) -> Self:
        """Take signs (0 where unknown) and weights, which are scaled to sum to one for either sign."""
        problem = cls.__new__(cls)
        problem._set(X, Z, np.asarray(Y, np.float64), np.ones(Y.shape) if W is None else W, fit_intercept)
        return problem

    def _set(self, X: Any, Z: Any, Y: Any, W: Any, fit_intercept: bool) -> None:
        self.X, self.Z = (
            np.asarray(side.toarray() if scipy.sparse.issparse(side) else side, np.float64) for side in (X, Z)
        )
        if fit_intercept:
            self.X = np.column_stack([self.X, np.ones(len(self.X))])
            self.Z = np.column_stack([self.Z, np.ones(len(self.Z))])
        self.Y = Y
        self.W = np.zeros(Y.shape)
        for sign in (-1.0, 1.0):
            self.W[sign == Y] = W[sign == Y] / W[sign == Y].sum()

    def relative_gap_of(self, model: LowRankBilinear) -> float:
        """Return the gap of a fitted model, from its factors alone; the intercept's rows count too."""
        left, right = model.x_factors_.astype(np.float64), model.z_factors_.astype(np.float64)
        if model.fit_intercept:
            left = np.vstack([left, model.x_intercept_])
            right = np.vstack([right, model.z_intercept_])
        return self.relative_gap(left @ right.T, float(model.alpha))

    def loss(self, M: npt.NDArray[Any]) -> float:
        return float(np.sum(self.W * np.logaddexp(0.0, -self.Y * (self.X @ M @ self.Z.T))))

    def gradient(self, M: npt.NDArray[Any]) -> npt.NDArray[Any]:
        p = scipy.special.expit(-self.Y * (self.X @ M @ self.Z.T))
        return -(self.X.T @ (self.W * self.Y * p) @ self.Z)

    def objective(self, M: npt.NDArray[Any], alpha: float) -> float:
        return self.loss(M) + alpha * float(np.linalg.svd(M, compute_uv=False).sum())

    def dual_value(self, M: npt.NDArray[Any], alpha: float) -> float:
        norm = float(np.linalg.norm(self.gradient(M), 2))
        return self.entropy(M, min(1.0, alpha / norm) if norm > 0 else 1.0)

    def entropy(self, M: npt.NDArray[Any], scale: float) -> float:
        """Return the dual value where the match probabilities of the loss are scaled."""
        p = scale * scipy.special.expit(-self.Y * (self.X @ M @ self.Z.T))
        return float(np.sum(self.W * (scipy.special.entr(p) + scipy.special.entr(1.0 - p))))

    def curvature(self, M: npt.NDArray[Any]) -> float:
        """Return the mean over all pairs."""
        p = scipy.special.expit(self.X @ M @ self.Z.T)
        return float(np.mean(self.W * p * (1.0 - p)))

    def relative_gap(self, M: npt.NDArray[Any], alpha: float) -> float:
        objective = self.objective(M, alpha)
        return (objective - self.dual_value(M, alpha)) / objective
