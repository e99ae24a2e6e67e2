"""What distinguishes single items: canonical correlations of samples that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from solver.linalg.matrices import FloatArray
from solver.supervision.base import Indices

PAIR_RIDGES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Ridges to try, as shares of the total variance."""
_MOST_DIRECTIONS = 256
"""Canonical directions at most: those of the smallest correlations hardly move a ranking."""

_POWER_STEPS = 6
"""Power iterations of the singular value decomposition: canonical correlations decay slowly."""


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalDirections:
    """Directions of both modalities along which pairs agree.

    Parameters
    ----------
    x_coefficients : ndarray of shape (x_rank, n_directions)
        Of the first modality's principal coordinates.
    z_coefficients : ndarray of shape (z_rank, n_directions)
        Of the second's.
    correlations : ndarray of shape (n_directions,)
        Regularised canonical correlations, in descending order.
    """

    x_coefficients: FloatArray
    z_coefficients: FloatArray
    correlations: FloatArray

    def project(self, x: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the components of principal coordinates along the directions of their modality."""
        return x @ self.x_coefficients, z @ self.z_coefficients

    @classmethod
    def fit(
        cls, cross: FloatArray, variances: tuple[FloatArray, FloatArray], n_pairs: int, ridge: float
    ) -> CanonicalDirections:
        """Find the directions by the singular value decomposition of the whitened cross-covariance.

        Each direction is multiplied by the root of its correlation, so that the inner product of two samples
        weights directions by how far they can be trusted.

        Parameters
        ----------
        cross : ndarray of shape (x_rank, z_rank)
            Cross-covariance of the pairs, as of `cross_covariance`.
        variances : tuple of ndarray
            Variance along each principal axis.
        n_pairs : int
            Pairs that the covariance is of.
        ridge : float
            Added to the variances, as a share of their sum.
        """
        whitening = [1.0 / np.sqrt(side + ridge * side.sum()) for side in variances]
        n_directions = min(_MOST_DIRECTIONS, min(cross.shape), n_pairs)
        whitened = (whitening[0][:, None] * cross * whitening[1]).astype(np.float32)
        U, s, Vt = randomized_svd(whitened, n_directions, n_iter=_POWER_STEPS, random_state=0)
        roots = np.sqrt(s.astype(np.float64))
        return cls(whitening[0][:, None] * U * roots, whitening[1][:, None] * Vt.T * roots, s)


def cross_covariance(coordinates: tuple[FloatArray, FloatArray], pairs: Indices) -> FloatArray:
    """Return the mean product of paired samples' coordinates, of shape (x_rank, z_rank).

    Parameters
    ----------
    coordinates : tuple of ndarray
        Principal coordinates of both modalities, (n_samples, rank) each.
    pairs : ndarray of int, shape (n_pairs, 2)
        Rows that belong together.
    """
    x, z = (side[pairs[:, number]] for number, side in enumerate(coordinates))
    cross: FloatArray = x.T @ z / len(pairs)
    return cross
