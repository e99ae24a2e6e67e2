"""What a trained model is at query time: a scaling and a linear map for each modality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.base import LinearCrossModalEstimator
from solver.errors import InvalidInputError, InvalidParameterError
from solver.linalg import FloatArray
from solver.preprocessing import SCALINGS, FeatureScaler

_ARRAY_NAMES = (
    "x_mean",
    "x_scale",
    "x_factors",
    "x_intercept",
    "z_mean",
    "z_scale",
    "z_factors",
    "z_intercept",
)


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

    Raises
    ------
    InvalidInputError
        If an array is not finite and of floats, or the shapes do not fit each other; names the array.
    """

    x_scaler: FeatureScaler
    z_scaler: FeatureScaler
    x_factors: FloatArray
    z_factors: FloatArray
    x_intercept: FloatArray
    z_intercept: FloatArray

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        _check("x_factors", self.x_factors, (len(self.x_scaler.mean_), None))
        _check("z_factors", self.z_factors, (len(self.z_scaler.mean_), self.rank))
        _check("x_intercept", self.x_intercept, (self.rank,))
        _check("z_intercept", self.z_intercept, (self.rank,))

    @classmethod
    def of(
        cls, x_scaler: FeatureScaler, z_scaler: FeatureScaler, estimator: LinearCrossModalEstimator
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
        return self.x_scaler.kind_

    @property
    def z_scaling(self) -> str:
        """Kind of the second modality's scaling."""
        return self.z_scaler.kind_

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
        """Rebuild a projector from `arrays` and the kinds of its scalings.

        Parameters
        ----------
        arrays : dict of str to ndarray
            What `arrays` returned.
        x_scaling, z_scaling : str
            Kinds of `FeatureScaler`.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            If an array is missing or too much, or something does not fit; names it.
        """
        if set(arrays) != set(_ARRAY_NAMES):
            raise InvalidInputError(f"expected the arrays {sorted(_ARRAY_NAMES)}, got {sorted(arrays)}")
        scalers = {}
        for side, scaling in (("x", x_scaling), ("z", z_scaling)):
            n_features = len(arrays[f"{side}_factors"]) if arrays[f"{side}_factors"].ndim else 0
            _check(f"{side}_mean", arrays[f"{side}_mean"], (n_features,))
            _check(f"{side}_scale", arrays[f"{side}_scale"], (n_features,))
            if scaling not in SCALINGS:
                raise InvalidParameterError(f"{side}_scaling", scaling, f"one of {SCALINGS}")
            scalers[side] = FeatureScaler.restore(scaling, arrays[f"{side}_mean"], arrays[f"{side}_scale"])
        return cls(
            scalers["x"],
            scalers["z"],
            arrays["x_factors"],
            arrays["z_factors"],
            arrays["x_intercept"],
            arrays["z_intercept"],
        )


def _check(name: str, array: FloatArray, shape: tuple[int | None, ...]) -> None:
    """Refuse anything but finite floats of that shape; None stands for any length."""
    if array.dtype not in (np.float32, np.float64):
        raise InvalidInputError(f"{name} must hold floats, got dtype {array.dtype}")
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = tuple("any" if wanted is None else wanted for wanted in shape)
        raise InvalidInputError(f"{name} must have shape {expected}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")
