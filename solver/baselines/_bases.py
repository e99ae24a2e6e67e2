"""Samples in the coordinates of their principal axes, where no covariance is singular by construction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg

from solver.linalg.matrices import FloatArray, to_dense
from solver.linalg.samples import check_samples
from solver.validation.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class CentredBasis:
    """Centred samples in their principal axes: ``samples - mean = coordinates @ axes.T``."""

    # Directions in which the samples do not vary beyond the rounding of their own precision are left out, so
    # that nothing computed in these coordinates meets a covariance that is singular by construction.

    mean: FloatArray  # (n_features,), of the samples
    axes: FloatArray  # (n_features, rank), orthonormal columns
    lengths: FloatArray  # (rank,), singular values of the centred samples, positive, descending
    coordinates: FloatArray  # (n_samples, rank), orthogonal columns of these lengths

    @classmethod
    def of(cls, samples: npt.ArrayLike, name: str) -> CentredBasis:
        """Compute the basis of samples in float64; sparse ones are made dense.
        InvalidInputError, which says `name`, if they are unusable or all the same."""
        array, precision = _dense(samples, name)
        mean = array.mean(axis=0)
        U, s, Vt = scipy.linalg.svd(array - mean, full_matrices=False, check_finite=False)
        # The decomposition's own rounding, and that of the samples as they were stored: features that sum
        # to one in float32 leave a direction of nothing but that.
        relative = max(max(array.shape) * np.finfo(np.float64).eps, precision)
        rounding = relative * float(np.linalg.norm(array))
        varies = s > rounding
        if not varies.any():
            raise InvalidInputError(f"{name} holds the same sample only: there is nothing to learn from")
        return cls(mean, Vt[varies].T, s[varies], U[:, varies] * s[varies])

    @property
    def n_bytes(self) -> int:
        return self.axes.nbytes + self.coordinates.nbytes

    def whitening(self, reg: float) -> FloatArray:
        """Return what each axis is multiplied by: (variance + ridge)^(-1/2), `reg` being the share of the
        mean variance."""
        variances = self.lengths**2 / len(self.coordinates)
        factors: FloatArray = 1.0 / np.sqrt(variances + reg * variances.mean())
        return factors

    def lift(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return factors and intercept that map raw samples along directions of these coordinates."""
        factors: FloatArray = self.axes @ directions
        return factors, -(self.mean @ factors)


Bases = tuple[CentredBasis, CentredBasis]  # those of both modalities


def _dense(samples: npt.ArrayLike, name: str) -> tuple[FloatArray, float]:
    """Return checked samples as a dense float64 array, and the relative precision they were stored in."""
    dense = to_dense(check_samples(samples, name))
    return dense.astype(np.float64, copy=False), float(np.finfo(dense.dtype).eps)
