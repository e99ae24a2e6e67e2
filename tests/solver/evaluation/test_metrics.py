import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from solver import make_low_rank_pairs, measure_reliability, retrieval_curves
from solver.evaluation.metrics import (
    average_precision,
    average_precisions,
    bidirectional_map,
    chance_average_precision,
    mean_average_precision,
    precision_at_scope,
    precision_recall_curve,
    projected_average_precisions,
    rank_gallery,
    ranked_hits,
    score_blocks,
    shared_classes,
)
from solver.validation import InvalidInputError, InvalidParameterError


def _by_definition(scores: npt.NDArray[Any]) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))


def test_ties_are_broken_by_gallery_index() -> None:
    np.testing.assert_array_equal(rank_gallery([1.0, 2.0, 1.0, 2.0]), [1, 3, 0, 2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool])
@pytest.mark.parametrize("n_gallery", [1, 2, 17, 400])
def test_every_type_of_score_is_ranked_by_score_then_index(dtype: type, n_gallery: int) -> None:
    rng = np.random.default_rng(n_gallery)
    scores = (40 * rng.standard_normal((6, n_gallery))).astype(np.int8).astype(dtype)  # many ties
    found = rank_gallery(scores)
    for row, order in zip(scores, found, strict=True):
        assert order.tolist() == _by_definition(row)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_and_signed_zero_scores_are_ranked(dtype: type) -> None:
    limits = np.finfo(dtype)
    scores = np.array(
        [
            0.0,
            -0.0,
            limits.smallest_subnormal,
            -limits.smallest_subnormal,
            np.inf,
            -np.inf,
            limits.max,
            limits.min,
        ],
        dtype,
    )
    assert rank_gallery(scores).tolist() == [4, 6, 2, 0, 1, 3, 7, 5]
    assert rank_gallery(scores[::-1]).tolist() == _by_definition(scores[::-1])


def test_lowest_small_integer_is_ranked_last() -> None:
    assert rank_gallery(np.array([-128, 0, 5], np.int8)).tolist() == [2, 1, 0]


def test_large_integers_are_distinguished() -> None:
    assert rank_gallery(np.array([2**53, 2**53 + 1])).tolist() == [1, 0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 2, 0)])
def test_no_scores_have_an_empty_ranking(shape: tuple[int, ...]) -> None:
    assert rank_gallery(np.zeros(shape)).shape == shape


def test_any_number_of_axes_is_ranked_along_the_last() -> None:
    scores = np.random.default_rng(0).standard_normal((2, 3, 5))
    found = rank_gallery(scores)
    for query in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[query], rank_gallery(scores[query]))


def test_scores_are_unmodified() -> None:
    for dtype in (np.float32, np.float64):
        scores = np.random.default_rng(0).standard_normal((3, 9)).astype(dtype)
        copy = scores.copy()
        rank_gallery(scores)
        np.testing.assert_array_equal(scores, copy)


@pytest.mark.parametrize("scores", [3.0, [np.nan, 1.0], ["a"], [None], [1j]])
def test_scores_that_have_no_order_are_refused(scores: Any) -> None:
    with pytest.raises(InvalidInputError, match="scores"):
        rank_gallery(scores)


def test_hits_stand_in_the_order_of_the_ranking() -> None:
    assert ranked_hits([0, 1, 1], [3.0, 1.0, 2.0]).tolist() == [False, True, True]
    assert ranked_hits([1, 0, 0], [1.0, 2.0, 3.0]).tolist() == [False, False, True]


def test_relevance_is_having_a_class_in_common() -> None:
    relevance, n_queries, n_gallery = shared_classes([[1, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]])
    assert (n_queries, n_gallery) == (2, 2)
    assert relevance(slice(0, 2)).tolist() == [[True, False], [False, False]]
    relevance, *_ = shared_classes(["b", "a"], ["a", "b", "c"])
    assert relevance(slice(0, 1)).tolist() == [[False, True, False]]


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


def test_chance_of_several_classes_is_the_mean_share_of_items_that_share_one() -> None:
    queries, gallery = [[1, 1, 0], [0, 0, 1], [0, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert chance_average_precision(queries, gallery) == pytest.approx((2 / 4 + 1 / 4) / 2, rel=1e-15)


def test_mean_average_precision_counts_items_that_share_a_class_as_relevant() -> None:
    rng = np.random.default_rng(3)
    queries, gallery = rng.standard_normal((30, 2)), rng.standard_normal((50, 2))
    labels, targets = rng.random((30, 5)) < 0.3, rng.random((50, 5)) < 0.3
    expected = [
        average_precision([any(label & target) for target in targets], gallery @ query)
        for label, query in zip(labels, queries, strict=True)
    ]
    found = mean_average_precision(queries, gallery, labels, targets.astype(int))
    assert found == pytest.approx(np.nanmean(expected), rel=1e-12)  # sums of 30 terms


def test_bidirectional_map_is_that_of_either_direction_and_their_mean() -> None:
    rng = np.random.default_rng(6)
    x, z = rng.standard_normal((30, 2)), rng.standard_normal((50, 2))
    x_labels, z_labels = rng.integers(0, 4, 30), rng.integers(0, 5, 50)
    both = bidirectional_map(x, z, x_labels, z_labels)
    assert both.x_to_z == mean_average_precision(x, z, x_labels, z_labels)
    assert both.z_to_x == mean_average_precision(z, x, z_labels, x_labels)
    assert both.mean == (both.x_to_z + both.z_to_x) / 2.0
    assert both.x_to_z != both.z_to_x
    assert np.isnan(bidirectional_map(x, z, x_labels, z_labels + 10).mean)


def test_average_precisions_of_projections_are_those_of_their_scores() -> None:
    rng = np.random.default_rng(7)
    queries, gallery = rng.standard_normal((40, 3)), rng.standard_normal((60_000, 3))
    labels, targets = rng.integers(0, 3, 40), rng.integers(0, 2, 60_000)
    expected = average_precisions(labels[:, None] == targets, queries @ gallery.T)
    found = projected_average_precisions(queries, gallery, labels, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-12)  # NaN at queries of class 2
    assert np.isnan(found).any()


def test_one_class_per_sample_and_its_indicators_give_the_same() -> None:
    rng = np.random.default_rng(4)
    queries, gallery = rng.standard_normal((40, 3)), rng.standard_normal((60, 3))
    labels, targets = rng.integers(0, 4, 40), rng.integers(0, 4, 60)
    one_each = mean_average_precision(queries, gallery, labels, targets)
    assert mean_average_precision(queries, gallery, np.eye(4)[labels], np.eye(4)[targets]) == one_each
    assert mean_average_precision(queries, gallery, labels.astype(str), targets.astype(str)) == one_each
    words = np.array(["a", "bb", "ccc", "d"], dtype=object)
    assert mean_average_precision(queries, gallery, words[labels], words[targets]) == one_each


def test_blocks_of_queries_are_yielded_in_order_and_cover_all() -> None:
    rng = np.random.default_rng(5)
    queries, gallery = rng.standard_normal((50, 2)), rng.standard_normal((60_000, 2))
    labels, targets = rng.integers(0, 3, 50), rng.integers(0, 3, 60_000)
    blocks = list(score_blocks(queries, gallery, labels, targets))
    assert len(blocks) > 1
    relevant, scores = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    np.testing.assert_array_equal(relevant, labels[:, None] == targets[None, :])
    np.testing.assert_allclose(scores, queries @ gallery.T, rtol=1e-12, atol=1e-14)


def test_mean_average_precision_holds_only_a_block() -> None:
    rng = np.random.default_rng(6)
    queries = rng.standard_normal((1500, 4), dtype=np.float32)
    gallery = rng.standard_normal((4000, 4), dtype=np.float32)
    labels = np.eye(6)
    tracemalloc.start()
    try:
        mean_average_precision(queries, gallery, labels[np.arange(1500) % 6], labels[np.arange(4000) % 6])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A block is 2**20 scores with two integers each; all scores at once would be 24 MB and 96 MB of those.
    assert peak < 40e6


NAN = float("nan")


@pytest.mark.parametrize(
    ("relevant", "scores", "problem"),
    [
        ([1, 0, 1, 1, 1], [0.5, 0.4], "equal"),
        ([1, 0], [0.5, 0.4, 0.3], "equal"),
        ([[1, 0]], [[0.5, 0.4]], "equal"),
        (True, 0.5, "scores must be an array"),
        ([1, 0], [NAN, 0.5], "NaN"),
        ([1, 0], ["a", "b"], "numbers"),
        ([1, 0], [1j, 0j], "numbers"),
        ([NAN, 0.0], [1.0, 0.5], "only 0 and 1"),
        ([2, 0], [1.0, 0.5], "only 0 and 1"),
        (["1", "0"], [1.0, 0.5], "only 0 and 1"),
    ],
)
def test_unusable_relevance_and_scores_are_refused(relevant: Any, scores: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        average_precision(relevant, scores)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (3, 5), (3, 4, 1)])
def test_relevance_of_another_shape_is_not_broadcast(shape: tuple[int, ...]) -> None:
    for measure in (average_precisions, precision_recall_curve):
        with pytest.raises(InvalidInputError, match="equal"):
            measure(np.ones(shape), np.zeros((3, 4)))
    with pytest.raises(InvalidInputError, match="equal"):
        precision_at_scope(np.ones(shape), np.zeros((3, 4)), [1])


QUERIES, GALLERY = np.ones((2, 1)), np.ones((3, 1))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((QUERIES, GALLERY, ["a", "b"], ["a", "b"]), "gallery_labels for 2 queries"),
        ((QUERIES, GALLERY, ["a"], ["a", "b", "a"]), "1 query_labels"),
        ((QUERIES, np.ones((3, 2)), ["a", "b"], ["a", "b", "a"]), "differ in rank"),
        ((QUERIES[:, 0], GALLERY, ["a", "b"], ["a", "b", "a"]), "query_projections must be a numeric matrix"),
        ((QUERIES, GALLERY * NAN, ["a", "b"], ["a", "b", "a"]), "gallery_projections contains NaN"),
        ((QUERIES, GALLERY, [1, 2], ["1", "2", "1"]), "not of one kind"),
        ((QUERIES, GALLERY, [b"a", b"b"], ["a", "b", "a"]), "not of one kind"),
        ((QUERIES, GALLERY, [NAN, 1.0], [NAN, 1.0, 1.0]), "query_labels contains NaN"),
        ((QUERIES, GALLERY, ["a", None], ["a", "b", "a"]), "query_labels must be numbers or strings"),
        ((QUERIES, GALLERY, [[1, 0], [0, 1]], [0, 1, 0]), "not of one form"),
        ((QUERIES, GALLERY, [[1, 0], [0, 1]], [[1], [0], [1]]), "not of one form"),
        ((QUERIES, GALLERY, [[1, 0], [0, 2]], [[1, 0]] * 3), "query_labels must hold only 0 and 1"),
        ((QUERIES, GALLERY, [["a"], ["b"]], [["a"], ["b"], ["a"]]), "only 0 and 1"),
    ],
)
def test_projections_and_labels_that_do_not_fit_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        mean_average_precision(*arguments)


def test_small_integer_projections_do_not_overflow() -> None:
    queries, gallery = np.array([[100]], np.int8), np.array([[1], [100]], np.int8)
    assert mean_average_precision(queries, gallery, ["a"], ["b", "a"]) == 1.0


def test_no_gallery_leaves_nothing_to_average() -> None:
    assert np.isnan(mean_average_precision(QUERIES, np.zeros((0, 1)), ["a", "b"], []))
    assert np.isnan(mean_average_precision(np.zeros((0, 1)), GALLERY, [], ["a", "b", "a"]))
    assert np.isnan(chance_average_precision(["a", "b"], []))
    assert np.isnan(average_precision([], []))


# Ranks 1, 3 and 6 are relevant.
HITS, FALLING = [True, False, True, False, False, True], [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]


def test_precision_and_recall_of_a_hand_worked_ranking() -> None:
    precision, recall = precision_recall_curve(HITS, FALLING)
    np.testing.assert_allclose(precision, [1, 1 / 2, 2 / 3, 2 / 4, 2 / 5, 3 / 6], rtol=1e-15)
    np.testing.assert_allclose(recall, [1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3, 1], rtol=1e-15)


def test_interpolated_precision_is_the_best_at_that_recall_or_beyond() -> None:
    levels = [0.0, 1 / 3, 0.34, 2 / 3, 0.67, 1.0]
    precision, recall = precision_recall_curve(HITS, FALLING, levels)
    np.testing.assert_allclose(precision, [1, 1, 2 / 3, 2 / 3, 1 / 2, 1 / 2], rtol=1e-15)
    np.testing.assert_array_equal(recall, levels)
    # A later rank is better than the one that first reaches the level.
    precision, _ = precision_recall_curve([0, 1, 1], [3, 2, 1], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(precision, [2 / 3] * 3, rtol=1e-15)


def test_recall_level_is_met_in_spite_of_its_rounding() -> None:
    relevant = [1] * 3 + [0] * 7 + [1] * 7
    precision, _ = precision_recall_curve(relevant, -np.arange(17), [0.1 * 3])  # 0.30000000000000004
    assert precision == [1.0]


def test_curves_of_many_queries_are_those_of_each() -> None:
    rng = np.random.default_rng(7)
    relevant, scores = rng.random((2, 5, 40)) < 0.2, rng.integers(0, 9, (2, 5, 40))
    levels, scopes = np.linspace(0, 1, 11), [1, 7, 40]
    raw, interpolated = (precision_recall_curve(relevant, scores, each) for each in (None, levels))
    scoped = precision_at_scope(relevant, scores, scopes)
    for query in np.ndindex(2, 5):
        one: tuple[npt.NDArray[Any], npt.NDArray[Any]]
        for many, one in (
            (raw, precision_recall_curve(relevant[query], scores[query])),
            (interpolated, precision_recall_curve(relevant[query], scores[query], levels)),
        ):
            np.testing.assert_array_equal(many[0][query], one[0])
            np.testing.assert_array_equal(many[1][query], one[1])
        np.testing.assert_array_equal(
            scoped[query], precision_at_scope(relevant[query], scores[query], scopes)
        )


def test_query_without_relevant_items_has_no_curve_but_a_precision_of_zero() -> None:
    for levels in (None, [0.0, 1.0]):
        precision, recall = precision_recall_curve([[0, 0], [1, 0]], [[1, 2], [2, 1]], levels)
        assert np.isnan(precision[0]).all()
        assert np.isnan(recall[0]).all()
        assert not np.isnan(precision[1]).any()
    np.testing.assert_array_equal(precision_at_scope([0, 0], [1, 2], [1, 2]), [0.0, 0.0])


@pytest.mark.parametrize("levels", [[-0.1], [1.1], [NAN], ["half"], 0.5, [[0.5]]])
def test_recall_levels_outside_zero_to_one_are_refused(levels: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^recall_levels must be"):
        precision_recall_curve(HITS, FALLING, levels)


@pytest.mark.parametrize("scopes", [[0], [7], [1.5], [-1], 3, [[1]]])
def test_scopes_outside_the_gallery_are_refused(scopes: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^scopes must be"):
        precision_at_scope(HITS, FALLING, scopes)


def test_curve_over_an_empty_gallery_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="empty"):
        precision_recall_curve([], [])


@pytest.mark.parametrize("seed", range(5))
def test_measures_agree_with_trec_eval(seed: int) -> None:
    import ir_measures  # here: a run without the developers' tools loses this test only
    from ir_measures import AP, IPrec, P

    rng = np.random.default_rng(seed)
    n_queries, n_gallery, n_relevant = 20, 100, 10
    relevant = rng.permuted(np.arange(n_gallery) < n_relevant * np.ones((n_queries, 1)), axis=1)
    scores = rng.permuted(
        np.tile(np.arange(n_gallery), (n_queries, 1)), axis=1
    )  # no ties: trec_eval's differ
    levels, scopes = [0.0, 0.1, 0.3, 0.5, 0.8, 1.0], [1, 5, 20, 100]
    pairs = [(q, i) for q in range(n_queries) for i in range(n_gallery)]
    judged = [ir_measures.Qrel(f"q{q}", f"d{i}", int(relevant[q, i])) for q, i in pairs]
    run = [ir_measures.ScoredDoc(f"q{q}", f"d{i}", float(scores[q, i])) for q, i in pairs]
    measures = [AP, *(IPrec @ level for level in levels), *(P @ scope for scope in scopes)]
    expected = {
        (each.measure, each.query_id): each.value for each in ir_measures.iter_calc(measures, judged, run)
    }
    found = np.column_stack(
        [
            average_precisions(relevant, scores),
            precision_recall_curve(relevant, scores, levels)[0],
            precision_at_scope(relevant, scores, scopes),
        ]
    )
    wanted = [[expected[measure, f"q{q}"] for measure in measures] for q in range(n_queries)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)  # sums of 10 terms


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


def test_chance_of_labels_of_two_kinds_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not of one kind"):
        chance_average_precision([1, 2], ["1", "2"])
