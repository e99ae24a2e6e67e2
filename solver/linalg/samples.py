"""Validation of samples, dense or sparse, and their affine projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.validation.errors import InvalidInputError


def check_samples(
    samples: npt.ArrayLike,
    name: str,
    dtype: npt.DTypeLike | None = None,
    *,
    n_features: int | None = None,
) -> Samples:
    """Return `samples` as a finite, non-empty, two-dimensional float array, sparse ones by rows.

    Parameters
    ----------
    samples : array-like or sparse array of shape (n_samples, n_features)
        Not copied if it is such an array already; duplicate entries of a sparse one are summed.
    name : str
        Name of the argument, for the error message.
    dtype : dtype, optional
        Precision to convert to; by default float32 and float64 stay as they are.
    n_features : int, optional
        Number of features that a model expects.

    Raises
    ------
    InvalidInputError
        If it is not numeric, not two-dimensional, or empty, has another number of features, or contains NaN
        or infinity.
    """
    if is_sparse(samples):
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
    if n_features is not None and array.shape[1] != n_features:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, the model expects {n_features}")
    if is_sparse(array) and not array.has_canonical_format:
        # Duplicate entries are summed in a copy: the caller may still own the original.
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

    factors : ndarray of shape (n_features, rank)
        The linear map.
    intercept : ndarray of shape (rank,)
        Added to each row.
    name : str
        Name of the argument, for the error message.

    Raises
    ------
    InvalidInputError
        If the samples are invalid or their number of features differs from that of the map.
    """
    array = check_samples(samples, name, n_features=factors.shape[0])
    # In the wider of both precisions: large samples may meet small factors, or the reverse.
    projected: FloatArray = np.asarray(array @ factors + intercept).astype(factors.dtype, copy=False)
    return projected


def check_array(name: str, array: FloatArray, shape: tuple[int | None, ...]) -> None:
    """Check that an array consists of finite floats and has the expected shape.

    Parameters
    ----------
    name : str
        Name of the array, for the error message.
    array : ndarray
        The array to check.
    shape : tuple of int or None
        None stands for any length.

    Raises
    ------
    InvalidInputError
        If it does not.
    """
    if array.dtype not in (np.float32, np.float64):
        raise InvalidInputError(f"{name} must hold floats, got dtype {array.dtype}")
    fits = array.ndim == len(shape) and all(
        size in (None, length) for size, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = tuple("any" if size is None else size for size in shape)
        raise InvalidInputError(f"{name} must have shape {expected}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")
