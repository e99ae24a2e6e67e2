"""What holds for every type of encoder; `SAMPLES` has options where a type does not work without any."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.domain.entities import Content
from app.domain.errors import ServiceError
from app.encoders.base import BaseEncoder
from app.encoders.registry import TYPES, ContentLimits, EncoderRegistry, content_form
from solver import is_sparse
from tests.app.onnx_files import WORDS, flattening_model, word_model, write_tokenizer
from tests.app.sounds import tone
from tests.conftest import import_extra

LIMITS = ContentLimits(max_picture_bytes=20_000, max_picture_pixels=10_000, max_text_chars=200)
TEXTS = (
    "a red bag for the weekend",
    "blue shoes to run in",
    "the red shoes of a runner",
    "a grey bag with a blue strap",
    "a weekend in the blue mountains",
)


def pictures() -> list[bytes]:
    """Pictures with edges and corners, none like another."""
    found = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        pixels = np.kron(random.integers(0, 256, (6, 8, 3)), np.ones((8, 8, 1)))
        stream = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(stream, "PNG")
        found.append(stream.getvalue())
    return found


SOUNDS = [tone(frequency) for frequency in (220, 440, 880, 1760, 3520)]
CONTENTS = {
    "sound": [Content(sound=content) for content in SOUNDS],
    "picture": [Content(picture=content) for content in pictures()],
    "text": [Content(text=text) for text in TEXTS],
    "vector": [Content(vector=row.tolist()) for row in np.random.default_rng(0).normal(size=(5, 3))],
}
BAD: dict[str, tuple[Content, ...]] = {
    "picture": (
        Content(text="no picture"),
        Content(picture=b""),
        Content(picture=b"\x89PNG\r\n\x1a\n" + bytes(50)),
        Content(picture=pictures()[0][:-80]),
        Content(picture=bytes(LIMITS.max_picture_bytes + 1)),
    ),
    "sound": (
        Content(picture=pictures()[0]),
        Content(sound=b""),
        Content(sound=pictures()[0]),
        Content(sound=SOUNDS[0][:200]),
        Content(sound=bytes(LIMITS.max_picture_bytes + 1)),
    ),
    "text": (
        Content(picture=b""),
        Content(text=""),
        Content(text=" \n"),
        Content(text="a\x00b"),
        Content(text="a" * (LIMITS.max_text_chars + 1)),
    ),
    "vector": (
        Content(text="1, 2, 3"),
        Content(vector=[]),
        Content(vector=[1.0, float("nan"), 0.0]),
        Content(vector=[1.0, float("inf"), 0.0]),
    ),
}


def onnx_options(folder: Path) -> dict[str, Any]:
    path = folder / "pictures.onnx"
    path.write_bytes(flattening_model(8))
    return {"path": str(path), "size": 8}


def combine_options(folder: Path) -> dict[str, Any]:
    return {"parts": [{"type": "tfidf", "characters": 0}, {"type": "tfidf"}]}


def onnx_text_options(folder: Path) -> dict[str, Any]:
    import_extra("tokenizers")
    path, tokenizer_path = folder / "texts.onnx", folder / "tokenizer.json"
    path.write_bytes(word_model(np.random.default_rng(0).normal(size=(len(WORDS), 4)).tolist()))
    write_tokenizer(tokenizer_path)
    return {"path": str(path), "tokenizer_path": str(tokenizer_path)}


def sift_options(folder: Path) -> dict[str, Any]:
    path = folder / "codebook.npy"
    np.save(path, np.random.default_rng(0).random((20, 128), np.float32) / 8)
    return {"path": str(path)}


def word_vector_options(folder: Path) -> dict[str, Any]:
    path = folder / "vectors.txt"
    words = sorted(set(" ".join(TEXTS).split()))
    rows = np.random.default_rng(0).normal(size=(len(words), 4)).round(3)
    path.write_text(
        "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows, strict=True))
    )
    return {"path": str(path)}


SAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "combine": combine_options,
    "onnx": onnx_options,
    "onnx-text": onnx_text_options,
    "sift-bovw": sift_options,
    "word-vectors": word_vector_options,
}
"""The files that they name are made for the test."""


@pytest.fixture(params=sorted(TYPES))
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param.startswith("onnx"):
        request.getfixturevalue("onnxruntime")
    if request.param == "mfcc":
        import_extra("soundfile")
    make_options = SAMPLES.get(request.param, lambda folder: {})
    return EncoderRegistry(LIMITS).settle({"type": request.param, **make_options(tmp_path)})


def fitted(options: dict[str, Any]) -> BaseEncoder:
    encoder = EncoderRegistry(LIMITS).make(options)
    return encoder.fit(TEXTS) if encoder.is_fitted_with_model else encoder


def dense(encoder: BaseEncoder, contents: list[Content]) -> Any:
    features = encoder.encode(contents)
    assert features.dtype == np.float32
    return features.toarray() if is_sparse(features) else features


def test_the_same_content_has_the_same_finite_features_alone_and_among_others(
    options: dict[str, Any],
) -> None:
    encoder, contents = fitted(options), CONTENTS[str(content_form(options))]
    features = dense(encoder, contents)
    assert features.shape[0] == len(contents)
    assert features.shape[1] > 0
    assert np.isfinite(features).all()
    assert len(np.unique(features, axis=0)) == len(contents), "different contents have different features"
    np.testing.assert_array_equal(dense(fitted(options), contents), features)
    alone = np.concatenate([dense(encoder, [content]) for content in contents])
    np.testing.assert_array_equal(alone, features)


def test_what_an_encoder_learned_comes_back_to_the_bit(options: dict[str, Any]) -> None:
    encoder, contents = fitted(options), CONTENTS[str(content_form(options))]
    state = json.loads(json.dumps(encoder.state(), allow_nan=False))
    restored = EncoderRegistry(LIMITS).restore(options, state)
    np.testing.assert_array_equal(dense(restored, contents), dense(encoder, contents))
    assert restored.state() == encoder.state()


def test_content_that_it_cannot_take_is_refused_by_the_name_of_its_field(options: dict[str, Any]) -> None:
    encoder = fitted(options)
    assert encoder.content_form == content_form(options)
    for content in CONTENTS[encoder.content_form]:
        encoder.check("items.3", content)
    for content in BAD[encoder.content_form]:
        with pytest.raises(ServiceError, match=r"^items\.3"):
            encoder.check("items.3", content)
