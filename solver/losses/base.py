"""The Protocols that the optimisation requires of a smooth loss of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from solver.linalg import FloatArray, LowRankMatrix

LOSSES = ("logistic", "squared", "softmax")  # the losses of the estimators, by name


@dataclass(frozen=True, slots=True, eq=False)
class FactoredPoint:
    """A point ``left @ right.T`` at which to evaluate the loss, of any (small) inner dimension."""

    left: FloatArray
    right: FloatArray

    @classmethod
    def of(cls, M: LowRankMatrix) -> FactoredPoint:
        """Return `M` with its singular values on the left."""
        return cls(M.U * M.s, M.V)

    def dense(self) -> FloatArray:
        return self.left @ self.right.T


class SmoothLoss(Protocol):
    """A convex, smooth function of a bilinear matrix."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix."""

    def value(self, M: LowRankMatrix) -> float:
        """Return l(M)."""

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return l and its gradient, an (n_features_x, n_features_z) array."""

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return l(A B^T) with ``l' B`` and ``l'^T A``."""

    def mean_curvature(self, point: FactoredPoint) -> float:
        """Return an estimate of ``sum_ij w_ij sigma'(s_ij)`` over the number of all pairs."""


class CertifiableLoss(SmoothLoss, Protocol):
    """A smooth loss whose conjugate is known, so that a dual value bounds the optimum from below."""

    def dual_value(self, point: FactoredPoint, scale: float) -> float:
        """Return the dual objective of the pair variables at `point` multiplied by `scale`."""
