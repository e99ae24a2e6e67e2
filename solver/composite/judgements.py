"""What clicks teach: a low-rank bilinear similarity of judged pairs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from solver.bilinear.estimator import LowRankBilinear
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import SignedPairs
from solver.validation.errors import ConvergenceWarning

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
        cls, coordinates: tuple[FloatArray, FloatArray], signs: scipy.sparse.csr_array, tol: float = 1e-3
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
        root = (
            _mean_square(*(side @ factor for side, factor in zip(coordinates, factors, strict=True))) ** 0.25
        )
        return cls(factors[0] / root, factors[1] / root, estimator.duality_gap_)


def whitened_axes(variances: FloatArray) -> FloatArray:
    """Return what maps principal coordinates to the leading ones of variance one, (rank, n_axes)."""
    n_axes = min(N_AXES, len(variances))
    axes = np.zeros((len(variances), n_axes))
    axes[np.arange(n_axes), np.arange(n_axes)] = 1.0 / np.sqrt(variances[:n_axes] * n_axes)
    return axes


def _mean_square(x: FloatArray, z: FloatArray) -> float:
    return float(np.vdot(x.T @ x, z.T @ z)) / (len(x) * len(z))
