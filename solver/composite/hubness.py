"""How near a sample is to all queries: some are the first hit of many that they do not suit."""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray

_SHARPNESS = 7.0  # of the mean over the bank: the best of 5 to 40 for the partners of held-out products
_MOST_BANKED = 2048  # samples of a bank at most: a query is compared with each of them


def draw_bank(unit: FloatArray) -> FloatArray:
    """Return an even sample of rows, projections of length one of what queries, as a float32 bank."""
    n_samples = len(unit)
    rows = np.unique(np.linspace(0, n_samples - 1, min(n_samples, _MOST_BANKED)).astype(np.intp))
    return np.ascontiguousarray(unit[rows], np.float32)


def distinctness(unit: FloatArray, bank: FloatArray) -> FloatArray:
    """Return one minus the hubness of samples, of shape (n_samples, 1); all projections have length one."""
    # The hubness is the logarithm of the mean, over a bank of queries, of the exponential of the similarity:
    # what an inverted softmax (Smith et al., "Offline Bilingual Word Vectors, Orthogonal Transformations and
    # the Inverted Softmax", ICLR 2017) subtracts from it. The product of two samples' values falls with the
    # hubness of either.
    similarities = _SHARPNESS * (unit @ bank.T)
    hubness = (_log_sum_exp(similarities) - np.log(len(bank))) / _SHARPNESS
    result: FloatArray = 1.0 - hubness
    return result


def _log_sum_exp(rows: FloatArray) -> FloatArray:
    """Return the logarithm of the sum of exponentials of each row, as a column: SciPy's, to the bit, without
    what that does for infinite, complex and weighted numbers, which takes longer than a query."""
    largest = rows.max(axis=1, keepdims=True)
    is_largest = rows == largest
    n_largest = is_largest.sum(axis=1, keepdims=True, dtype=rows.dtype)
    others = np.exp(np.where(is_largest, -np.inf, rows) - largest).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):  # of rows with NaN none is largest
        result: FloatArray = np.log1p(others / n_largest) + np.log(n_largest) + largest
    return result
