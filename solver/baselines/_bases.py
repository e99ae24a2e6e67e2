"""Centring in an exact basis, and remembering it while the same samples are fitted many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from solver.errors import InvalidInputError
from solver.linalg.matrices import FloatArray, is_sparse
from solver.linalg.samples import check_samples


@dataclass(frozen=True, slots=True, eq=False)
class CentredBasis:
    """Centred samples in their principal axes: ``samples - mean = coordinates @ axes.T``.

    Directions in which the samples do not vary beyond the rounding of their own precision are left out,
    so that nothing computed in these coordinates meets a covariance that is singular by construction.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the samples.
    axes : ndarray of shape (n_features, rank)
        Orthonormal columns.
    lengths : ndarray of shape (rank,)
        Singular values of the centred samples, positive, in descending order.
    coordinates : ndarray of shape (n_samples, rank)
        Orthogonal columns of these lengths.
    """

    mean: FloatArray
    axes: FloatArray
    lengths: FloatArray
    coordinates: FloatArray

    @classmethod
    def of(cls, samples: npt.ArrayLike, name: str) -> CentredBasis:
        """Find the basis of samples, dense or sparse, in float64; within `BasisMemo.used`, once for each.

        Raises
        ------
        InvalidInputError
            If the samples are unusable or all the same.
        """
        memo = _memo.get()
        return cls._found(samples, name) if memo is None else memo.basis(samples, name, cls._found)

    @classmethod
    def _found(cls, samples: npt.ArrayLike, name: str) -> CentredBasis:
        array, precision = _dense(samples, name)
        mean = array.mean(axis=0)
        U, s, Vt = scipy.linalg.svd(array - mean, full_matrices=False, check_finite=False)
        # The decomposition's own rounding, and that of the samples as they were stored: features that sum
        # to one in float32 leave a direction of nothing but that.
        relative = max(max(array.shape) * np.finfo(np.float64).eps, precision)
        rounding = relative * float(np.linalg.norm(array))
        kept = s > rounding
        if not kept.any():
            raise InvalidInputError(f"{name} holds the same sample only: there is nothing to learn from")
        return cls(mean, Vt[kept].T, s[kept], U[:, kept] * s[kept])

    def lift(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return factors and intercept that map raw samples along directions of these coordinates."""
        factors: FloatArray = self.axes @ directions
        return factors, -(self.mean @ factors)


@dataclass(slots=True)
class BasisMemo:
    """Bases that were found, for a search that fits the same arrays many times.

    Parameters
    ----------
    most_kept_bytes : int
        Of bases and of the samples they belong to; what was not used for longest goes first.
    """

    most_kept_bytes: int
    _kept: dict[int, tuple[npt.ArrayLike, CentredBasis]] = field(default_factory=dict)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the basis of every array that is met within; arrays must not be modified there."""
        token = _memo.set(self)
        try:
            yield
        finally:
            _memo.reset(token)

    def basis(
        self, samples: npt.ArrayLike, name: str, find: Callable[[npt.ArrayLike, str], CentredBasis]
    ) -> CentredBasis:
        """Return the basis that is kept for this very array, or find and keep it."""
        # The samples are kept with it: as long as they are, no other array has their identity.
        is_kept = id(samples) in self._kept
        basis = self._kept.pop(id(samples))[1] if is_kept else find(samples, name)
        self._kept[id(samples)] = samples, basis  # the last, as the latest used
        n_bytes = sum(_size(*each) for each in self._kept.values())
        while n_bytes > self.most_kept_bytes:
            n_bytes -= _size(*self._kept.pop(next(iter(self._kept))))
        return basis


_memo: ContextVar[BasisMemo | None] = ContextVar("_memo", default=None)


def _size(samples: npt.ArrayLike, basis: CentredBasis) -> int:
    return int(getattr(samples, "nbytes", 0)) + basis.axes.nbytes + basis.coordinates.nbytes


def _dense(samples: npt.ArrayLike, name: str) -> tuple[FloatArray, float]:
    """Return samples as a dense float64 array, and the relative precision they were stored in.

    See `solver.base.check_samples` for what is refused.
    """
    array: Any = check_samples(samples, name, sparse=True)
    dense: FloatArray = array.toarray() if is_sparse(array) else array
    return dense.astype(np.float64, copy=False), float(np.finfo(dense.dtype).eps)
