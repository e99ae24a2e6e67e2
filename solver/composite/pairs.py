"""What distinguishes single items: canonical correlations of samples that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from solver.linalg.matrices import FloatArray
from solver.supervision.base import Indices

PAIR_RIDGES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # ridges to try, as shares of the total variance
MOST_DIRECTIONS = 256
"""Canonical directions at most: those of the smallest correlations hardly move a ranking."""
DIRECTIONS = (8, 16, 32, 64, 128, MOST_DIRECTIONS)  # numbers of directions to try
_POWER_STEPS = 6  # power iterations of the singular value decomposition: canonical correlations decay slowly


@dataclass(frozen=True, slots=True)
class Pairing:
    """How pairs are learned from: the ridge, and how many canonical directions are kept."""

    ridge: float
    n_directions: int


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalDirections:
    """Directions of both modalities along which pairs agree."""

    x_coefficients: FloatArray  # (x_rank, n_directions), of principal coordinates
    z_coefficients: FloatArray  # (z_rank, n_directions)
    correlations: FloatArray  # (n_directions,), regularised, in descending order

    def first(self, number: int) -> CanonicalDirections:
        return CanonicalDirections(
            self.x_coefficients[:, :number], self.z_coefficients[:, :number], self.correlations[:number]
        )

    def project(self, x: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the components of principal coordinates along the directions of their modality."""
        return x @ self.x_coefficients, z @ self.z_coefficients

    @classmethod
    def fit(
        cls, cross: FloatArray, variances: tuple[FloatArray, FloatArray], n_pairs: int, ridge: float
    ) -> CanonicalDirections:
        """Find the directions by the singular value decomposition of the whitened cross-covariance.
        `ridge` is added to the variances, as a share of their sum."""
        # Each direction is multiplied by the root of its correlation, so that the inner product of two
        # samples weights directions by how far they can be trusted.
        whitening = [1.0 / np.sqrt(side + ridge * side.sum()) for side in variances]
        n_directions = min(MOST_DIRECTIONS, min(cross.shape), n_pairs)
        whitened = (whitening[0][:, None] * cross * whitening[1]).astype(np.float32)
        U, s, Vt = randomized_svd(whitened, n_directions, n_iter=_POWER_STEPS, random_state=0)
        roots = np.sqrt(s.astype(np.float64))
        return cls(whitening[0][:, None] * U * roots, whitening[1][:, None] * Vt.T * roots, s)


def cross_covariance(coordinates: tuple[FloatArray, FloatArray], pairs: Indices) -> FloatArray:
    """Return the mean product of the principal coordinates of pairs (n_pairs, 2): (x_rank, z_rank)."""
    x, z = (side[pairs[:, number]] for number, side in enumerate(coordinates))
    cross: FloatArray = x.T @ z / len(pairs)
    return cross
