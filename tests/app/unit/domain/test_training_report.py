import copy
import json
from typing import Any

import numpy as np
import pytest

from app.domain.errors import PROBLEMS
from app.domain.reports import (
    DirectionQuality,
    Gate,
    HeldOutQuality,
    IndexRecall,
    Supervision,
    TrainingData,
    TrainingReport,
)
from app.services.training.gate import fallen_measures, refusal_of
from solver import Annotations, measure_quality
from tests.app.earlier_reports import FACTS, OF_FORMAT_2, OF_FORMAT_3
from tests.app.refused import refused


def values_of(report: TrainingReport) -> dict[str, Any]:
    """Return a report as JSON gives it back."""
    return dict(json.loads(json.dumps(report.to_json())))


def classifier_facts(classifier: dict[str, Any]) -> dict[str, Any]:
    """Return a classifier as it was recorded before neighbour classifiers had their name."""
    facts = {name: value for name, value in classifier.items() if name != "kind"}
    return {**facts, "is_read_out": {"linear": False, "neighbours": True}[classifier["kind"]]}


def curve_facts(curve: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a curve as it was recorded before those by scope."""
    return curve and {"recall": curve["recall"], "precision": curve["precision"]}


def facts_of(report: TrainingReport) -> dict[str, Any]:
    """Return the flat object that the release before formats recorded of the same training."""
    values = values_of(report)
    data, fit, held_out, gate = values["data"], values["fit"], values["held_out"], values["gate"]
    directions = held_out["directions"]
    parameters = values["parameters"]
    assert parameters.pop("supervision") == {"labels": True, "facets": [], "pairs": False, "feedback": False}
    assert parameters.pop("objective") is parameters.pop("reason") is None
    facts = {
        "method": values["method"],
        "methods": values["selection"]["held_out_map"],
        "refused": values["selection"]["refused"],
        "seed": parameters["seed"],
        "train_items": data["items"],
        "classes": data["classes"],
        "unmatched_labels": data["unmatched_labels"],
        "alpha": fit["alpha"],
        "rank": fit["rank"],
        "singular_values": fit["singular_values"],
        "convergence": fit["convergence"],
        "history": fit["history"],
        "scaling": fit["scaling"],
        "candidates": values["selection"]["candidates"],
        "held_out": {name: quality["map"] for name, quality in directions.items()},
        "chance": {name: quality["chance"] for name, quality in directions.items()},
        "held_out_items": held_out["items"],
        "curves": {name: curve_facts(quality["curve"]) for name, quality in directions.items()},
        "data_hash": data["sha256"],
        "not_learned_from": data["not_learned_from"],
        "not_ranked": data["not_ranked"],
        "parameters": parameters,
        "code_version": values["code_version"],
        "index": {name: values["index"][name] for name in ("recall_at_10", "needed")},
        "gate": {"compared_with": gate["compared_with"]},
    }
    if gate["skipped"] is not None:
        facts["gate"]["skipped"] = gate["skipped"]
    else:
        facts["gate"] |= {
            "items": gate["items"],
            "map": {"new": gate["new_map"], "active": gate["active_map"]},
            "tolerance": gate["tolerance"],
            "passed": refusal_of(report.gate, report.index) is None,
        }
    if fit["posteriors"]:
        facts["posteriors"] = [
            {**side, "classifiers": [classifier_facts(classifier) for classifier in side["classifiers"]]}
            for side in fit["posteriors"]
        ]
    if values["not_activated"] is not None:
        facts["not_activated"] = values["not_activated"]
    return facts


@pytest.mark.parametrize("name", FACTS)
def test_no_field_of_an_earlier_report_is_lost(name: str) -> None:
    report = TrainingReport.from_json(FACTS[name])
    assert facts_of(report) == FACTS[name]
    assert not report.index.is_exact  # its recall was measured


def test_the_recorded_reports_are_of_every_method_and_outcome() -> None:
    reports = {name: TrainingReport.from_json(facts) for name, facts in FACTS.items()}
    assert {report.method for report in reports.values()} == {"lrbs", "semantic", "squared"}
    refused = reports["refused"]
    assert refusal_of(refused.gate, refused.index) == refused.not_activated is not None
    assert reports["squared"].gate.compared_with == 2
    assert refusal_of(reports["squared"].gate, reports["squared"].index) is None
    assert reports["semantic"].fit.posteriors
    assert reports["lrbs"].data.not_learned_from["x"].first == ("far",)
    assert reports["unplaced"].data.not_ranked["x"].count == 1
    assert reports["few"].held_out.directions == {}


@pytest.mark.parametrize("name", FACTS)
def test_an_upgraded_report_survives_being_stored(name: str) -> None:
    report = TrainingReport.from_json(FACTS[name])
    assert report.to_json()["format"] == 4
    assert TrainingReport.from_json(values_of(report)) == report


def test_a_report_of_the_first_release_lacks_only_what_was_not_recorded() -> None:
    facts = {
        name: FACTS["lrbs"][name] for name in ("rank", "classes", "alpha", "singular_values", "held_out")
    }
    report = TrainingReport.from_json({**facts, "seed": 7})
    assert (report.fit.rank, report.fit.alpha) == (FACTS["lrbs"]["rank"], FACTS["lrbs"]["alpha"])
    assert report.data == TrainingData({}, tuple(FACTS["lrbs"]["classes"]), {}, "")
    assert report.parameters.seed == 7
    assert {name: quality.map for name, quality in report.held_out.directions.items()} == facts["held_out"]
    assert refusal_of(report.gate, report.index) is None


@pytest.mark.parametrize("name", OF_FORMAT_2)
def test_a_report_of_format_2_keeps_every_field(name: str) -> None:
    stored = OF_FORMAT_2[name]
    before = copy.deepcopy(stored)
    report = TrainingReport.from_json(stored)
    values = values_of(report)
    assert {**values, "format": 2} == merged(values, stored)
    assert TrainingReport.from_json(values) == report
    assert stored == before


@pytest.mark.parametrize("name", OF_FORMAT_2)
def test_a_report_of_format_2_was_chosen_by_map_and_learned_from_labels(name: str) -> None:
    report = TrainingReport.from_json(OF_FORMAT_2[name])
    assert (report.selection.objective, report.gate.objective) == ("map", "map")
    assert report.selection.values == report.selection.held_out_map != {}
    assert (report.gate.new_value, report.gate.active_value) == (report.gate.new_map, report.gate.active_map)
    assert report.parameters.supervision == Supervision(facets=(), pairs=False, feedback=False)
    assert (report.data.facets, report.data.n_pairs, report.data.n_signs) == ({}, 0, 0)
    for quality in report.held_out.directions.values():
        assert quality.map is not None
        assert quality.ndcg_at_10 is quality.distinct_lists is None


def test_a_report_of_format_3_keeps_every_field_and_has_nothing_of_format_4() -> None:
    stored = OF_FORMAT_3["composite"]
    before = copy.deepcopy(stored)
    report = TrainingReport.from_json(stored)
    values = values_of(report)
    assert {**values, "format": 3} == merged(values, stored)
    assert TrainingReport.from_json(values) == report
    assert stored == before
    assert report.held_out.reliability is None
    for quality in report.held_out.directions.values():
        assert quality.curve is not None
        assert quality.curve.scopes == quality.curve.precision_at_scope == ()
        assert (quality.rivals, quality.worst, quality.best) == ({}, (), ())


def test_few_held_out_items_call_for_caution() -> None:
    directions = {"image-to-text": DirectionQuality(1.0)}
    few = HeldOutQuality({"image": 1, "text": 200}, directions)
    assert few.caution is not None
    assert few.caution.startswith("the figures rest on few held-out items, 1 of image and 200 of text")
    assert HeldOutQuality({"image": 30, "text": 30}, directions).caution is None
    assert HeldOutQuality().caution is None


def merged(values: dict[str, Any], stored: Any) -> dict[str, Any]:
    """Return values with all that was stored in their place."""
    return {
        name: value
        if name not in stored
        else merged(value, stored[name])
        if isinstance(value, dict)
        else stored[name]
        for name, value in values.items()
    }


@pytest.mark.parametrize("number", [5, 1, "2", 2.5, True])
def test_a_format_that_this_release_does_not_know_is_refused(number: Any) -> None:
    values = {**values_of(TrainingReport.from_json(FACTS["lrbs"])), "format": number}
    before = copy.deepcopy(values)
    with refused("newer-report", match=r"this release reads formats up to 4") as caught:
        TrainingReport.from_json(values)
    assert repr(number) in str(caught.value)
    assert PROBLEMS["newer-report"].type == "schema-outdated"
    assert values == before


@pytest.mark.parametrize(
    ("interval", "refused"),
    [((-0.06, 0.02), False), ((-0.06, -0.001), True), (None, True)],
    ids=["chance", "beyond chance", "release 0.1.0"],
)
def test_a_version_is_refused_only_if_it_is_worse_beyond_chance(
    interval: tuple[float, float] | None, refused: bool
) -> None:
    gate = Gate(1, None, {"image": 57, "text": 57}, None, None, 0.02, "ndcg", 0.78, 0.803, interval)
    refusal = refusal_of(gate, IndexRecall({}, 0.0))
    assert (refusal is not None) is refused
    if refused and interval is not None:
        assert "by -0.0600 to -0.0010 with 95 % confidence" in str(refusal)


def test_a_version_whose_index_misses_too_much_is_refused_whatever_the_gate_says() -> None:
    better = Gate(1, None, {"image": 57}, None, None, 0.02, "ndcg", 0.9, 0.8, (0.05, 0.15))
    refusal = refusal_of(better, IndexRecall({"text": 0.99, "image": 0.9899}, 0.99))
    assert refusal == "the index of 'image' has a recall@10 of 0.9899, 0.99 is needed"
    assert refusal_of(better, IndexRecall({"text": 0.99, "image": 0.99}, 0.99)) is None


def test_a_version_below_a_floor_of_the_objective_is_refused_though_it_is_better() -> None:
    partners = Annotations((20, 20), {}, np.stack([np.arange(20)] * 2, axis=1))
    served, other = np.eye(20), np.roll(np.eye(20), 1, axis=0)
    other[:15] = served[:15]
    qualities = [measure_quality(rows, served, partners) for rows in (other, served)]
    objective = {"map": 1.0, "at_least": {"recall_1": 0.8, "recall_10": 0.7, "map": 0.5}}
    fallen = fallen_measures(qualities[0], qualities[1], objective, 0.02)
    assert fallen == {"recall_1": (pytest.approx(0.75), pytest.approx(0.8))}
    assert fallen_measures(qualities[0], qualities[1], objective, 0.06) == {}
    better = Gate(1, None, {"image": 20}, None, None, 0.02, objective, 0.9, 0.8, (0.05, 0.15), fallen)
    assert "recall_1 of 0.7500 is below the objective's floor of 0.8000" in str(
        refusal_of(better, IndexRecall({}, 0.0))
    )
