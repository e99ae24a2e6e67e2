"""What the linear baselines share: scoring by cosine or inner product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.base import LinearCrossModalEstimator
from solver.linalg.matrices import FloatArray
from solver.validation.errors import NumericalError
from solver.validation.parameters import one_of

METRIC = one_of("cosine", "inner")  # rule of the parameter `metric`


class LinearBaseline(LinearCrossModalEstimator):
    """A linear method scored by the inner product of its projections or by their cosine.
    With "cosine" each projection is divided by its norm; zero projections stay zero."""

    metric: str
    metric_: str

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        return self._scale(super().project_x(X))

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        return self._scale(super().project_z(Z))

    def _scale(self, projections: FloatArray) -> FloatArray:
        if self.metric_ != "cosine":
            return projections
        norms = np.linalg.norm(projections, axis=1, keepdims=True)
        cosines: FloatArray = projections / np.where(norms > 0, norms, 1.0)
        return cosines

    def _keep(self, x: tuple[FloatArray, FloatArray], z: tuple[FloatArray, FloatArray]) -> None:
        if not all(np.isfinite(part).all() for part in (*x, *z)):
            raise NumericalError(f"the factors of {type(self).__name__} are not finite: scale the features")
        self.metric_ = self.metric
        (self.x_factors_, self.x_intercept_), (self.z_factors_, self.z_intercept_) = x, z
