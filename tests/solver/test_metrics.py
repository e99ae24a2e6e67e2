import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from solver.metrics import (
    average_precision,
    average_precisions,
    chance_average_precision,
    mean_average_precision,
    rank_gallery,
)


def test_average_precision_of_a_hand_worked_ranking() -> None:
    # Ranks 1, 3 and 6 are relevant: (1/1 + 2/3 + 3/6) / 3.
    relevant = [True, False, True, False, False, True]
    scores = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    assert average_precision(relevant, scores) == pytest.approx((1 + 2 / 3 + 3 / 6) / 3, rel=1e-15)


def test_perfect_ranking_scores_one_and_worst_ranking_its_closed_form() -> None:
    assert average_precision([1, 1, 0, 0], [4, 3, 2, 1]) == 1.0
    assert average_precision([0, 0, 1, 1], [4, 3, 2, 1]) == pytest.approx((1 / 3 + 2 / 4) / 2, rel=1e-15)


def test_ties_are_broken_by_gallery_index() -> None:
    np.testing.assert_array_equal(rank_gallery([1.0, 2.0, 1.0, 2.0]), [1, 3, 0, 2])
    assert average_precision([True, False], [0.5, 0.5]) == 1.0
    assert average_precision([False, True], [0.5, 0.5]) == 0.5


def test_rank_gallery_orders_unsigned_and_boolean_scores_downwards() -> None:
    np.testing.assert_array_equal(rank_gallery(np.array([0, 2, 1], np.uint8)), [1, 2, 0])
    np.testing.assert_array_equal(rank_gallery(np.array([False, True])), [1, 0])


@settings(derandomize=True, deadline=None)
@given(n=st.integers(1, 60), seed=st.integers(0, 2**16))
def test_average_precision_agrees_with_scikit_learn_without_ties(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    relevant = rng.random(n) < 0.3
    relevant[rng.integers(n)] = True
    scores = rng.permutation(n) + rng.random()
    expected = average_precision_score(relevant, scores)
    assert average_precision(relevant, scores) == pytest.approx(expected, rel=1e-12)  # sums of n terms


def test_query_without_relevant_items_is_nan() -> None:
    assert np.isnan(average_precision([False, False], [1.0, 2.0]))
    values = average_precisions([[False, False], [True, False]], [[1.0, 2.0], [1.0, 2.0]])
    assert np.isnan(values[0])
    assert values[1] == 0.5


def test_mean_average_precision_leaves_out_queries_without_relevant_items() -> None:
    queries, gallery = np.array([[1.0], [1.0]]), np.array([[3.0], [2.0], [1.0]])
    value = mean_average_precision(queries, gallery, ["a", "unseen"], ["b", "a", "a"])
    assert value == pytest.approx((1 / 2 + 2 / 3) / 2, rel=1e-15)
    assert np.isnan(mean_average_precision(queries, gallery, ["c", "d"], ["b", "a", "a"]))


def test_mean_average_precision_averages_over_several_blocks_of_queries() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = rng.standard_normal((600, 3)), rng.standard_normal((40, 3))
    labels, targets = rng.integers(0, 4, 600), rng.integers(0, 4, 40)
    expected = [
        average_precision(targets == label, gallery @ query)
        for label, query in zip(labels, queries, strict=True)
    ]
    found = mean_average_precision(queries, gallery, labels, targets)
    assert found == pytest.approx(np.mean(expected), rel=1e-12)  # sums of 600 terms


def test_mean_average_precision_of_no_queries_is_nan() -> None:
    assert np.isnan(mean_average_precision(np.zeros((0, 2)), np.zeros((3, 2)), [], [0, 1, 2]))


def test_chance_is_the_mean_share_of_relevant_items() -> None:
    assert chance_average_precision(["a", "b", "unseen"], ["a", "b", "b", "c"]) == pytest.approx(
        (0.25 + 0.5) / 2, rel=1e-15
    )
    assert np.isnan(chance_average_precision(["x"], ["a"]))


def test_random_rankings_score_close_to_chance() -> None:
    rng = np.random.default_rng(1)
    labels, targets = rng.integers(0, 5, 500), rng.integers(0, 5, 1000)
    found = mean_average_precision(
        rng.standard_normal((500, 4)), rng.standard_normal((1000, 4)), labels, targets
    )
    # Bias O(log n / n) = 0.007 and a spread of about 0.2 / sqrt(1000 / 5) / sqrt(4), for four directions.
    assert found == pytest.approx(chance_average_precision(labels, targets), abs=0.02)
