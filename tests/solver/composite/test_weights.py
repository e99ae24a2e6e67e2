"""The search for weights, and the measures it maximises."""

from dataclasses import replace

import numpy as np
import pytest

from solver import (
    Annotations,
    CompositeBilinear,
    Facet,
    Labels,
    Queries,
    SupervisionError,
    bidirectional_map,
)
from solver.composite.weights import SIGNS, Agreement, GradedGain, HeldOutScores, JudgedScores, WeightSearch


def _gain(grades: np.ndarray, scores: np.ndarray) -> float:
    """nDCG@10, query by query."""
    values = []
    for grade, score in zip(grades, scores, strict=True):
        gains = 2.0**grade - 1.0
        discounts = 1.0 / np.log2(np.arange(min(10, len(gains))) + 2.0)
        ideal = np.sort(gains)[::-1][:10] @ discounts
        if ideal > 0:
            values.append(gains[np.argsort(-score)][:10] @ discounts / ideal)
    return float(np.mean(values))


@pytest.mark.parametrize("n_gallery", [30, 4])
def test_the_graded_gain_is_that_of_its_definition(n_gallery: int) -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, (20, n_gallery)).astype(np.int8)
    grades[3] = 0
    scores = rng.standard_normal((20, n_gallery)).astype(np.float32)
    assert GradedGain(grades).mean(scores) == pytest.approx(_gain(grades, scores), rel=1e-6)


def test_without_a_relevant_sample_the_gain_is_zero() -> None:
    assert GradedGain(np.zeros((3, 5), np.int8)).mean(np.ones((3, 5), np.float32)) == 0.0


def _part(seed: int) -> HeldOutScores:
    """Two facets with a posterior each, a term of noise, and one that misleads."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 4, (2, 80))
    values = [[[str(number)] for number in side] for side in classes]
    annotations = Annotations((80, 80), {"a": Facet.of(values[0], values[1])})
    terms = {
        "a": tuple(np.eye(4)[side] + 0.4 * rng.standard_normal((80, 4)) for side in classes),
        "noise": (rng.standard_normal((80, 4)), rng.standard_normal((80, 4))),
    }
    return HeldOutScores.of(terms, annotations)


def test_a_term_of_noise_gets_no_weight() -> None:
    search = WeightSearch([_part(0), _part(1)])
    weights, quality = search.run(lambda: None)
    assert weights["a"] == 1.0
    assert weights["noise"] < 0.1
    assert quality == search.quality(weights)
    assert quality > search.quality({"a": 1.0, "noise": 1.0})


def test_the_quality_is_the_mean_of_what_can_be_measured() -> None:
    part = _part(0)
    x, z = part.total({"a": 1.0}), np.eye(80, dtype=np.float32)
    labels = [part.shared["a"].astype(int)]
    quality = WeightSearch([part]).quality({"a": 1.0, "noise": 0.0})
    gains = np.mean([_gain(part.grades, x), _gain(part.grades.T, x.T)])
    # Rows with the same relevant columns are of one class, so that classes can be read off the columns.
    classes = np.unique(labels[0], axis=0, return_inverse=True)[1].reshape(-1)
    column_classes = np.array([classes[np.argmax(column)] if column.any() else -1 for column in labels[0].T])
    assert 3.0 * quality - 2.0 * gains == pytest.approx(
        bidirectional_map(x, z, classes, column_classes).mean, abs=1e-5
    )


def _part_with_queries(seed: int, other: str) -> HeldOutScores:
    """Two facets; queries name a colour alone, and mean any value of the other."""
    rng = np.random.default_rng(seed)
    classes = {name: rng.integers(0, 4, (2, 80)) for name in (other, "colour")}
    values = {name: [[[str(number)] for number in side] for side in sides] for name, sides in classes.items()}
    annotations = Annotations((80, 80), {name: Facet.of(x, z) for name, (x, z) in values.items()})
    asked = {other: rng.integers(0, 4, 40), "colour": rng.integers(0, 4, 40)}
    named = {"colour": [[str(number)] for number in asked["colour"]]}
    noise = {other: 0.3, "colour": 0.6}
    terms = {
        name: tuple(
            np.eye(4)[side] + noise[name] * rng.standard_normal((len(side), 4))
            for side in (sides[0], np.concatenate([sides[1], asked[name]]))
        )
        for name, sides in classes.items()
    }
    queries = Queries.of(np.zeros((40, 1)), named, annotations.facets)
    return HeldOutScores.of(terms, annotations, (None, queries))


def _gains(parts: list[HeldOutScores], weights: dict[str, float]) -> tuple[float, float]:
    """nDCG@10 of samples, and of queries."""
    samples = [
        _gain(grades, total)
        for part in parts
        for grades, total in (
            (part.grades, part.total(weights)),
            (part.grades.T, part.total(weights).T),
        )
    ]
    queries = [
        _gain(scores.grades, sum(weights[name] * term for name, term in scores.terms.items()))
        for part in parts
        for scores in part.queries
    ]
    return float(np.mean(samples)), float(np.mean(queries))


@pytest.mark.parametrize(("other", "is_better"), [("size", True), ("label", False)])
def test_weights_suit_short_queries_as_far_as_samples_hardly_lose(other: str, is_better: bool) -> None:
    parts = [_part_with_queries(seed, other) for seed in (0, 1)]
    without = [HeldOutScores(p.terms, p.grades, p.shared) for p in parts]
    objective = {"ndcg": 1.0, "map": 1.0}
    (first, _), (weights, _) = (
        WeightSearch(each, objective=objective).run(lambda: None) for each in (without, parts)
    )
    before, after = _gains(parts, first), _gains(parts, weights)
    # A step that helps the queries costs more than half a percent of the labels' precision.
    assert (after[1] > before[1]) == is_better
    assert after[0] >= 0.995 * before[0]


def test_a_query_scores_samples_of_the_other_modality() -> None:
    facet = Facet.of([["red"], ["blue"], []], [["red"], ["blue"]])
    annotations = Annotations((3, 2), {"colour": facet})
    x, z = np.eye(5, 4), np.arange(12.0).reshape(3, 4)
    queries = [Queries.of(np.zeros((n, 1)), {"colour": [["red"]] * n}, annotations.facets) for n in (2, 1)]
    part = HeldOutScores.of({"facet:colour": (x, z)}, annotations, (queries[0], queries[1]))
    of_x, of_z = part.queries
    np.testing.assert_array_equal(part.terms["facet:colour"], x[:3] @ z[:2].T)
    np.testing.assert_array_equal(of_x.terms["facet:colour"], x[3:] @ z[:2].T)
    np.testing.assert_array_equal(of_z.terms["facet:colour"], z[2:] @ x[:3].T)
    np.testing.assert_array_equal(of_x.grades, [[1, 0], [1, 0]])
    np.testing.assert_array_equal(of_z.grades, [[1, 0, 0]])


def test_queries_of_one_value_do_not_decide_beside_others() -> None:
    facet = Facet.of([["red", "new"], ["red"]], [["red", "new"], ["new"]])
    queries = Queries.of(np.zeros((3, 1)), {"f": [["red"], ["red", "new"], ["new"]]}, {"f": facet})
    terms = {"facet:f": (np.eye(2), np.vstack([np.eye(2), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))}
    (of_z,) = HeldOutScores.of(terms, Annotations((2, 2), {"f": facet}), (None, queries)).queries
    np.testing.assert_array_equal(of_z.terms["facet:f"], [[3.0, 4.0]])
    np.testing.assert_array_equal(of_z.grades, [[2, 1]])


def _part_of_pairs(seed: int) -> HeldOutScores:
    """Labels that a facet's term knows, partners that the cosine and another term know."""
    rng = np.random.default_rng(seed)
    classes, own = rng.integers(0, 4, 80), rng.standard_normal((80, 8))
    values = [[str(number)] for number in classes]
    rows = np.stack([np.arange(80)] * 2, axis=1)
    annotations = Annotations((80, 80), {"label": Facet.of(values, values)}, rows)

    def noisy(rows: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        x, z = (rows + size * rng.standard_normal(rows.shape) for _ in "xz")
        return x, z

    terms = {"facet:label": noisy(np.eye(4)[classes], 0.3), "cosine": noisy(own / 3.0, 0.1)}
    return HeldOutScores.of({**terms, "pairs": noisy(own / 3.0, 0.2)}, annotations)


def _measures(parts: list[HeldOutScores], weights: dict[str, float]) -> dict[str, float]:
    return {name: WeightSearch(parts, objective=name).quality(weights) for name in ("ndcg", "map", "recall")}


def _share_of_first(parts: list[HeldOutScores], weights: dict[str, float]) -> float:
    """R@1 of partners, which are rows of the same number."""
    totals = [part.total(weights) for part in parts]
    return float(
        np.mean([side.argmax(axis=1) == np.arange(80) for total in totals for side in (total, total.T)])
    )


def test_the_objective_decides_what_the_weights_are_good_for() -> None:
    parts = [_part_of_pairs(seed) for seed in (0, 1)]
    chosen = {
        name: WeightSearch(parts, objective=name).run(lambda: None)[0] for name in ("ndcg", "map", "recall")
    }
    for name, weights in chosen.items():
        others = [_measures(parts, other)[name] for other in chosen.values()]
        assert _measures(parts, weights)[name] == max(others)
    assert _measures(parts, chosen["map"])["map"] > _measures(parts, chosen["recall"])["map"] + 0.1
    assert _measures(parts, chosen["map"])["recall"] < _measures(parts, chosen["recall"])["recall"] - 0.1


@pytest.mark.parametrize("with_cosine", [True, False])
def test_floors_hold_whatever_the_objective(with_cosine: bool) -> None:
    parts = [_part_of_pairs(seed) for seed in (0, 1)]
    reference = {"cosine": 1.0}
    if not with_cosine:
        parts = [replace(p, terms={k: v for k, v in p.terms.items() if k != "cosine"}) for p in parts]
        reference, _ = WeightSearch(parts).run(lambda: None)
    free, _ = WeightSearch(parts, objective="map").run(lambda: None)
    objective = {"map": 1.0, "at_least": {"recall_1": 0.9}}
    weights, _ = WeightSearch(parts, objective=objective).run(lambda: None)
    least = 0.9 * _share_of_first(parts, reference)
    assert _share_of_first(parts, free) < least <= _share_of_first(parts, weights)
    gain = _measures(parts, weights)["map"] - _measures(parts, reference)["map"]
    assert gain > 0.05 if with_cosine else gain >= 0.0


def test_floors_are_of_what_the_weights_that_serve_have() -> None:
    parts = [_part_of_pairs(seed) for seed in (0, 1)]
    served, _ = WeightSearch(parts, objective="recall").run(lambda: None)
    objective = {"map": 1.0, "at_least": {"recall_1": 0.99}}
    of_cosine, of_served = (
        WeightSearch(parts, objective=objective, served=weights).run(lambda: None)[0]
        for weights in ({}, {**served, "facet:gone": 1.0})
    )
    least = 0.99 * _share_of_first(parts, served)
    assert _share_of_first(parts, of_cosine) < least <= _share_of_first(parts, of_served)


def test_a_floor_of_what_cannot_be_measured_is_an_error() -> None:
    search = WeightSearch([_part(0)], objective={"map": 1.0, "at_least": {"recall_1": 0.9}})
    with pytest.raises(SupervisionError, match="'recall_1' of 'at_least' needs pairs"):
        search.run(lambda: None)


def test_the_best_weights_by_each_measure_are_looked_for_and_kept() -> None:
    parts = [_part_of_pairs(seed) for seed in (0, 1)]
    search = WeightSearch(parts, objective="map")
    weights, _ = search.run(lambda: None)
    tried = [_measures(parts, dict(key))["recall"] for key, _ in search._tried]
    kept = search.emphases(weights, lambda: None)
    assert set(kept) == {"ndcg", "map", "recall"}
    assert _measures(parts, kept["recall"])["recall"] > max(tried)
    for name, own in kept.items():
        assert _measures(parts, own)[name] >= _measures(parts, weights)[name]
        assert max(own.values()) == 1.0
    assert _measures(parts, kept["map"])["map"] > _measures(parts, kept["recall"])["map"]
    # What has no weight where it serves has none here: it is no part of the vectors.
    assert search.emphases({**weights, "pairs": 0.0}, lambda: None)["recall"].get("pairs", 0.0) == 0.0


def test_what_says_nothing_is_no_emphasis() -> None:
    rng = np.random.default_rng(0)
    labels = ["a"] * 72 + ["b"] * 18
    X, Z = rng.normal(size=(90, 6)), rng.normal(size=(90, 6))
    model = CompositeBilinear(kernels=("linear",)).fit(X, Z, Labels(labels, labels))
    assert all(any(weights.values()) for weights in model.choice_.emphases.values())


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
