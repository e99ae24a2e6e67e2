"""How often the words of texts occur, for encoders that learn which words there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
from typing_extensions import override

from app.domain.entities import Content, WordReport
from app.domain.errors import TrainingDataError
from app.encoders.counting import most_frequent_terms
from app.encoders.terms import number_terms, positions_in
from app.encoders.texts import TextEncoder, terms_between


class WordCountEncoder(TextEncoder):
    """Learns the most frequent words of the training texts; a subclass makes features of their counts.

    Parameters
    ----------
    max_words : int
        Words that are learned at most.
    max_chars : int
        Longest text.
    """

    is_fitted_with_model = True

    def __init__(self, max_words: int, max_chars: int) -> None:
        super().__init__(max_chars)
        self._max_words = max_words
        self._positions: dict[str, int] = {}

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the words; raises TrainingDataError when the texts hold none."""
        words = sorted(most_frequent_terms(map(self._take_apart, texts), iter(()), self._max_words))
        if not words:
            raise TrainingDataError("the texts cannot be encoded: no word has two characters")
        self._positions = number_terms(words)
        return self

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words were learned as they are."""
        words = list(dict.fromkeys(self._take_apart(raw.text or "")))
        unknown = tuple(word for word in words if word not in self._positions)
        return WordReport(len(words) - len(unknown), unknown)

    @override
    def state(self) -> dict[str, Any]:
        return {"words": sorted(self._positions, key=self._positions.__getitem__)}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._positions = number_terms(state["words"])
        return self

    def _count(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Return the counts of learned words in each text, (n_texts, n_words)."""
        counted = [
            np.unique(positions_in(self._positions, self._take_apart(text)), return_counts=True)
            for text in texts
        ]
        ends = np.cumsum([0, *(len(places) for places, _ in counted)])
        places = np.concatenate([places for places, _ in counted])
        counts = np.concatenate([times for _, times in counted]).astype(np.float64)
        return scipy.sparse.csr_array((counts, places, ends), shape=(len(texts), len(self._positions)))

    @cached_property
    def _take_apart(self) -> Any:
        return terms_between(1, 1)
