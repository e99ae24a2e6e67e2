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

from app.domain.entities import Content, Matrix
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.domain.searches import WordReport
from app.domain.words import RULE, spell_words, split_stretches
from app.encoders.entry import EncoderType, Resources
from app.encoders.options import EncoderOptions, Sha256, StoredText, describe_options, expect
from app.encoders.texts import FIRST_RULE, TextEncoder, words_as_written
from app.encoders.word_vector_files import MAX_WORDS, WordVectors, load_word_vectors

_MOST_FILES = 2  # of 256 MB each


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
    """Averages the vectors of a text's words, each weighted by its inverse document frequency, learned with
    the model. Options: ``path`` of the file, and its ``sha256`` (any file when absent)."""

    # Words of the file that no training text has are known, too, and weigh as much as the rarest.

    is_fitted_with_model = True

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.max_text_chars)
        self._path = Path(str(options.get("path", "")))
        self._sha256: str | None = options.get("sha256")
        self._files = resources.files(load_word_vectors, _MOST_FILES)
        self._weights: dict[int, float] = {}
        self._weight_of_others = 1.0
        self._rule = RULE

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
        places = self._places_of_words(self._vectors(), raw.text or "")
        unknown = tuple(word for word, rows in places.items() if not rows)
        return WordReport(len(places) - len(unknown), unknown)

    @override
    def state(self) -> dict[str, Any]:
        learned = {
            "rows": list(self._weights),
            "weights": list(self._weights.values()),
            "weight_of_others": self._weight_of_others,
            **({} if self._rule == FIRST_RULE else {"rule": self._rule}),
        }
        return learned if self._sha256 is None else {**learned, "sha256": self._sha256}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._sha256 = state.get("sha256", self._sha256)
        self._weights = dict(zip(state["rows"], state["weights"], strict=True))
        self._weight_of_others = state["weight_of_others"]
        self._rule = state.get("rule", FIRST_RULE)
        return self

    @override
    def fault(self) -> str | None:
        return self._files.fault(self._path, self._sha256)

    def _vectors(self) -> WordVectors:
        return self._files.get(self._path, self._sha256)

    def _places(self, vectors: WordVectors, text: str) -> list[int]:
        """Return the rows of the words of a text that the file has."""
        if self._rule == FIRST_RULE:
            return [place for word in words_as_written(text) if (place := vectors.find(word)) is not None]
        words = self._places_of_words(vectors, text)
        written = {stretch: text[start:end] for stretch, start, end in spell_words(text)}
        return [
            place
            for stretch, _ in split_stretches(text)
            for place in words.get(written.get(stretch, stretch), [])
        ]

    def _places_of_words(self, vectors: WordVectors, text: str) -> dict[str, list[int]]:
        """Return the different words of a text with their rows, of pairs of characters where it has none.
        They are looked up as they are written first: in some files "May" is a word of its own."""
        if self._rule == FIRST_RULE:
            rows_of = {word: vectors.find(word) for word in words_as_written(text)}
            return {word: [] if place is None else [place] for word, place in rows_of.items()}
        written = {stretch: text[start:end] for stretch, start, end in spell_words(text)}
        places: dict[str, list[int]] = {}
        for stretch, parts in split_stretches(text):
            spelling = written.get(stretch, stretch)
            place = vectors.find(spelling)
            rows = [vectors.find_compared(part) for part in (stretch, *parts)] if place is None else [place]
            rows = rows[:1] if rows[0] is not None else rows[1:]
            if len(stretch) > 1 or parts != [stretch] or any(row is not None for row in rows):
                places[spelling] = [row for row in rows if row is not None]
        return places


ENCODER = EncoderType(WordVectorOptions, WordVectorEncoder, "text")
