"""The main job on real data: trained on the train split, test split queried through HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.bootstrap import Services, build
from app.domain.entities import JobState, Modality
from app.ingest import ensure_collection, feature_items, store, table_items
from app.main import create_app
from app.services.training import TrainingParameters
from app.settings import Settings
from app.worker import run_once
from solver import Labels, LowRankBilinear, alpha_max, mean_average_precision
from solver.datasets import PairedFeatures, load_npz, load_wikipedia, read_picture_text_table
from solver.metrics import average_precision
from solver.pipeline import Projector
from solver.preprocessing import FeatureScaler

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore::solver.errors.ConvergenceWarning")]
_VECTORS = [Modality("image", {"type": "vector"}), Modality("text", {"type": "vector"})]


@contextmanager
def _client(services: Services) -> Iterator[TestClient]:
    with TestClient(create_app(services)) as client:
        yield client


def _trained(folder: Path, modalities: list[Modality], items: Any) -> Services:
    services = build(Settings(_env_file=None, data_dir=folder, open_search=True))
    services.upgrade_schema()
    ensure_collection(services, "set", modalities)
    store(services, "set", items, lambda _: None)
    services.training.request("set", TrainingParameters())
    job = run_once(services)
    assert job is not None
    assert job.state is JobState.SUCCEEDED, job.error
    return services


def _http_map(client: TestClient, source: str, target: str) -> float:
    queries = _test_items(client, source)
    n_gallery = len(_test_items(client, target))
    precisions = []
    for item_id, label in queries:
        body = {
            "item_id": item_id,
            "k": 1000,
            "filter": {"metadata": {"split": "test"}},
            "include": ["labels"],
        }
        hits = client.post(f"/v1/collections/set/search/{source}-to-{target}", json=body).json()["hits"]
        assert len(hits) == n_gallery
        relevant = [hit["labels"] == [label] for hit in hits]
        precisions.append(average_precision(relevant, -np.arange(len(relevant))))
    return float(np.mean(precisions))


def _test_items(client: TestClient, modality: str) -> list[tuple[str, str]]:
    found, cursor = [], "0"
    while cursor is not None:
        parameters = {"modality": modality, "cursor": cursor, "limit": 1000}
        page = client.get("/v1/collections/set/items", params=parameters).json()
        found += [(i["id"], i["labels"][0]) for i in page["items"] if i["metadata"]["split"] == "test"]
        cursor = page["next_cursor"]
    return found


def _solver_maps(data: PairedFeatures, facts: dict[str, Any]) -> tuple[float, float]:
    """Return what the solver alone reaches with the scaling and penalty that the service chose."""
    train, test = data.is_train, ~data.is_train
    x_scaler, z_scaler = (FeatureScaler(facts["scaling"]).fit(side[train]) for side in (data.X, data.Z))
    X, Z = x_scaler.transform(data.X[train]), z_scaler.transform(data.Z[train])
    supervision = Labels(data.labels[train])
    assert facts["alpha"] < alpha_max(X, Z, supervision)
    estimator = LowRankBilinear(alpha=facts["alpha"], max_iter=200).fit(X, Z, supervision)
    projector = Projector.of(x_scaler, z_scaler, estimator)
    x, z, labels = projector.project_x(data.X[test]), projector.project_z(data.Z[test]), data.labels[test]
    return mean_average_precision(x, z, labels, labels), mean_average_precision(z, x, labels, labels)


@pytest.mark.parametrize(
    ("name", "wanted"), [("wikipedia", (0.28, 0.205)), ("wikipedia_cnn", (0.36, 0.32))], ids=lambda v: str(v)
)
def test_features_reach_the_wanted_map_over_http_and_in_the_solver(
    name: str, wanted: tuple[float, float], test_data: Path, tmp_path: Path
) -> None:
    folder = test_data / name
    data = load_wikipedia(folder) if name == "wikipedia" else load_npz(folder / f"{name}.npz")
    services = _trained(tmp_path, _VECTORS, feature_items(data, ("image", "text")))
    with _client(services) as client:
        over_http = _http_map(client, "image", "text"), _http_map(client, "text", "image")
    facts = dict(services.training.models("set")[0].facts)
    alone = _solver_maps(data, facts)
    print(f"{name}: over HTTP {over_http}, solver alone {alone}, gap {facts['convergence']['gap']:.3g}")  # noqa: T201
    assert over_http[0] >= wanted[0]
    assert over_http[1] >= wanted[1]
    assert over_http == pytest.approx(alone, abs=1e-3)


def test_products_are_found_by_name_and_names_by_picture(test_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    rows = read_picture_text_table(test_data / "products" / "items.csv", split_column="split")
    model = {
        "type": "onnx",
        "path": str((test_data / "weights" / "mobilenet_v2.onnx").resolve()),
        "output": "features",
    }
    modalities = [Modality("image", model), Modality("text", {"type": "tfidf"})]
    services = _trained(tmp_path, modalities, table_items(rows, ("image", "text")))
    with _client(services) as client:
        maps = _http_map(client, "image", "text"), _http_map(client, "text", "image")
        body = {"text": "red shoes for running", "k": 10}
        hits = client.post("/v1/collections/set/search/text-to-image", json=body).json()["hits"]
    print(f"products: over HTTP {maps}, first for red shoes {[hit['labels'] for hit in hits]}")  # noqa: T201
    assert min(maps) >= 0.90
    assert [hit["labels"] for hit in hits] == [["Shoes"]] * 10
