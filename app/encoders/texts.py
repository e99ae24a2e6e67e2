"""Text encoder `tfidf`: learned with the model, stored as its vocabulary and weights."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Required, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from pydantic import Field, with_config
from typing_extensions import TypedDict

from app.domain.entities import Content, Features
from app.domain.errors import (
    ContentTooLargeError,
    InvalidFieldError,
    TrainingDataError,
    WrongContentError,
)
from app.encoders.counting import most_frequent_terms
from app.encoders.options import MAX_COUNT, describe_options, expect

_DEFAULT_FEATURES = 2000
_BATCH = 256
"""Texts whose terms are held at once."""


MAX_TERMS = 200_000
"""Largest ``max_features`` of a new collection: a model holds some hundred numbers for each term."""
_MAX_RUN = 5
"""Longest run of words: longer ones hardly ever occur twice."""


@with_config(describe_options("tfidf", "texts: words, then runs of words; learned at each retrain"))
class TfidfOptions(TypedDict, total=False):
    """Options of encoder `tfidf`."""

    type: Required[Literal["tfidf"]]
    # Collections of earlier releases may have more terms than the document allows new ones.
    max_features: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_COUNT,
            description="terms kept at most",
            json_schema_extra={"maximum": MAX_TERMS},
        ),
        expect(f"an integer from 1 to {MAX_COUNT}"),
    ]
    ngrams: Annotated[
        int,
        Field(ge=1, le=_MAX_RUN, description="longest run of words"),
        expect(f"an integer from 1 to {_MAX_RUN}"),
    ]


class TfidfEncoder:
    """Term frequency (sublinear) times inverse document frequency of words and runs of words.

    Parameters
    ----------
    options : mapping
        ``max_features`` (2000) terms at most, ``ngrams`` (2) longest run of words. Words come before runs,
        and of each the most frequent: else runs such as "of the" would push rare words out.
    max_chars : int
        Longest text.
    """

    is_fitted_with_model = True

    def __init__(self, options: Mapping[str, Any], max_chars: int) -> None:
        self._options = options
        self._max_chars = max_chars
        self._vectorizer: Any = None

    def check(self, field: str, raw: Content) -> None:
        """Refuse anything but a text of allowed length with a word in it."""
        if raw.text is None or not raw.text.strip():
            raise WrongContentError(field, "text")
        if "\x00" in raw.text:
            raise InvalidFieldError(field, "contains a NUL character")
        if len(raw.text) > self._max_chars:
            raise ContentTooLargeError(
                field, f"{len(raw.text)} characters, at most {self._max_chars} allowed"
            )

    def fault(self) -> None:
        """Return None: it needs no file."""

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn vocabulary and weights; raises TrainingDataError when the texts hold no word.

        Memory is bounded whatever the number of terms: where those that differ are too many, the rarest of
        them are not counted exactly.
        """
        longest = self._longest_run
        size = int(self._options.get("max_features", _DEFAULT_FEATURES))
        runs = _terms_of(texts, 2, longest) if longest > 1 else iter(())
        terms = sorted(most_frequent_terms(_terms_of(texts, 1, 1), runs, size))
        if not terms:
            raise TrainingDataError("the texts cannot be encoded: no word has two characters")
        return self.restore({"terms": terms, "idf": self._weights(terms, texts)})

    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, n_terms) features, rows of unit length, as a sparse array."""
        parts = []
        for start in range(0, len(raw), _BATCH):
            texts = [content.text or "" for content in raw[start : start + _BATCH]]
            parts.append(scipy.sparse.csr_array(self._vectorizer.transform(texts), dtype=np.float32))
        return parts[0] if len(parts) == 1 else scipy.sparse.csr_array(scipy.sparse.vstack(parts))

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON values."""
        terms = sorted(self._vectorizer.vocabulary_, key=self._vectorizer.vocabulary_.get)
        return {"terms": terms, "idf": [float(weight) for weight in self._vectorizer.idf_]}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Become the encoder whose `state` this is."""
        self._vectorizer = self._make(state["terms"])
        self._vectorizer.idf_ = np.asarray(state["idf"], dtype=np.float64)
        return self

    def _weights(self, terms: Sequence[str], texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the smoothed inverse document frequencies, (n_terms,)."""
        counter = _vectorizers().CountVectorizer(
            ngram_range=(1, self._longest_run), vocabulary=_positions(terms)
        )
        texts_with = np.ones(len(terms))
        for start in range(0, len(texts), _BATCH):
            counts = counter.transform(texts[start : start + _BATCH])
            texts_with += np.bincount(counts.indices, minlength=len(terms))
        weights: npt.NDArray[np.float64] = np.log((len(texts) + 1) / texts_with) + 1.0
        return weights

    def _make(self, terms: Sequence[str]) -> Any:
        longest = self._longest_run
        return _vectorizers().TfidfVectorizer(
            ngram_range=(1, longest), sublinear_tf=True, vocabulary=_positions(terms)
        )

    @property
    def _longest_run(self) -> int:
        return int(self._options.get("ngrams", 2))


def _terms_of(texts: Sequence[str], shortest: int, longest: int) -> Iterator[list[str]]:
    """Yield the runs of words of one text after the other; a single word is a run of one."""
    return map(_vectorizers().CountVectorizer(ngram_range=(shortest, longest)).build_analyzer(), texts)


def _vectorizers() -> Any:
    """Return scikit-learn's vectorizers, imported with the first model that has texts: it takes a while."""
    return importlib.import_module("sklearn.feature_extraction.text")


def import_vectorizers() -> None:
    """Import what text models need: a server does so before its first search, where it has any."""
    _vectorizers()


def _positions(terms: Sequence[str]) -> dict[str, int]:
    return {term: position for position, term in enumerate(terms)}
