"""Versions whose rows and bundles an earlier release wrote, before reports had a format number."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.bootstrap import build
from app.db.models import ModelRow
from app.domain.entities import JobState
from app.domain.reports import Supervision, TrainingReport
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.earlier_reports import FACTS
from tests.app.integration.conftest import EITHER, PARAMETERS, Pairs, copy_services, keep_trained
from tests.app.integration.in_process import run_here
from tests.app.refused import refused
from tests.app.repairs import request_repairs

STORED = {1: "squared", 2: "semantic"}
"""Which of the recorded reports each version gets; the second serves."""


def rewrite(pairs: Pairs, version: int, facts: dict[str, Any]) -> None:
    """Store facts where a release stores the report of a version: in its row and twice in its bundle."""
    model = pairs.services.versions.model("a", version)
    folder = pairs.services.settings.data_dir / "models" / model.bundle
    head = json.loads((folder / "model.json").read_text())
    text = json.dumps({**head, "facts": facts}, indent=2) + "\n"
    (folder / "model.json").write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.json"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps({**manifest, "facts": facts}, indent=2, sort_keys=True)
    (folder / "manifest.json").write_text(text)
    manifest_hash = hashlib.sha256(text.encode()).hexdigest()
    with pairs.services.database.engine.begin() as connection:
        rows = update(ModelRow).where(ModelRow.version == version)
        connection.execute(rows.values(facts=facts, manifest_hash=manifest_hash))


def scores(pairs: Pairs) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in pairs.search("a").hits]


@pytest.fixture(scope="module", params=EITHER)
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[tuple[Settings, dict[int, list[tuple[str, float]]]]]:
    """Settings of a collection of two versions as an earlier release left them, and what each answered."""
    folder = tmp_path_factory.mktemp("earlier")
    with keep_trained(request, folder, vectors, request.param, [PARAMETERS] * 2) as settings:
        pairs, answers = Pairs(build(settings), vectors), {}
        for version in STORED:
            pairs.services.versions.activate("a", version, "test")
            answers[version] = scores(pairs)
            rewrite(pairs, version, FACTS[STORED[version]])
        close(pairs.services)
        yield settings, answers


@pytest.fixture
def earlier(kept: Any, tmp_path: Path, vectors: SyntheticPairs) -> Iterator[tuple[Pairs, Any]]:
    settings, answers = kept
    with copy_services(settings, tmp_path, open_search=False) as services:
        yield Pairs(services, vectors), answers


def test_they_are_listed_with_their_reports(earlier: Any) -> None:
    pairs, _ = earlier
    models = pairs.services.versions.models("a")
    assert {m.version: m.report for m in models} == {
        version: TrainingReport.from_json(FACTS[name]) for version, name in STORED.items()
    }
    with pairs.client() as client:
        listed = client.get("/v1/admin/collections/a/models").json()["models"]
        shown = client.get("/v1/admin/collections/a/models/2").json()
    assert [(model["version"], model["report"]["method"]) for model in listed] == [
        (2, "semantic"),
        (1, "squared"),
    ]
    assert shown["report"]["fit"]["singular_values"] == FACTS["semantic"]["singular_values"]


def test_they_serve_and_are_activated(earlier: Any) -> None:
    pairs, answers = earlier
    assert scores(pairs) == answers[2]
    assert pairs.services.versions.activate("a", 1, "test").is_active
    assert scores(pairs) == answers[1]
    assert pairs.services.versions.roll_back("a", "test").version == 2


def test_a_new_version_is_compared_with_them(earlier: Any) -> None:
    pairs, _ = earlier
    assert pairs.train("a") == 3
    gate = pairs.services.versions.model("a", 3).report.gate
    assert (gate.compared_with, gate.skipped) == (2, None)
    stored = {version: pairs.services.versions.model("a", version).report for version in STORED}
    assert stored == {version: TrainingReport.from_json(FACTS[name]) for version, name in STORED.items()}


def test_a_damaged_one_is_repaired_with_its_own_parameters(earlier: Any) -> None:
    pairs, _ = earlier
    folder = Path(pairs.services.settings.data_dir / "models" / pairs.services.versions.model("a", 2).bundle)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert request_repairs(pairs.services) == ["a"]
    job = run_here(pairs.services)
    assert job is not None
    assert (job.state, job.model_version) == (JobState.SUCCEEDED, 3), job.error
    parameters = pairs.services.versions.model("a", 3).report.parameters
    own = {
        name: value
        for name, value in asdict(parameters).items()
        if name not in ("supervision", "objective", "reason")
    }
    assert own == FACTS["semantic"]["parameters"]
    assert parameters.supervision == Supervision(facets=(), pairs=False, feedback=False)


def test_a_report_of_a_newer_release_is_refused_by_name(earlier: Any) -> None:
    pairs, _ = earlier
    newer = {**pairs.services.versions.model("a", 2).report.to_json(), "format": 5, "surprise": {}}
    rewrite(pairs, 2, newer)
    with refused("newer-report", match="format 5"):
        pairs.services.versions.models("a")
    with pairs.client() as client:
        answer = client.get("/v1/admin/collections/a/models")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/schema-outdated")
    assert "format 5" in answer.json()["detail"]
    assert pairs.services.versions.model("a", 1).report == TrainingReport.from_json(FACTS["squared"])
