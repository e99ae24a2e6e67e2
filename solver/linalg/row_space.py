"""An orthonormal basis of the row space of wide samples: the same problem with fewer features."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse, to_dense
from solver.threads import even_slices, map_chunks
from solver.validation.errors import InvalidInputError

_CHOLESKY_CONDITION = 1e-8
"""Reciprocal condition of the Gram matrix above which its Cholesky factor is accurate to half the digits."""
_GRAM_CHUNKS = 8  # chunks of rows, a fixed number so that the result does not depend on the number of threads
_MOST_ENTRIES = 2**27  # limit on the entries of a dense array that replaces sparse samples: 1 GiB in float64


class RowSpaceBasis:
    """Coordinates of wide samples (n_features >= n_samples) in the space they span. `reduced`, R of shape
    (n_samples, rank), is float64: at small penalties its rounding would show in the gap."""

    # With X X^T = R R^T the rows of R have the same inner products as those of X, and R = X Q for the
    # orthonormal Q = X^T W, W^T R = I. A bilinear matrix fitted on R maps back by Q M with the same scores
    # and the same nuclear norm, hence the same optimum. Q itself is never formed. R is the lower Cholesky
    # factor of the Gram matrix if that is well conditioned. Otherwise it consists of the eigenvectors times
    # the square roots of the eigenvalues, without those at rounding level.

    def __init__(self, X: Samples, n_threads: int = 1) -> None:
        self._X = X
        gram = _gram(X, n_threads)
        factor = _well_conditioned_cholesky(gram)
        self._weights: FloatArray | None = None
        if factor is None:
            values, vectors = scipy.linalg.eigh(gram, check_finite=False)
            is_nonzero = values > max(X.shape) * np.finfo(np.float64).eps * values[-1]
            roots, vectors = np.sqrt(values[is_nonzero]), vectors[:, is_nonzero]
            factor, self._weights = vectors * roots, vectors / roots
        self.reduced: FloatArray = factor

    def lift(self, U: FloatArray) -> FloatArray:
        """Return ``Q @ U``, of shape (n_features, k), from U of shape (rank, k)."""
        if self._weights is None:
            weighted = scipy.linalg.solve_triangular(
                self.reduced, U, trans="T", lower=True, check_finite=False
            )
        else:
            weighted = self._weights @ U
        if isinstance(self._X, Centered):
            return self._X.gather(weighted)
        lifted: FloatArray = np.asarray(self._X.T @ weighted)
        return lifted

    def lower(self, left: FloatArray) -> FloatArray:
        """Return ``Q.T @ left``, of shape (rank, k), from `left` of shape (n_features, k)."""
        return self._from_products(np.asarray(self._X @ left))

    def to_row_space(self, samples: Samples) -> FloatArray:
        """Return ``samples @ Q``: the projection of any samples onto the span, in this basis."""
        if isinstance(self._X, Centered):
            return self._from_products(self._X.inner_products(samples)).T
        products = self._X @ samples.T
        return self._from_products(to_dense(products)).T

    def _from_products(self, products: FloatArray) -> FloatArray:
        if self._weights is None:
            return scipy.linalg.solve_triangular(self.reduced, products, lower=True, check_finite=False)
        coordinates: FloatArray = self._weights.T @ products
        return coordinates


def _gram(X: Samples, n_threads: int) -> FloatArray:
    if isinstance(X, Centered):
        return X.inner_products(X)
    if is_sparse(X):
        product = X.astype(np.float64)
        return np.asarray((product @ product.T).toarray())
    exact = X.astype(np.float64, copy=False)
    gram = np.empty((len(exact), len(exact)))

    def evaluate(rows: slice) -> None:
        # The Cholesky and eigenvector routines read the lower triangle only.
        np.matmul(exact[rows], exact[: rows.stop].T, out=gram[rows, : rows.stop])

    map_chunks(evaluate, even_slices(len(exact), _GRAM_CHUNKS), n_threads)
    return gram


def _well_conditioned_cholesky(gram: FloatArray) -> FloatArray | None:
    try:
        factor = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    # The squared 1-norm of the factor bounds the norm of the Gram matrix up to a factor of its dimension,
    # which is accurate enough here.
    norm = float(np.abs(factor).sum(axis=0).max()) ** 2
    reciprocal_condition, _ = scipy.linalg.lapack.dpocon(factor, norm, uplo="L")
    return factor if reciprocal_condition > _CHOLESKY_CONDITION else None


def lift_factors(basis: RowSpaceBasis | None, factors: FloatArray) -> FloatArray:
    """Return factors of all features, in float64, from those in a basis; unchanged where there is none."""
    return factors if basis is None else basis.lift(factors.astype(np.float64, copy=False))


def lower_factors(basis: RowSpaceBasis | None, factors: FloatArray) -> FloatArray:
    """Return factors in a basis from those of all features; unchanged where there is no basis."""
    return factors if basis is None else basis.lower(factors)


def compact(samples: Samples) -> tuple[Samples, RowSpaceBasis | None]:
    """Return samples in a form that a bilinear method can use, and their basis, if any.

    Dense and sparse samples are returned unchanged. `Centered` samples are expressed in a basis of their row
    space if there are fewer samples than features, and made dense otherwise; InvalidInputError if that
    would take too much memory.
    """
    if not isinstance(samples, Centered):
        return samples, None
    n_samples, n_features = samples.shape
    if not can_be_compact(n_samples, n_features):
        raise InvalidInputError(
            f"{n_samples} x {n_features} sparse features are too many to be centred: choose the "
            "scaling 'l2', or fewer features"
        )
    if n_features <= n_samples:
        return samples.toarray(), None
    basis = RowSpaceBasis(samples)
    return basis.reduced, basis


def most_compact(n_features: int) -> int:
    """Return the largest number of sparse samples with `n_features` features that `can_be_compact`."""
    return max(math.isqrt(_MOST_ENTRIES), _MOST_ENTRIES // n_features)


def can_be_compact(n_samples: int, n_features: int) -> bool:
    """Return whether centred sparse samples fit into 1 GiB, the limit for their dense form."""
    return n_samples * min(n_samples, n_features) <= _MOST_ENTRIES
