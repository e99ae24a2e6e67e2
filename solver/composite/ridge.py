"""Ridge regression of indicators, with closed-form predictions of each sample by all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from solver.linalg.matrices import FloatArray

RIDGES = 10.0 ** np.arange(-6.0, -0.9, 0.5)
"""Penalties to try, as shares of the total variance: from hardly any to almost nothing but the mean."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """Ridge regressions of one penalty.

    Parameters
    ----------
    coefficients : ndarray of shape (rank, n_targets)
        Of the coordinates.
    intercepts : ndarray of shape (n_targets,)
        Added to the scores.
    left_out : ndarray of shape (n_samples, n_targets)
        Score of each sample by the regression on all others.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    left_out: FloatArray


class RidgePath:
    """Ridge regressions of all penalties on the same samples.

    The regression on all samples but one needs no fit of its own [1]_: its error on that sample is the error
    of the regression on all, divided by one minus the sample's leverage.

    Parameters
    ----------
    coordinates : ndarray of shape (n_samples, rank)
        Principal coordinates of a set of samples that includes these.
    variances : ndarray of shape (rank,), optional
        Variance along each axis, where the axes are the principal ones of just these samples.

    References
    ----------
    .. [1] D. M. Allen, "The Relationship between Variable Selection and Data Augmentation and a Method for
       Prediction", Technometrics 16, 1974.
    """

    def __init__(self, coordinates: FloatArray, variances: FloatArray | None = None) -> None:
        self._mean = coordinates.mean(axis=0)
        centred = coordinates - self._mean
        self._axes: FloatArray | None = None
        if variances is None:
            variances, self._axes = _eigen(centred.T @ centred / len(coordinates))
        self._variances = variances
        self._rotated = centred if self._axes is None else centred @ self._axes
        self._squares = self._rotated**2

    def fits(self, targets: FloatArray, ridges: Iterable[float]) -> Iterator[RidgeFit]:
        """Yield the regressions of targets with one penalty after the other.

        Parameters
        ----------
        targets : ndarray of shape (n_samples, n_targets)
            What to predict.
        ridges : iterable of float
            Penalties, as shares of the total variance.
        """
        n_samples, mean = len(targets), targets.mean(axis=0)
        centred = targets - mean
        covariances = self._rotated.T @ centred / n_samples
        for ridge in ridges:
            shrinkage = 1.0 / (self._variances + ridge * float(self._variances.sum()))
            coefficients = shrinkage[:, None] * covariances
            leverage = (1.0 + self._squares @ shrinkage) / n_samples
            errors = centred - self._rotated @ coefficients
            left_out = targets - errors / np.maximum(1.0 - leverage, 1.0 / n_samples)[:, None]
            if self._axes is not None:
                coefficients = self._axes @ coefficients
            yield RidgeFit(coefficients, mean - self._mean @ coefficients, left_out)


def _eigen(moments: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return eigenvalues and eigenvectors; None for the latter where the matrix is diagonal already."""
    diagonal = np.diag(moments)
    if np.abs(moments - np.diag(diagonal)).max(initial=0.0) <= 1e-9 * diagonal.max(initial=0.0):
        return diagonal, None
    values, vectors = scipy.linalg.eigh(moments, check_finite=False)
    return np.maximum(values, 0.0), vectors
