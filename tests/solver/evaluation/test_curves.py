import numpy as np
import pytest

from solver import make_low_rank_pairs, measure_reliability, retrieval_curves
from solver.validation import InvalidInputError, InvalidParameterError


def test_curves_run_from_the_first_result_to_the_share_of_relevant_items() -> None:
    drawn = make_low_rank_pairs(60, 60, n_features_x=6, n_features_z=5, n_classes=3, random_state=0)
    x_order, z_order = (np.argsort(each, kind="stable") for each in (drawn.x_labels, drawn.z_labels))
    labels = np.sort(drawn.x_labels)
    found = retrieval_curves(drawn.X[x_order][:, :5], drawn.Z[z_order], labels, labels)
    assert found.scopes[0] == 1
    assert found.scopes[-1] == 60
    assert found.precision_at_scope[-1] == pytest.approx(1 / 3)
    assert (np.diff(found.precision_at_recall) <= 1e-12).all()  # interpolated precision never rises


def test_curves_of_a_hand_worked_ranking_leave_out_queries_with_nothing_relevant() -> None:
    gallery = [[3.0], [2.0], [1.0]]
    found = retrieval_curves([[1.0], [1.0]], gallery, ["a", "lost"], ["b", "a", "a"])
    assert found.scopes.tolist() == [1, 2, 3]
    assert found.precision_at_scope.tolist() == [0.0, 1 / 2, 2 / 3]
    assert found.recall.tolist() == pytest.approx(np.linspace(0, 1, 21).tolist())
    assert found.precision_at_recall.tolist() == [2 / 3] * 21
    with pytest.raises(InvalidInputError, match="no query has anything relevant"):
        retrieval_curves([[1.0]], gallery, ["lost"], ["b", "a", "a"])


def test_reliability_counts_each_pair_once_in_the_bin_of_its_probability() -> None:
    found = measure_reliability([[0.0, 0.05], [1.0, 0.95]], [[False, True], [True, True]])
    assert found.counts.tolist() == [2, 2]
    assert found.probabilities.tolist() == pytest.approx([0.025, 0.975])
    assert found.shares.tolist() == [0.5, 1.0]


def test_probabilities_that_are_drawn_from_are_reliable() -> None:
    rng = np.random.default_rng(0)
    given = rng.random(100_000)
    found = measure_reliability(given, rng.random(len(given)) < given)
    assert len(found.counts) == 10
    # Four standard deviations of a share of some 10 000 pairs.
    assert np.abs(found.shares - found.probabilities).max() < 0.02


def test_balanced_shares_are_as_if_matches_were_half_of_all_pairs() -> None:
    given, matches = [0.25, 0.25, 0.25, 0.25, 0.75], [True, False, False, False, False]
    found = measure_reliability(given, matches, balanced=True, n_bins=2)
    assert found.counts.tolist() == [4, 1]
    assert found.shares.tolist() == pytest.approx([4 / 7, 0.0])  # the match weighs as much as the four others
    assert found.probabilities.tolist() == pytest.approx([0.25, 0.75])


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        measure_reliability([1.5], [True])
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        measure_reliability([float("nan")], [True])
    with pytest.raises(InvalidInputError, match="2 probabilities and 1 matches"):
        measure_reliability([0.5, 0.5], [True])
    with pytest.raises(InvalidParameterError, match="n_bins"):
        measure_reliability([0.5], [True], n_bins=0)
