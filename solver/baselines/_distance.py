"""What the methods share that learn a distance: distances as inner products, and their gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.baselines._linear import LinearBaseline
from solver.linalg.matrices import FloatArray
from solver.validation.parameters import one_of

DISTANCE_METRIC = one_of("distance", "cosine", "inner")

BoolArray = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


class DistanceBaseline(LinearBaseline):
    """A linear method scored by the distance of its projections, by their inner product or their cosine."""

    # With "distance" projections a and b become (sqrt(2) a, -|a|^2, 1) and (sqrt(2) b, 1, -|b|^2), whose
    # inner product is the negative squared distance.

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        projections = super().project_x(X)
        if self.metric_ != "distance":
            return projections
        return np.hstack([np.sqrt(2.0) * projections, -_squares(projections), np.ones((len(projections), 1))])

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        projections = super().project_z(Z)
        if self.metric_ != "distance":
            return projections
        return np.hstack([np.sqrt(2.0) * projections, np.ones((len(projections), 1)), -_squares(projections)])


def distance_gradients(x: FloatArray, z: FloatArray, weights: Any) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of ``sum_ij w_ij |x_i - z_j|^2`` with respect to the rows of x and z."""
    x_degrees, z_degrees = (weights.sum(axis=axis)[:, None] for axis in (1, 0))
    return 2.0 * (x_degrees * x - weights @ z), 2.0 * (z_degrees * z - weights.T @ x)


def smallest_allowed(values: FloatArray, allowed: BoolArray, count: int) -> tuple[Indices, BoolArray]:
    """Return the columns of the `count` smallest allowed values of each row, and which of them are allowed:
    a row with fewer allowed values is filled with others."""
    masked = np.where(allowed, values, np.inf)
    count = min(count, masked.shape[1])
    columns = np.argpartition(masked, count - 1, axis=1)[:, :count]
    return columns, np.take_along_axis(allowed, columns, axis=1)


def _squares(projections: FloatArray) -> FloatArray:
    squares: FloatArray = np.sum(projections**2, axis=1, keepdims=True)
    return squares
