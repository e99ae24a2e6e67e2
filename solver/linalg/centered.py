"""Sparse samples minus a common vector, multiplied without ever being made dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, is_sparse

_FEW_ENTRIES = 2**16  # entries up to which a dense product is faster, however sparse the samples


@dataclass(frozen=True, slots=True, eq=False)
class Centered:
    """The dense samples ``S - 1 shift^T``, stored as the sparse S and the shift, in the precision of S."""

    sparse: Any
    shift: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        n_samples, n_features = self.sparse.shape
        return n_samples, n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.sparse.dtype
        return dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Centered:
        return Centered(self.sparse[rows], self.shift)

    def __matmul__(self, factors: FloatArray) -> FloatArray:
        """Return the (n_samples, k) product with `factors` of shape (n_features, k)."""
        product: FloatArray = np.asarray(self.sparse @ factors) - self.shift @ factors
        return product

    def gather(self, weighted: FloatArray) -> FloatArray:
        """Return the (n_features, k) product of the transpose with `weighted` of shape (n_samples, k)."""
        product: FloatArray = np.asarray(self.sparse.T @ weighted)
        return product - np.outer(self.shift, weighted.sum(axis=0))

    def inner_products(self, other: Centered) -> FloatArray:
        """Return the (n_samples, n_others) inner products with samples of the same shift, in float64."""
        exact, shift = self.sparse.astype(np.float64), self.shift.astype(np.float64)
        others = other.sparse.astype(np.float64)
        products: FloatArray = (exact @ others.T).toarray()
        products -= np.asarray(exact @ shift)[:, None]
        products -= np.asarray(others @ shift)[None, :]
        products += float(shift @ shift)
        return products

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> Centered:
        return Centered(self.sparse.astype(dtype, copy=copy), self.shift.astype(dtype, copy=copy))

    def toarray(self) -> FloatArray:
        dense: FloatArray = self.sparse.toarray()
        dense -= self.shift
        return dense


def dense_where_small(samples: Any) -> Any:
    """Return small sparse samples as a dense array, large ones by rows, and dense ones unchanged."""
    if not is_sparse(samples):
        return samples
    if samples.shape[0] * samples.shape[1] <= _FEW_ENTRIES:
        return samples.toarray()
    return scipy.sparse.csr_array(samples)


def is_finite(samples: Any) -> bool:
    """Return whether dense or sparse samples contain neither NaN nor infinity."""
    return bool(np.isfinite(samples.data if is_sparse(samples) else samples).all())
