import itertools

import numpy as np
import pytest

from solver.comparison import bootstrap_interval, sign_flip_p_value
from solver.validation import InvalidInputError, InvalidParameterError


def test_intervals_cover_the_true_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for run in range(400):
        low, high = bootstrap_interval(rng.beta(2, 5, 150), n_resamples=400, random_state=run)
        covered += low <= 2 / 7 <= high
    # A binomial of 400 at 95 % leaves 0.91 to 0.98 less than once in a thousand runs.
    assert 0.91 <= covered / 400 <= 0.98


def test_p_values_are_uniform_where_methods_do_not_differ() -> None:
    rng = np.random.default_rng(0)
    base = rng.random((300, 60))
    found = [
        sign_flip_p_value(
            row + 0.1 * rng.standard_normal(60), row + 0.1 * rng.standard_normal(60), n_permutations=199
        )
        for row in base
    ]
    distances = np.abs(np.sort(found) - np.arange(1, 301) / 300)
    assert distances.max() < 1.95 / np.sqrt(300)  # Kolmogorov-Smirnov, one in a thousand


def test_p_values_are_tiny_where_one_method_is_better() -> None:
    rng = np.random.default_rng(0)
    worse = rng.random(100)
    assert sign_flip_p_value(worse + 0.05 + 0.02 * rng.standard_normal(100), worse) == 1 / 10_001


def test_the_p_value_is_that_of_all_sign_flips() -> None:
    differences = np.asarray([0.3, -0.1, 0.2, 0.25, 0.05, -0.02, 0.4, 0.1])
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=8)]
    exact = np.mean(np.asarray(sums) >= abs(differences.sum()) - 1e-12)
    found = sign_flip_p_value(differences, np.zeros(8), n_permutations=40_000)
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact / 40_000))


def test_the_test_has_two_sides() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(40), rng.random(40)
    assert sign_flip_p_value(a, b) == sign_flip_p_value(b, a)


def test_queries_without_anything_relevant_are_left_out() -> None:
    values = np.random.default_rng(0).random(30)
    assert bootstrap_interval([*values, np.nan]) == bootstrap_interval(values)
    assert sign_flip_p_value([*values, np.nan], [*(values / 2), 0.1]) == sign_flip_p_value(values, values / 2)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no query"):
        bootstrap_interval([np.nan])
    with pytest.raises(InvalidInputError, match="not of the same queries"):
        sign_flip_p_value([0.1, 0.2], [0.1])
    with pytest.raises(InvalidParameterError, match="level"):
        bootstrap_interval([0.1], level=1.0)
    with pytest.raises(InvalidParameterError, match="n_permutations"):
        sign_flip_p_value([0.1], [0.2], n_permutations=0)


def test_the_interval_is_that_of_means_resampled_by_hand() -> None:
    values = np.random.default_rng(0).random(40)
    rng = np.random.default_rng(7)
    means = values[rng.integers(0, 40, (3000, 40))].mean(axis=1)
    expected = np.quantile(means, [0.05, 0.95])
    found = bootstrap_interval(values, level=0.9, n_resamples=3000, random_state=1)
    # Each end is a quantile of 3000 draws: its standard error is about 0.04 of the standard deviation.
    np.testing.assert_allclose(found, expected, atol=0.2 * means.std())


def test_one_query_alone_has_an_interval_and_no_significance() -> None:
    assert bootstrap_interval([0.3, np.nan]) == (0.3, 0.3)
    assert sign_flip_p_value([0.3], [0.1]) == 1.0


def test_sums_that_differ_by_rounding_only_are_equally_extreme() -> None:
    differences = np.asarray([0.1, 0.2, -0.3, 0.1, 0.2, -0.3])
    assert differences.sum() != 0.0  # but for rounding it is
    assert sign_flip_p_value(differences, np.zeros(6)) == 1.0
