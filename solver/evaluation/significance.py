"""How much of a difference is chance: resampling of queries.
All functions take the training set and the gallery as fixed: what they say is about other queries only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.stats

from solver.evaluation.quality import Objective, check_objective, query_values
from solver.linalg import FloatArray, Sides
from solver.supervision.annotations import Annotations, group_partners
from solver.validation import COUNT, FRACTION, SEED, InvalidInputError, integer_from

_MAX_DRAWS_AT_ONCE = 2**22  # numbers drawn at once: 32 MiB as float64, whatever the number of queries
_DECIMALS = 12
"""Sums of differences that agree to this number of decimals of the largest sum differ by rounding only."""


def bootstrap_interval(
    values: npt.ArrayLike, *, level: float = 0.95, n_resamples: int = 2000, random_state: int = 0
) -> tuple[float, float]:
    """Return a percentile bootstrap confidence interval of the mean, by `scipy.stats.bootstrap`.

    Parameters
    ----------
    values : array-like of shape (n_queries,)
        One number per query, such as its average precision; NaN is left out.
    level : float in (0, 1)
        Coverage.
    n_resamples : int, >= 2
        How many samples of queries are drawn, with replacement.
    random_state : int, >= 0

    Raises
    ------
    InvalidInputError
        If no value is a number.
    InvalidParameterError
        If a parameter is out of range.
    """
    FRACTION.check("level", level)
    integer_from(2).check("n_resamples", n_resamples)
    SEED.check("random_state", random_state)
    array = _without_nan(values)
    if len(array) == 1:  # SciPy wants two at least
        return float(array[0]), float(array[0])
    interval = scipy.stats.bootstrap(
        (array,),
        np.mean,
        n_resamples=n_resamples,
        confidence_level=level,
        method="percentile",
        batch=_batch_size(len(array)),
        random_state=np.random.default_rng(random_state),
    ).confidence_interval
    return float(interval.low), float(interval.high)


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
    random_state : int, >= 0

    Returns
    -------
    float
        ``(1 + n_as_extreme) / (1 + n_permutations)``, so never 0.

    Raises
    ------
    InvalidInputError
        If the two differ in length or nothing is left.
    InvalidParameterError
        If a parameter is out of range.

    Notes
    -----
    `scipy.stats.monte_carlo_test` with random signs, not `scipy.stats.permutation_test`: that one permutes
    query by query, and does not accept a single query.
    """
    COUNT.check("n_permutations", n_permutations)
    SEED.check("random_state", random_state)
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise InvalidInputError(f"first {a.shape} and second {b.shape} are not of the same queries")
    differences = _without_nan(a - b)
    largest = float(np.abs(differences).sum()) or 1.0
    rng = np.random.default_rng(random_state)

    def exchange_methods(size: tuple[int, ...]) -> FloatArray:
        return differences * (rng.integers(0, 2, size, dtype=np.int8) * 2 - 1)

    def distance_from_zero(exchanged: FloatArray, axis: int) -> FloatArray:
        distances: FloatArray = np.round(np.abs(exchanged.sum(axis=axis)) / largest, _DECIMALS)
        return distances

    test = scipy.stats.monte_carlo_test(
        differences,
        exchange_methods,
        distance_from_zero,
        vectorized=True,
        n_resamples=n_permutations,
        batch=_batch_size(len(differences)),
        alternative="greater",
    )
    return float(test.pvalue)


def objective_interval(
    first: tuple[npt.ArrayLike, npt.ArrayLike],
    second: tuple[npt.ArrayLike, npt.ArrayLike],
    annotations: Annotations,
    objective: Objective,
    *,
    label: str | None = None,
    level: float = 0.95,
    random_state: int = 0,
) -> tuple[float, float]:
    """Return a confidence interval of how much higher the objective of one method is than another's.

    Samples that are paired, directly or through others, are drawn together: as queries of both directions
    they are no independent evidence.

    Parameters
    ----------
    first, second : tuple of array-like
        Projections of the same samples of both modalities by either method, (n_samples, rank) each.
    annotations : Annotations
        What is known of these samples.
    objective : str or mapping of str to float
        As of `objective_value`.
    label : str, optional
        As of `measure_quality`.
    level : float in (0, 1)
        Coverage.
    random_state : int, >= 0
        Seed of the resampling, see `bootstrap_interval`.

    Raises
    ------
    InvalidInputError
        If there is nothing to measure.
    InvalidParameterError
        If a parameter is out of range.
    """
    (one, other), (back, other_back) = (
        [_contributions(queries, gallery, side, label) for queries, gallery in turned]
        for turned, side in (
            ([first, second], annotations),
            ([first[::-1], second[::-1]], annotations.transpose()),
        )
    )
    differences = [np.zeros(size) for size in annotations.shape]
    total = 0.0
    for name, weight in check_objective(objective).items():
        sides = [
            (difference, new[name] - old[name])
            for difference, new, old in zip(differences, (one, back), (other, other_back), strict=True)
            if name in new
        ]
        total += weight if sides else 0.0
        for difference, own in sides:
            difference += weight / len(sides) * own
    if total == 0.0:
        raise InvalidInputError("there is no query with anything relevant")
    sums = sums_of_partners((differences[0] / total, differences[1] / total), annotations)
    return bootstrap_interval(len(sums) * sums, level=level, random_state=random_state)


def sums_of_partners(contributions: Sides, annotations: Annotations) -> FloatArray:
    """Return what samples of both modalities contribute as queries, summed over those that are paired."""
    n_groups, group = group_partners(annotations)
    return np.bincount(group, np.concatenate(contributions), minlength=n_groups)


def _contributions(
    queries: npt.ArrayLike, gallery: npt.ArrayLike, annotations: Annotations, label: str | None
) -> dict[str, FloatArray]:
    """Return what each query adds to each measure of which any query has something to find."""
    contributions: dict[str, FloatArray] = {}
    for name, facets in query_values(queries, gallery, annotations, label).items():
        means = [np.nan_to_num(values) / n for values in facets if (n := np.sum(~np.isnan(values)))]
        if means:
            contributions[name] = np.sum(means, axis=0) / len(means)
    return contributions


def _without_nan(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"expected one number per query, got shape {array.shape}")
    array = array[~np.isnan(array)]
    if len(array) == 0:
        raise InvalidInputError("there is no query with anything relevant")
    return array


def _batch_size(n_queries: int) -> int:
    return max(1, _MAX_DRAWS_AT_ONCE // n_queries)
