"""Samples as the estimators take them: checked arrays, dense or sparse, and their affine projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.errors import InvalidInputError
from solver.linalg.matrices import FloatArray, Samples, is_sparse


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
