"""Agreement with judged pairs, and the weight of what they teach that is chosen by it."""

import numpy as np
import pytest

from solver import Annotations, Facet
from solver.composite.weights import SIGNS, Agreement, HeldOutScores, JudgedScores, WeightSearch


def _judged(rows: list[int], columns: list[int], signs: str, *scores: float) -> JudgedScores:
    relevant = np.array([sign == "+" for sign in signs])
    return JudgedScores({"a": np.array(scores)}, np.array(rows), np.array(columns), relevant)


def test_each_query_is_the_share_of_its_well_ordered_pairs() -> None:
    # Row 0 has 1 relevant and 2 others, column 9 has 2 and 1; row 4 has one kind only, and is no query.
    part = _judged([0, 0, 0, 4, 5], [9, 7, 8, 9, 9], "+--+-", 0.5, 0.5, 0.1, 0.6, 0.55)
    agreement = Agreement([part])
    values = agreement.of_queries({"a": 2.0})
    np.testing.assert_allclose(values, [(0.5 + 1.0) / 2, (0.0 + 1.0) / 2])
    mean, error = agreement.mean_and_error(values)
    assert mean == pytest.approx(0.625)
    assert error == pytest.approx(np.sqrt(2 * (0.5 * 0.125) ** 2))


def test_a_query_of_two_parts_is_their_mean_and_scores_of_two_parts_are_not_compared() -> None:
    parts = [_judged([0, 0], [1, 2], "+-", 1.0, 0.0), _judged([0, 0], [1, 2], "+-", 7.0, 9.0)]
    np.testing.assert_allclose(Agreement(parts).of_queries({"a": 1.0}), [0.5])


def test_where_each_query_got_one_click_relevant_pairs_are_compared_with_all_others() -> None:
    part = _judged([0, 1, 2, 3], [4, 5, 6, 7], "++--", 0.5, 0.2, 0.3, 0.1)
    np.testing.assert_allclose(Agreement([part]).of_queries({"a": 1.0}), [1.0, 0.5])


@pytest.mark.parametrize("signs", ["++", "--"])
def test_judgements_of_one_kind_agree_with_nothing(signs: str) -> None:
    agreement = Agreement([_judged([0, 0], [1, 2], signs, 0.5, 0.2)])
    assert agreement.mean_and_error(agreement.of_queries({"a": 1.0})) == (0.0, 0.0)


def _search(judged_noise: float, share: float) -> WeightSearch:
    """A facet whose posteriors are good; judged pairs are relevant where the judged term is positive.
    `share` is that of the facet in what the judged term says of the samples; the rest is noise."""
    rng = np.random.default_rng(0)
    parts, judged = [], []
    for _ in range(3):
        classes = rng.integers(0, 4, (2, 80))
        values = [[[str(number)] for number in side] for side in classes]
        annotations = Annotations((80, 80), {"a": Facet.of(values[0], values[1])})
        x, z = (np.eye(4)[side] + 0.2 * rng.standard_normal((80, 4)) for side in classes)
        own = [
            np.hstack([share * np.eye(4)[side], (1 - share) * rng.standard_normal((80, 4))])
            for side in classes
        ]
        parts.append(HeldOutScores.of({"facet:a": (x, z), SIGNS: (own[0], own[1])}, annotations))
        rows, columns = np.repeat(np.arange(20), 5), rng.integers(0, 80, 100)
        hidden = rng.standard_normal(100)
        scores = {"facet:a": np.ones(100), SIGNS: hidden + judged_noise * rng.standard_normal(100)}
        judged.append(JudgedScores(scores, rows, columns, hidden > 0))
    return WeightSearch(parts, judged=judged)


def test_what_judged_pairs_teach_gets_a_weight_that_hardly_costs_the_samples_anything() -> None:
    search = _search(judged_noise=0.3, share=0.9)
    weights, quality = search.run(lambda: None)
    assert weights[SIGNS] > 0.0
    assert quality >= 0.995 * search.quality({"facet:a": 1.0})


def test_a_term_that_does_not_agree_with_other_judged_pairs_gets_no_weight() -> None:
    weights, _ = _search(judged_noise=1000.0, share=0.9).run(lambda: None)
    assert weights == {"facet:a": 1.0, SIGNS: 0.0}


def test_a_term_that_spoils_the_ranking_of_the_samples_gets_as_little_as_hardly_costs_them_anything() -> None:
    search = _search(judged_noise=0.3, share=0.0)
    before = search.quality({"facet:a": 1.0})
    assert search.quality({"facet:a": 1.0, SIGNS: 0.1}) < 0.99 * before
    weights, quality = search.run(lambda: None)
    assert weights[SIGNS] < 0.03
    assert quality >= 0.9975 * before


def test_the_weight_does_not_depend_on_the_others_scale() -> None:
    weights, _ = _search(judged_noise=0.3, share=0.9).run(lambda: None)
    search = _search(judged_noise=0.3, share=0.9)
    search._parts = [
        HeldOutScores({**p.terms, "facet:a": 10.0 * p.terms["facet:a"]}, p.grades, p.shared)
        for p in search._parts
    ]
    scaled, _ = search.run(lambda: None)
    assert scaled[SIGNS] == pytest.approx(10.0 * weights[SIGNS], rel=1e-6)
