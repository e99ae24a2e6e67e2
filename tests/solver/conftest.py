from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special

from solver import make_low_rank_pairs
from solver.datasets import SyntheticPairs


class DenseProblem:
    """Problem (4) written down directly in float64, sharing no code with the package."""

    def __init__(self, X: Any, Z: Any, x_labels: Any, z_labels: Any, fit_intercept: bool = False) -> None:
        self.X, self.Z = np.asarray(X, np.float64), np.asarray(Z, np.float64)
        if fit_intercept:
            self.X = np.column_stack([self.X, np.ones(len(self.X))])
            self.Z = np.column_stack([self.Z, np.ones(len(self.Z))])
        similar = np.asarray(x_labels)[:, None] == np.asarray(z_labels)[None, :]
        self.Y = np.where(similar, 1.0, -1.0)
        self.W = np.where(similar, 1.0 / np.sum(similar), 1.0 / np.sum(~similar))

    def loss(self, M: npt.NDArray[Any]) -> float:
        return float(np.sum(self.W * np.logaddexp(0.0, -self.Y * (self.X @ M @ self.Z.T))))

    def gradient(self, M: npt.NDArray[Any]) -> npt.NDArray[Any]:
        p = scipy.special.expit(-self.Y * (self.X @ M @ self.Z.T))
        return -(self.X.T @ (self.W * self.Y * p) @ self.Z)

    def objective(self, M: npt.NDArray[Any], alpha: float) -> float:
        return self.loss(M) + alpha * float(np.linalg.svd(M, compute_uv=False).sum())

    def dual_value(self, M: npt.NDArray[Any], alpha: float) -> float:
        p = scipy.special.expit(-self.Y * (self.X @ M @ self.Z.T))
        p = p * min(1.0, alpha / float(np.linalg.norm(self.gradient(M), 2)))
        return float(np.sum(self.W * (scipy.special.entr(p) + scipy.special.entr(1.0 - p))))

    def relative_gap(self, M: npt.NDArray[Any], alpha: float) -> float:
        objective = self.objective(M, alpha)
        return (objective - self.dual_value(M, alpha)) / objective


@pytest.fixture
def dense_problem() -> Callable[..., DenseProblem]:
    return DenseProblem


@pytest.fixture
def pairs() -> SyntheticPairs:
    return make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=4, noise=0.5, random_state=0)
