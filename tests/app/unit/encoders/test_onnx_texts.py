import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.domain.searches import WordReport
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import WORDS, flattening_model, word_model, write_tokenizer
from tests.conftest import import_extra

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 4)).astype(np.float32)
UNKNOWN, FIRST, LAST, RED, BLUE, BAG, SHOE = range(1, 8)


@pytest.fixture
def options(onnxruntime: Any, tmp_path: Path) -> dict[str, Any]:
    import_extra("tokenizers")
    (tmp_path / "m.onnx").write_bytes(word_model(VECTORS.tolist()))
    write_tokenizer(tmp_path / "t.json")
    return {
        "type": "onnx-text",
        "path": str(tmp_path / "m.onnx"),
        "tokenizer_path": str(tmp_path / "t.json"),
        "normalize": False,
    }


def features_of(options: dict[str, Any], *texts: str) -> Any:
    encoder = REGISTRY.make(REGISTRY.settle(options))
    return encoder.encode([Content(text=text) for text in texts])


@pytest.mark.parametrize("length", ["tokens", 16])
def test_a_text_is_pooled_from_its_own_tokens_whatever_length_the_model_takes(
    options: dict[str, Any], length: int | str
) -> None:
    Path(options["path"]).write_bytes(word_model(VECTORS.tolist(), length))
    texts = ["red bag", "blue and red shoe"]
    tokens = [[FIRST, RED, BAG, LAST], [FIRST, BLUE, UNKNOWN, RED, SHOE, LAST]]
    means = [VECTORS[row].mean(axis=0) for row in tokens]
    np.testing.assert_allclose(features_of(options, *texts), means, rtol=1e-6)
    for pooling, token in (("first", FIRST), ("last", LAST)):
        features = features_of({**options, "pooling": pooling}, *texts)
        np.testing.assert_array_equal(features, VECTORS[[token, token]])
    lengths = np.linalg.norm(features_of({**options, "normalize": True}, *texts), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)


@pytest.mark.parametrize(("max_tokens", "length"), [(4, "tokens"), (128, 4)])
def test_a_long_text_is_cut_between_the_tokens_that_begin_and_end_it(
    options: dict[str, Any], max_tokens: int, length: int | str
) -> None:
    Path(options["path"]).write_bytes(word_model(VECTORS.tolist(), length))
    features = features_of({**options, "max_tokens": max_tokens}, "red blue bag shoe " * 10)
    np.testing.assert_allclose(features, [VECTORS[[FIRST, RED, BLUE, LAST]].mean(axis=0)], rtol=1e-6)


def test_similar_texts_are_near_each_other(options: dict[str, Any]) -> None:
    features = features_of(
        {**options, "normalize": True}, "a red bag", "red bag", "blue shoe", "the blue shoe"
    )
    similarity = features @ features.T
    np.fill_diagonal(similarity, -1)
    assert np.argmax(similarity, axis=1).tolist() == [1, 0, 3, 2]


def test_both_files_are_bound_by_their_hash(options: dict[str, Any]) -> None:
    settled = REGISTRY.settle(options)
    hashes = {name: settled[name] for name in ("sha256", "tokenizer_sha256")}
    assert REGISTRY.make(settled).state() == {**hashes, "spellings": []}
    tokenizer = Path(options["tokenizer_path"])
    tokenizer.write_text(tokenizer.read_text().replace("shoe", "boot"))
    other = EncoderRegistry(ContentLimits(10**6, 10**6, 1000)).make(settled)
    with pytest.raises(EncoderUnavailableError, match=r"t\.json' is not the one"):
        other.encode([Content(text="red")])


def test_misspelt_names_are_neither_names_nor_tokens(options: dict[str, Any]) -> None:
    tokenizer = Path(options["tokenizer_path"])
    facts = json.loads(tokenizer.read_text())
    letters = {f"##{letter}": number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    pieces = [*WORDS, *letters, *(letter[2:] for letter in letters), "basket", "jean"]
    facts["model"] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: number for number, piece in enumerate(pieces)},
    }
    tokenizer.write_text(json.dumps(facts))
    Path(options["path"]).write_bytes(word_model(np.eye(len(pieces)).tolist()))
    settled = REGISTRY.settle(options)
    encoder = REGISTRY.make(settled)
    assert encoder.look_up_words(Content(text="walet")) is None
    texts = ["two wallets", "a wallet", "Kiara shoes"]
    encoder.learn_names(["Tiara", "Casual Shoes", "Flip Flops", "Jeans", "Caskets"], texts)
    state = json.loads(json.dumps(encoder.state()))
    for one in (encoder, REGISTRY.restore(settled, state)):
        report = one.look_up_words(
            Content(text="walet, jeens or jean: a basket of casual flipflops of kiaras xyzzy 501")
        )
        assert report == WordReport(12, (), misspelt=("walet", "jeens", "flipflops"))
        near = [one.nearest_words(word) for word in report.misspelt]
        assert near == [("wallet",), ("Jeans",), ("Flip Flops",)]
        report = one.look_up_words(Content(text="a xyzzy bag"))
        assert report == WordReport(3, (), unseen=("xyzzy", "bag"))
        # What is too long to be respelled is not compared with all that was learned.
        assert one.look_up_words(Content(text="walet " + "-" * 500)) == WordReport(1, ())
    beside = REGISTRY.make({"type": "combine", "parts": [settled, {"type": "tfidf"}]})
    beside.learn_names(["Tiara"], texts)
    beside.fit([*texts, "a bag"])
    report = beside.look_up_words(Content(text="a xyzzy 501"))
    assert report == WordReport(3, (), unseen=("xyzzy", "501"))
    assert beside.look_up_words(Content(text="a xyzzy bag")) == WordReport(3, ())


def test_what_is_wrong_with_a_file_is_told_by_the_name_of_its_option(options: dict[str, Any]) -> None:
    model, tokenizer = Path(options["path"]), Path(options["tokenizer_path"])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"path": "/no/such.onnx"}, r"^encoder\.path: there is no model file 'such\.onnx'"),
        ({"tokenizer_path": "/no/t.json"}, r"^encoder\.tokenizer_path: there is no model file 't\.json'"),
        ({"tokenizer_path": str(model)}, r"^encoder\.tokenizer_path: m\.onnx is not a usable tokenizer: "),
        ({"path": str(tokenizer)}, r"^encoder\.path: t\.json is not a usable ONNX model: "),
        ({"sha256": "0" * 64}, r"^encoder\.sha256: the file has "),
        ({"tokenizer_sha256": "0" * 64}, r"^encoder\.tokenizer_sha256: the file has "),
        ({"output": "other"}, r"^encoder\.output: the model has 'states', not 'other'"),
    ]
    for wrong, message in cases:
        with pytest.raises(InvalidFieldError, match=message):
            REGISTRY.settle({**options, **wrong})
    model.write_bytes(flattening_model(4))
    with pytest.raises(InvalidFieldError, match=r"^encoder: m\.onnx does not take a text: "):
        REGISTRY.settle(options)


def test_a_text_that_the_tokenizer_does_not_take_is_a_refusal_of_that_text(options: dict[str, Any]) -> None:
    tokenizer = Path(options["tokenizer_path"])
    facts = json.loads(tokenizer.read_text())
    more = ("a", "text", "another", ",", "which", "is", "longer")
    facts["model"]["vocab"] |= {word: number for number, word in enumerate(more, 8)}
    del facts["model"]["vocab"]["[UNK]"]
    facts["post_processor"] = None
    facts["normalizer"] = {"type": "Replace", "pattern": {"String": "-"}, "content": ""}
    tokenizer.write_text(json.dumps(facts))
    Path(options["path"]).write_bytes(word_model(np.eye(15).tolist()))
    encoder = REGISTRY.make(REGISTRY.settle(options))
    encoder.check("items.3.text", Content(text="red"))
    for text, message in (("\N{SNOWMAN}", "does not take this text: "), ("-", "finds no token in it")):
        with pytest.raises(InvalidFieldError, match=rf"^items\.3\.text: t\.json {message}"):
            encoder.check("items.3.text", Content(text=text))
        with pytest.raises(InvalidFieldError, match=rf"^text: t\.json {message}"):
            encoder.encode([Content(text=text)])
