"""Text encoder `tfidf`: learned with the model, stored as its vocabulary and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from app.domain.entities import Content, Features
from app.domain.errors import ContentTooLargeError, InvalidFieldError, TrainingDataError

_DEFAULT_FEATURES = 2000


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
            raise InvalidFieldError(field, "expected a text that is not empty, under text")
        if "\x00" in raw.text:
            raise InvalidFieldError(field, "contains a NUL character")
        if len(raw.text) > self._max_chars:
            raise ContentTooLargeError(
                field, f"{len(raw.text)} characters, at most {self._max_chars} allowed"
            )

    def fault(self) -> None:
        """Return None: it needs no file."""

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn vocabulary and weights; raises TrainingDataError when the texts hold no word."""
        try:
            terms = self._choose_terms(texts)
        except ValueError as error:
            raise TrainingDataError(f"the texts cannot be encoded: {error}") from error
        self._vectorizer = self._make(terms).fit(texts)
        return self

    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, n_terms) features, rows of unit length, as a sparse array."""
        found = self._vectorizer.transform([content.text or "" for content in raw])
        return scipy.sparse.csr_array(found, dtype=np.float32)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON values."""
        terms = sorted(self._vectorizer.vocabulary_, key=self._vectorizer.vocabulary_.get)
        return {"terms": terms, "idf": [float(weight) for weight in self._vectorizer.idf_]}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Become the encoder whose `state` this is."""
        self._vectorizer = self._make(state["terms"])
        self._vectorizer.idf_ = np.asarray(state["idf"], dtype=np.float64)
        return self

    def _choose_terms(self, texts: Sequence[str]) -> list[str]:
        counter = CountVectorizer(ngram_range=self._ngram_range)
        counts = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel().tolist()
        found = zip(counter.get_feature_names_out().tolist(), counts, strict=True)
        ranked = sorted((" " in term, -count, term) for term, count in found)
        size = int(self._options.get("max_features", _DEFAULT_FEATURES))
        return sorted(term for _, _, term in ranked[:size])

    def _make(self, terms: Sequence[str]) -> TfidfVectorizer:
        vocabulary = {term: position for position, term in enumerate(terms)}
        return TfidfVectorizer(ngram_range=self._ngram_range, sublinear_tf=True, vocabulary=vocabulary)

    @property
    def _ngram_range(self) -> tuple[int, int]:
        return 1, int(self._options.get("ngrams", 2))
