import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Item, JobState
from app.domain.errors import InvalidFieldError
from app.index import ExactIndex
from app.services.models.model_bundles import ModelBundles
from app.services.training.data import LabelledItems
from app.services.training.methods import LowRankMethod
from app.services.training.requests import TrainingParameters, check_parameters
from solver.bilinear.estimator import Candidate, select_on
from solver.bilinear.solving import alpha_max
from solver.scaling.estimator import FeatureScaler
from solver.supervision.kinds import Labels
from tests.app.integration.loading import load


def held_out_map(pairs: Any, version: int) -> dict[str, float]:
    directions = pairs.services.versions.model("a", version).report.held_out.directions
    return {name: quality.map for name, quality in directions.items()}


def test_the_held_out_figures_are_those_of_the_given_penalty(pairs: Any) -> None:
    pairs.fill("a")
    pairs.train("a", TrainingParameters(alpha=1e5))  # leaves nothing: every ranking is that of the ids
    nothing = pairs.services.versions.model("a", 1).report
    assert nothing.fit.rank == 0
    assert {candidate.rank for candidate in nothing.selection.candidates} == {0}
    assert all(candidate.alpha_fraction > 1 for candidate in nothing.selection.candidates)
    pairs.train("a", TrainingParameters(alpha=1e-3, scaling="center"))
    (own,) = pairs.services.versions.model("a", 2).report.selection.candidates
    assert own.scaling == "center"
    pairs.train("a", TrainingParameters(scaling="center"))
    chosen = pairs.services.versions.model("a", 3).report
    for direction in ("x-to-z", "z-to-x"):
        figures = [held_out_map(pairs, number)[direction] for number in (1, 2)]
        assert figures[0] < 0.6 < figures[1]
    # Its own choice, requested explicitly, is evaluated as it was when it was chosen.
    best = chosen.selection.candidates[0]
    judged = {"x-to-z": best.map_x_to_z, "z-to-x": best.map_z_to_x}
    assert held_out_map(pairs, 3) == pytest.approx(judged, abs=0.02)


def test_a_penalty_is_judged_as_the_selection_judges_it(pairs: Any) -> None:
    drawn = pairs.data
    x_ids, z_ids = (np.arange(len(rows)).astype(str) for rows in (drawn.X, drawn.Z))
    labels = drawn.x_labels.astype(str), drawn.z_labels.astype(str)
    data = LabelledItems(drawn.X, drawn.Z, *labels, x_ids, z_ids)
    fitting, held_out = data.split(0.2, 3000, 0)
    (expected,) = select_on(fitting, held_out, scalings=("center",), alpha_fractions=(0.1,))
    X = FeatureScaler("center").fit(fitting.X).transform(fitting.X)
    Z = FeatureScaler("center").fit(fitting.Z).transform(fitting.Z)
    alpha = 0.1 * alpha_max(X, Z, Labels(fitting.x_labels, fitting.z_labels))
    method = LowRankMethod(TrainingParameters(alpha=alpha, scaling="center"), lambda _: None)
    method.evaluate(fitting, held_out)
    (candidate,) = (Candidate(**asdict(tried)) for tried in method.fit(data).candidates)
    assert candidate.alpha_fraction == pytest.approx(0.1)
    assert candidate.rank == expected.rank
    assert candidate.mean == pytest.approx(expected.mean, abs=1e-6)


def test_a_given_penalty_needs_no_held_out_part(pairs: Any) -> None:
    pairs.make("a")
    items = [pairs.item(side, f"{side}{n}", [n - 1.5] * 3, str(n)) for side in "xz" for n in range(4)]
    pairs.services.catalogue.add_items("a", items)
    pairs.train("a", TrainingParameters(alpha=1e-2))
    assert held_out_map(pairs, 1) == {}


def test_a_bundle_that_cannot_be_read_back_is_not_activated(
    trained_pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trained_pairs.ids("a")
    monkeypatch.setattr(ExactIndex, "save", lambda self, path: path.write_bytes(b"garbage"))
    job = trained_pairs.try_to_train("a")
    assert job.state is JobState.FAILED
    assert "not a readable flat index" in (job.error or "")
    assert trained_pairs.services.catalogue.collection("a")[0].active_version == 1
    assert [model.version for model in trained_pairs.services.versions.models("a")] == [1]
    assert trained_pairs.ids("a") == before
    monkeypatch.undo()
    assert trained_pairs.train("a") == 2


def test_a_version_chosen_during_a_retrain_keeps_serving(
    trained_pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_pairs.train("a")
    publish = ModelBundles.publish

    def roll_back_first(self: ModelBundles, *arguments: Any) -> tuple[str, str]:
        trained_pairs.services.versions.activate("a", 1, "test")
        return publish(self, *arguments)

    monkeypatch.setattr(ModelBundles, "publish", roll_back_first)
    job = trained_pairs.try_to_train("a")
    assert (job.state, job.model_version) == (JobState.SUCCEEDED, 3)
    newest, *others = trained_pairs.services.versions.models("a")
    assert [model.is_active for model in (newest, *others)] == [False, False, True]
    assert "version 1" in (newest.report.not_activated or "")
    assert trained_pairs.search("a").model_version == 1
    monkeypatch.undo()
    assert trained_pairs.services.versions.activate("a", 3, "test").is_active
    assert trained_pairs.search("a").model_version == 3


def test_a_lost_picture_is_a_problem_of_its_own(pairs: Any) -> None:
    pairs.make("a")
    collection, _ = pairs.services.catalogue.collection("a")
    with pairs.services.database.write() as work:
        item = Item("p", "x", content_hash="0" * 64, content_type="image/png")
        work.items.put(collection, [item], work.collections.next_revision(collection))
    answer = pairs.client().get("/v1/collections/a/items/p/content")
    assert answer.status_code == 410
    assert answer.json()["type"] == "/problems/content-missing"
    assert "'p'" in answer.json()["detail"]


def test_readiness_names_no_path(trained_pairs: Any) -> None:
    folder = trained_pairs.services.settings.data_dir / "models"
    (bundle,) = folder.iterdir()
    for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
        path.rename(path.with_name("aside"))
        reason = load(trained_pairs.services).reason
        assert reason is not None
        assert bundle.name in reason
        assert str(folder.parent) not in reason
        path.with_name("aside").rename(path)
    shutil.rmtree(bundle)
    answer = trained_pairs.client().get("/readyz")
    assert answer.status_code == 503
    assert str(Path(folder).parent) not in answer.text


def test_of_two_methods_the_better_one_on_held_out_items_serves(pairs: Any) -> None:
    pairs.make("a")
    rng = np.random.default_rng(0)
    items = []
    for number in range(120):
        # Rings in one modality: no linear function of the features tells them apart.
        ring, angle = number % 3, rng.uniform(0, 2 * np.pi)
        radius = 1.0 + 2.0 * ring + 0.2 * rng.standard_normal()
        x, z = (
            [radius * np.cos(angle), radius * np.sin(angle)],
            0.3 * rng.standard_normal(3) + np.eye(3)[ring],
        )
        items += [
            pairs.item("x", f"x{number}", x, str(ring)),
            pairs.item("z", f"z{number}", list(z), str(ring)),
        ]
    pairs.services.catalogue.add_items("a", items)
    pairs.train("a", TrainingParameters())
    pairs.train("a", TrainingParameters(method="lrbs"))
    pairs.train("a", TrainingParameters(method="semantic"))
    chosen, low_rank, semantic = (pairs.services.versions.model("a", number).report for number in (1, 2, 3))
    assert (chosen.method, low_rank.method, semantic.method) == ("semantic", "lrbs", "semantic")
    tried = chosen.selection.held_out_map
    assert tried["semantic"] > tried["lrbs"] + 0.2
    assert tried["lrbs"] == pytest.approx(low_rank.selection.held_out_map["lrbs"])
    assert np.mean(list(held_out_map(pairs, 1).values())) == pytest.approx(tried["semantic"])
    for direction, quality in chosen.held_out.directions.items():
        assert quality.rivals == {"lrbs": low_rank.held_out.directions[direction].curve}
        assert quality.rivals["lrbs"] != quality.curve
    directions = {
        direction: replace(quality, rivals={}) for direction, quality in chosen.held_out.directions.items()
    }
    assert replace(chosen.held_out, directions=directions) == semantic.held_out
    for side in chosen.fit.posteriors:
        assert sum(classifier.weight for classifier in side.classifiers) == pytest.approx(1.0)
        assert "neighbours" in {classifier.kind for classifier in side.classifiers}
    result = pairs.search("a", k=20, row=[1.0, 0.0, 0.0])
    assert {hit.item.labels for hit in result.hits} == {("0",)}
    assert all(0.5 < hit.probability <= 1.0 for hit in result.hits)


def test_what_is_of_the_papers_method_alone_chooses_it(pairs: Any) -> None:
    pairs.fill("a")
    for version, (field, value) in enumerate((("alpha", 0.1), ("scaling", "l2")), 1):
        pairs.train("a", TrainingParameters(**{field: value}, max_iter=20))
        assert pairs.services.versions.model("a", version).report.method == "lrbs"
        with pytest.raises(InvalidFieldError, match="semantic") as caught:
            check_parameters(TrainingParameters(method="semantic", **{field: value}))
        assert caught.value.field == field
