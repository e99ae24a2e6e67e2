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
    """Ridge regressions of one penalty."""

    coefficients: FloatArray  # (rank, n_targets), of the coordinates
    intercepts: FloatArray  # (n_targets,), added to the scores
    left_out: FloatArray  # (n_samples, n_targets), by the regression on all others


class RidgePath:
    """Ridge regressions of all penalties on the same samples, in principal coordinates (n_samples, rank).
    `variances` are given where the axes are the principal ones of just these samples."""

    # The regression on all samples but one needs no fit of its own: its error on that sample is the error of
    # the regression on all, divided by one minus the sample's leverage (D. M. Allen, "The Relationship
    # between Variable Selection and Data Augmentation and a Method for Prediction", Technometrics 16, 1974).

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
        """Yield the regressions of targets with one penalty, a share of all variance, after the other."""
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
