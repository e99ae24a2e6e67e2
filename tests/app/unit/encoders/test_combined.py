import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.searches import WordReport
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model, wait_for_looks

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))
TEXTS = ["a red handbag", "a blue shoe", "a grey shoe"]


def picture(colour: tuple[int, int, int]) -> Content:
    stored = io.BytesIO()
    Image.new("RGB", (20, 20), colour).save(stored, "PNG")
    return Content(picture=stored.getvalue())


def two_of_pictures(path: Path) -> dict[str, Any]:
    return {
        "type": "combine",
        "parts": [{"type": "hog-color"}, {"type": "onnx", "path": str(path), "size": 8}],
    }


@pytest.mark.usefixtures("onnxruntime")
def test_pictures_have_the_features_of_each_part_at_unit_length(tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    path.write_bytes(flattening_model(8))
    options = REGISTRY.settle(two_of_pictures(path))
    assert [len(part.get("sha256", "")) for part in options["parts"]] == [0, 64]
    contents = [picture((250, 30, 30)), picture((128, 128, 128))]
    combined = REGISTRY.make(options).encode(contents)
    start = 0
    for part in options["parts"]:
        alone = REGISTRY.make(part).encode(contents)
        norms = np.linalg.norm(alone, axis=1, keepdims=True)
        expected = np.divide(alone, norms, where=norms > 0, out=np.zeros_like(alone))
        stop = start + alone.shape[1]
        np.testing.assert_allclose(combined[:, start:stop], expected, atol=1e-6)
        start = stop
    assert combined.dtype == np.float32
    assert combined.shape[1] == start
    assert not np.any(combined[1, -192:]), "what is zero remains zero"


@pytest.mark.usefixtures("onnxruntime")
def test_each_model_file_is_bound_by_its_hash_and_its_fault_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    with pytest.raises(InvalidFieldError, match=r"encoder\.parts\.1\.path: there is no model file"):
        REGISTRY.settle(two_of_pictures(path))
    path.write_bytes(flattening_model(8))
    settled = REGISTRY.settle(two_of_pictures(path))
    state = json.loads(json.dumps(REGISTRY.make(settled).state()))
    assert state == {"parts": [{}, {"sha256": settled["parts"][1]["sha256"]}]}
    path.write_bytes(flattening_model(8, "Neg"))
    restored = EncoderRegistry(ContentLimits(10**6, 10**6, 1000)).restore(two_of_pictures(path), state)
    restored.fault()
    wait_for_looks()
    assert "not the one" in str(restored.fault())
    wait_for_looks()


def test_texts_are_learned_by_each_part_and_come_back_from_their_state() -> None:
    parts = [{"type": "tfidf", "characters": 0}, {"type": "tfidf", "ngrams": 1, "characters": 3}]
    options = {"type": "combine", "parts": parts}
    encoder = REGISTRY.make(options).fit(TEXTS)
    assert encoder.is_fitted_with_model
    contents = [Content(text=text) for text in (*TEXTS, "handbags", "xyzzy")]
    features = encoder.encode(contents)
    lengths = np.linalg.norm(features.toarray(), axis=1)
    np.testing.assert_allclose(lengths, [2**0.5, 2**0.5, 2**0.5, 1, 0], rtol=1e-5)
    restored = REGISTRY.restore(options, json.loads(json.dumps(encoder.state())))
    np.testing.assert_array_equal(restored.encode(contents).toarray(), features.toarray())
    assert restored.look_up_words(Content(text="red handbags xyzzy")) == WordReport(2, ("xyzzy",))
