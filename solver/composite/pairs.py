"""What pairs and judged pairs teach: canonical directions, and a low-rank bilinear similarity along them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from sklearn.utils.extmath import randomized_svd

from solver.bilinear.estimator import LowRankBilinear
from solver.linalg import FloatArray, Sides
from solver.supervision.kinds import Indices, SignedPairs
from solver.validation import ConvergenceWarning

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

    def project(self, x: FloatArray, z: FloatArray) -> Sides:
        """Return the components of principal coordinates along the directions of their modality."""
        return x @ self.x_coefficients, z @ self.z_coefficients

    @classmethod
    def fit(cls, cross: FloatArray, variances: Sides, n_pairs: int, ridge: float) -> CanonicalDirections:
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


def cross_covariance(coordinates: Sides, pairs: Indices) -> FloatArray:
    """Return the mean product of the principal coordinates of pairs (n_pairs, 2): (x_rank, z_rank)."""
    x, z = (side[pairs[:, number]] for number, side in enumerate(coordinates))
    cross: FloatArray = x.T @ z / len(pairs)
    return cross


_ALPHA_FRACTION = 0.1
"""Penalty as a share of the smallest one whose solution is zero: a few hundred judgements fix few ranks."""
N_AXES = 64
"""Leading canonical directions, or whitened principal axes without pairs, that stand for a sample: a few
hundred judgements teach more of these than of 256 directions."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedSimilarity:
    """A bilinear matrix between coordinates of both modalities, with the nuclear norm as penalty."""

    # It is scaled so that the similarities of all samples have the mean square one: the more judged pairs
    # there are, the larger the matrix of a fit, and a weight that was chosen with fewer of them would not
    # suit it.

    x_factors: FloatArray  # (x_rank, rank), U sqrt(S), scaled
    z_factors: FloatArray  # (z_rank, rank), V sqrt(S), scaled
    duality_gap: float  # relative, of the fit before it is scaled: a certificate of this term

    @classmethod
    def fit(
        cls, coordinates: Sides, signs: scipy.sparse.csr_array, tol: float = 1e-3
    ) -> JudgedSimilarity | None:
        """Fit to judged pairs (+1 relevant, -1 not); None unless some are relevant and some are not.
        Coordinates have similar lengths along all axes; `tol` is a relative duality gap."""
        if not {1, -1} <= set(np.unique(signs.data).tolist()):
            return None
        rows, columns = (np.unique(part) for part in signs.nonzero())
        estimator = LowRankBilinear(alpha_fraction=_ALPHA_FRACTION, tol=tol, fit_intercept=False)
        with warnings.catch_warnings():
            # The gap says how far it came.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(coordinates[0][rows], coordinates[1][columns], SignedPairs(signs[rows][:, columns]))
        if estimator.rank_ == 0:
            return None
        factors = estimator.x_factors_.astype(np.float64), estimator.z_factors_.astype(np.float64)
        x, z = (side @ factor for side, factor in zip(coordinates, factors, strict=True))
        root = (float(np.vdot(x.T @ x, z.T @ z)) / (len(x) * len(z))) ** 0.25  # of the mean square
        return cls(factors[0] / root, factors[1] / root, estimator.duality_gap_)


def whitened_axes(variances: FloatArray) -> FloatArray:
    """Return what maps principal coordinates to the leading ones of variance one, (rank, n_axes)."""
    n_axes = min(N_AXES, len(variances))
    axes = np.zeros((len(variances), n_axes))
    axes[np.arange(n_axes), np.arange(n_axes)] = 1.0 / np.sqrt(variances[:n_axes] * n_axes)
    return axes
