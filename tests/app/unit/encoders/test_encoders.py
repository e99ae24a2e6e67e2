import io
import json

import numpy as np
import pytest
import scipy.sparse
from PIL import Image

from app.domain.entities import Content
from app.domain.searches import WordReport
from app.encoders.types.hog_color import describe
from app.encoders.types.tfidf import TfidfEncoder
from app.encoders.types.vector import VectorEncoder


def picture(colour: tuple[int, int, int], seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 40, (40, 40, 3))
    stored = io.BytesIO()
    Image.fromarray((np.array(colour) + noise).astype(np.uint8)).save(stored, "PNG")
    return stored.getvalue()


def test_picture_features_depend_on_the_picture_alone() -> None:
    image = Image.open(io.BytesIO(picture((20, 160, 40), 5)))
    first = describe(image)
    np.testing.assert_array_equal(first, describe(image.copy()))
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert np.linalg.norm(first) == pytest.approx(np.sqrt(2.0), rel=1e-5)
    assert not np.array_equal(first, describe(Image.open(io.BytesIO(picture((150, 150, 150), 5)))))
    assert np.isfinite(describe(Image.new("RGB", (1, 1)))).all()


@pytest.mark.parametrize("characters", [None, 0, 5])
def test_a_text_encoder_comes_back_from_its_state(characters: int | None) -> None:
    texts = ["a boat on the sea", "Straße, été and 東京", "the sea and a tower", ""]
    options = {"max_features": 12} | ({} if characters is None else {"characters": characters})
    encoder = TfidfEncoder(options, 1000).fit(texts)
    state = json.loads(json.dumps(encoder.state()))
    assert ("parts" in state) == (characters == 5)
    restored = TfidfEncoder(options, 1000).restore(state)
    contents = [Content(text=text) for text in [*texts, "nothing known", "sea sea sea boat"]]
    features = encoder.encode(contents)
    assert scipy.sparse.issparse(features)
    np.testing.assert_array_equal(features.toarray(), restored.encode(contents).toarray())
    assert restored.state() == encoder.state()
    lengths = np.linalg.norm(features.toarray()[:, : -encoder.n_further], axis=1)
    known = [any(length == pytest.approx(full, rel=1e-5) for full in (0, 0.5**0.5, 1)) for length in lengths]
    assert all(known), lengths


@pytest.mark.parametrize(
    ("query", "indices", "values", "known", "unknown"),
    [
        ("cafe café", [2, 14, 21, 23, 25], [0.7071, 0.4305, 0.2543, 0.4305, 0.2543], 2, ()),
        ("ışık", [], [], 0, ("ışık",)),
        ("手机 红色手机", [12, 20], [0.7071, 0.7071], 1, ("手机",)),
        ("SIZE l C++ shirts", [8, 17, 18, 27], [0.7071, 0.4082, 0.4082, 0.4082], 2, ()),
    ],
)
def test_a_model_of_before_goes_on_with_its_own_words(
    query: str, indices: list[int], values: list[float], known: int, unknown: tuple[str, ...]
) -> None:
    words = ["by", "by the", "café", "café by", "işik", "işik 红色手机", "sea", "shirt", "size", "size shirt"]
    parts = [
        " by",
        " ca",
        " iş",
        " se",
        " sh",
        " si",
        " th",
        " 红色",
        "afé",
        "by ",
        "caf",
        "ea ",
        "fé ",
        "he ",
    ]
    stored = {
        "terms": [*words, "the", "the sea", "红色手机"],
        "idf": [1.6931] * 13,
        "parts": [*parts, "hir", "ik "],
        "part_idf": [1.6931] * 16,
    }
    encoder = TfidfEncoder({"characters": 3, "max_features": 16}, 1000).restore(stored)
    features = encoder.encode([Content(text=query)])
    assert features.indices.tolist() == indices
    np.testing.assert_allclose(features.data, values, atol=1e-4)
    assert encoder.look_up_words(Content(text=query)) == WordReport(known, unknown)
    assert encoder.state() == stored


def test_a_plural_and_a_compound_are_similar_to_the_word_that_was_learned() -> None:
    texts = ["a red handbag", "a brown wallet", "blue sneaker for sports", "a black sandal"]
    contents = [Content(text=text) for text in ("handbags", "sneakers", "sandalwear", "xyzzy")]
    encoder = TfidfEncoder({"characters": 5}, 1000).fit(texts)
    known = encoder.encode([Content(text=text) for text in texts]).toarray()
    assert not np.any(known[:, -encoder.n_further :])
    similarity = encoder.encode(contents).toarray() @ known.T
    assert np.argmax(similarity[:3], axis=1).tolist() == [0, 2, 3]
    assert np.all(np.sort(similarity[:3], axis=1)[:, -1] > 0.2)
    assert not np.any(similarity[3])
    reports = [encoder.look_up_words(content) for content in contents]
    assert [report.unknown for report in reports if report] == [(), (), ("sandalwear",), ("xyzzy",)]
    words_alone = TfidfEncoder({}, 1000).fit(texts)
    assert not np.any(words_alone.encode(contents).toarray()[:, : -words_alone.n_further])


def test_two_letters_before_a_learned_word_make_no_compound() -> None:
    encoder = TfidfEncoder({"characters": 5}, 1000).fit(["a fastrack watch", "men track pants"])
    for word, is_known in (("wristwatch", True), ("dirttrack", True), ("fatrack", False), ("ewatch", False)):
        report = encoder.look_up_words(Content(text=word))
        assert report
        assert (not report.unknown and not report.guessed) == is_known, word
    assert encoder.nearest_words("fatrack")[0] == "fastrack"


def test_words_that_were_not_learned_are_features_of_their_own_beside_those_that_were() -> None:
    encoder = TfidfEncoder({"characters": 5}, 1000).fit(["a red handbag", "a brown wallet"])
    texts = ("red", "red purple", "a purple scarf, purple", "purple", "scarves", "green")
    features = encoder.encode([Content(text=text) for text in texts]).toarray()
    learned, further = np.split(features, [-encoder.n_further], axis=1)
    np.testing.assert_array_equal(learned[0], learned[1])
    assert not np.any(further[0])
    lengths = np.linalg.norm(further, axis=1)
    assert lengths[1] == pytest.approx(1.0, rel=1e-5)  # as rare a word as those that were learned
    assert lengths[3:].tolist() == pytest.approx([1.0, 1.0, 1.0], rel=0.15)  # two parts may share one
    cosines = further[2:] @ further[2:].T / np.outer(lengths[2:], lengths[2:])
    assert cosines[0, 1] > 0.6  # with purple
    assert 0.05 < cosines[0, 2] < 0.3  # scarves, by its parts
    assert cosines[1:, 3].tolist() == pytest.approx([0.0, 0.0, 1.0], abs=0.05)
    state = encoder.state()
    del state["further"]  # as of models of before
    earlier = TfidfEncoder({"characters": 5}, 1000).restore(state)
    np.testing.assert_array_equal(earlier.encode([Content(text="red purple")]).toarray()[0], learned[1])


def test_a_rare_word_is_learned_before_any_run_of_words() -> None:
    texts = ["the side of the sea", "the side of the town", "the side of the hill and one thorn"]
    terms = {
        size: TfidfEncoder({"max_features": size}, 1000).fit(texts).state()["terms"]
        for size in (2, 9, 11, 99)
    }
    assert terms[2] == ["of", "the"]
    assert {"thorn", "town"} <= set(terms[9])
    assert set(terms[11]) - set(terms[9]) == {"ofthe", "sideof"}
    assert len(terms[99]) > 11


@pytest.mark.parametrize(
    ("characters", "text", "n_known", "unknown"),
    [
        (0, "Red HANDBAGS, handbags!", 1, ("handbags",)),
        (5, "Red HANDBAGS, handbags!", 2, ()),
        (5, "hills tops", 2, ()),
        (5, "grandchildren downhill", 1, ("downhill",)),
        (5, "sneakers", 0, ("sneakers",)),
        (5, "a coat for snakes or speakers", 0, ("coat", "snakes", "speakers")),  # "for" alone says nothing
        (5, "xyzzy", 0, ("xyzzy",)),
        (5, "a ! 7", 1, ("7",)),
        (5, "! 7", 0, ("7",)),
        (5, "red-hand bag, childrens", 4, ()),
    ],
)
def test_words_are_known_by_themselves_or_by_most_of_their_parts(
    characters: int, text: str, n_known: int, unknown: tuple[str, ...]
) -> None:
    texts = ["a red handbag", "a snack for children", "the top of a hill"]
    encoder = TfidfEncoder({"characters": characters}, 1000).fit(texts)
    assert encoder.look_up_words(Content(text=text)) == WordReport(n_known, unknown)


def test_a_word_spelled_like_a_learned_one_passes_for_it() -> None:
    reports = [
        TfidfEncoder({"characters": 5}, 1000).fit([text]).look_up_words(Content(text="sneakers"))
        for text in ("speakers of all makers", "shoes for runners")
    ]
    assert reports == [WordReport(1, (), ("sneakers",)), WordReport(0, ("sneakers",))]


def test_a_vector_has_no_words() -> None:
    assert VectorEncoder({}).look_up_words(Content(vector=[1.0])) is None
