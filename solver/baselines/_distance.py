"""What the methods share that learn a distance: distances as inner products."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.baselines._linear import LinearBaseline
from solver.linalg.matrices import FloatArray
from solver.validation.parameters import one_of

DISTANCE_METRIC = one_of("distance", "cosine", "inner")


class DistanceBaseline(LinearBaseline):
    """A linear method scored by the distance of its projections, by their inner product or their cosine.

    Attributes
    ----------
    metric_ : {"distance", "cosine", "inner"}
        With "distance" projections a and b become ``(sqrt(2) a, -|a|^2, 1)`` and ``(sqrt(2) b, 1, -|b|^2)``,
        whose inner product is the negative squared distance; the others as of `LinearBaseline`.
    """

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


def _squares(projections: FloatArray) -> FloatArray:
    squares: FloatArray = np.sum(projections**2, axis=1, keepdims=True)
    return squares
