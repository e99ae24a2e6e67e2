"""Discounted cumulative gain of graded rankings.

The gain of a grade is ``2^grade - 1`` [1]_, discounted by ``log2(rank + 1)`` [2]_.

References
----------
.. [1] C. Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.
.. [2] K. Järvelin, J. Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray

FIRST_PAGE = 10  # items that a person sees before turning the page


def discounted_gains(grades: npt.NDArray[Any]) -> FloatArray:
    """Return the gain of each query's ranking, from its (n_queries, n_shown) grades in order."""
    gains: FloatArray = (np.exp2(grades.astype(np.float64)) - 1.0) @ _discounts(grades.shape[1])
    return gains


def ideal_gains(grades: npt.NDArray[Any], n_shown: int, top_grade: int) -> FloatArray:
    """Return the gain of the best ranking of the whole gallery, for each query, by grades in any order.
    `n_shown` is at most the size of the gallery; no grade exceeds `top_grade`."""
    # 2^g - 1 is the sum of 2^(h - 1) over the grades h from 1 to g, so it takes no sorting.
    ideal, sums = np.zeros(len(grades)), np.concatenate([[0.0], np.cumsum(_discounts(n_shown))])
    for grade in range(1, top_grade + 1):
        n_better = np.count_nonzero(grades >= grade, axis=1)
        ideal += 2.0 ** (grade - 1) * sums[np.minimum(n_better, n_shown)]
    return ideal


def _discounts(n_shown: int) -> FloatArray:
    return 1.0 / np.log2(np.arange(2, n_shown + 2))
