"""Element-wise kernels over a block of pairs: logistic losses and binary entropies.

With ``t = tanh(s / 2)`` the logistic loss of a pair is ``-log((1 + y t) / 2)``; several factors are
multiplied before one logarithm is taken of them. Where a score is so large that ``1 + y t`` would
lose its digits, the same sum is taken from the scores themselves.
"""

from __future__ import annotations

import numpy as np

from solver.linalg import FloatArray

_FACTORS_PER_LOG = 4
_SATURATED = float(np.tanh(4.0))
"""Beyond |s| = 8, a float32 ``1 + y t`` keeps fewer than four digits."""


def sum_logistic_losses(half_scores: FloatArray, t: FloatArray, sign: float) -> float:
    """Return ``sum log(1 + exp(-sign * s))`` over a block.

    Parameters
    ----------
    half_scores : ndarray of shape (rows, columns)
        s / 2. Not modified.
    t : ndarray of shape (rows, columns)
        ``tanh(half_scores)``. Not modified.
    sign : {-1.0, 1.0}
        The sign y that all pairs of the block share.
    """
    if t.size == 0:
        return 0.0
    if max(float(t.max()), -float(t.min())) > _SATURATED:
        return _sum_from_scores(half_scores, sign)
    factors = np.multiply(t, 0.5 * sign)
    factors += 0.5
    grouped = factors.shape[1] - factors.shape[1] % _FACTORS_PER_LOG
    total = float(np.log(factors[:, grouped:]).sum(dtype=np.float64))
    width = grouped // _FACTORS_PER_LOG
    product = factors[:, :width]
    for start in range(width, grouped, max(width, 1)):
        product *= factors[:, start : start + width]
    return -total - float(np.log(product).sum(dtype=np.float64))


def sum_entropies(p: FloatArray) -> float:
    """Return the sum of binary entropies ``-p log p - (1 - p) log(1 - p)`` in nats, with 0 log 0 = 0.

    Parameters
    ----------
    p : ndarray
        Probabilities in [0, 1]. Not modified.
    """
    tiny = np.finfo(p.dtype).tiny
    return -float(np.sum(p * np.log(np.maximum(p, tiny)) + (1.0 - p) * np.log(np.maximum(1.0 - p, tiny))))


def _sum_from_scores(half_scores: FloatArray, sign: float) -> float:
    margins = (2.0 * sign) * half_scores
    losses = np.log1p(np.exp(-np.abs(margins)))
    losses -= np.minimum(margins, 0.0)
    return float(losses.sum(dtype=np.float64))
