"""Principal coordinates of samples from their inner products."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from solver.linalg.matrices import FloatArray
from solver.validation.errors import InvalidInputError

ROUNDING = 1e-6
"""Axes along which samples vary less, relative to the longest, are rounding of float32 features."""


def centre(products: FloatArray) -> FloatArray:
    """Return the inner products of the centred samples; the symmetric ones of the samples are overwritten."""
    means = products.mean(axis=0)
    products -= means
    products -= (means - means.mean())[:, None]
    return products


def principal_axes(moments: FloatArray, n_axes: int, floor: float) -> tuple[FloatArray, FloatArray]:
    """Return the leading eigenvectors, as columns, and eigenvalues in descending order; overwrites `moments`.
    Those below the share `floor` of the largest are left out. InvalidInputError if all are zero."""
    values, vectors = scipy.linalg.eigh(moments, check_finite=False, overwrite_a=True)
    if not values[-1] > 0.0:
        raise InvalidInputError("all samples are the same: there is nothing to learn from")
    order = np.flatnonzero(values > floor * values[-1])[::-1][:n_axes]
    return vectors[:, order], values[order]
