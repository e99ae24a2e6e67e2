import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np

from solver.datasets.synthetic import make_low_rank_pairs

NAME = "pairs"
ROUNDS = 6
BATCH = 3


def fill(client: httpx.Client) -> list[float]:
    """Make a collection and train it; returns a vector to search with."""
    modalities = {name: {"encoder": {"type": "vector"}} for name in ("x", "z")}
    client.post("/v1/collections", json={"name": NAME, "modalities": modalities}).raise_for_status()
    data = make_low_rank_pairs(60, 60, n_features_x=8, n_features_z=6, n_classes=3, random_state=1)
    for name, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
        items = [
            {"id": f"{name}{n}", "modality": name, "vector": row.tolist(), "labels": [f"class {label}"]}
            for n, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        client.post(f"/v1/collections/{NAME}/items", json={"items": items}).raise_for_status()
    body = {"alpha": 1e-3, "scaling": "standard"}
    job = client.post(f"/v1/admin/collections/{NAME}/retrain", json=body).raise_for_status().json()
    deadline = time.monotonic() + 120
    while job["state"] in ("queued", "running") and time.monotonic() < deadline:
        time.sleep(0.1)
        job = client.get(f"/v1/admin/jobs/{job['id']}").raise_for_status().json()
    assert job["state"] == "succeeded", job
    query: list[float] = np.asarray(data.Z[0]).tolist()
    return query


class Writer:
    """Stores batches until the server is gone; remembers which were acknowledged."""

    def __init__(self, url: str, headers: dict[str, str], prefix: str) -> None:
        self.acknowledged: list[str] = []
        self.unsure: list[str] = []
        self.refused: list[str] = []
        self._prefix = prefix
        self._client = httpx.Client(base_url=url, headers=headers, trust_env=False)
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with self._client as client:
            for number in range(100_000):
                ids = [f"{self._prefix}-{number}-{part}" for part in range(BATCH)]
                items = [{"id": item_id, "modality": "x", "vector": [1.0] * 8} for item_id in ids]
                try:
                    answer = client.post(f"/v1/collections/{NAME}/items", json={"items": items})
                except httpx.TransportError:
                    self.unsure = ids
                    return
                if answer.status_code != 201:
                    self.refused.append(answer.text)
                    return
                self.acknowledged += ids

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def all_ids(client: httpx.Client) -> Counter[str]:
    found: Counter[str] = Counter()
    cursor: str | None = "0"
    while cursor is not None:
        parameters = {"cursor": cursor, "limit": "1000"}
        page: dict[str, Any] = client.get(f"/v1/collections/{NAME}/items", params=parameters).json()
        found.update(item["id"] for item in page["items"])
        cursor = page["next_cursor"]
    return found


def test_what_was_acknowledged_survives_kills(
    start_server: Callable[..., Any], run_lrbs: Callable[..., str]
) -> None:
    chance = random.Random(5)
    server = start_server()
    headers = {"Authorization": f"Bearer {run_lrbs('keys', 'create', '--scope', 'admin').strip()}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30.0) as client:
        query = fill(client)
    expected = {f"{name}{n}" for name in ("x", "z") for n in range(60)}
    for number in range(ROUNDS):
        writer = Writer(server.url, headers, f"round{number}")
        time.sleep(chance.uniform(0.05, 0.8))
        server.kill()
        writer.join()
        assert writer.refused == []
        server = start_server()
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30.0) as client:
            found = all_ids(client)
            expected |= set(writer.acknowledged)
            assert set(found.values()) == {1}
            assert expected <= found.keys()
            # A batch whose answer was lost is there whole or not at all.
            assert found.keys() - expected in (set(), set(writer.unsure))
            expected = set(found)
            for item_id in chance.sample(writer.acknowledged, min(3, len(writer.acknowledged))):
                answer = client.get(f"/v1/collections/{NAME}/items/{item_id}")
                assert answer.json()["id"] == item_id
            collection = client.get(f"/v1/collections/{NAME}").json()
            assert collection["active_version"] == 1
            assert sum(collection["items"].values()) == len(expected)
            body = {"vector": query, "k": 10_000, "include": []}
            result = client.post(f"/v1/collections/{NAME}/search/z-to-x", json=body).raise_for_status().json()
            assert result["model_version"] == 1
            hits = Counter(hit["id"] for hit in result["hits"])
            assert hits == Counter(item_id for item_id in expected if not item_id.startswith("z"))
    assert len(expected) > 120
