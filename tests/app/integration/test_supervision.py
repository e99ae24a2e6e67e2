"""Trainings that learn from more than one label of each item: facets, pairs and feedback."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from app.cli.commands import data_lines, validation_lines
from app.cli.train import choice_lines
from app.domain.entities import Feedback, Item
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision, TrainingParameters, TrainingReport
from solver.artifacts import load_projector
from solver.datasets import SyntheticPairs
from tests.app.integration.conftest import CopyOf, Pairs
from tests.app.integration.in_process import run_well
from tests.app.refused import refused

COUNT, N_CLASSES, COLOURS = 90, 3, ("red", "green")
COMPOSITE = TrainingParameters(method="composite")
FIRST_LABELS = Supervision(facets=(), pairs=False, feedback=False)


def make_data(count: int = COUNT) -> SyntheticPairs:
    """Return partners row by row; each has a class, a colour, and something of its own."""
    rng = np.random.default_rng(0)
    numbers = np.arange(count)
    own = rng.standard_normal((count, 4))
    latent = np.hstack(
        [np.eye(N_CLASSES)[numbers % N_CLASSES], np.eye(len(COLOURS))[numbers // 3 % len(COLOURS)], own]
    )
    sides = [
        (latent @ rng.standard_normal((latent.shape[1], width)) + 0.05 * rng.standard_normal((count, width)))
        for width in (12, 10)
    ]
    labels = numbers % N_CLASSES
    x, z = (side.astype(np.float32) for side in sides)
    return SyntheticPairs(x, z, labels, labels, np.zeros((12, 10)))


@pytest.fixture(scope="module")
def data() -> SyntheticPairs:
    return make_data()


@pytest.fixture
def shop(pairs: Pairs, data: SyntheticPairs) -> Pairs:
    pairs.data = data
    return pairs


def fill(
    shop: Pairs,
    *,
    labels: bool = True,
    colours: bool = True,
    partners: bool = True,
    planted: Mapping[str, Sequence[object]] = MappingProxyType({}),
) -> None:
    shop.make("a")
    for side, rows in (("x", shop.data.X), ("z", shop.data.Z)):
        items = [
            shop.item(
                side,
                f"{side}{n:02d}",
                row,
                *([f"class {n % N_CLASSES}"] if labels else []),
                metadata={
                    **({"colour": COLOURS[n // 3 % 2], "sku": f"{n:03d}"} if colours else {}),
                    **{key: values[n] for key, values in planted.items()},
                },
                pair_id=f"p{n}" if partners else None,
            )
            for n, row in enumerate(rows)
        ]
        shop.services.catalogue.add_items("a", items)


@pytest.fixture(scope="module")
def filled(lasting_pairs: Pairs, data: SyntheticPairs) -> Pairs:
    """A shop for requests that are refused."""
    shop = Pairs(lasting_pairs.services, data)
    fill(shop)
    return shop


def train(shop: Pairs, parameters: TrainingParameters = COMPOSITE) -> TrainingReport:
    return shop.services.versions.model("a", shop.train("a", parameters)).report


def fill_whole(pairs: Pairs) -> None:
    """Fill a shop with all there is: for `copy_of`."""
    pairs.data = make_data()
    fill(pairs)


def train_whole(pairs: Pairs) -> TrainingReport:
    """Train a filled shop: for `copy_of`."""
    fill_whole(pairs)
    return train(pairs)


@pytest.fixture
def whole(copy_of: CopyOf, data: SyntheticPairs) -> Pairs:
    """A filled shop."""
    shop, _ = copy_of(fill_whole)
    shop.data = data
    return shop


@pytest.fixture
def learned(copy_of: CopyOf, data: SyntheticPairs) -> tuple[Pairs, TrainingReport]:
    """A shop and the report of its first version."""
    shop, report = copy_of(train_whole)
    shop.data = data
    return shop, report


def factors(shop: Pairs) -> dict[str, Any]:
    """Return the arrays of the newest version's projector."""
    bundle = shop.services.versions.models("a")[0].bundle
    projector, _ = load_projector(shop.services.settings.data_dir / "models" / bundle)
    return dict(projector.arrays())


def test_everything_that_items_carry_teaches(whole: Pairs) -> None:
    shop = whole
    report = train(shop, TrainingParameters())
    assert report.data.facets == {"label": N_CLASSES, "colour": len(COLOURS)}
    assert (report.data.n_pairs, report.data.n_signs) == (COUNT, 0)
    assert report.data.items == {"x": COUNT, "z": COUNT}
    assert report.selection.objective == {"ndcg": 2.0, "map": 1.0}
    assert set(report.selection.values) == set(report.selection.held_out_map) == {"composite", "lrbs"}
    assert "one label of each item" in report.selection.refused["semantic"]
    assert report.method == max(report.selection.values, key=report.selection.values.__getitem__)
    for quality in report.held_out.directions.values():
        assert quality.n_queries == report.held_out.items["x"]
        assert set(quality.precision_at_10) == {"label", "colour"}
        assert 1 <= (quality.distinct_lists or 0) <= (quality.n_queries or 0)
        assert None not in (quality.map, quality.ndcg_at_10, quality.recall_at_10, quality.median_rank)
    answer = report.to_answer(is_whole=True)
    said = "\n".join([*choice_lines(report), *data_lines(answer), *validation_lines(answer)])
    for words in (
        "by held-out mean of 2 x nDCG@10 and 1 x MAP",
        "facets label (3), colour (2); 90 pairs",
        "different first pages",
    ):
        assert words in said
    with shop.client() as client:
        shown = client.get("/v1/admin/collections/a/models/1").json()["report"]
        listed = client.get("/v1/admin/collections/a/models").json()["models"][0]["report"]
    assert shown["data"]["facets"] == report.data.facets
    assert shown["selection"]["values"] == report.selection.values
    assert shown["parameters"]["supervision"]["facets"] == "auto"
    direction = report.held_out.directions["x-to-z"]
    for answer in (shown, listed):
        measured = answer["held_out"]["directions"]["x-to-z"]
        assert (measured["ndcg_at_10"], measured["precision_at_10"]) == (
            direction.ndcg_at_10,
            direction.precision_at_10,
        )


def test_the_sum_of_similarities_finds_partners_that_labels_alone_do_not(
    learned: tuple[Pairs, TrainingReport],
) -> None:
    shop, all_of_it = learned
    assert all_of_it.fit.weights.keys() >= {"facet:label", "facet:colour", "pairs"}
    assert all_of_it.fit.alpha is all_of_it.fit.convergence is None
    assert (all_of_it.method, all_of_it.not_activated) == ("composite", None)
    labels = train(shop, TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20))
    # Both are measured with the same facets and pairs, on the same items.
    assert labels.held_out.items == all_of_it.held_out.items
    assert all_of_it.selection.values["composite"] > labels.selection.values["lrbs"] + 0.05
    assert labels.gate.objective == all_of_it.selection.objective
    assert "its held-out mean of 2 x nDCG@10 and 1 x MAP of" in (labels.not_activated or "")


def test_columns_that_say_nothing_of_their_own_change_nothing_and_the_report_says_why(
    learned: tuple[Pairs, TrainingReport],
) -> None:
    shop, without = learned
    rng = np.random.default_rng(1)
    numbers = np.arange(COUNT)
    columns: dict[str, list[Any]] = {
        "size": rng.choice(["S", "M", "L"], COUNT).tolist(),
        "season": [
            f"season {n // 3 % 2}" if rng.random() < 0.9 else "season 0" for n in numbers
        ],  # of colours
        "division": ["front" if n % N_CLASSES else "back" for n in numbers],  # of classes
        "shelf": [f"shelf {n % N_CLASSES} {rng.integers(3)}" for n in numbers],  # as in rows sorted by class
        "place": (numbers % 25).tolist(),
        "brand": rng.choice([f"brand {n}" for n in range(40)], COUNT).tolist(),
        "row": numbers.tolist(),
        "file": [f"{n}.jpg" for n in numbers],
        "rare": [("a", "b")[n % 2] if n % 30 < 2 else None for n in numbers],  # as the classes are
        "\x1b[31m<b>": ["x" * 101] * COUNT,
    }
    shop.services.catalogue.delete_collection("a")
    fill(shop, planted=columns)
    report = train(shop)
    reasons = {column.name: (column.weight, column.reason) for column in report.data.columns}
    assert reasons.keys() == {"colour", "sku", *columns}
    assert reasons["colour"][0] == report.fit.weights["facet:colour"] > 0.0
    assert {name for name, (weight, _) in reasons.items() if weight is not None} == {"colour"}
    for words, names in {
        "no better than by chance": ("size", "place", "brand"),
        "than 'label' does": ("division", "shelf", "rare"),
        "than 'colour' does": ("season",),
        "a value of their own": ("sku", "row", "file"),
        "long texts": ("\x1b[31m<b>",),
    }.items():
        for name in names:
            assert words in reasons[name][1], (name, reasons[name])
    for direction, quality in report.held_out.directions.items():
        before = without.held_out.directions[direction]
        assert (quality.map or 0.0) >= (before.map or 0.0) - 0.03
        assert quality.precision_at_10["colour"] >= before.precision_at_10["colour"] - 0.03
        assert (quality.recall_at_10 or 0.0) >= (before.recall_at_10 or 0.0) - 0.06  # one item of 18
    with shop.client() as client:
        shown = client.get("/v1/admin/collections/a/models/1").json()["report"]["data"]
        listed = client.get("/v1/admin/collections/a/models").json()["models"][0]["report"]["data"]
    assert [column["name"] for column in shown["columns"]] == list(reasons)
    assert listed["columns"] is listed["doubtful"] is None


def test_a_wrong_label_is_listed_as_worth_a_look(shop: Pairs) -> None:
    shop.data = make_data(300)
    fill(shop)
    wrong = shop.item("x", "x00", shop.data.X[0], "class 2", metadata={"colour": COLOURS[0]}, pair_id="p0")
    shop.services.catalogue.delete_item("a", "x00")
    shop.services.catalogue.add_items("a", [wrong])
    report = train(shop)
    (doubt,) = report.data.doubtful
    assert (doubt.id, doubt.modality, doubt.facet) == ("x00", "x", "label")
    assert (doubt.carried, doubt.likely) == ("class 2", "class 0")
    assert doubt.probability > 0.9


@pytest.mark.parametrize("colours", [True, False])
def test_pairs_suffice(shop: Pairs, colours: bool) -> None:
    fill(shop, labels=False, colours=colours)
    report = train(shop, TrainingParameters())
    assert (report.method, report.selection.refused) == ("composite", {})
    assert report.data.classes == ()
    assert list(report.data.facets) == (["colour"] if colours else [])
    assert report.selection.held_out_map == {}
    for quality in report.held_out.directions.values():
        assert quality.map is quality.chance is quality.curve is None
        assert (quality.recall_at_10 or 0.0) > 0.6
    again = train(shop, replace(COMPOSITE, objective="recall"))
    assert (again.gate.compared_with, again.gate.skipped, again.gate.new_map) == (1, None, None)
    assert (again.gate.objective, again.not_activated) == ("recall", None)
    assert shop.ids("a")


def test_facets_suffice(shop: Pairs) -> None:
    fill(shop, labels=False, partners=False)
    report = train(shop)
    assert (report.data.facets, report.data.n_pairs) == ({"colour": 2}, 0)
    assert report.selection.objective == "map"
    assert report.selection.values["composite"] > 0.7
    assert [quality.map for quality in report.held_out.directions.values()] == [None, None]


def test_one_label_each_is_learned_as_before(shop: Pairs) -> None:
    fill(shop, colours=False, partners=False)
    alone = train(shop, TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20))
    assert (alone.selection.objective, alone.data.facets) == ("map", {"label": N_CLASSES})
    assert alone.selection.values == alone.selection.held_out_map
    shop.services.catalogue.delete_collection("a")
    fill(shop)
    chosen = TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20, supervision=FIRST_LABELS)
    same = train(shop, chosen)
    assert same.data == alone.data
    assert (same.selection, same.held_out) == (alone.selection, alone.held_out)


def test_all_labels_of_an_item_count(shop: Pairs) -> None:
    shop.make("a")
    for side, rows in (("x", shop.data.X), ("z", shop.data.Z)):
        items = [
            shop.item(side, f"{side}{n:02d}", row, f"class {n % N_CLASSES}", COLOURS[n // 3 % 2])
            for n, row in enumerate(rows)
        ]
        shop.services.catalogue.add_items("a", items)
    report = train(shop)
    assert (report.data.facets, report.selection.objective) == ({"label": 5}, "map")
    assert report.fit.weights.keys() == {"facet:label"}


def feedback(source: int, target: int, is_relevant: bool, **facts: Any) -> Feedback:
    return Feedback("x", "z", f"z{target:02d}", is_relevant, **{"query_item_id": f"x{source:02d}", **facts})


def store(shop: Pairs, entries: list[Feedback]) -> None:
    with shop.services.database.write() as work:
        work.feedback.add(work.collections.get("a"), entries)


def test_feedback_is_learned_from_until_it_is_deleted(
    learned: tuple[Pairs, TrainingReport],
) -> None:
    shop, before = learned
    first = factors(shop)
    query = Item("", "x", features=shop.data.X[5])
    store(
        shop,
        [
            feedback(0, 3, False),
            feedback(0, 3, True),  # who changed their mind
            feedback(1, 4, False),
            feedback(0, 5, True, query_item_id=None, query=query),
            replace(feedback(0, 6, True), target="x", item_id="x06"),  # of one modality
        ],
    )
    judged = train(shop)
    assert (judged.data.n_signs, judged.data.items) == (3, {"x": COUNT + 1, "z": COUNT})
    assert judged.data.sha256 != before.data.sha256
    assert judged.held_out.items == before.held_out.items
    without = train(shop, replace(COMPOSITE, supervision=Supervision(feedback=False)))
    assert without.data == before.data
    with shop.services.database.write() as work:
        work.feedback.keep_newest(work.collections.get("a"), 0)
    after = train(shop)
    assert (after.data, after.fit.weights) == (before.data, before.fit.weights)
    assert factors(shop).keys() == first.keys()
    for name, values in factors(shop).items():
        np.testing.assert_array_equal(values, first[name])


def test_feedback_suffices(shop: Pairs) -> None:
    fill(shop, labels=False, colours=False, partners=False)
    store(shop, [feedback(n, n, True) for n in range(10)])
    with refused("training-data", match="nor does anything else suffice"):
        shop.services.training.request("a", COMPOSITE)
    store(shop, [feedback(n, n + 10, False) for n in range(10)])
    report = train(shop)
    assert (report.data.n_signs, report.data.items) == (20, {"x": 10, "z": 20})
    assert report.fit.weights == {"signs": 1.0}
    assert report.held_out.directions == {}
    assert "without held-out items" in report.selection.refused["composite"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a facet that no item has": ({"supervision": {"facets": ["colour", "size"]}}, "supervision.facets.1"),
    "a facet twice": ({"supervision": {"facets": ["colour", "colour"]}}, "supervision.facets.1"),
    "nothing to learn from": (
        {"supervision": {"labels": False, "facets": [], "pairs": False, "feedback": False}},
        "supervision",
    ),
    "no labels for a method of labels": (
        {"method": "lrbs", "supervision": {"labels": False}},
        "supervision.labels",
    ),
    "partners without pairs": ({"objective": "recall", "supervision": {"pairs": False}}, "objective"),
    "an unknown objective": ({"objective": "precision"}, "objective"),
    "weights of partners without pairs": (
        {"objective": {"ndcg": 2, "recall": 1}, "supervision": {"pairs": False}},
        "objective.recall",
    ),
    "a weight of an unknown measure": ({"objective": {"ndcg": 1, "precision": 1}}, "objective.precision"),
    "a weight below zero": ({"objective": {"ndcg": 1, "map": -1}}, "objective.map"),
    "a weight in quotes": ({"objective": {"ndcg": "2"}}, "objective.ndcg"),
    "weights of nothing": ({"objective": {"ndcg": 0}}, "objective"),
    "no weights": ({"objective": {}}, "objective"),
    "floors alone": ({"objective": {"at_least": {"map": 0.9}}}, "objective"),
    "a floor of an unknown measure": (
        {"objective": {"map": 1, "at_least": {"recall": 0.9}}},
        "objective.at_least.recall",
    ),
    "a floor above what there was": (
        {"objective": {"map": 1, "at_least": {"recall_1": 1.5}}},
        "objective.at_least.recall_1",
    ),
    "a floor of partners without pairs": (
        {"objective": {"map": 1, "at_least": {"recall_1": 0.9}}, "supervision": {"pairs": False}},
        "objective.at_least.recall_1",
    ),
    "a floor of a method that keeps none": (
        {"objective": {"map": 1, "at_least": {"recall_1": 0.9}}, "method": "lrbs"},
        "objective.at_least",
    ),
    "facets that are no list": ({"supervision": {"facets": 3}}, "supervision.facets"),
    "a facet that is no text": ({"supervision": {"facets": ["colour", 3]}}, "supervision.facets.1"),
    "a penalty of a method without one": ({"method": "composite", "alpha": 0.1}, "alpha"),
    "a misspelt part": ({"supervision": {"pair": False}}, "supervision.pair"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_training_could_use_is_refused_by_field(filled: Pairs, case: str) -> None:
    body, field = REFUSED[case]
    with filled.client() as client:
        answer = client.post("/v1/admin/collections/a/retrain", json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    fields = [problem.get("field"), *(error["field"] for error in problem.get("errors") or [])]
    assert field in fields, problem
    assert filled.services.training.jobs("a", 10) == []


def test_a_floor_of_partners_is_refused_where_there_are_none(shop: Pairs) -> None:
    fill(shop, partners=False)
    body = {"objective": {"map": 1, "at_least": {"map": 0.9, "recall_1": 0.9}}}
    with shop.client() as client:
        answer = client.post("/v1/admin/collections/a/retrain", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "objective.at_least.recall_1"
    assert shop.services.training.jobs("a", 10) == []


def test_a_request_names_what_to_learn_from(whole: Pairs) -> None:
    shop = whole
    body = {"supervision": {"facets": ["colour"], "pairs": False}, "objective": "map", "method": "composite"}
    with shop.client() as client:
        answer = client.post("/v1/admin/collections/a/retrain", json=body)
    assert answer.status_code == 202, answer.text
    run_well(shop.services)
    report = shop.services.versions.model("a", 1).report
    assert report.parameters.supervision == Supervision(facets=("colour",), pairs=False)
    assert (report.parameters.objective, report.selection.objective) == ("map", "map")
    assert (report.data.facets, report.data.n_pairs) == ({"label": 3, "colour": 2}, 0)


def test_an_objective_weighs_measures(learned: tuple[Pairs, TrainingReport]) -> None:
    shop, _ = learned
    weights = {"ndcg": 2, "recall": 1}
    with shop.client() as client:
        body = {"method": "composite", "objective": weights}
        answer = client.post("/v1/admin/collections/a/retrain", json=body)
        assert answer.status_code == 202, answer.text
        run_well(shop.services)
        shown = client.get("/v1/admin/collections/a/models/2").json()["report"]
    assert shown["parameters"]["objective"] == shown["selection"]["objective"] == weights
    directions = shown["held_out"]["directions"].values()
    ndcg, recall = (np.mean([way[name] for way in directions]) for name in ("ndcg_at_10", "recall_at_10"))
    assert shown["selection"]["values"]["composite"] == pytest.approx((2 * ndcg + recall) / 3)
    assert (shown["gate"]["objective"], shown["gate"]["skipped"]) == (weights, None)
    report = shop.services.versions.model("a", 2).report
    assert report.selection.measure == "mean of 2 x nDCG@10 and 1 x recall@10"


def test_floors_hold_in_a_training_by_another_measure(shop: Pairs) -> None:
    noise = np.random.default_rng(1).standard_normal(shop.data.X.shape).astype(np.float32)
    shop.data = replace(shop.data, X=shop.data.X + noise)
    fill(shop, colours=False)
    objective = {"map": 1, "at_least": {"recall_1": 0.99}}
    with shop.client() as client:
        reports = []
        for wanted, method in (("map", "composite"), ("recall", "composite"), (objective, "auto")):
            body = {"objective": wanted, "method": method}
            answer = client.post("/v1/admin/collections/a/retrain", json=body)
            assert answer.status_code == 202, answer.text
            run_well(shop.services)
            reports.append(shop.services.versions.models("a")[0].report)
    free, active, bound = reports
    assert (bound.gate.compared_with, active.not_activated) == (2, None)
    assert (bound.method, bound.selection.objective, bound.selection.measure) == (
        "composite",
        objective,
        "MAP",
    )
    # What recalls partners counts for more, and about as much as in the version that serves.
    assert bound.fit.weights["pairs"] > 1.5 * free.fit.weights["pairs"]
    assert bound.fit.weights["pairs"] > 5.0 * bound.fit.weights["facet:label"]
    assert set(bound.fit.emphases) == {"ndcg", "map", "recall"}


def test_labels_alone_keep_a_space_that_both_modalities_share(shop: Pairs) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) % N_CLASSES
    content = 1.5 * rng.standard_normal((N_CLASSES, 12))[labels] + rng.standard_normal((COUNT, 12))
    shop.make("a")
    for side in ("x", "z"):
        rows = (content + 0.3 * rng.standard_normal(content.shape)).astype(np.float32)
        shop.services.catalogue.add_items(
            "a",
            [shop.item(side, f"{side}{n:02d}", row, f"class {labels[n]}") for n, row in enumerate(rows)],
        )
    report = train(shop, TrainingParameters())
    assert set(report.selection.values) == {"lrbs", "semantic", "composite"}
    assert report.method == "composite"
    assert report.fit.weights["cosine"] > 0.0


def test_jobs_of_earlier_releases_are_trained_with_the_defaults(whole: Pairs) -> None:
    shop = whole
    stored = {"method": "composite", "alpha": None, "scaling": None, "tol": 1e-3, "max_iter": 20, "seed": 3}
    with shop.services.database.write() as work:
        work.jobs.enqueue(work.collections.get("a"), stored)
    run_well(shop.services)
    report = shop.services.versions.model("a", 1).report
    assert report.parameters == TrainingParameters(method="composite", max_iter=20, seed=3)


def test_methods_of_labels_say_that_labels_are_missing(shop: Pairs) -> None:
    fill(shop, labels=False)
    with refused("training-data", match="no item of modality 'x' has a label"):
        shop.services.training.request("a", TrainingParameters(method="semantic"))
    with refused("training-data", match="no item of modality 'x' has a label"):
        shop.services.training.request("a", TrainingParameters(alpha=0.1))
    with pytest.raises(InvalidFieldError, match="'lrbs' learns from nothing else"):
        shop.services.training.request(
            "a", TrainingParameters(alpha=0.1, supervision=Supervision(labels=False))
        )
