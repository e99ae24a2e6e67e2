"""What the linear baselines share: scoring by cosine or inner product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.base import LinearCrossModalEstimator
from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray
from solver.linalg.samples import project_affinely


class LinearBaseline(LinearCrossModalEstimator):
    """A linear method scored by the inner product of its projections or by their cosine.

    Attributes
    ----------
    metric_ : {"cosine", "inner"}
        With "cosine" each projection is divided by its norm, so that the inner product is the cosine;
        zero projections stay zero.
    """

    metric: str
    metric_: str

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Project samples of the first modality; of unit norm under the cosine.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_x, rank)
            In float64.
        """
        self._check_fitted()
        return self._scaled(project_affinely(X, self.x_factors_, self.x_intercept_, "X"))

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Project samples of the second modality; of unit norm under the cosine.

        Parameters
        ----------
        Z : array-like or sparse array of shape (n_samples_z, n_features_z)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_z, rank)
            In float64.
        """
        self._check_fitted()
        return self._scaled(project_affinely(Z, self.z_factors_, self.z_intercept_, "Z"))

    def _scaled(self, projections: FloatArray) -> FloatArray:
        if self.metric_ == "inner":
            return projections
        norms = np.linalg.norm(projections, axis=1, keepdims=True)
        cosines: FloatArray = projections / np.where(norms > 0, norms, 1.0)
        return cosines

    def _keep(self, x: tuple[FloatArray, FloatArray], z: tuple[FloatArray, FloatArray]) -> None:
        """Store factors and intercept of either modality."""
        if not all(np.isfinite(part).all() for part in (*x, *z)):
            raise NumericalError(f"the factors of {type(self).__name__} are not finite: scale the features")
        self.metric_ = self.metric
        (self.x_factors_, self.x_intercept_), (self.z_factors_, self.z_intercept_) = x, z
