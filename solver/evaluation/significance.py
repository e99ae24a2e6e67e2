"""How much of a difference is chance: resampling of queries.

Both take the training set and the gallery as given and speak of other queries only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.errors import InvalidInputError
from solver.linalg.matrices import FloatArray
from solver.parameters import COUNT, FRACTION, SEED

_BLOCK = 2**22


def bootstrap_interval(
    values: npt.ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> tuple[float, float]:
    """Return a percentile bootstrap confidence interval of the mean.

    Parameters
    ----------
    values : array-like of shape (n_queries,)
        One number per query, such as its average precision; NaN is left out.
    level : float in (0, 1)
        Coverage.
    n_resamples : int, >= 1
        How often the queries are drawn anew, with replacement.
    random_state : int
        Seed.

    Raises
    ------
    InvalidInputError
        If no value is a number.
    InvalidParameterError
        If an option is not as described.
    """
    FRACTION.check("level", level)
    COUNT.check("n_resamples", n_resamples)
    SEED.check("random_state", random_state)
    array = _numbers(values)
    rng = np.random.default_rng(random_state)
    means = np.concatenate(
        [
            array[rng.integers(0, len(array), (count, len(array)))].mean(axis=1)
            for count in _counts(n_resamples, len(array))
        ]
    )
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def sign_flip_p_value(
    first: npt.ArrayLike, second: npt.ArrayLike, *, n_permutations: int = 10_000, random_state: int = 0
) -> float:
    """Return the two-sided p value of a paired permutation test on the means.

    Parameters
    ----------
    first, second : array-like of shape (n_queries,)
        One number per query of two methods; a query that is NaN in either is left out.
    n_permutations : int, >= 1
        How often the two methods are exchanged on a random half of the queries.
    random_state : int
        Seed.

    Returns
    -------
    float
        ``(1 + n_as_extreme) / (1 + n_permutations)``, so never 0.

    Raises
    ------
    InvalidInputError
        If the two differ in length or nothing is left.
    InvalidParameterError
        If `n_permutations` is not as described.
    """
    COUNT.check("n_permutations", n_permutations)
    SEED.check("random_state", random_state)
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise InvalidInputError(f"first {a.shape} and second {b.shape} are not of the same queries")
    differences = _numbers(a - b)
    observed = abs(differences.sum())
    # What differs by rounding only is as extreme.
    threshold = observed - 1e-12 * np.abs(differences).sum()
    rng = np.random.default_rng(random_state)
    n_extreme = 0
    for count in _counts(n_permutations, len(differences)):
        signs = rng.integers(0, 2, (count, len(differences)), dtype=np.int8) * 2 - 1
        n_extreme += int((np.abs(signs @ differences) >= threshold).sum())
    return (1 + n_extreme) / (1 + n_permutations)


def _numbers(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"expected one number per query, got shape {array.shape}")
    array = array[~np.isnan(array)]
    if len(array) == 0:
        raise InvalidInputError("there is no query with anything relevant")
    return array


def _counts(n_draws: int, n_queries: int) -> list[int]:
    """Split the draws into blocks that fit in memory."""
    size = max(1, _BLOCK // n_queries)
    return [min(size, n_draws - start) for start in range(0, n_draws, size)]
