"""Text encoder `word-vectors`: the mean of pre-trained vectors of a text's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Annotated, Any, Literal, Required, Self

import numpy as np
from pydantic import Field, with_config
from typing_extensions import override

from app.domain.entities import Content, Matrix, WordReport
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.encoders.entry import EncoderType, Resources
from app.encoders.options import EncoderOptions, Sha256, StoredText, describe_options, expect
from app.encoders.texts import TextEncoder, words_as_written
from app.encoders.word_vector_files import MAX_WORDS, WordVectors, load_word_vectors

_MOST_FILES = 2
"""Of 256 MB each."""


@with_config(
    describe_options(
        "word-vectors",
        "texts: mean of GloVe, word2vec or fastText vectors of a file on the server, weighted by rarity; "
        f"of its first {MAX_WORDS} words",
    )
)
class WordVectorOptions(EncoderOptions, total=False):
    """Options of encoder `word-vectors`."""

    type: Required[Literal["word-vectors"]]
    path: Required[
        Annotated[
            StoredText,
            Field(description="the file: text, or the binary format of word2vec"),
            expect("a file path"),
        ]
    ]
    sha256: Annotated[Sha256, Field(description="of the file; default: its present one")]


class WordVectorEncoder(TextEncoder):
    """Averages the vectors of the words of a text, each weighted by its inverse document frequency.

    The frequencies are learned with the model. Words of the file that no training text has are known, too,
    and weigh as much as the rarest.

    Parameters
    ----------
    options : mapping
        ``path`` of the file, and its ``sha256`` (any file when absent).
    resources : Resources
        Longest text, and loaded files.
    """

    is_fitted_with_model = True

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.max_text_chars)
        self._path = Path(str(options.get("path", "")))
        self._sha256: str | None = options.get("sha256")
        self._files = resources.files(load_word_vectors, _MOST_FILES)
        self._weights: dict[int, float] = {}
        self._weight_of_others = 1.0

    @override
    def check(self, field: str, raw: Content) -> None:
        super().check(field, raw)
        self._vectors()

    @override
    def settled_options(self) -> dict[str, Any]:
        try:
            sha256 = self._files.sha256(self._path)
            self._files.get(self._path, sha256)
        except EncoderUnavailableError as error:
            raise InvalidFieldError("encoder.path", str(error)) from error
        if self._sha256 not in (None, sha256):
            raise InvalidFieldError("encoder.sha256", f"the model file has {sha256}")
        return {"sha256": sha256}

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn how rare each word is; raises EncoderUnavailableError without the file."""
        vectors = self._vectors()
        texts_with: Counter[int] = Counter()
        for text in texts:
            texts_with.update(set(self._places(vectors, text)))
        # Smoothed as that of scikit-learn, which `tfidf` has, too.
        self._weight_of_others = log(len(texts) + 1) + 1.0
        self._weights = {
            place: log((len(texts) + 1) / (times + 1)) + 1.0 for place, times in sorted(texts_with.items())
        }
        return self

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, dim) means; a row is zero where no word is known."""
        vectors = self._vectors()
        means: Matrix = np.zeros((len(raw), vectors.rows.shape[1]), np.float32)
        for mean, content in zip(means, raw, strict=True):
            places = self._places(vectors, content.text or "")
            if places:
                weights = [self._weights.get(place, self._weight_of_others) for place in places]
                mean[:] = np.average(vectors.rows[places], axis=0, weights=weights)
        return means

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words the file has."""
        vectors = self._vectors()
        words = list(dict.fromkeys(words_as_written(raw.text or "")))
        unknown = tuple(word for word in words if vectors.find(word) is None)
        return WordReport(len(words) - len(unknown), unknown)

    @override
    def state(self) -> dict[str, Any]:
        learned = {
            "rows": list(self._weights),
            "weights": list(self._weights.values()),
            "weight_of_others": self._weight_of_others,
        }
        return learned if self._sha256 is None else {**learned, "sha256": self._sha256}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._sha256 = state.get("sha256", self._sha256)
        self._weights = dict(zip(state["rows"], state["weights"], strict=True))
        self._weight_of_others = state["weight_of_others"]
        return self

    @override
    def fault(self) -> str | None:
        return self._files.fault(self._path, self._sha256)

    def _vectors(self) -> WordVectors:
        return self._files.get(self._path, self._sha256)

    def _places(self, vectors: WordVectors, text: str) -> list[int]:
        """Return the rows of the words of a text that the file has."""
        # As they are written: in some files "May" is a word of its own.
        return [place for word in words_as_written(text) if (place := vectors.find(word)) is not None]


ENCODER = EncoderType(WordVectorOptions, WordVectorEncoder, "text")
