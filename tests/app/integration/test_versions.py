import json
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from app.bootstrap import build
from app.domain.entities import JobState
from app.domain.errors import ConflictError, DamagedBundleError
from app.domain.names import Scope
from app.domain.reports import IndexRecall, TrainingParameters, TrainingReport
from app.services.health import Readiness
from app.services.models.registry import NONE_ACTIVE, draw_report
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.integration.conftest import (
    EITHER,
    PARAMETERS,
    CopyOf,
    Pairs,
    copy_services,
    keep_trained,
    train_all,
)
from tests.app.integration.in_process import run_here
from tests.app.integration.loading import current, load
from tests.app.refused import refused
from tests.app.repairs import request_repairs

FILES_ALONE = pytest.mark.parametrize("kept_three", ["sqlite"], indirect=True)
"""For what depends on files and reports, whichever database names them."""
NOTHING = TrainingParameters(alpha=1e5, seed=2)  # leaves rank 0: every ranking is that of the ids


def bundle_of(pairs: Any, version: int) -> Path:
    folder = pairs.services.settings.data_dir / "models"
    return Path(folder / pairs.services.versions.model("a", version).bundle)


def damage(pairs: Any, version: int) -> None:
    path = bundle_of(pairs, version) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def scores(pairs: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in pairs.search("a").hits]


def active_versions(pairs: Any) -> list[int]:
    return [model.version for model in pairs.services.versions.models("a") if model.is_active]


@pytest.fixture(scope="module", params=EITHER)
def kept_three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[Settings]:
    """Settings of what `three` is a copy of."""
    of_versions = [replace(PARAMETERS, seed=seed) for seed in range(3)]
    folder = tmp_path_factory.mktemp("three")
    with keep_trained(request, folder, vectors, request.param, of_versions) as settings:
        yield settings


@pytest.fixture
def three(kept_three: Settings, tmp_path: Path, vectors: SyntheticPairs) -> Iterator[Pairs]:
    """A collection with three versions, of which the last serves."""
    with copy_services(kept_three, tmp_path, open_search=False, sweep_grace_seconds=0.0) as services:
        yield Pairs(services, vectors)


@FILES_ALONE
def test_a_version_tells_everything_about_itself(three: Any) -> None:
    model = three.services.versions.model("a", 3)
    report = model.report
    manifest = json.loads((bundle_of(three, 3) / "manifest.json").read_text())
    assert TrainingReport.from_json(manifest["facts"]) == report
    assert manifest["facts"]["format"] == 4
    files = {path.name for path in bundle_of(three, 3).rglob("*") if path.is_file()} - {"manifest.json"}
    assert {Path(name).name for name in manifest["files"]} == files
    assert all(len(value) == 64 for value in manifest["files"].values())
    assert (report.parameters.seed, report.method) == (2, "lrbs")
    assert len(report.data.sha256) == 64
    assert report.code_version
    assert report.fit.rank == len(report.fit.singular_values) > 0
    assert report.fit.history[-1].iteration == report.fit.convergence.iteration
    assert report.index == IndexRecall({}, 0.99, is_exact=True)
    for direction in ("x-to-z", "z-to-x"):
        quality = report.held_out.directions[direction]
        curve = quality.curve
        assert curve is not None
        assert len(curve.recall) == len(curve.precision) == 21
        assert all(np.diff(curve.precision) <= 1e-9)  # interpolated: the best at that recall or beyond
        # The area under the interpolated curve bounds MAP from above, up to its 21 levels.
        assert np.mean(curve.precision) >= quality.map - 0.05
        assert len(curve.scopes) == len(curve.precision_at_scope)
        assert curve.scopes[0] == 1
        # Every item looked at: the share of relevant ones, which is what chance finds.
        assert curve.precision_at_scope[-1] == pytest.approx(quality.chance, abs=1e-6)
        worst, best = quality.worst, quality.best
        values = [example.average_precision for example in (*worst, *reversed(best))]
        assert values == sorted(values)
        assert values[0] <= quality.map <= values[-1]
        assert len({example.id for example in (*worst, *best)}) == len(values) > 0
        for example in (*worst, *best):
            (label,) = three.services.catalogue.item("a", example.id).labels
            for hit in example.hits:
                assert hit.relevant == (three.services.catalogue.item("a", hit.id).labels == (label,))
            assert example.n_relevant > 0
    bins = report.held_out.reliability
    assert bins is not None
    assert bins.balanced  # the loss of "lrbs" takes matches for half of all pairs
    assert sum(bins.counts) == np.prod(list(report.held_out.items.values()))
    with three.client() as client:
        whole = client.get("/v1/admin/collections/a/models/3").json()
        (newest, *_) = client.get("/v1/admin/collections/a/models").json()["models"]
    assert TrainingReport.from_json({"format": 4, **whole["report"]}) == report
    assert whole["manifest_hash"] == model.manifest_hash
    long, short = whole["report"], newest["report"]
    assert (short["fit"]["history"], short["fit"]["singular_values"]) == (None, None)
    assert (short["data"]["classes"], short["data"]["unmatched_labels"]) == (None, None)
    for quality in short["held_out"]["directions"].values():
        assert quality["curve"] is quality["rivals"] is quality["worst"] is quality["best"] is None
    assert short["held_out"]["reliability"] is None
    assert short["held_out"]["caution"] == long["held_out"]["caution"] == report.held_out.caution
    assert (short["method"], short["gate"]) == (long["method"], long["gate"])


@FILES_ALONE
def test_plots_of_a_version_are_drawn(three: Any) -> None:
    path = "/v1/admin/collections/a/models/3/plots"
    report = three.services.versions.model("a", 3).report
    with three.client() as client:
        for kind in ("singular-values", "convergence", "precision-recall", "precision-scope", "reliability"):
            answer = client.get(f"{path}/{kind}")
            assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
            assert ElementTree.fromstring(answer.text).tag == "{http://www.w3.org/2000/svg}svg"
        one = client.get(f"{path}/precision-recall", params={"direction": "z-to-x"}).text
        assert "z to x" in one
        assert "x to z" not in one
        dark = client.get(f"{path}/reliability", params={"theme": "dark", "format": "png"})
        assert dark.headers["Content-Type"] == "image/png"
        assert dark.content == draw_report(report, "reliability", "dark").png()
        answer = client.get(f"{path}/precision-recall", params={"direction": "x-to-y"})
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/plot-not-found")
        assert client.get(f"{path}/nothing").status_code == 422
        assert client.get(f"{path[:-7]}99/plots/reliability").status_code == 404
        _, secret = three.services.access.create(Scope.WRITE)
        refused = client.get(f"{path}/reliability", headers={"Authorization": f"Bearer {secret}"})
        assert refused.status_code == 403


@FILES_ALONE
def test_without_matplotlib_the_answer_names_the_extra(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as if it were not installed
    with three.client() as client:
        answer = client.get("/v1/admin/collections/a/models/3/plots/convergence")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/plots-unavailable")
    assert answer.json()["detail"] == "the service has no Matplotlib to draw with: pip install 'lrbs[plots]'"
    assert answer.headers["Retry-After"] == "3600"  # an operator has to do something first


def test_the_history_says_what_served_when(three: Any) -> None:
    versions = three.services.versions
    versions.activate("a", 1, "key k", "it was better")
    versions.activate("a", 1, "key k", "again")  # serves already: nothing happens
    versions.roll_back("a", "command line")
    versions.roll_back("a", "command line", "no, it was right")
    history = versions.history("a", 10)
    assert [(entry.version, entry.previous) for entry in reversed(history)] == [
        *((1, None), (2, 1), (3, 2), (1, 3), (3, 1), (1, 3))
    ]
    assert [entry.reason for entry in history[:3]] == ["no, it was right", "rolled back", "it was better"]
    assert history[2].by == "key k"
    assert history[-1].by.startswith("job ")
    times = [entry.at for entry in reversed(history)]
    assert times == sorted(times)
    assert versions.history("a", 2) == history[:2]
    assert active_versions(three) == [1]


def test_versions_are_promoted_and_rolled_back_over_http(three: Any) -> None:
    path = "/v1/admin/collections/a"
    with three.client() as client:
        answer = client.post(f"{path}/models/1/activate", json={"expected_version": 2})
        assert answer.status_code == 409
        assert answer.json()["type"] == "/problems/active-version-conflict"
        assert answer.json()["field"] == "expected_version"
        assert active_versions(three) == [3]
        answer = client.post(f"{path}/models/1/activate", json={"expected_version": 3, "reason": "try"})
        assert answer.json()["is_active"] is True
        assert client.post(f"{path}/rollback").json()["version"] == 3
        assert client.post(f"{path}/rollback", json={"expected_version": 1}).status_code == 409
        entries = client.get(f"{path}/activations", params={"limit": 2}).json()["activations"]
        assert [(entry["version"], entry["previous"]) for entry in entries] == [(3, 1), (1, 3)]
        assert entries[1]["reason"] == "try"
        assert entries[1]["by"].startswith("key ")
        assert client.post(f"{path}/models/9/activate").status_code == 404
        assert client.post(f"{path}/models/1/activate", json={"expected": 3}).status_code == 422


def test_any_version_can_be_searched_whichever_serves(trained_either: Any) -> None:
    either = trained_either
    either.try_to_train("a", TrainingParameters(alpha=1e-2, scaling="none"))
    query = {"vector": either.data.Z[0].tolist(), "k": 100}

    def search(client: Any, version: int) -> dict[str, Any]:
        answer = client.post(f"/v1/admin/collections/a/models/{version}/search/z-to-x", json=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    with either.client() as client:
        expected = {}
        for version in (1, 2):
            either.services.versions.activate("a", version, "test")
            expected[version] = client.post("/v1/collections/a/search/z-to-x", json=query).json()["hits"]
        assert expected[1] != expected[2]
        for version in (1, 2, 1):
            answer = search(client, version)
            assert (answer["model_version"], answer["hits"]) == (version, expected[version])
        # What is written later is found by the version that does not serve, too.
        either.services.catalogue.add_items("a", [either.item("x", "new", either.data.X[0])])
        either.services.catalogue.delete_item("a", "x05")
        for version in (1, 2):
            found = {hit["id"] for hit in search(client, version)["hits"]}
            assert found == {"new"} | {hit["id"] for hit in expected[version]} - {"x05"}
        path = "/v1/admin/collections/a/models"
        assert client.post(f"{path}/9/search/z-to-x", json=query).status_code == 404
        assert client.post(f"{path}/1/search/z-to-y", json=query).json()["field"] == "target"
        _, secret = either.services.access.create(Scope.WRITE)
        refused = {"Authorization": f"Bearer {secret}"}
        assert client.post(f"{path}/1/search/z-to-x", json=query, headers=refused).status_code == 403
        damage(either, 1)
    late = Pairs(build(either.services.settings), either.data)
    with late.client() as client:
        answer = client.post(f"{path}/1/search/z-to-x", json=query)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/damaged-version")
        assert search(client, 2)["model_version"] == 2
        late.services.catalogue.delete_collection("a")
        assert client.post(f"{path}/2/search/z-to-x", json=query).status_code == 404
    close(late.services)


def test_there_may_be_nothing_to_roll_back_to(either: Any) -> None:
    either.fill("a")
    versions = either.services.versions
    with refused("no-previous-version"):
        versions.roll_back("a", "test")
    either.train("a")
    with refused("no-previous-version"):
        versions.roll_back("a", "test")
    with refused("active-version-conflict", match="version 1 is"):
        versions.activate("a", 1, "test", expected=NONE_ACTIVE)
    assert active_versions(either) == [1]


def test_of_two_activations_at_once_one_meets_a_conflict(three: Any) -> None:
    outcomes = []

    def activate(version: int) -> str:
        try:
            three.services.versions.activate("a", version, "test", expected=active)
            return "activated"
        except ConflictError as error:
            return error.code

    for _ in range(5):
        (active,) = active_versions(three)
        others = [version for version in (1, 2, 3) if version != active]
        with ThreadPoolExecutor(2) as pool:
            outcomes.append(sorted(pool.map(activate, others)))
        assert len(active_versions(three)) == 1
    assert outcomes == [["activated", "active-version-conflict"]] * 5
    history = three.services.versions.history("a", 100)
    # Each entry goes on where the one before it ended: none was lost, none overtook another.
    assert [entry.previous for entry in history[:-1]] == [entry.version for entry in history[1:]]


def test_activations_without_an_expectation_follow_each_other(three: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(three.services.versions.activate, "a", n % 3 + 1, "t") for n in range(12)]:
            done.result()
    history = three.services.versions.history("a", 100)
    assert [entry.previous for entry in history[:-1]] == [entry.version for entry in history[1:]]
    assert active_versions(three) == [history[0].version]


@FILES_ALONE
def test_a_damaged_version_is_not_activated(three: Any) -> None:
    before = scores(three)
    damage(three, 1)
    with refused("damaged-version", match=r"version 1 .* does not match its sum; nothing was changed"):
        three.services.versions.activate("a", 1, "test")
    shutil.rmtree(bundle_of(three, 2))
    with refused("damaged-version"):
        three.services.versions.roll_back("a", "test")
    with three.client() as client:
        answer = client.post("/v1/admin/collections/a/models/1/activate")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/damaged-version"
    assert active_versions(three) == [3]
    assert scores(three) == before


@FILES_ALONE
def test_a_process_goes_on_with_what_is_in_memory_when_the_bundle_is_damaged(three: Any) -> None:
    before = scores(three)
    damage(three, 3)
    assert scores(three) == before
    three.services.catalogue.add_items("a", [three.item("x", "new", three.data.X[0])])
    assert "new" in three.ids("a")
    assert load(three.services) == Readiness(True)
    assert three.services.snapshots.n_damaged == 0


@FILES_ALONE
def test_a_start_serves_the_last_whole_version_that_served_before(three: Any) -> None:
    three.services.versions.activate("a", 1, "test")
    three.services.versions.activate("a", 3, "test")
    expected = {}
    for version in (2, 1, 3):
        three.services.versions.activate("a", version, "test")
        expected[version] = scores(three)
    damage(three, 3)
    late = Pairs(build(three.services.settings), three.data)
    # The last but one, whatever its number.
    assert late.search("a").model_version == 1
    assert scores(late) == expected[1]
    assert active_versions(three) == [3], "only people decide which one is active"
    state = late.services.health.check()
    assert state.is_ready
    assert state.reason is not None
    assert re.match(r"a: version 1 serves instead of 3: bundle .* does not match its sum", state.reason)
    assert late.services.snapshots.n_damaged == 1
    close(late.services)
    damage(three, 1)
    late.services = build(three.services.settings)
    assert late.search("a").model_version == 2
    close(late.services)
    damage(three, 2)
    late.services = build(three.services.settings)
    assert "does not match its sum" in (load(late.services).reason or "")
    for _ in range(3):
        with pytest.raises(DamagedBundleError):
            late.search("a")
    assert late.services.snapshots.n_damaged == 3, "each of the versions once, not at every search"
    close(late.services)


def test_a_version_that_never_served_does_not_stand_in(trained_pairs: Any) -> None:
    pairs = trained_pairs
    pairs.try_to_train("a", replace(NOTHING, seed=0))  # refused by the gate
    assert active_versions(pairs) == [1]
    damage(pairs, 1)
    late = build(pairs.services.settings)
    with pytest.raises(DamagedBundleError):
        current(late.snapshots, "a")
    close(late)


def test_the_version_in_memory_goes_on_when_the_new_bundle_is_damaged(
    trained_pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = trained_pairs
    holding = Pairs(build(pairs.services.settings), pairs.data)
    before = scores(holding)
    pairs.train("a", TrainingParameters(alpha=1e-2, scaling="standard", seed=0))
    assert active_versions(pairs) == [2]
    path = bundle_of(pairs, 2) / "z.faiss"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with holding.client() as client:
        assert scores(holding) == before
        assert holding.search("a").model_version == 1
        # Later writes are replayed, by the old version.
        pairs.services.catalogue.add_items("a", [pairs.item("x", "new", pairs.data.X[0])])
        pairs.services.catalogue.delete_item("a", "x05")
        assert {"new"} == set(holding.ids("a")) - {item_id for item_id, _ in before}
        assert "x05" not in holding.ids("a")
        answer = client.get("/readyz")
        assert answer.status_code == 200
        assert "version 1 serves instead of 2" in answer.json()["reason"]
        assert "lrbs_damaged_bundles_total 1.0" in client.get("/metrics").text, "it is counted once"
        # What was brought back serves, once the bundle is looked at again.
        path.write_bytes(whole)
        assert holding.search("a").model_version == 1
        monkeypatch.setattr("app.services.serving.snapshot.RECHECK_SECONDS", 0.0)
        assert holding.search("a").model_version == 2
        assert scores(holding) == scores(pairs)
        assert holding.services.health.check() == Readiness(True)
    close(holding.services)


@FILES_ALONE
def test_a_roll_back_makes_what_stood_in_the_active_version(three: Any) -> None:
    damage(three, 3)
    late = Pairs(build(three.services.settings), three.data)
    assert late.search("a").model_version == 2
    three.services.versions.roll_back("a", "test")
    assert late.search("a").model_version == 2
    assert late.services.health.check() == Readiness(True)
    close(late.services)


def test_one_damaged_collection_does_not_make_the_service_unready(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(train_all, "ab")
    damage(pairs, 1)
    late = build(pairs.services.settings)
    state = load(late)
    assert state.is_ready
    assert state.reason is not None
    assert state.reason.startswith("a: bundle")
    with pytest.raises(DamagedBundleError):
        current(late.snapshots, "a")
    assert current(late.snapshots, "b").load_failure is None
    late.catalogue.delete_collection("b")
    assert not late.health.check().is_ready
    close(late)


@FILES_ALONE
def test_a_damaged_active_version_is_trained_again(three: Any) -> None:
    services = three.services
    assert request_repairs(services) == []
    damage(three, 3)
    assert request_repairs(services) == ["a"]
    assert request_repairs(services) == []  # requested already
    with three.services.database.read() as work:
        (job,) = work.jobs.recent(work.collections.get("a"), 1)
    assert job.parameters["seed"] == 2
    done = run_here(three.services)
    assert done is not None
    assert done.state is JobState.SUCCEEDED, done.error
    assert active_versions(three) == [4]
    assert "damaged" in (three.services.versions.model("a", 4).report.gate.skipped or "")
    late = build(three.services.settings)
    assert load(late) == Readiness(True)
    close(late)


def test_a_worse_version_is_kept_but_does_not_serve(three: Any) -> None:
    job = three.try_to_train("a", NOTHING)
    assert (job.state, job.model_version) == (JobState.SUCCEEDED, 4)
    assert active_versions(three) == [3]
    report = three.services.versions.model("a", 4).report
    gate = report.gate
    assert gate.compared_with == 3
    assert gate.new_map < gate.active_map - gate.tolerance
    assert gate.interval is not None
    assert gate.interval[0] < gate.new_value - gate.active_value < gate.interval[1] < 0.0
    assert "and it is lower beyond chance" in report.not_activated
    assert f"{gate.active_map:.4f} of version 3" in report.not_activated
    assert three.services.versions.history("a", 1)[0].version == 3
    assert three.services.versions.activate("a", 4, "test").is_active  # people may overrule it


@FILES_ALONE
def test_versions_are_compared_on_items_that_neither_learned_from(three: Any) -> None:
    report = three.services.versions.model("a", 3).report
    # Other seeds hold out other items: only those held out of both are compared.
    assert report.gate.skipped is not None
    same = three.train("a", replace(PARAMETERS, seed=2))
    gate = three.services.versions.model("a", same).report.gate
    assert gate.items == report.held_out.items
    assert gate.new_map == pytest.approx(gate.active_map, abs=1e-6)
    mean = np.mean([quality.map for quality in report.held_out.directions.values()])
    assert gate.new_map == pytest.approx(mean, abs=1e-6)


@FILES_ALONE
def test_a_tolerance_lets_a_worse_version_serve(three: Any) -> None:
    lenient = build(three.services.settings.model_copy(update={"gate_tolerance": 1.0}))
    three.services = lenient
    three.train("a", TrainingParameters(alpha=1e5, seed=2))
    assert active_versions(three) == [4]
    close(lenient)


def test_old_versions_are_forgotten_but_never_the_last_two_that_served(three: Any) -> None:
    three.services = build(three.services.settings.model_copy(update={"keep_versions": 2}))
    for version in (1, 3):
        three.services.versions.activate("a", version, "test")
    for _ in range(3):
        # They do not serve: the gate lets none of them pass.
        three.try_to_train("a", NOTHING)
    assert active_versions(three) == [3]
    assert [model.version for model in three.services.versions.models("a")] == [6, 5, 3, 1]
    folders = {path.name for path in (three.services.settings.data_dir / "models").glob("[!.]*")}
    assert folders == {model.bundle for model in three.services.versions.models("a")}
    for version in (2, 4):
        with refused("model-not-found"):
            three.services.versions.activate("a", version, "test")
    assert three.services.versions.roll_back("a", "test").version == 1
    assert three.search("a").model_version == 1
    close(three.services)
