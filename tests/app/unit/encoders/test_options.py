from typing import Any

import pytest

from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.encoders.registry import OPTIONS, ContentLimits, EncoderRegistry

REGISTRY = EncoderRegistry(ContentLimits(max_picture_bytes=1, max_picture_pixels=1, max_text_chars=1))
PATH = {"type": "onnx", "path": "m.onnx"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, f"encoder.type: unknown type 'None', expected {join_words(REGISTRY.types)}"),
        (
            {"type": "bert"},
            f"encoder.type: unknown type 'bert', expected {join_words(REGISTRY.types)}",
        ),
        ({"type": "combine"}, "encoder.parts: expected a list of 2 to 8 encoders with their options"),
        (
            {"type": "combine", "parts": [{"type": "tfidf"}, {"type": "tfidf", "ngrams": 6}]},
            "encoder.parts.1.ngrams: expected an integer from 1 to 5, got 6",
        ),
        (
            {"type": "combine", "parts": [{"type": "hog-color"}, {"type": "tfidf"}]},
            "encoder.parts.1.type: takes a text, the first a picture",
        ),
        (
            {"type": "combine", "parts": [{"type": "vector"}, {"type": "vector"}]},
            "encoder.parts.0.type: own features cannot be combined here: send one vector",
        ),
        (
            {"type": "combine", "parts": [{"type": "tfidf"}, {"type": "combine", "parts": []}]},
            "encoder.parts.1.type: a combination cannot be part of another",
        ),
        (
            {"type": "combine", "parts": [{"type": "tfidf"}]},
            "encoder.parts: expected a list of 2 to 8 encoders with their options, got [{'type': 'tfidf'}]",
        ),
        ({"type": "vector", "dmi": 3}, "encoder: vector has no option 'dmi'; it has dim and steps"),
        ({"type": "hog-color", "x": 1}, "encoder: hog-color has no option 'x'; it has steps"),
        (
            {"type": "tfidf", "x": 1},
            "encoder: tfidf has no option 'x'; it has characters, max_features, ngrams and steps",
        ),
        ({"type": "vector", "dim": None}, "encoder.dim: expected an integer from 1 to 1000000, got None"),
        ({"type": "vector", "dim": True}, "encoder.dim: expected an integer from 1 to 1000000, got True"),
        ({"type": "vector", "dim": "3"}, "encoder.dim: expected an integer from 1 to 1000000, got '3'"),
        ({"type": "vector", "dim": 2.0}, "encoder.dim: expected an integer from 1 to 1000000, got 2.0"),
        ({"type": "tfidf", "ngrams": 6}, "encoder.ngrams: expected an integer from 1 to 5, got 6"),
        ({"type": "tfidf", "characters": 2}, "encoder.characters: expected 0, 3, 4, 5 or 6, got 2"),
        ({"type": "tfidf", "characters": False}, "encoder.characters: expected 0, 3, 4, 5 or 6, got False"),
        ({**PATH, "size": 2049}, "encoder.size: expected an integer from 1 to 2048, got 2049"),
        ({**PATH, "mean": [1, 2]}, "encoder.mean: expected a number or three, got [1, 2]"),
        ({**PATH, "mean": [1, 2, True]}, "encoder.mean: expected a number or three, got [1, 2, True]"),
        ({**PATH, "mean": float("nan")}, "encoder.mean: expected a number or three, got nan"),
        ({**PATH, "mean": float("inf")}, "encoder.mean: expected a number or three, got inf"),
        ({**PATH, "scale": 0}, "encoder.scale: expected non-zero, or three, got 0"),
        ({**PATH, "scale": [1, 0.0, 1]}, "encoder.scale: expected non-zero, or three, got [1, 0.0, 1]"),
        ({**PATH, "output": "a\x00b"}, r"encoder.output: expected the name of an output, got 'a\x00b'"),
        ({"type": "onnx", "path": 3}, "encoder.path: expected a file path, got 3"),
        ({**PATH, "sha256": "0" * 63}, f"encoder.sha256: expected 64 hexadecimal digits, got '{'0' * 63}'"),
        ({**PATH, "scale": "{0}", "size": 0}, "encoder.scale: expected non-zero, or three, got '{0}'"),
        (
            {**PATH, "y": 1, "size": 0},
            "encoder: onnx has no option 'y'; "
            "it has fit, layout, mean, output, path, scale, sha256, size and steps",
        ),
        ({**PATH, "size": 0, "y": 1}, "encoder.size: expected an integer from 1 to 2048, got 0"),
    ],
    ids=str,
)
def test_the_first_mistake_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        REGISTRY.make(options)
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", REGISTRY.types)
def test_every_encoder_has_the_options_of_its_description_and_no_other(kind: str) -> None:
    names = OPTIONS.schemas()[kind]["properties"].keys() - {"type"}
    for name in names:
        with pytest.raises(InvalidFieldError) as caught:
            REGISTRY.make({"type": kind, name: object()})
        assert caught.value.field == f"encoder.{name}"
    with pytest.raises(InvalidFieldError, match=rf"^encoder: {kind} has no option 'no such option'; it has "):
        REGISTRY.make({"type": kind, "no such option": 1})


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_a_whole_number_beyond_double_precision_is_refused(number: int) -> None:
    with pytest.raises(InvalidFieldError, match=r"encoder\.mean: expected a number or three"):
        REGISTRY.make({**PATH, "mean": number})


@pytest.mark.parametrize("numbers", [128, -1.5, [1, 2.5, 3], [0, 0, 0]])
def test_one_number_or_three_are_taken_as_they_are(numbers: Any) -> None:
    options = {**PATH, "mean": numbers, "size": 2048}
    before = dict(options)
    REGISTRY.make(options)
    assert options == before


def test_a_collection_of_an_earlier_release_may_have_more_terms_than_a_new_one() -> None:
    options = {"type": "tfidf", "max_features": 200_001}
    REGISTRY.make(options)
    with pytest.raises(InvalidFieldError, match=r"encoder\.max_features: expected at most 200000"):
        REGISTRY.settle(options)


def test_a_new_collection_takes_words_apart_unless_it_says_otherwise_and_an_earlier_one_does_not() -> None:
    assert REGISTRY.settle({"type": "tfidf"}) == {"type": "tfidf", "characters": 5}
    for options in ({"type": "tfidf", "characters": 0}, {"type": "tfidf", "characters": 3}):
        assert REGISTRY.settle(options) == options
    texts = ["a red bag", "a blue shoe"]
    assert "parts" not in REGISTRY.make({"type": "tfidf"}).fit(texts).state()
    assert "parts" in REGISTRY.make(REGISTRY.settle({"type": "tfidf"})).fit(texts).state()


def test_the_first_vector_decides_the_dimension() -> None:
    first = Content(vector=[1.0, 2.0])
    assert REGISTRY.with_first_item({"type": "vector"}, first) == {"type": "vector", "dim": 2}
    assert REGISTRY.with_first_item({"type": "vector", "dim": 3}, first) == {"type": "vector", "dim": 3}
    assert REGISTRY.with_first_item({"type": "vector"}, Content(text="a")) == {"type": "vector"}
    assert REGISTRY.with_first_item({"type": "tfidf"}, Content(text="a")) == {"type": "tfidf"}


def test_a_dimension_is_stored_once() -> None:
    used = {"type": "vector", "dim": 2}
    assert REGISTRY.pending_options({"type": "vector"}, used) == {"dim": 2}
    assert REGISTRY.pending_options(used, dict(used)) == {}
    assert REGISTRY.pending_options({"type": "tfidf"}, {"type": "tfidf"}) == {}
    with pytest.raises(InvalidFieldError, match="vector: has 2 numbers, expected 5"):
        REGISTRY.pending_options({"type": "vector", "dim": 5}, used)
