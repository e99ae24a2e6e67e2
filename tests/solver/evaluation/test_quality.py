"""Quality of rankings: by facet, by grade, and of the partner, against a plain computation."""

import math
from pathlib import Path

import numpy as np
import pytest

from solver import (
    Annotations,
    Facet,
    InvalidInputError,
    InvalidParameterError,
    RankingQuality,
    RetrievalQuality,
    check_objective,
    default_objective,
    mean_average_precision,
    measure_quality,
    objective_interval,
    objective_value,
)
from solver.evaluation import metrics

NAN = float("nan")
WORDS = ("a", "b", "c", "d")


def _random_facet(rng: np.random.Generator, n_x: int, n_z: int, most: int) -> Facet:
    """Return a facet whose samples have none to `most` values."""
    sides = (
        [
            [WORDS[value] for value in rng.choice(len(WORDS), rng.integers(0, most + 1), replace=False)]
            for _ in range(size)
        ]
        for size in (n_x, n_z)
    )
    return Facet.of(*sides)


def _annotations(seed: int = 0, n_x: int = 23, n_z: int = 31) -> Annotations:
    rng = np.random.default_rng(seed)
    facets = {"kind": _random_facet(rng, n_x, n_z, 1), "tags": _random_facet(rng, n_x, n_z, 3)}
    pairs = np.column_stack([rng.integers(0, n_x, 20), rng.integers(0, n_z, 20)])
    return Annotations((n_x, n_z), facets, pairs)


def _projections(seed: int = 1, n_x: int = 23, n_z: int = 31) -> tuple[np.ndarray, np.ndarray]:
    """Return small integers: their inner products are exact, and many are equal."""
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (n_x, 3)).astype(float), rng.integers(-2, 3, (n_z, 3)).astype(float)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else NAN


def _plain(x: np.ndarray, z: np.ndarray, annotations: Annotations) -> dict[str, float]:
    """Compute the measures of one direction query by query, in Python's floats."""
    values: dict[str, list[float]] = {name: [] for name in ("ndcg", "rank")}
    pages = set()
    for name in annotations.facets:
        values[f"map {name}"], values[f"precision {name}"] = [], []
    everything = np.arange(len(z))
    for query in range(len(x)):
        scores = [float(x[query] @ item) for item in z]
        order = sorted(range(len(z)), key=lambda item: (-scores[item], item))
        pages.add(tuple(order[:10]))
        grades = annotations.grades(np.array([query]), everything)[0].tolist()
        gains = [[2.0 ** grades[item] - 1.0 for item in order], [2.0**grade - 1.0 for grade in grades]]
        gains[1].sort(reverse=True)
        gain, ideal = (sum(g / math.log2(rank + 2) for rank, g in enumerate(part[:10])) for part in gains)
        if ideal:
            values["ndcg"].append(gain / ideal)
        paired = annotations.is_paired(np.array([query]), everything)[0]
        if paired.any():
            values["rank"].append(1 + min(order.index(item) for item in np.flatnonzero(paired)))
        for name, facet in annotations.facets.items():
            shared = facet.is_shared(np.array([query]), everything)[0][order]
            precisions = [shared[: rank + 1].mean() for rank in np.flatnonzero(shared)]
            if precisions:
                values[f"map {name}"].append(_mean(precisions))
            if facet.x_indicators[query].any():
                values[f"precision {name}"].append(float(shared[:10].mean()))
    ranks = values.pop("rank")
    means = {name: _mean(numbers) for name, numbers in values.items()}
    means["r1"], means["r10"] = (_mean([float(rank <= most) for rank in ranks]) for most in (1, 10))
    return {**means, "median": float(np.median(ranks)) if ranks else NAN, "lists": len(pages)}


def _measures(quality: RankingQuality) -> dict[str, float]:
    return {
        "ndcg": quality.ndcg,
        **{f"map {name}": value for name, value in quality.facet_map.items()},
        **{f"precision {name}": value for name, value in quality.facet_precision.items()},
        "r1": quality.recall_at_1,
        "r10": quality.recall_at_10,
        "median": quality.median_rank,
        "lists": quality.n_lists,
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_z", [31, 7])
def test_all_measures_are_those_of_a_plain_computation_with_ties(seed: int, n_z: int) -> None:
    annotations, (x, z) = _annotations(seed, n_z=n_z), _projections(seed, n_z=n_z)
    quality = measure_quality(x, z, annotations)
    assert _measures(quality.x_to_z) == pytest.approx(_plain(x, z, annotations), rel=1e-12, nan_ok=True)
    assert _measures(quality.z_to_x) == pytest.approx(
        _plain(z, x, annotations.transpose()), rel=1e-12, nan_ok=True
    )


def test_single_precision_orders_real_scores_as_double_precision_does() -> None:
    rng = np.random.default_rng(5)
    x, z, annotations = rng.normal(size=(23, 8)), rng.normal(size=(31, 8)), _annotations()
    assert _measures(measure_quality(x, z, annotations).x_to_z) == pytest.approx(
        _plain(x, z, annotations), rel=1e-12
    )


def test_blocks_of_queries_leave_the_measures_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure_quality(*_projections(), _annotations())
    monkeypatch.setattr(metrics, "_BLOCK_SCORES", 100)
    assert measure_quality(*_projections(), _annotations()) == whole


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_the_size_of_the_projections_does_not_matter(scale: float) -> None:
    (x, z), annotations = _projections(), _annotations()
    power = 2.0 ** round(math.log2(scale))  # exact: equal scores remain equal
    assert measure_quality(x * power, z, annotations) == measure_quality(x, z, annotations)


def test_map_is_that_of_the_main_label_and_agrees_with_the_other_measure() -> None:
    (x, z), annotations = _projections(), _annotations()
    tags = annotations.facets["tags"]
    quality = measure_quality(x, z, annotations, label="tags").x_to_z
    assert quality.map == pytest.approx(
        mean_average_precision(x, z, tags.x_indicators, tags.z_indicators), rel=1e-12
    )
    without = measure_quality(x, z, annotations).x_to_z
    assert without.map == pytest.approx(sum(quality.facet_map.values()) / 2)


def test_ir_measures_finds_our_ndcg_with_ties(tmp_path: Path) -> None:
    import ir_measures  # here: a run without the developers' tools loses this test only
    from ir_measures import nDCG

    annotations, (x, z) = _annotations(), _projections()
    grades = annotations.grades(np.arange(len(x)), np.arange(len(z)))
    order = np.argsort(-(x @ z.T), axis=1, kind="stable")
    # trec_eval adds the judgements up as they are: the gains stand in the place of the grades.
    judgements = [
        ir_measures.Qrel(f"q{query}", f"d{item}", 2 ** int(grade) - 1)
        for (query, item), grade in np.ndenumerate(grades)
        if grades[query].any()
    ]
    run = [
        ir_measures.ScoredDoc(f"q{query}", f"d{item}", float(len(z) - rank))
        for query in range(len(x))
        for rank, item in enumerate(order[query])
    ]
    expected = ir_measures.calc_aggregate([nDCG @ 10], judgements, run)[nDCG @ 10]
    assert measure_quality(x, z, annotations).x_to_z.ndcg == pytest.approx(expected, abs=1e-6)


def test_an_empty_gallery_leaves_nothing_to_measure() -> None:
    facet = Facet.of([["red"], ["blue"]], [])
    quality = measure_quality(np.ones((2, 3)), np.ones((0, 3)), Annotations((2, 0), {"colour": facet}))
    for side, n_queries in ((quality.x_to_z, 2), (quality.z_to_x, 0)):
        assert math.isnan(side.ndcg)
        assert math.isnan(side.facet_precision["colour"])
        assert (side.n_lists, side.n_queries) == (0, n_queries)
    assert math.isnan(objective_value(quality, "ndcg"))


def test_the_mean_is_of_the_directions_that_can_be_measured() -> None:
    colour = Facet.of([["red"], []], [["red"], ["red"]])
    annotations = Annotations((2, 2), {"colour": colour})
    quality = measure_quality(np.ones((2, 1)), np.ones((2, 1)), annotations).mean
    assert quality.facet_precision["colour"] == pytest.approx((1.0 + 0.5) / 2)
    assert (quality.n_lists, quality.n_queries) == (2, 4)


def _quality(ndcg: float, average_precision: float, recall: float) -> RetrievalQuality:
    side = RankingQuality(average_precision, {}, ndcg, 0.0, recall, 1.0, {}, 1, 1)
    return RetrievalQuality(side, side)


def test_an_objective_is_a_measure_or_a_weighted_mean_of_what_was_measured() -> None:
    quality = _quality(0.6, 0.4, 0.9)
    assert [objective_value(quality, name) for name in ("ndcg", "map", "recall")] == [0.6, 0.4, 0.9]
    assert objective_value(quality, {"ndcg": 3, "map": 1}) == pytest.approx(0.55)
    assert objective_value(_quality(0.6, 0.4, NAN), {"ndcg": 1.0, "recall": 5.0}) == pytest.approx(0.6)
    assert math.isnan(objective_value(_quality(0.6, NAN, NAN), "map"))
    assert objective_value(quality, {"map": 1.0, "at_least": {"recall_1": 0.97}}) == 0.4


@pytest.mark.parametrize("objective", ["ndcg", "map", "recall", {"ndcg": 2.0, "recall": 1.0}])
@pytest.mark.parametrize("label", ["kind", None])
def test_an_interval_is_about_the_difference_of_the_objective(
    objective: str | dict[str, float], label: str | None
) -> None:
    annotations = _annotations()
    projected = [_projections(seed) for seed in (1, 2)]
    values = [
        objective_value(measure_quality(x, z, annotations, label=label), objective) for x, z in projected
    ]
    half = objective_interval(*projected, annotations, objective, label=label, level=1e-3)
    assert np.mean(half) == pytest.approx(values[0] - values[1], abs=0.01)
    low, high = objective_interval(*projected, annotations, objective, label=label)
    assert low < values[0] - values[1] < high
    assert objective_interval(projected[0], projected[0], annotations, objective, label=label) == (0, 0)


def test_an_interval_has_the_width_of_the_groups_of_partners() -> None:
    """Both directions of a pair say the same: 50 pairs are 50 observations, not 100."""
    size = 50
    wins = np.random.default_rng(0).random(size) < 0.5
    annotations = Annotations((size, size), {}, np.column_stack([np.arange(size)] * 2))
    exact = np.eye(size)
    spoiled = np.where(wins[:, None], exact, -exact)  # such a partner comes last, in both directions
    low, high = objective_interval((exact, exact), (spoiled, exact), annotations, "recall")
    share = 1.0 - wins.mean()
    assert (low + high) / 2 == pytest.approx(share, abs=0.03)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(share * (1 - share) / size), rel=0.1)


def test_an_interval_needs_something_to_measure() -> None:
    annotations = Annotations((2, 2), {"kind": Facet.of([["a"], []], [["b"], []])})
    projected = np.ones((2, 1)), np.ones((2, 1))
    with pytest.raises(InvalidInputError, match="anything relevant"):
        objective_interval(projected, projected, annotations, "recall")


def test_the_default_objective_grades_where_there_is_more_than_one_facet_or_pairs() -> None:
    facet, pairs = Facet.of([["a"]], [["a"]]), np.array([[0, 0]])
    assert default_objective(Annotations((1, 1), {"label": facet})) == "map"
    both = {"label": facet, "colour": facet}
    assert default_objective(Annotations((1, 1), both)) == {"ndcg": 2.0, "map": 1.0}
    assert default_objective(Annotations((1, 1), {}, pairs)) == "ndcg"
    assert default_objective(Annotations((1, 1), both, pairs)) == {"ndcg": 2.0, "map": 1.0}


@pytest.mark.parametrize(
    "objective",
    [
        *("mrr", "", {}, {"mrr": 1.0}, {"map": -1.0}, {"map": 0.0}, {"map": NAN}, {"map": "1"}),
        *({"at_least": {"map": 0.9}}, {"map": 1.0, "at_least": 0.9}),
        *(
            {"map": 1.0, "at_least": {name: share}}
            for name, share in (("recall", 0.9), ("map", 1.1), ("map", 0))
        ),
    ],
)
def test_other_objectives_are_refused(objective: object) -> None:
    with pytest.raises(InvalidParameterError, match="objective"):
        check_objective(objective)  # type: ignore[arg-type]


def test_inputs_that_do_not_fit_are_refused() -> None:
    annotations, (x, z) = _annotations(), _projections()
    with pytest.raises(InvalidInputError, match="do not fit each other"):
        measure_quality(x[:5], z, annotations)
    with pytest.raises(InvalidInputError, match="do not fit each other"):
        measure_quality(x[:, :2], z, annotations)
    with pytest.raises(InvalidInputError, match="x_projections contains NaN"):
        measure_quality(x * NAN, z, annotations)
    with pytest.raises(InvalidParameterError, match="label must be one of"):
        measure_quality(x, z, annotations, label="colour")
