import base64
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.bootstrap import build
from app.services.training.requests import TrainingParameters
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.loading import load
from tests.app.onnx_files import flattening_model, wait_for_looks

pytestmark = pytest.mark.usefixtures("onnxruntime")

SEARCH = "/v1/collections/shop/search/image-to-text"


def picture(level: int) -> str:
    stored = io.BytesIO()
    Image.new("RGB", (8, 8), (level, 255 - level, level // 2)).save(stored, "PNG")
    return base64.b64encode(stored.getvalue()).decode()


def shop(pairs: Pairs, path: Path) -> Any:
    """A trained collection of pictures and vectors, and one beside it, and a client."""
    path.write_bytes(flattening_model(8))
    client = pairs.client()
    modalities = {
        "image": {"encoder": {"type": "onnx", "path": str(path), "size": 8}},
        "text": {"encoder": {"type": "tfidf"}},
    }
    made = client.post("/v1/collections", json={"name": "shop", "modalities": modalities})
    assert made.status_code == 201, made.text
    items = []
    for number in range(24):
        label, shade = str(number % 2), 40 + 150 * (number % 2) + number
        items.append(
            {"id": f"i{number}", "modality": "image", "image_base64": picture(shade), "labels": [label]}
        )
        text = f"a {'dark' if number % 2 else 'light'} thing number {number}"
        items.append({"id": f"t{number}", "modality": "text", "text": text, "labels": [label]})
    assert client.post("/v1/collections/shop/items", json={"items": items}).status_code == 201
    pairs.train("shop", TrainingParameters(method="lrbs", max_iter=20))
    pairs.fill("beside")
    pairs.train("beside")
    return client


def restarted(pairs: Pairs) -> Pairs:
    return Pairs(build(pairs.services.settings), pairs.data)


def look(pairs: Pairs) -> tuple[bool, str]:
    """How it stands by a look that begins now."""
    wait_for_looks()
    load(pairs.services)
    wait_for_looks()
    found = load(pairs.services)
    return found.is_ready, found.reason or ""


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def replace_by_another(path: Path) -> None:
    path.write_bytes(flattening_model(8, "Neg"))


def test_without_its_model_file_a_collection_serves_all_that_needs_no_picture_until_it_is_back(
    pairs: Pairs, tmp_path: Path
) -> None:
    path = tmp_path / "weights.onnx"
    client = shop(pairs, path)
    for damage in (remove, cut, replace_by_another):
        before = client.post(SEARCH, json={"image_base64": picture(60)}).json()["hits"]
        damage_and_repair(pairs, path, damage, before)


def damage_and_repair(pairs: Pairs, path: Path, damage: Callable[[Path], None], before: list[Any]) -> None:
    copy, folder = path.with_name("copy.onnx"), str(path.parent)
    shutil.copy2(path, copy)
    damage(path)
    begun = restarted(pairs)
    client = begun.client()
    assert look(begun)[0]  # what is loaded in the background is there
    assert client.get("/readyz").status_code == 200
    assert "shop: the encoder of 'image'" in client.get("/readyz").json()["reason"]
    assert "weights.onnx" in client.get("/readyz").json()["reason"]
    assert folder not in client.get("/readyz").text

    refused = [
        client.post(SEARCH, json={"image_base64": picture(60)}),
        client.post(f"{SEARCH}/batch", json={"queries": [{"item_id": "i0"}, {"image_base64": picture(60)}]}),
        client.post(
            "/v1/collections/shop/items", json={"items": [{"modality": "image", "image_base64": picture(9)}]}
        ),
        client.post(
            "/v1/collections/shop/items:import",
            content='{"modality": "image", "image_base64": "' + picture(9) + '"}',
            headers={"Content-Type": "application/x-ndjson"},
        ),
    ]
    for answer in refused:
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/encoder-unavailable")
        assert "Retry-After" in answer.headers
        assert folder not in answer.text
    new = {"id": "new", "modality": "text", "text": "a dark thing", "labels": ["1"]}
    assert client.post("/v1/collections/shop/items", json={"items": [new]}).status_code == 201
    assert client.post(SEARCH, json={"item_id": "i1"}).status_code == 200
    text = client.post("/v1/collections/shop/search/text-to-image", json={"text": "a dark thing"})
    assert text.status_code == 200
    assert len(begun.ids("beside")) == 60
    assert client.delete("/v1/collections/shop/items/new").status_code < 300
    begun.train("shop", TrainingParameters(method="lrbs", max_iter=20))

    copy.replace(path)
    assert look(begun) == (True, "")
    assert client.post(SEARCH, json={"image_base64": picture(60)}).json()["hits"] == before
    added = {"items": [{"modality": "image", "image_base64": picture(9)}]}
    assert client.post("/v1/collections/shop/items", json=added).status_code == 201
    close(begun.services)


def test_other_weights_are_noticed_while_the_process_runs_and_never_used(
    pairs: Pairs, tmp_path: Path
) -> None:
    path = tmp_path / "weights.onnx"
    client = shop(pairs, path)
    before = client.post(SEARCH, json={"image_base64": picture(60)}).json()["hits"]
    assert look(pairs) == (True, "")
    replace_by_another(path)
    is_ready, reason = look(pairs)
    assert is_ready
    assert "not the one" in reason
    # The process holds the right model, and goes on with it.
    assert client.post(SEARCH, json={"image_base64": picture(60)}).json()["hits"] == before
    path.write_bytes(flattening_model(8))
    assert look(pairs) == (True, "")


def test_a_collection_made_before_hashes_were_kept_is_bound_to_the_file_by_its_next_model(
    pairs: Pairs, tmp_path: Path
) -> None:
    path = tmp_path / "weights.onnx"
    shop(pairs, path)
    with pairs.services.database.engine.begin() as connection:
        (stored,) = connection.exec_driver_sql("SELECT modalities FROM collections WHERE name = 'shop'").one()
        modalities = json.loads(stored)
        assert len(modalities[0]["encoder"].pop("sha256")) == 64
        update = "UPDATE collections SET modalities = ? WHERE name = 'shop'"
        connection.exec_driver_sql(update, (json.dumps(modalities),))
    assert look(restarted(pairs)) == (True, "")
    pairs.train("shop", TrainingParameters(method="lrbs", max_iter=20))
    replace_by_another(path)
    assert "not the one" in look(restarted(pairs))[1]


def test_a_combination_is_served_and_does_not_show_where_its_files_are(pairs: Pairs, tmp_path: Path) -> None:
    path, client = tmp_path / "weights.onnx", pairs.client()
    path.write_bytes(flattening_model(8))
    parts: list[dict[str, Any]] = [{"type": "hog-color"}, {"type": "onnx", "path": str(path), "size": 8.0}]
    text_parts = [{"type": "tfidf"}, {"type": "tfidf", "ngrams": 1}]
    modalities = {
        "image": {"encoder": {"type": "combine", "parts": parts}},
        "text": {"encoder": {"type": "combine", "parts": text_parts}},
    }
    made = client.post("/v1/collections", json={"name": "shop", "modalities": modalities})
    assert made.status_code == 201, made.text
    assert str(tmp_path) not in made.text
    shown = client.get("/v1/collections/shop").json()["modalities"]["image"]["encoder"]["parts"]
    assert [part["type"] for part in shown] == ["hog-color", "onnx"]
    assert len(shown[1]["sha256"]) == 64
    items: list[dict[str, Any]] = []
    for number in range(16):
        label = ("dark", "light")[number % 2]
        shade = picture(20 + 190 * (number % 2) + number)
        items.append({"modality": "image", "image_base64": shade, "labels": [label]})
        items.append({"modality": "text", "text": f"a {label} thing", "labels": [label]})
    assert client.post("/v1/collections/shop/items", json={"items": items}).status_code == 201
    pairs.train("shop", TrainingParameters(method="lrbs", max_iter=20))
    by_text = client.post("/v1/collections/shop/search/text-to-image", json={"text": "dark", "k": 4}).json()
    by_picture = client.post(SEARCH, json={"image_base64": picture(22), "k": 4}).json()
    for answer in (by_text, by_picture):
        assert [hit["labels"] for hit in answer["hits"]] == [["dark"]] * 4
    path.unlink()
    assert "weights.onnx" in look(restarted(pairs))[1]
    parts[1]["path"] = str(tmp_path / "absent.onnx")
    refused = client.post("/v1/collections", json={"name": "other", "modalities": modalities})
    assert refused.json()["field"] == "modalities.image.encoder.parts.1.path"


def test_creating_a_collection_with_a_bad_path_is_the_clients_error(pairs: Pairs, tmp_path: Path) -> None:
    client = pairs.client()
    for name in ("absent.onnx", "nul\x00"):
        modalities = {
            "image": {"encoder": {"type": "onnx", "path": str(tmp_path / name)}},
            "text": {"encoder": {"type": "tfidf"}},
        }
        made = client.post("/v1/collections", json={"name": "shop", "modalities": modalities})
        assert made.status_code == 422, made.text
        assert made.json()["field"] == "modalities.image.encoder.path"
