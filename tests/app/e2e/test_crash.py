import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from app.client import Client, ConnectionFailedError, LrbsError
from solver.datasets.synthetic import make_low_rank_pairs
from tests.app.e2e.conftest import Server

NAME = "pairs"
ROUNDS = 6
BATCH = 3


def fill(client: Client) -> list[float]:
    """Make a collection and train it; returns a vector to search with."""
    client.create_collection(NAME, {name: {"type": "vector"} for name in ("x", "z")})
    data = make_low_rank_pairs(60, 60, n_features_x=8, n_features_z=6, n_classes=3, random_state=1)
    for name, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
        items = [
            {"id": f"{name}{n}", "modality": name, "vector": row.tolist(), "labels": [f"class {label}"]}
            for n, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        client.create_items(NAME, items)
    job = client.wait_for_job(client.retrain(NAME, alpha=1e-3, scaling="standard").id, timeout=120.0)
    assert job.state == "succeeded", job
    query: list[float] = np.asarray(data.Z[0]).tolist()
    return query


class Writer:
    """Stores batches until the server is gone; remembers which were acknowledged."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.acknowledged: list[str] = []
        self.unsure: list[str] = []
        self.refused: list[str] = []
        self._prefix = prefix
        self._client = client
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with self._client as client:
            for number in range(100_000):
                ids = [f"{self._prefix}-{number}-{part}" for part in range(BATCH)]
                items = [{"id": item_id, "modality": "x", "vector": [1.0] * 8} for item_id in ids]
                try:
                    client.create_items(NAME, items)
                except ConnectionFailedError:
                    self.unsure = ids
                    return
                except LrbsError as error:
                    self.refused.append(str(error))
                    return
                self.acknowledged += ids

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_what_was_acknowledged_survives_kills(
    start_server: Callable[..., Server], create_admin_key: Callable[[], str]
) -> None:
    chance = random.Random(5)
    server = start_server()
    key = create_admin_key()
    with server.client(key) as client:
        query = fill(client)
    expected = {f"{name}{n}" for name in ("x", "z") for n in range(60)}
    for number in range(ROUNDS):
        writer = Writer(server.client(key), f"round{number}")
        time.sleep(chance.uniform(0.05, 0.8))
        server.kill()
        writer.join()
        assert writer.refused == []
        server = start_server()
        with server.client(key) as client:
            found = Counter(item.id for item in client.iter_items(NAME, limit=1000))
            expected |= set(writer.acknowledged)
            assert set(found.values()) == {1}
            assert expected <= found.keys()
            # A batch whose answer was lost is there whole or not at all.
            assert found.keys() - expected in (set(), set(writer.unsure))
            expected = set(found)
            for item_id in chance.sample(writer.acknowledged, min(3, len(writer.acknowledged))):
                assert client.get_item(NAME, item_id).id == item_id
            collection = client.get_collection(NAME)
            assert collection.active_version == 1
            assert collection.items is not None
            assert sum(collection.items.values()) == len(expected)
            result = client.search(NAME, "z", "x", vector=query, k=10_000, include=[])
            assert result.model_version == 1
            hits = Counter(hit.id for hit in result.hits)
            assert hits == Counter(item_id for item_id in expected if not item_id.startswith("z"))
    assert len(expected) > 120
