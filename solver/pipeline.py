"""What a trained model is at query time: a scaling and a linear map for each modality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.base import CrossModalEstimator
from solver.linalg import FloatArray
from solver.preprocessing import FeatureScaler


@dataclass(frozen=True, slots=True, eq=False)
class Projector:
    """Projects raw features of both modalities into one space of inner products.

    Parameters
    ----------
    x_scaler, z_scaler : FeatureScaler
        Fitted scalings of the raw features.
    x_factors : ndarray of shape (n_features_x, rank)
        ``U sqrt(S)`` of the bilinear matrix.
    z_factors : ndarray of shape (n_features_z, rank)
        ``V sqrt(S)`` of the bilinear matrix.
    x_intercept, z_intercept : ndarray of shape (rank,)
        Added after the linear maps.
    """

    x_scaler: FeatureScaler
    z_scaler: FeatureScaler
    x_factors: FloatArray
    z_factors: FloatArray
    x_intercept: FloatArray
    z_intercept: FloatArray

    @classmethod
    def of(
        cls, x_scaler: FeatureScaler, z_scaler: FeatureScaler, estimator: CrossModalEstimator
    ) -> Projector:
        """Put fitted scalers and a fitted estimator together."""
        return cls(
            x_scaler,
            z_scaler,
            estimator.x_factors_.astype(np.float32),
            estimator.z_factors_.astype(np.float32),
            estimator.x_intercept_.astype(np.float32),
            estimator.z_intercept_.astype(np.float32),
        )

    @property
    def rank(self) -> int:
        """Dimension of the common space."""
        return int(self.x_factors.shape[1])

    @property
    def x_scaling(self) -> str:
        """Kind of the first modality's scaling."""
        return self.x_scaler.kind

    @property
    def z_scaling(self) -> str:
        """Kind of the second modality's scaling."""
        return self.z_scaler.kind

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the first modality, float32."""
        projected: FloatArray = self.x_scaler.transform(X) @ self.x_factors + self.x_intercept
        return projected

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the second modality, float32."""
        projected: FloatArray = self.z_scaler.transform(Z) @ self.z_factors + self.z_intercept
        return projected

    def arrays(self) -> dict[str, FloatArray]:
        """Return everything numeric, by name."""
        return {
            "x_mean": self.x_scaler.mean_,
            "x_scale": self.x_scaler.scale_,
            "x_factors": self.x_factors,
            "x_intercept": self.x_intercept,
            "z_mean": self.z_scaler.mean_,
            "z_scale": self.z_scaler.scale_,
            "z_factors": self.z_factors,
            "z_intercept": self.z_intercept,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, FloatArray], x_scaling: str, z_scaling: str) -> Projector:
        """Rebuild a projector from `arrays` and the kinds of its scalings."""
        return cls(
            FeatureScaler.restore(x_scaling, arrays["x_mean"], arrays["x_scale"]),
            FeatureScaler.restore(z_scaling, arrays["z_mean"], arrays["z_scale"]),
            arrays["x_factors"],
            arrays["z_factors"],
            arrays["x_intercept"],
            arrays["z_intercept"],
        )
