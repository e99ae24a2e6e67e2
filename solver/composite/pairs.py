"""What distinguishes single items: canonical correlations of samples that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from solver.linalg.matrices import FloatArray
from solver.supervision.base import Indices

PAIR_RIDGES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Ridges to try, as shares of the total variance."""
_MOST_DIRECTIONS = 128
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

    @classmethod
    def fit(
        cls,
        coordinates: tuple[FloatArray, FloatArray],
        variances: tuple[FloatArray, FloatArray],
        pairs: Indices,
        ridge: float,
    ) -> CanonicalDirections:
        """Find the directions by the singular value decomposition of the whitened cross-covariance.

        Each direction is multiplied by the root of its correlation, so that the inner product of two samples
        weights directions by how far they can be trusted.

        Parameters
        ----------
        coordinates : tuple of ndarray
            Principal coordinates of both modalities, (n_samples, rank) each.
        variances : tuple of ndarray
            Variance along each axis.
        pairs : ndarray of int, shape (n_pairs, 2)
            Rows that belong together.
        ridge : float
            Added to the variances, as a share of their sum.
        """
        whitening = [1.0 / np.sqrt(side + ridge * side.sum()) for side in variances]
        x, z = (side[pairs[:, number]] for number, side in enumerate(coordinates))
        cross = whitening[0][:, None] * (x.T @ z / len(pairs)) * whitening[1]
        n_directions = min(_MOST_DIRECTIONS, min(cross.shape), len(pairs))
        U, s, Vt = randomized_svd(cross, n_directions, n_iter=_POWER_STEPS, random_state=0)
        roots = np.sqrt(s)
        return cls(whitening[0][:, None] * U * roots, whitening[1][:, None] * Vt.T * roots, s)
