"""Text encoder `onnx-text`: an ONNX model of sentences, or the text side of CLIP, with its tokenizer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.domain.names import join_words
from app.domain.searches import LONGEST_TYPED, WordReport
from app.domain.words import characters_of, fold, is_minor, spell_words, split_words
from app.encoders.base import import_extra, map_in_threads
from app.encoders.entry import EncoderType, Resources
from app.encoders.model_files import ModelFile, OnnxEncoder, Session, load_session, without_folder
from app.encoders.options import FilePath, OutputName, Sha256, options_of
from app.encoders.texts import TextEncoder, most_frequent_terms, spellings

_DEFAULT_TOKENS = 128
_MAX_TOKENS = 8192  # longest input of the text models there are
_MAX_TOKENIZER_BYTES = 64 << 20  # the largest tokenizers, of a quarter of a million tokens, have 35 MB
_MOST_WORDS = 20_000
"""Words of texts and names whose spelling is learned, the most frequent ones."""
_LEAST_SIMILARITY = 0.75
"""Share of the letters of a misspelt word that are right: a model reads others by their pieces."""
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


_OPTIONS = options_of(
    "onnx-text",
    "texts: an ONNX text model on the server with its tokenizer.json",
    required=("path", "tokenizer_path"),
    path=Annotated[FilePath, Field(description="the model file")],
    tokenizer_path=Annotated[FilePath, Field(description="its tokenizer.json")],
    sha256=Annotated[Sha256, Field(description="of the model file; default: its present one")],
    tokenizer_sha256=Annotated[Sha256, Field(description="of the tokenizer; default: its present one")],
    max_tokens=Annotated[
        int, Field(ge=2, le=_MAX_TOKENS, description="longer texts are cut; 128 by default")
    ],
    pooling=Annotated[
        Literal["mean", "first", "last"],
        Field(description="which tokens stand for the text where the output has a row for each: mean"),
    ],
    normalize=Annotated[bool, Field(description="whether features have unit length; true by default")],
    output=Annotated[OutputName, Field(description="name of the output; default: the first")],
)


class OnnxTextEncoder(OnnxEncoder, TextEncoder):
    """Encodes texts with an ONNX model; both files are loaded when the first text comes."""

    # Options: ``path`` and ``tokenizer_path``, and their hashes; ``max_tokens`` (128), ``pooling`` ("mean"),
    # ``normalize`` (True), and ``output`` (the model's first), which has a row of features, or one for each
    # token. Texts run beside each other, each alone: padding them to one length would change features in
    # their last digits, and cost the time of the longest for each.

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.max_text_chars)
        self._max_tokens: int = options.get("max_tokens", _DEFAULT_TOKENS)
        self._pooling: str = options.get("pooling", "mean")
        self._is_normalized: bool = options.get("normalize", True)
        self._output: str | None = options.get("output")
        self._model = ModelFile(resources.files(load_session), options)
        self._tokenizer = ModelFile(resources.files(load_tokenizer), options, "tokenizer_")
        self.files = (self._model, self._tokenizer)

    @override
    def check(self, field: str, raw: Content) -> None:
        super().check(field, raw)
        self._tokenize(field, self._tokenizer.get(), raw.text or "", self._max_tokens)

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, dim) features; raises EncoderUnavailableError without the files."""
        session, tokenizer = self._model.get(), self._tokenizer.get()
        rows = map_in_threads(lambda content: self._describe(session, tokenizer, content.text or ""), raw)
        return np.stack(rows)

    @override
    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        counted = map(split_words, itertools.chain(names, texts))
        words = most_frequent_terms(counted, iter(()), _MOST_WORDS)
        self._spellings = spellings(texts, names, frozenset(words))
        return self

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words are misspelt: neither a token, nor learned but for a last letter."""
        if not self._spellings:
            return None
        text = raw.text or ""
        spelled = spell_words(text) if len(text) <= LONGEST_TYPED else ()
        words = {word: text[start:end] for word, start, end in spelled}
        misspelt = [written.lower() for word, written in words.items() if self._is_misspelt(word, written)]
        telling = [word for word in words if not is_minor(word)]
        unseen = () if any(map(self._is_learned, telling)) else tuple(words[one].lower() for one in telling)
        return WordReport(max(len(words), 1), (), misspelt=tuple(misspelt), unseen=unseen)

    def _is_learned(self, word: str) -> bool:
        parts = split_words(word)  # more than one of a script without spaces
        return all(not {part, part + "s", part[:-1]}.isdisjoint(self._learned_words) for part in parts)

    def _is_misspelt(self, word: str, written: str) -> bool:
        if not word.isalpha() or characters_of(word) or self._is_learned(word):
            return False
        tokens = self._tokenizer.get().encode(written, add_special_tokens=False).ids
        return len(tokens) > 1 and bool(self.nearest_words(word))

    @cached_property
    def _learned_words(self) -> frozenset[str]:
        return frozenset(word for spelling in self._spellings for word in split_words(spelling))

    @override
    def nearest_words(self, word: str) -> tuple[str, ...]:
        near = self._nearest(fold(word), self._compared_spellings, least=_LEAST_SIMILARITY)
        return tuple(self._spellings[place] for place in near)

    @override
    def state(self) -> dict[str, Any]:
        return {**super().state(), "spellings": self._spellings}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        super().restore(state)
        self._spellings = state.get("spellings", [])
        return self

    @override
    def _try(self) -> Matrix:
        return self.encode([Content(text="a text"), Content(text="another text, which is longer")])

    def _describe(self, session: Session, tokenizer: Any, text: str) -> Vector:
        tokens = self._tokenize("text", tokenizer, text, min(self._max_tokens, _longest_input(session)))
        with self._running("a text"):
            inputs = _inputs_of(session, tokens)
            output = self._output or session.outputs[0]
            values = np.asarray(session.runtime.run([output], inputs)[0], dtype=np.float32)
            return self._pool(values, len(tokens))

    def _tokenize(self, field: str, tokenizer: Any, text: str, longest: int) -> list[int]:
        """Return the tokens of a text with those that begin and end it, of which a long text keeps both."""
        try:
            encoding = tokenizer.encode(text, add_special_tokens=False)
            encoding.truncate(max(longest - tokenizer.num_special_tokens_to_add(False), 1))
            tokens: list[int] = tokenizer.post_process(encoding, add_special_tokens=True).ids
        except Exception as error:  # the library raises nothing more specific, such as of an unknown sign
            raise InvalidFieldError(
                field, f"{self._tokenizer.path.name} does not take this text: {error}"
            ) from error
        if not tokens:
            raise InvalidFieldError(field, f"{self._tokenizer.path.name} finds no token in it")
        return tokens

    def _pool(self, values: npt.NDArray[np.float32], n_tokens: int) -> Vector:
        if values.ndim == 3 and values.shape[0] == 1 and values.shape[1] >= n_tokens:
            rows = values[0, :n_tokens]
            chosen = {"mean": rows, "first": rows[:1], "last": rows[-1:]}[self._pooling]
            values = chosen.mean(axis=0, dtype=np.float64)[None]
        if values.ndim != 2 or values.shape[0] != 1:
            shape = join_words(map(str, values.shape), "and")
            name = self._model.path.name
            raise EncoderUnavailableError(
                f"the output of {name} is no row of features, and none for each token: {shape}"
            )
        features = values[0].astype(np.float64)
        norm = float(np.linalg.norm(features)) if self._is_normalized else 1.0
        unit: Vector = (features / (norm or 1.0)).astype(np.float32)
        return unit


def load_tokenizer(path: Path) -> Any:
    """Return the tokenizer of a file, which neither cuts nor fills up texts."""
    tokenizers = import_extra("tokenizers", "onnx-text")
    try:
        if path.stat().st_size > _MAX_TOKENIZER_BYTES:
            raise ValueError(f"it has more than {_MAX_TOKENIZER_BYTES} bytes")
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise EncoderUnavailableError(
            f"{path.name} is not a usable tokenizer: {without_folder(error, path)}"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _longest_input(session: Session) -> int:
    """Return how many tokens a model takes."""
    lengths = [one.shape[-1] for one in session.runtime.get_inputs() if one.shape]
    return min([length for length in lengths if isinstance(length, int)], default=_MAX_TOKENS)


def _inputs_of(session: Session, tokens: Sequence[int]) -> dict[str, Any]:
    """Return the inputs of a model; those of a fixed length are filled up with zeros that are masked."""
    inputs = {}
    for one in session.runtime.get_inputs():
        length = one.shape[-1] if isinstance(one.shape[-1], int) else len(tokens)
        values = np.zeros((1, max(length, len(tokens))), _INTEGERS.get(one.type, np.int64))
        if "mask" in one.name:
            values[0, : len(tokens)] = 1
        elif "type" not in one.name and "segment" not in one.name:
            values[0, : len(tokens)] = tokens
        inputs[one.name] = values
    return inputs


ENCODER = EncoderType(_OPTIONS, OnnxTextEncoder, "text")
