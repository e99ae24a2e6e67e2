"""Samples in the space of their own modality: features of length one, in not too many dimensions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse, to_dense

_MOST_DIMENSIONS = 512
"""Names of products, of 4000 features, were ranked almost as well with 512 dimensions; 512 principal axes did
no better, and those of few texts much worse."""
_PER_FEATURE = 8  # dimensions that a feature adds to
_TINY = 1e-12  # shorter vectors have no direction: they are left as they are


def content_width(n_features: int) -> int:
    """Return how many dimensions samples have there."""
    return min(n_features, _MOST_DIMENSIONS)


def content_of(samples: Samples) -> FloatArray:
    """Return the (n_samples, width) rows, of length one, whose inner products are about the cosines."""
    n_features = samples.shape[1]
    if n_features > _MOST_DIMENSIONS:
        reduced = samples @ _sketch(n_features)
        return to_unit_length(reduced.toarray() if is_sparse(reduced) else np.asarray(reduced))
    return to_unit_length(to_dense(samples))


def to_unit_length(rows: FloatArray) -> FloatArray:
    """Return rows of length one; those that are almost zero stay as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(lengths > _TINY, lengths, 1.0)
    return unit


@lru_cache(maxsize=16)
def _sketch(n_features: int) -> scipy.sparse.csr_array:
    """Return a sparse projection, the same in every process and release."""
    # Of each feature one sign in each of eight blocks of dimensions: Kane and Nelson, "Sparser
    # Johnson-Lindenstrauss Transforms", J. ACM 61, 2014. It learns from nothing, so that samples that come
    # later are as near to each other as those that were there.
    width = _MOST_DIMENSIONS // _PER_FEATURE
    bits = _mix(np.arange(n_features * _PER_FEATURE, dtype=np.uint64))
    columns = np.tile(np.arange(_PER_FEATURE) * width, n_features) + (bits % np.uint64(width)).astype(np.intp)
    signs = np.where(bits >> np.uint64(63), 1.0, -1.0).astype(np.float32) / np.float32(_PER_FEATURE**0.5)
    starts = np.arange(0, len(bits) + 1, _PER_FEATURE)
    return scipy.sparse.csr_array((signs, columns, starts), shape=(n_features, _MOST_DIMENSIONS))


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return pseudo-random bits of each number: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
