"""A preconditioner for descent on the factors: a Kronecker approximation of the Hessian of the loss.

The Hessian of the loss is ``sum_ij w_ij sigma'(s_ij) (x_i x_i^T) kron (z_j z_j^T)``. With the weights
``w_ij sigma'(s_ij)`` replaced by their mean c it is ``c X^T X kron Z^T Z``, and with respect to the factor A
of ``M = A B^T`` it is ``c X^T X kron (Z B)^T (Z B)``, plus alpha for the penalty on A. In the eigenvectors
of both sides this is diagonal, so that applying its inverse square root costs two thin products. The same
factorisation of curvature, of neural network layers, is known as K-FAC (Martens and Grosse, ICML 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from solver.linalg.matrices import FloatArray, Samples, is_sparse, to_dense

_FULL_LIMIT = 400
"""Features up to which all eigenvectors are computed; the time for that grows with their cube."""
_LEADING = 160  # eigenvectors computed of more features; the mean eigenvalue stands for the others
_OVERSAMPLING = 32
"""Extra directions of the randomised range finder, more than the usual 10 for a flat spectrum."""
_MAX_SAMPLES = 4096  # samples of which the spectrum is computed, ten per feature that is computed in full
_POWER_ITERATIONS = 2  # Halko, Martinsson and Tropp (SIAM Review 53, 2011) find one or two sufficient


@dataclass(frozen=True, slots=True, eq=False)
class GramSpectrum:
    """Eigenvectors of ``X^T X``: all of them, or the leading ones and the mean of the other eigenvalues."""

    vectors: FloatArray  # (n_features, q), orthonormal
    values: FloatArray  # (q,), eigenvalues
    rest: float  # mean of the omitted eigenvalues; 0 if there are none

    @classmethod
    def of(cls, X: Samples) -> GramSpectrum:
        """Compute the spectrum of samples, in float64: of an even selection of very many samples, and only a
        leading subspace of very many features, since a preconditioner need not be exact."""
        stride = -(-X.shape[0] // _MAX_SAMPLES)
        sample = X[::stride].astype(np.float64)
        if sample.shape[1] <= _FULL_LIMIT:
            values, vectors = scipy.linalg.eigh(to_dense(sample.T @ sample), check_finite=False)
            return cls(vectors, stride * np.maximum(values, 0.0), 0.0)
        probe = np.random.default_rng(0).standard_normal((sample.shape[1], _LEADING + _OVERSAMPLING))
        for _ in range(_POWER_ITERATIONS):
            probe, _ = scipy.linalg.qr(sample.T @ (sample @ probe), mode="economic", check_finite=False)
        projected = sample @ probe
        values, rotation = scipy.linalg.eigh(projected.T @ projected, check_finite=False)
        leading = slice(_OVERSAMPLING, None)
        values, vectors = np.maximum(values[leading], 0.0), probe @ rotation[:, leading]
        trace = float((sample.multiply(sample) if is_sparse(sample) else sample * sample).sum())
        rest = max(trace - float(values.sum()), 0.0) / (sample.shape[1] - len(values))
        return cls(vectors, stride * values, stride * rest)

    def quadratic_form(self, B: FloatArray) -> FloatArray:
        """Return ``B^T X^T X B``, of shape (k, k), from B of shape (n_features, k)."""
        along = self.vectors.T @ B
        form: FloatArray = along.T @ ((self.values - self.rest)[:, None] * along) + self.rest * (B.T @ B)
        return form


class FactorPreconditioner:
    """A linear change of variable for one factor that turns the approximate Hessian into the identity.
    `inner` is ``(Z B)^T (Z B)`` (k, k) of the other factor, `curvature` the mean of ``w sigma'``."""

    def __init__(self, spectrum: GramSpectrum, inner: FloatArray, curvature: float, alpha: float) -> None:
        values, self._rotation = scipy.linalg.eigh(inner, check_finite=False)
        inner_values = curvature * np.maximum(values, 0.0)
        self._vectors = spectrum.vectors
        self._along = np.sqrt(spectrum.values[:, None] * inner_values + alpha)
        self._rest = np.sqrt(spectrum.rest * inner_values + alpha)

    def scale(self, A: FloatArray) -> FloatArray:
        """Return the new variable for the factor `A` of shape (n_features, k)."""
        return self._apply(A @ self._rotation, self._along, self._rest)

    def factor(self, scaled: FloatArray) -> FloatArray:
        """Return the factor of a new variable."""
        return self._apply(scaled, 1.0 / self._along, 1.0 / self._rest) @ self._rotation.T

    def scale_gradient(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient with respect to the new variable, from that with respect to the factor."""
        return self._apply(gradient @ self._rotation, 1.0 / self._along, 1.0 / self._rest)

    def _apply(self, A: FloatArray, along: FloatArray, rest: FloatArray) -> FloatArray:
        product: FloatArray = A * rest + self._vectors @ ((along - rest) * (self._vectors.T @ A))
        return product
