"""What DESIGN.md promises, asked for by a client that knows nothing else, on real data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.e2e.contract_client import Client, mean_average_precision

pytestmark = pytest.mark.data

NAME = "digits"
SIDES = {"image": "I", "audio": "A"}  # handwritten digits and spoken ones
WANTED = {"image-to-audio": 0.97, "audio-to-image": 0.97}  # with the default method; the paper's: 0.85
TRAINING_SECONDS = 900.0


def items_of(arrays: Any, split: str) -> Iterator[dict[str, Any]]:
    """Yield both sides of a split of the release's arrays."""
    short = {"train": "tr", "test": "te"}[split]
    labels = arrays[f"y_{short}"].tolist()
    for side, letter in SIDES.items():
        for row, (vector, label) in enumerate(zip(arrays[f"{letter}_{short}"].tolist(), labels, strict=True)):
            yield {
                "id": f"{side}-{split}-{row}",
                "modality": side,
                "vector": vector,
                "labels": [f"class {label}"],
                "pair_id": f"{split}-{row}",
                "metadata": {"split": split},
                "train": split == "train",
            }


def test_a_client_of_the_contract_alone_reaches_the_wanted_map(
    test_data: Path, start_server: Callable[..., Any], create_admin_key: Callable[[], str]
) -> None:
    with np.load(test_data / "audio_digits" / "audio_digits.npz") as archive:
        # Half of the training rows suffice.
        arrays = {name: archive[name][:: 2 if name.endswith("_tr") else 1] for name in archive.files}
    server = start_server()
    client = Client(server.url, create_admin_key())
    client.create(NAME, list(SIDES))
    n_train, n_test = len(arrays["y_tr"]), len(arrays["y_te"])
    told = client.import_items(NAME, items_of(arrays, "train"))
    assert (told["created"], told["updated"], told["unchanged"]) == (2 * n_train, 0, 0)
    assert client.retrain(NAME, TRAINING_SECONDS) == 1
    added = client.import_items(NAME, items_of(arrays, "test"))
    assert added["created"] == 2 * n_test
    assert added["revision"] > told["revision"]
    again = client.import_items(NAME, items_of(arrays, "train"))
    assert (again["unchanged"], again["revision"]) == (2 * n_train, added["revision"])

    labels = {
        item["id"]: item["labels"][0]
        for side in SIDES
        for item in client.items(NAME, side)
        if item["metadata"] == {"split": "test"} and not item["train"]
    }
    assert len(labels) == 2 * n_test
    reached = {}
    for direction in WANTED:
        source, target = direction.split("-to-")
        queries = [item_id for item_id in labels if item_id.startswith(source)]
        rankings = client.rankings(NAME, direction, queries, 1000, {"metadata": {"split": "test"}})
        judged = []
        for query, hits in zip(queries, rankings, strict=True):
            assert {hit["id"] for hit in hits} == {name for name in labels if name.startswith(target)}
            judged.append([hit["labels"] == [labels[query]] for hit in hits])
        reached[direction] = mean_average_precision(judged)
    print(f"MAP through filtered searches: {reached}")  # noqa: T201
    for direction, wanted in WANTED.items():
        assert reached[direction] >= wanted

    query = "image-test-0"
    answer = client.done("POST", f"/v1/collections/{NAME}/search/image-to-audio", {"item_id": query, "k": 3})
    assert (answer["model_version"], answer["index_revision"]) == (1, added["revision"])
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3]
    pair = client.done("GET", f"/v1/collections/{NAME}/items?pair_id=test-0")["items"]
    assert [item["id"] for item in pair] == ["image-test-0", "audio-test-0"]
    client.done("DELETE", f"/v1/collections/{NAME}/items/{answer['hits'][0]['id']}")
    after = client.done("POST", f"/v1/collections/{NAME}/search/image-to-audio", {"item_id": query, "k": 2})
    assert [hit["id"] for hit in after["hits"]] == [hit["id"] for hit in answer["hits"][1:]]
