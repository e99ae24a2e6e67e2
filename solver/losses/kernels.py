"""Element-wise kernels over a tile of pairs: logistic losses with their derivatives, and entropies.

With ``F = 1 + exp(s)`` the loss of a dissimilar pair is ``log F`` and its derivative ``exp(s) / F``; a
similar pair has ``log F - s`` and ``-1 / F``. Both derivatives keep their relative precision even where they
are tiny, and one logarithm is taken of the product of several F.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray
from solver.supervision.base import PairKey

_FACTORS_PER_LOG = 4
"""Factors multiplied before each logarithm is taken: with more, smaller scores would overflow the product."""
_LARGEST_SCORE = {4: 20.0, 8: 150.0}
"""Largest score s by dtype size in bytes: the product of four ``1 + exp(s)`` does not overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class TileBuffers:
    """Work arrays of the kernels, of shape (size,), reused for each tile of a chunk."""

    scores: FloatArray  # and what the kernels overwrite them with
    factors: FloatArray  # F = 1 + exp(s)

    @classmethod
    def of(cls, n_pairs: int, dtype: npt.DTypeLike) -> Self:
        """Allocate buffers for tiles of at most `n_pairs` pairs."""
        return cls(np.empty(n_pairs, dtype), np.empty(n_pairs, dtype))

    def score(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the scores ``left @ right.T``, a view of the buffer."""
        scores = self.scores[: len(left) * len(right)].reshape(len(left), len(right))
        np.matmul(left, right.T, out=scores)
        return scores

    def factors_like(self, scores: FloatArray) -> FloatArray:
        """Return uninitialised factors of the same shape, a view of the buffer."""
        return self.factors[: scores.size].reshape(scores.shape)


def sum_losses(scores: FloatArray, factors: FloatArray, similar: list[PairKey]) -> tuple[float, float]:
    """Return the sums of the dissimilar and of the `similar` pairs' losses; the latter's keys are disjoint.
    Overwrites the scores s with ``exp(s)``, the factors with ``1 + exp(s)``."""
    largest = _LARGEST_SCORE[scores.itemsize]
    on_dissimilar, on_similar = 0.0, 0.0
    if not float(scores.max()) <= largest:
        # Rare: clip the few large scores, whose loss is linear there, and add what was clipped.
        on_dissimilar -= sum(_sum(np.maximum(scores[key] - largest, 0.0)) for key in similar)
        flat = scores.reshape(-1)
        large = np.flatnonzero(flat > largest)
        on_dissimilar += _sum(flat[large] - largest)
        flat[large] = largest
    on_similar -= sum(_sum(scores[key]) for key in similar)
    np.exp(scores, out=scores)
    np.add(scores, 1.0, out=factors)
    logarithms = sum(_sum_logarithms(factors[key]) for key in similar)
    return on_dissimilar + _sum_logarithms(factors) - logarithms, on_similar + logarithms


def differentiate(
    exponentials: FloatArray, factors: FloatArray, similar: list[PairKey], ratio: float
) -> FloatArray:
    """Return the derivatives of the losses: sigma(s) where dissimilar, ``-ratio * sigma(-s)`` where similar.
    Takes what `sum_losses` left, and overwrites the exponentials with the result."""
    np.divide(exponentials, factors, out=exponentials)
    for key in similar:
        exponentials[key] = -ratio / factors[key]
    return exponentials


def sum_entropies(p: FloatArray) -> float:
    """Return the sum of binary entropies ``-p log p - (1 - p) log(1 - p)`` in nats, with 0 log 0 = 0."""
    tiny = np.finfo(p.dtype).tiny
    return -float(np.sum(p * np.log(np.maximum(p, tiny)) + (1.0 - p) * np.log(np.maximum(1.0 - p, tiny))))


def _sum_logarithms(factors: FloatArray) -> float:
    # On long contiguous arrays: in short calls, threads would mostly wait for the interpreter lock.
    flat = factors.reshape(-1)
    quarter = len(flat) // _FACTORS_PER_LOG
    grouped = quarter * _FACTORS_PER_LOG
    total = _sum(np.log(flat[grouped:]))
    if quarter == 0:
        return total
    pairs = flat[: 2 * quarter] * flat[2 * quarter : grouped]
    product = np.multiply(pairs[:quarter], pairs[quarter:], out=pairs[:quarter])
    return total + _sum(np.log(product, out=product))


def _sum(array: FloatArray) -> float:
    return float(array.sum(dtype=np.float64))
