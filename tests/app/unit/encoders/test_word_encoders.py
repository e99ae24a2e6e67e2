"""Encoders of texts by their words: `word-frequency`, `lda` and `word-vectors`."""

import struct
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.domain.searches import WordReport
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.word_vectors import load_word_vectors
from tests.app.refused import refused

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))
VECTORS = {"shoe": (1.0, 0.0, 0.0), "boot": (0.9, 0.1, 0.0), "bag": (0.0, 1.0, 0.0), "red": (0.0, 0.0, 1.0)}


def contents(*texts: str) -> list[Content]:
    return [Content(text=text) for text in texts]


def as_text(vectors: Mapping[str, Sequence[float]], *, header: bool) -> bytes:
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in vectors.items()]
    return "".join([f"{len(vectors)} 3\n"] * header + lines).encode()


def as_binary(vectors: Mapping[str, Sequence[float]], end: bytes = b"\n") -> bytes:
    rows = [word.encode() + b" " + struct.pack("<3f", *row) + end for word, row in vectors.items()]
    return f"{len(vectors)} 3\n".encode() + b"".join(rows)


def vector_encoder(folder: Path, content: bytes) -> Any:
    path = folder / "vectors"
    path.write_bytes(content)
    return REGISTRY.make(REGISTRY.settle({"type": "word-vectors", "path": str(path)}))


def test_frequencies_are_shares_of_the_learned_words() -> None:
    encoder = REGISTRY.make({"type": "word-frequency", "max_words": 2})
    encoder.fit(["red bag red", "red bag", "red shoe"])
    features = encoder.encode(contents("red red bag and shoe", "unknown"))
    assert encoder.state() == {"words": ["bag", "red"], "rule": 2, "spellings": ["red", "bag"]}
    np.testing.assert_array_equal(features.toarray(), np.float32([[1 / 3, 2 / 3], [0, 0]]))
    assert encoder.look_up_words(Content(text="red shoe")) == WordReport(1, ("shoe",))


def test_frequencies_of_before_are_those_of_their_own_words() -> None:
    words = ["by", "café", "işik", "sea", "shirt", "size", "the", "红色手机"]
    encoder = REGISTRY.make({"type": "word-frequency"}).restore({"words": words})
    features = encoder.encode(contents("cafe café", "ışık", "手机 红色手机", "SIZE l C++ shirts"))
    assert [row.nonzero()[0].tolist() for row in features.toarray()] == [[1], [], [7], [5]]
    assert encoder.look_up_words(Content(text="SIZE l C++ shirts")) == WordReport(1, ("shirts",))
    assert encoder.state() == {"words": words}


def test_texts_of_one_topic_are_nearer_than_those_of_another() -> None:
    random = np.random.default_rng(0)
    topics = [["goal", "match", "team", "ball", "league"], ["flour", "oven", "sugar", "butter", "dough"]]
    texts = [" ".join(random.choice(topics[number % 2], 8)) for number in range(60)]
    encoder = REGISTRY.make({"type": "lda", "topics": 2}).fit(texts)
    shares = encoder.encode(contents("the team has the ball", "sugar and flour", "a league match", "unknown"))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    sides = np.argmax(shares[:3], axis=1)
    assert sides[0] == sides[2] != sides[1]
    np.testing.assert_allclose(shares[3], 0.5)


@pytest.mark.parametrize("kind", ["word-frequency", "lda", "tfidf"])
def test_texts_without_words_cannot_be_learned_from(kind: str) -> None:
    with refused("training-data", match="they hold no word"):
        REGISTRY.make({"type": kind}).fit(["?", "! ?", ""])


@pytest.mark.parametrize(
    "content",
    [
        as_text(VECTORS, header=False),
        as_text(VECTORS, header=True),
        as_text(VECTORS, header=True).replace(b"\n", b" \r\n"),
        as_binary(VECTORS),
        as_binary(VECTORS, b""),
    ],
    ids=["glove", "text with header", "spaces and line ends", "binary", "binary without line ends"],
)
def test_a_text_is_the_mean_of_its_words_by_their_rarity(tmp_path: Path, content: bytes) -> None:
    encoder = vector_encoder(tmp_path, content).fit(["a red shoe", "the red bag", "red"])
    shoe, red, boot = log(4 / 2) + 1, log(4 / 4) + 1, log(4) + 1
    expected = [
        (np.array(VECTORS["shoe"]) * shoe * 2 + np.array(VECTORS["red"]) * red) / (2 * shoe + red),
        VECTORS["boot"],
        (np.array(VECTORS["boot"]) * boot + np.array(VECTORS["red"]) * red) / (boot + red),
        np.zeros(3),
    ]
    features = encoder.encode(contents("Red shoe, SHOE", "boot", "a red boot", "unknown"))
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    assert encoder.look_up_words(Content(text="red boots and a boot")) == WordReport(2, ("boots", "and"))


def test_words_are_told_apart_as_they_are_written_where_the_file_does(tmp_path: Path) -> None:
    vectors = {"may": (1.0, 0.0, 0.0), "May": (0.0, 1.0, 0.0), "Paris": (0.0, 0.0, 1.0)}
    encoder = vector_encoder(tmp_path, as_text(vectors, header=False)).fit(["may"])
    features = encoder.encode(contents("may", "May", "MAY", "paris", "PARIS"))
    np.testing.assert_array_equal(np.argmax(features, axis=1), [0, 1, 0, 2, 2])


def test_vectors_are_found_by_accents_capitals_and_pairs_of_characters(tmp_path: Path) -> None:
    vectors = {"café": (1.0, 0.0, 0.0), "手机": (0.0, 1.0, 0.0), "ışık": (0.0, 0.0, 1.0)}
    encoder = vector_encoder(tmp_path, as_text(vectors, header=False)).fit(["café"])
    features = encoder.encode(contents("CAFE", "cafe\u0301", "红色手机", "IŞIK", "isik"))
    np.testing.assert_array_equal(np.argmax(features, axis=1), [0, 0, 1, 2, 2])
    assert encoder.look_up_words(Content(text="Cafe 手机 xyzzy")) == WordReport(2, ("xyzzy",))
    state = {name: value for name, value in encoder.state().items() if name != "rule"}
    options = {"type": "word-vectors", "path": str(tmp_path / "vectors")}
    before = REGISTRY.restore(options, state)
    assert [bool(row.any()) for row in before.encode(contents("CAFE", "红色手机", "Café"))] == [
        False,
        False,
        True,
    ]
    assert before.state() == state


def test_a_word_that_comes_twice_or_is_no_utf8_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"new york 1 2\nred 3 4\nred 5 6\n\xff\xfe 7 8\n\n")
    with pytest.raises(EncoderUnavailableError, match="word 1 has no 3 numbers"):
        load_word_vectors(path)
    path.write_bytes(b"red 3 4\nnew york 1 2\nred 5 6\n\xff\xfe 7 8\n\n")
    vectors = load_word_vectors(path)
    assert vectors.positions == {"red": 0, "new york": 1}
    np.testing.assert_array_equal(vectors.rows, [[3, 4], [1, 2]])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"word", "its first word has 0 numbers, expected 1 to 2048"),
        (b"3 0\n", "its first word has 0 numbers, expected 1 to 2048"),
        (b"3 5000\n", "its first word has 5000 numbers"),
        (b"2 3\n", "it has no word"),
        (b"\n\n", "its first word has -1 numbers"),
        (b"red 1 2 3\nbag 1 2\n", "word 2 has no 3 numbers"),
        (b"red 1 2 3\nbag 1 2 x\n", "word 2 has no 3 numbers"),
        (b"red 1 2 3\nbag 1 nan 2\n", "the vector of word 2 is not finite"),
        (b"red 1 2 3\nbag 1 1e99 2\n", "the vector of word 2 is not finite"),
        (as_binary(VECTORS)[:-4], "word 4 has no 3 numbers"),
        (as_binary({"red": (1.0, float("inf"), 0.0)}), "the vector of word 1 is not finite"),
        (b"4 3\n" + bytes(2000), "word 1 has no 3 numbers"),
        (b"1" * 100_000, "it has a longer line than any vector"),
    ],
)
def test_a_file_that_holds_no_vectors_is_refused_when_the_collection_is_made(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        vector_encoder(tmp_path, content)
    assert str(caught.value).startswith(f"encoder.path: vectors is no file of word vectors: {reason}")


def test_texts_are_not_taken_while_the_file_is_missing_or_another(tmp_path: Path) -> None:
    encoder = vector_encoder(tmp_path, as_text(VECTORS, header=False)).fit(["red"])
    state = encoder.state()
    (tmp_path / "vectors").write_bytes(as_text({"red": (1.0, 2.0, 3.0)}, header=False))
    options = {"type": "word-vectors", "path": str(tmp_path / "vectors")}
    other = EncoderRegistry(ContentLimits(10**6, 10**6, 1000)).restore(options, state)
    with pytest.raises(EncoderUnavailableError, match="not the one that the collection was made with"):
        other.check("text", Content(text="red"))
    (tmp_path / "vectors").unlink()
    with pytest.raises(EncoderUnavailableError, match="there is no model file 'vectors'"):
        other.check("text", Content(text="red"))
