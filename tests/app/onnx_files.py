"""ONNX models small enough to be written by hand, and their tokenizer."""

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

FLOAT, INT64 = 1, 7
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "bag", "shoe")


def wait_for_looks() -> None:
    """Wait until the looks at model files that this process began have ended."""
    for thread in threading.enumerate():
        if thread.name == "look-at-model":
            thread.join(60.0)


def field(number: int, value: bytes | int | str) -> bytes:
    """One field of a protocol buffer message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def tensor(name: str, kind: int, *shape: int | str) -> bytes:
    """Name, type and shape of an input or output; a dimension that is a word may have any size."""
    dims = b"".join(field(1, field(2 if isinstance(size, str) else 1, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def model(graph: bytes) -> bytes:
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


def flattening_model(side: int, before: str = "Identity", *, channels_last: bool = False) -> bytes:
    """An ONNX model that takes (1, 3, side, side), applies an operator to each number, and flattens it."""
    shape = (1, side, side, 3) if channels_last else (1, 3, side, side)
    first = field(1, "pixels") + field(2, "changed") + field(4, before)
    second = field(1, "changed") + field(2, "features") + field(4, "Flatten")
    graph = field(1, first) + field(1, second) + field(2, "flat") + field(11, tensor("pixels", FLOAT, *shape))
    graph += field(12, tensor("features", FLOAT, 1, 3 * side * side))
    return model(graph)


def word_model(vectors: Sequence[Sequence[float]], length: int | str = "tokens") -> bytes:
    """An ONNX model that takes tokens and their mask, and returns the vector of each token."""
    rows = np.asarray(vectors, "<f4")
    table = b"".join(field(1, size) for size in rows.shape) + field(2, FLOAT)
    table += field(8, "vectors") + field(9, rows.tobytes())
    node = field(1, "vectors") + field(1, "input_ids") + field(2, "states") + field(4, "Gather")
    graph = field(1, node) + field(2, "words") + field(5, table)
    for name in ("input_ids", "attention_mask"):
        graph += field(11, tensor(name, INT64, 1, length))
    graph += field(12, tensor("states", FLOAT, 1, length, rows.shape[1]))
    return model(graph)


def write_tokenizer(path: Path) -> None:
    """Write a tokenizer of whole words, which puts [CLS] before a text and [SEP] behind it."""
    tokenizers = importlib.import_module("tokenizers")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=20)
    tokenizer.save(str(path))
