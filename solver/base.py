"""The contract every estimator keeps: two encoders and an inner product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator

from solver.errors import InvalidInputError, InvalidParameterError, NotFittedError
from solver.linalg import FloatArray, Samples, is_sparse
from solver.supervision import Supervision

Constraint = tuple[Callable[[Any], bool], str]
"""A predicate on a parameter's value and the words that say what it asks for."""


class CrossModalEstimator(BaseEstimator, ABC):
    """Base of all methods: `fit`, then project both modalities into one space.

    The similarity of two samples is the inner product of their projections, so that
    maximum-inner-product search over a projected gallery is the ranking. Parameters are plain
    attributes (`get_params`, `set_params` and `clone` of scikit-learn work) and are validated in `fit`.
    """

    _parameter_constraints: ClassVar[Mapping[str, Constraint]] = {}
    _fitted_attribute: ClassVar[str]
    """Set by `fit`: an estimator without it is not fitted."""

    @abstractmethod
    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: Supervision) -> Self:
        """Learn the two projections from samples and the pairs that are similar."""

    @abstractmethod
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_x, n_dimensions) projections of the first modality's samples."""

    @abstractmethod
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_z, n_dimensions) projections of the second modality's samples."""

    def similarity(self, X: npt.ArrayLike, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_x, n_samples_z) array of inner products of the projections."""
        similarity: FloatArray = self.project_x(X) @ self.project_z(Z).T
        return similarity

    def _check_fitted(self) -> None:
        if not hasattr(self, self._fitted_attribute):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _check_parameters(self) -> None:
        for name, (is_valid, expected) in self._parameter_constraints.items():
            value = getattr(self, name)
            if not is_valid(value):
                raise InvalidParameterError(name, value, expected)


class LinearCrossModalEstimator(CrossModalEstimator):
    """Base of the methods whose two projections are affine maps.

    Attributes
    ----------
    x_factors_ : ndarray of shape (n_features_x, rank)
        Linear projection of the first modality.
    z_factors_ : ndarray of shape (n_features_z, rank)
        Linear projection of the second modality.
    x_intercept_ : ndarray of shape (rank,)
        Added to every projection of the first modality.
    z_intercept_ : ndarray of shape (rank,)
        Added to every projection of the second modality.
    """

    _fitted_attribute: ClassVar[str] = "x_factors_"

    x_factors_: FloatArray
    z_factors_: FloatArray
    x_intercept_: FloatArray
    z_intercept_: FloatArray

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Project samples of the first modality.

        Parameters
        ----------
        X : array-like of shape (n_samples_x, n_features_x)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_x, rank)
            ``X @ x_factors_ + x_intercept_``.
        """
        self._check_fitted()
        return project_affinely(X, self.x_factors_, self.x_intercept_, "X")

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Project samples of the second modality.

        Parameters
        ----------
        Z : array-like of shape (n_samples_z, n_features_z)
            Not modified.

        Returns
        -------
        ndarray of shape (n_samples_z, rank)
            ``Z @ z_factors_ + z_intercept_``.
        """
        self._check_fitted()
        return project_affinely(Z, self.z_factors_, self.z_intercept_, "Z")


def check_samples(
    samples: npt.ArrayLike, name: str, dtype: npt.DTypeLike | None = None, *, sparse: bool = False
) -> Samples:
    """Return `samples` as a finite, non-empty, two-dimensional float array.

    Parameters
    ----------
    samples : array-like or sparse array of shape (n_samples, n_features)
        Not modified; not copied when it already is such an array, and a sparse one stores no entry twice.
    name : str
        How the caller names it; appears in the error.
    dtype : dtype, optional
        Precision to convert to; float32 and float64 are kept as they are when left out.
    sparse : bool
        Whether a sparse array may come back sparse, by rows, with one stored value for each entry; it is
        refused otherwise.

    Raises
    ------
    InvalidInputError
        If it is not numeric, not two-dimensional, empty, sparse without leave, or holds NaN or infinity.
    """
    if is_sparse(samples):
        if not sparse:
            raise InvalidInputError(f"{name} must be dense here, got a sparse array")
        unchecked: Any = samples
        array: Samples = scipy.sparse.csr_array(unchecked)
    else:
        try:
            array = np.asarray(samples)
        except ValueError as error:
            raise InvalidInputError(f"{name} is not an array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(
            f"{name} must be a non-empty (n_samples, n_features) array, got {array.shape}"
        )
    if is_sparse(array) and not array.has_canonical_format:
        # Entries that are stored in parts are added up, in a copy: the parts may still be the caller's.
        array = array.copy()
        array.sum_duplicates()
    if dtype is None and array.dtype not in (np.float32, np.float64):
        dtype = np.float64
    array = array.astype(dtype or array.dtype, copy=False)
    if not np.isfinite(array.data if is_sparse(array) else array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")
    return array


def project_affinely(
    samples: npt.ArrayLike, factors: FloatArray, intercept: FloatArray, name: str
) -> FloatArray:
    """Return ``samples @ factors + intercept`` in the dtype of the factors.

    Parameters
    ----------
    samples : array-like or sparse array of shape (n_samples, n_features)
        Not modified.
    factors : ndarray of shape (n_features, rank)
        The linear map.
    intercept : ndarray of shape (rank,)
        Added to each row.
    name : str
        How the caller names the samples; appears in the error.

    Raises
    ------
    InvalidInputError
        If the samples are unusable or have another number of features than the map.
    """
    array = check_samples(samples, name, sparse=True)
    if array.shape[1] != factors.shape[0]:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, the model expects {factors.shape[0]}")
    # In the wider of both precisions: samples and factors may have opposite extremes of size.
    projected: FloatArray = np.asarray(array @ factors + intercept).astype(factors.dtype, copy=False)
    return projected
