"""How near a sample is to all queries: some are the first hit of many that they do not suit."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from solver.linalg.matrices import FloatArray

_SHARPNESS = 7.0
"""Of the mean over the bank: the best of 5 to 40 for the partners of held-out products."""
_MOST_BANKED = 2048
"""Samples of a bank at most: a query is compared with each of them."""


def draw_bank(unit: FloatArray) -> FloatArray:
    """Return an evenly spaced sample of rows as a bank, float32.

    Parameters
    ----------
    unit : ndarray of shape (n_samples, n_directions)
        Projections of length one of the modality that queries.
    """
    n_samples = len(unit)
    rows = np.unique(np.linspace(0, n_samples - 1, min(n_samples, _MOST_BANKED)).astype(np.intp))
    return np.ascontiguousarray(unit[rows], np.float32)


def distinctness(unit: FloatArray, bank: FloatArray) -> FloatArray:
    """Return one minus the hubness of samples, of shape (n_samples, 1).

    The hubness is the logarithm of the mean, over a bank of queries, of the exponential of the similarity:
    what an inverted softmax [1]_ subtracts from it. The product of two samples' values falls with the hubness
    of either.

    Parameters
    ----------
    unit : ndarray of shape (n_samples, n_directions)
        Projections of length one.
    bank : ndarray of shape (n_bank, n_directions)
        Those of samples of the other modality.

    References
    ----------
    .. [1] S. Smith, D. Turban, S. Hamblin, N. Hammerla, "Offline Bilingual Word Vectors, Orthogonal
       Transformations and the Inverted Softmax", ICLR 2017.
    """
    similarities = _SHARPNESS * (unit @ bank.T)
    hubness = (logsumexp(similarities, axis=1) - np.log(len(bank))) / _SHARPNESS
    result: FloatArray = 1.0 - hubness[:, None]
    return result
