"""Text encoder `word-vectors`: the mean of pre-trained vectors of a text's words."""
# Files of vectors: the text formats of GloVe, word2vec and fastText, and the binary one of word2vec.

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Content, Matrix
from app.domain.errors import EncoderUnavailableError
from app.domain.searches import WordReport
from app.domain.words import RULE, fold, spell_words, split_stretches
from app.encoders.entry import EncoderType, Resources
from app.encoders.model_files import FileEncoder, ModelFile, unusable
from app.encoders.options import FilePath, Sha256, options_of
from app.encoders.texts import FIRST_RULE, TextEncoder, words_as_written

MAX_WORDS = 200_000
"""Words that are read: files begin with the most frequent ones, and texts hold few others."""
MAX_DIM = 2048
_MAX_BYTES = 256 << 20  # of the vectors in memory: 200 000 words with 300 numbers take 240 MB
_MAX_WORD_BYTES = 500
_MAX_LINE_BYTES = MAX_DIM * 32 + _MAX_WORD_BYTES
"""No way of writing numbers takes more than 32 bytes for each."""

Row = tuple[bytes, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors."""

    positions: dict[str, int]  # the row of each word
    rows: npt.NDArray[np.float32]  # (n_words, dim), finite
    _compared: dict[str, int] = field(default_factory=dict)

    def find(self, word: str) -> int | None:
        """Return the row of a word: as it is written, else in small letters, else with a capital."""
        for form in (word, word.lower(), word.capitalize()):
            if form in self.positions:
                return self.positions[form]
        return None

    def find_compared(self, word: str) -> int | None:
        """Return the row of the first word that is compared as the same; see `app.domain.words`."""
        if not self._compared:
            for spelling, place in self.positions.items():
                self._compared.setdefault(fold(spelling), place)
        return self._compared.get(word)


def load_word_vectors(path: Path) -> WordVectors:
    """Return the first words of a file with their vectors; of a word that comes twice, the first one.
    Raises EncoderUnavailableError, which names the word where it stops being a file of word vectors."""
    try:
        with path.open("rb") as file:
            return _collect(*_rows_of(file))
    except OSError as error:
        raise unusable(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise EncoderUnavailableError(f"{path.name} is no file of word vectors: {error}") from error


def _collect(dim: int, rows: Iterator[Row]) -> WordVectors:
    positions: dict[str, int] = {}
    most = min(MAX_WORDS, _MAX_BYTES // (4 * dim))
    vectors = np.empty((most, dim), np.float32)  # of which only what is written to takes memory
    for number, (stored, vector) in enumerate(rows, start=1):
        if len(positions) == most:
            break
        if not np.isfinite(vector).all():
            raise ValueError(f"the vector of word {number} is not finite")
        # What is no UTF-8 is no word of a text either.
        word = stored.decode(errors="replace")
        if word not in positions and "\N{REPLACEMENT CHARACTER}" not in word:
            vectors[len(positions)] = vector
            positions[word] = len(positions)
    if not positions:
        raise ValueError("it has no word")
    return WordVectors(positions, vectors[: len(positions)])


def _rows_of(file: BinaryIO) -> tuple[int, Iterator[Row]]:
    """Return how many numbers each word has, and the words with their numbers."""
    first = _read_line(file)
    dim = _dim_of_header(first)
    if dim is None:
        dim = len(first.split()) - 1
        file.seek(0)
        is_text = True
    else:
        start = file.tell()
        is_text = _is_line_of_text(file.readline(_MAX_LINE_BYTES), dim)
        file.seek(start)
    if not 1 <= dim <= MAX_DIM:
        raise ValueError(f"its first word has {dim} numbers, expected 1 to {MAX_DIM}")
    return dim, _text_rows(file, dim) if is_text else _binary_rows(file, dim)


def _dim_of_header(line: bytes) -> int | None:
    """Return the second number of a line that has two whole ones, as word2vec and fastText begin with."""
    parts = line.split()
    return int(parts[1]) if len(parts) == 2 and all(part.isdigit() for part in parts) else None


def _is_line_of_text(line: bytes, dim: int) -> bool:
    try:
        line.decode()
        return len(_split(line, dim)[1]) == dim
    except ValueError:
        return False


def _text_rows(file: BinaryIO, dim: int) -> Iterator[Row]:
    number = 0
    while line := _read_line(file):
        if not line.strip():
            continue
        number += 1
        try:
            word, vector = _split(line, dim)
        except ValueError as error:
            raise ValueError(f"word {number} has no {dim} numbers") from error
        yield word, vector


def _split(line: bytes, dim: int) -> Row:
    """Return the word of a line, which may hold spaces, and its numbers; raises ValueError without these."""
    word, *numbers = line.rstrip().rsplit(b" ", dim)
    if len(numbers) < dim or not word:
        raise ValueError("too few numbers")
    with np.errstate(over="ignore"):  # what overflows is refused as not finite
        return word, np.array(numbers, dtype=np.bytes_).astype(np.float64).astype(np.float32)


def _binary_rows(file: BinaryIO, dim: int) -> Iterator[Row]:
    start, size = file.tell(), 4 * dim
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        number = 0
        while start < len(content):
            number += 1
            end = content.find(b" ", start, start + _MAX_WORD_BYTES)
            if end < 0 or end + 1 + size > len(content):
                raise ValueError(f"word {number} has no {dim} numbers")
            word = content[start:end].lstrip(b"\n")
            yield word, np.frombuffer(content[end + 1 : end + 1 + size], "<f4").astype(np.float32)
            start = end + 1 + size
            if content[start : start + 1] == b"\n":
                start += 1


def _read_line(file: BinaryIO) -> bytes:
    line = file.readline(_MAX_LINE_BYTES + 1)
    if len(line) > _MAX_LINE_BYTES:
        raise ValueError("it has a longer line than any vector")
    return line


_MOST_FILES = 2  # of 256 MB each


_OPTIONS = options_of(
    "word-vectors",
    "texts: mean of GloVe, word2vec or fastText vectors of a file on the server, weighted by rarity; "
    f"of its first {MAX_WORDS} words",
    required=("path",),
    path=Annotated[FilePath, Field(description="the file: text, or the binary format of word2vec")],
    sha256=Annotated[Sha256, Field(description="of the file; default: its present one")],
)


class WordVectorEncoder(FileEncoder, TextEncoder):
    """Averages the vectors of a text's words, each weighted by its inverse document frequency, learned with
    the model. Options: ``path`` of the file, and its ``sha256`` (any file when absent)."""

    # Words of the file that no training text has are known, too, and weigh as much as the rarest.

    is_fitted_with_model = True

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.max_text_chars)
        loaded = resources.files(load_word_vectors, _MOST_FILES)
        self._file = ModelFile(loaded, options, called="the model file")
        self.files = (self._file,)
        self._weights: dict[int, float] = {}
        self._weight_of_others = 1.0
        self._rule = RULE

    @override
    def check(self, field: str, raw: Content) -> None:
        super().check(field, raw)
        self._file.get()

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn how rare each word is; raises EncoderUnavailableError without the file."""
        vectors = self._file.get()
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
        vectors = self._file.get()
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
        places = self._places_of_words(self._file.get(), raw.text or "")
        unknown = tuple(word for word, rows in places.items() if not rows)
        return WordReport(len(places) - len(unknown), unknown)

    @override
    def state(self) -> dict[str, Any]:
        return {
            "rows": list(self._weights),
            "weights": list(self._weights.values()),
            "weight_of_others": self._weight_of_others,
            **({} if self._rule == FIRST_RULE else {"rule": self._rule}),
            **super().state(),
        }

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._weights = dict(zip(state["rows"], state["weights"], strict=True))
        self._weight_of_others = state["weight_of_others"]
        self._rule = state.get("rule", FIRST_RULE)
        return super().restore(state)

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


ENCODER = EncoderType(_OPTIONS, WordVectorEncoder, "text")
