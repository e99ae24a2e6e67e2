"""What the linear baselines share: centring in an exact basis, and scoring by cosine or inner product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from solver.base import LinearCrossModalEstimator, check_samples, project_affinely
from solver.errors import InvalidInputError, NumericalError
from solver.linalg import FloatArray, is_sparse


@dataclass(frozen=True, slots=True, eq=False)
class CentredBasis:
    """Centred samples in their principal axes: ``samples - mean = coordinates @ axes.T``.

    Directions in which the samples do not vary beyond the rounding of their own precision are left out,
    so that nothing computed in these coordinates meets a covariance that is singular by construction.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the samples.
    axes : ndarray of shape (n_features, rank)
        Orthonormal columns.
    lengths : ndarray of shape (rank,)
        Singular values of the centred samples, positive, in descending order.
    coordinates : ndarray of shape (n_samples, rank)
        Orthogonal columns of these lengths.
    """

    mean: FloatArray
    axes: FloatArray
    lengths: FloatArray
    coordinates: FloatArray

    @classmethod
    def of(cls, samples: npt.ArrayLike, name: str) -> CentredBasis:
        """Find the basis of samples, dense or sparse, in float64.

        Raises
        ------
        InvalidInputError
            If the samples are unusable or all the same.
        """
        array, precision = dense_samples(samples, name)
        mean = array.mean(axis=0)
        U, s, Vt = scipy.linalg.svd(array - mean, full_matrices=False, check_finite=False)
        # The decomposition's own rounding, and that of the samples as they were stored: features that sum
        # to one in float32 leave a direction of nothing but that.
        relative = max(max(array.shape) * np.finfo(np.float64).eps, precision)
        rounding = relative * float(np.linalg.norm(array))
        kept = s > rounding
        if not kept.any():
            raise InvalidInputError(f"{name} holds the same sample only: there is nothing to learn from")
        return cls(mean, Vt[kept].T, s[kept], U[:, kept] * s[kept])

    def lift(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return factors and intercept that map raw samples along directions of these coordinates."""
        factors: FloatArray = self.axes @ directions
        return factors, -(self.mean @ factors)


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


def dense_samples(samples: npt.ArrayLike, name: str) -> tuple[FloatArray, float]:
    """Return samples as a dense float64 array, and the relative precision they were stored in.

    See `solver.base.check_samples` for what is refused.
    """
    array: Any = check_samples(samples, name, sparse=True)
    dense: FloatArray = array.toarray() if is_sparse(array) else array
    return dense.astype(np.float64, copy=False), float(np.finfo(dense.dtype).eps)
