"""Collections with each kind of text encoder and with steps: made, trained, searched, and loaded again."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.bootstrap import build
from app.services.training.requests import TrainingParameters
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.loading import load
from tests.app.onnx_files import WORDS, wait_for_looks, word_model, write_tokenizer
from tests.app.sounds import tone
from tests.conftest import import_extra

PARAMETERS = TrainingParameters(method="lrbs", alpha=1e-3, scaling="center", max_iter=20)
COLOURS = {"red": (200, 30, 30), "blue": (30, 30, 200)}


def picture(colour: str, seed: int) -> str:
    noise = np.random.default_rng(seed).integers(0, 30, (16, 16, 3))
    stored = io.BytesIO()
    Image.fromarray((np.array(COLOURS[colour]) + noise).astype(np.uint8)).save(stored, "PNG")
    return base64.b64encode(stored.getvalue()).decode()


def text_encoder(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "word-vectors":
        path = folder / "vectors.txt"
        path.write_text("red 1 0 0\nblue 0 1 0\nbag 0 0 1\nshoe 0 0.1 1\nscarlet 0.9 0 0.1\n")
        return {"type": kind, "path": str(path)}
    if kind == "onnx-text":
        import_extra("tokenizers")
        path, tokenizer = folder / "texts.onnx", folder / "tokenizer.json"
        path.write_bytes(word_model(np.eye(len(WORDS)).tolist()))
        write_tokenizer(tokenizer)
        return {"type": kind, "path": str(path), "tokenizer_path": str(tokenizer), "steps": ["center"]}
    return {"type": kind, "steps": ["sqrt", "standardize"]}


STEPPED = {"type": "hog-color", "steps": ["sqrt", "pca:0.9", "l2"]}


def shop(pairs: Pairs, encoder: dict[str, Any], of_pictures: dict[str, Any] = STEPPED) -> Any:
    """Return a client of a trained collection of red and blue things."""
    client = pairs.client()
    modalities = {
        "image": {"encoder": of_pictures},
        "text": {"encoder": encoder},
    }
    made = client.post("/v1/collections", json={"name": "shop", "modalities": modalities})
    assert made.status_code == 201, made.text
    items = []
    for number in range(24):
        colour, thing = ("red", "blue")[number % 2], ("bag", "shoe")[number % 3 % 2]
        facts: dict[str, Any] = {"labels": [colour]}
        content = picture(colour, number)
        items.append({"id": f"i{number}", "modality": "image", "image_base64": content, **facts})
        items.append({"id": f"t{number}", "modality": "text", "text": f"{colour} {thing}", **facts})
    stored = client.post("/v1/collections/shop/items", json={"items": items})
    assert stored.status_code == 201, stored.text
    pairs.train("shop", PARAMETERS)
    return client


def hits(client: Any, direction: str, query: dict[str, Any]) -> list[Any]:
    answer = client.post(f"/v1/collections/shop/search/{direction}", json={**query, "k": 8})
    assert answer.status_code == 200, answer.text
    return [(hit["id"], hit["score"]) for hit in answer.json()["hits"]]


QUERIES = (
    ("text-to-image", {"text": "a red bag"}, 0),
    ("text-to-image", {"item_id": "t1"}, 1),
    ("image-to-text", {"image_base64": picture("blue", 100)}, 1),
    ("image-to-text", {"item_id": "i0"}, 0),
)


@pytest.mark.parametrize("kind", ["word-frequency", "lda", "word-vectors", "onnx-text"])
def test_a_model_finds_what_belongs_together_and_is_the_same_after_a_restart(
    pairs: Pairs, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "onnx-text":
        request.getfixturevalue("onnxruntime")
    client = shop(pairs, text_encoder(kind, tmp_path))
    added = {"id": "i98", "modality": "image", "image_base64": picture("red", 98), "labels": ["red"]}
    assert client.post("/v1/collections/shop/items", json={"items": [added]}).status_code == 201
    before = [hits(client, direction, query) for direction, query, _ in QUERIES]
    for found, (_, _, parity) in zip(before, QUERIES, strict=True):
        assert {int(name[1:]) % 2 for name, _ in found} == {parity}
    begun = Pairs(build(pairs.services.settings), pairs.data)
    load(begun.services)
    assert [hits(begun.client(), direction, query) for direction, query, _ in QUERIES] == before
    if kind == "word-vectors":  # a word that no training text had is found by its vector
        assert {int(name[1:]) % 2 for name, _ in hits(client, "text-to-image", {"text": "scarlet"})} == {0}
    described = client.get("/v1/collections/shop").json()["modalities"]
    assert {name: one["content"] for name, one in described.items()} == {"image": "picture", "text": "text"}
    assert str(tmp_path) not in str(described)
    close(begun.services)


def test_without_its_vectors_a_collection_takes_no_texts_until_they_are_back(
    pairs: Pairs, tmp_path: Path
) -> None:
    client = shop(pairs, text_encoder("word-vectors", tmp_path))
    before = hits(client, "text-to-image", {"text": "red"})
    vectors, away = tmp_path / "vectors.txt", tmp_path / "away.txt"
    vectors.rename(away)
    begun = Pairs(build(pairs.services.settings), pairs.data)
    client = begun.client()
    load(begun.services)
    wait_for_looks()
    load(begun.services)
    assert "vectors.txt" in client.get("/readyz").json()["reason"]
    item = {"modality": "text", "text": "red bag", "labels": ["red"]}
    refused = [
        client.post("/v1/collections/shop/items", json={"items": [item]}),
        client.post("/v1/collections/shop/search/text-to-image", json={"text": "red"}),
    ]
    for answer in refused:
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/encoder-unavailable")
        assert str(tmp_path) not in answer.text
    assert len(hits(client, "image-to-text", {"image_base64": picture("red", 5)})) == 8
    away.rename(vectors)
    assert hits(client, "text-to-image", {"text": "red"}) == before
    assert client.post("/v1/collections/shop/items", json={"items": [item]}).status_code == 201
    close(begun.services)


def test_sounds_are_stored_found_and_given_back(pairs: Pairs) -> None:
    import_extra("soundfile")
    client = pairs.client()
    modalities = {"sound": {"encoder": {"type": "mfcc"}}, "text": {"encoder": {"type": "tfidf"}}}
    body = {"name": "sounds", "modalities": modalities}
    assert client.post("/v1/collections", json=body).status_code == 201
    tones = {"low": 300, "high": 3000}
    items: list[dict[str, Any]] = []
    for number in range(16):
        name = ("low", "high")[number % 2]
        facts = {"labels": [name]}
        encoded = sound(tones[name] + 10 * number)
        items.append({"id": f"s{number}", "modality": "sound", "sound_base64": encoded, **facts})
        items.append({"id": f"t{number}", "modality": "text", "text": f"a {name} tone {number}", **facts})
    assert client.post("/v1/collections/sounds/items", json={"items": items}).status_code == 201
    pairs.train("sounds", PARAMETERS)
    path = "/v1/collections/sounds"
    found = client.post(f"{path}/search/text-to-sound", json={"text": "a high tone", "k": 8}).json()["hits"]
    assert {int(hit["id"][1:]) % 2 for hit in found} == {1}
    query = {"sound_base64": sound(305), "k": 8}
    found = client.post(f"{path}/search/sound-to-text", json=query).json()["hits"]
    assert {int(hit["id"][1:]) % 2 for hit in found} == {0}
    content = client.get(f"{path}/items/s3/content")
    assert content.headers["Content-Type"] == "audio/wav"
    assert content.content == base64.b64decode(sound(3030))
    wrong = {"items": [{"modality": "sound", "sound_base64": picture("red", 0)}]}
    refused = client.post(f"{path}/items", json=wrong)
    assert (refused.status_code, refused.json()["field"]) == (422, "items.0.sound_base64")
    wrong = {"items": [{"modality": "sound", "text": "a tone"}]}
    assert (
        "expected a sound (sound_base64 or a multipart file)"
        in client.post(f"{path}/items", json=wrong).json()["detail"]
    )
    answer = client.post(f"{path}/items", files={"sound": ("a.wav", tone(400), "audio/wav")})
    assert answer.status_code == 201, answer.text
    (stored,) = answer.json()["ids"]
    assert client.get(f"{path}/items/{stored}").json()["modality"] == "sound"
    by_file = {"files": {"sound": ("a.wav", tone(305), "audio/wav")}, "data": {"k": "8"}}
    again = client.post(f"{path}/search/sound-to-text", **by_file).json()["hits"]
    assert [hit["id"] for hit in again] == [hit["id"] for hit in found]
    both = {"sound": ("a.wav", tone(400)), "picture": ("a.png", b"none")}
    assert client.post(f"{path}/items", files=both).json()["field"] == "sound"
    cut_off = client.post(f"{path}/items", files={"sound": ("a.wav", tone(400)[:60])})
    assert (cut_off.status_code, cut_off.json()["field"]) == (422, "sound")
    assert "part 'picture' or 'sound'" in client.post(f"{path}/items", content=tone(400)).json()["detail"]


def sound(frequency: float) -> str:
    return base64.b64encode(tone(frequency)).decode()


def test_a_few_pictures_find_their_own_words_after_a_training_as_before(pairs: Pairs) -> None:
    client = pairs.client()
    modalities = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
    client.post("/v1/collections", json={"name": "shop", "modalities": modalities})
    rng, items, contents = np.random.default_rng(0), [], []
    for number in range(24):
        stored = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (2, 2, 3)).astype(np.uint8)).resize((32, 32)).save(stored, "PNG")
        contents.append(base64.b64encode(stored.getvalue()).decode())
        facts: dict[str, Any] = {"pair_id": f"p{number}", "labels": [f"kind {number % 3}"]}
        items.append({"id": f"i{number}", "modality": "image", "image_base64": contents[-1], **facts})
        items.append({"id": f"t{number}", "modality": "text", "text": f"thing number {number}", **facts})
    assert client.post("/v1/collections/shop/items", json={"items": items}).status_code == 201

    def n_right() -> int:
        first = [hits(client, "image-to-text", {"image_base64": content})[0][0] for content in contents]
        return sum(item_id == f"t{number}" for number, item_id in enumerate(first))

    assert n_right() == 24
    pairs.train("shop", TrainingParameters(method="composite"))
    assert n_right() >= 22
