"""A prepared instance of problem (4): samples with their constant feature, in the smallest exact basis."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from solver.base import check_samples
from solver.linalg import FloatArray, LowRankMatrix, reduce_basis, spectral_norm
from solver.losses import FactoredPoint, PairLogisticLoss
from solver.refinement import from_factors
from solver.supervision import Supervision


class BilinearProblem:
    """Samples and supervision, ready for any solver.

    Parameters
    ----------
    X : ndarray of shape (n_samples_x, n_features_x)
        First modality. Not modified.
    Z : ndarray of shape (n_samples_z, n_features_z)
        Second modality. Not modified.
    supervision : Supervision
        Which pairs are similar.
    fit_intercept : bool
        Append a constant feature 1 to both modalities.
    n_threads : int or None
        Threads over blocks of pairs; all cores when None.

    Attributes
    ----------
    n_features : tuple of int
        Features of both modalities with their constants, before any change of basis.

    Notes
    -----
    A modality with more features than samples is rotated into the span of its samples; that changes
    neither scores nor singular values, hence not the optimum, and `lift` undoes it.
    """

    def __init__(
        self,
        X: FloatArray,
        Z: FloatArray,
        supervision: Supervision,
        fit_intercept: bool,
        n_threads: int | None,
    ) -> None:
        self.supervision = supervision
        self.n_features = X.shape[1] + fit_intercept, Z.shape[1] + fit_intercept
        self.X, self._x_basis = _smallest_basis(_with_constant(X) if fit_intercept else X)
        self.Z, self._z_basis = _smallest_basis(_with_constant(Z) if fit_intercept else Z)
        self._n_threads = n_threads or os.cpu_count() or 1

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix in the basis of this problem."""
        return self.X.shape[1], self.Z.shape[1]

    def loss(self, dtype: type) -> PairLogisticLoss:
        """Return the smooth term in the given precision."""
        return PairLogisticLoss(self.X, self.Z, self.supervision, dtype, self._n_threads)

    def gradient_at_zero(self) -> FloatArray:
        """Return l'(0) in float64."""
        zero = LowRankMatrix.zeros(*self.shape, dtype=np.float64)
        return self.loss(np.float64).value_and_gradient(FactoredPoint.of(zero))[1]

    def first_step(self) -> float:
        """Return a step for which the first move changes a typical score by about 1."""
        scale = spectral_norm(self.gradient_at_zero()) * _typical_norm(self.X) * _typical_norm(self.Z)
        return 1.0 / scale if scale > 0 else 1.0

    def lift(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return `M` in the original features (with the constant ones, if any, last)."""
        U = M.U if self._x_basis is None else self._x_basis @ M.U
        V = M.V if self._z_basis is None else self._z_basis @ M.V
        return LowRankMatrix(U, M.s, V)

    def lower(self, left: FloatArray, right: FloatArray) -> LowRankMatrix:
        """Return ``left @ right.T``, given in the original features, as a point of this problem."""
        left = left if self._x_basis is None else self._x_basis.T @ left
        right = right if self._z_basis is None else self._z_basis.T @ right
        return from_factors(left, right)


def alpha_max(
    X: npt.ArrayLike, Z: npt.ArrayLike, supervision: Supervision, *, fit_intercept: bool = True
) -> float:
    """Return the smallest penalty weight at which the solution is zero.

    Parameters
    ----------
    X : array-like of shape (n_samples_x, n_features_x)
        First modality. Not modified.
    Z : array-like of shape (n_samples_z, n_features_z)
        Second modality. Not modified.
    supervision : Supervision
        Which pairs are similar.
    fit_intercept : bool
        As in the estimator the value is meant for.

    Returns
    -------
    float
        ``||l'(0)||_2``: zero is optimal exactly when the gradient there is a subgradient of
        ``alpha ||.||_*``, that is when no singular value of it exceeds alpha.
    """
    problem = BilinearProblem(check_samples(X, "X"), check_samples(Z, "Z"), supervision, fit_intercept, None)
    return spectral_norm(problem.gradient_at_zero())


def _with_constant(samples: FloatArray) -> FloatArray:
    return np.hstack([samples, np.ones((len(samples), 1), samples.dtype)])


def _smallest_basis(samples: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    # A few features more than samples are not worth a decomposition.
    return reduce_basis(samples) if samples.shape[1] > 1.1 * samples.shape[0] else (samples, None)


def _typical_norm(samples: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.sum(samples.astype(np.float64) ** 2, axis=1))))
