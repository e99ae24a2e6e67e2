"""How often the words of texts occur, for encoders that learn which words there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
from typing_extensions import override

from app.domain.entities import Content
from app.domain.errors import ConflictError
from app.domain.searches import WordReport
from app.domain.words import RULE, telling_characters
from app.encoders.counting import most_frequent_terms, new_terms
from app.encoders.terms import number_terms, positions_in
from app.encoders.texts import FIRST_RULE, TextEncoder, report_words, spellings, with_characters, words_by


class WordCountEncoder(TextEncoder):
    """Learns the most frequent words of the training texts; a subclass makes features of their counts."""

    is_fitted_with_model = True

    def __init__(self, max_words: int, max_chars: int) -> None:
        super().__init__(max_chars)
        self._max_words = max_words
        self._rule = RULE
        self._names: Sequence[str] = ()
        self._positions: dict[str, int] = {}

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the words; raises ConflictError when the texts hold none."""
        self._rule = RULE
        words = most_frequent_terms(map(self._take_apart, texts), iter(()), self._max_words)
        of_names = [word for name in self._names for word in self._take_apart(name)]
        new = new_terms(words, of_names, self._max_words)
        words = sorted([*words[: self._max_words - len(new)], *new])
        if not words:
            raise ConflictError("training-data", "the texts cannot be encoded: they hold no word")
        self._positions = number_terms(words)
        self._spellings = spellings(texts, self._names, self._positions)
        return self

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words were learned as they are; a pair of characters is known by both of them, too."""
        return report_words(raw.text or "", self._is_known, self._rule)

    @override
    def state(self) -> dict[str, Any]:
        words = sorted(self._positions, key=self._positions.__getitem__)
        if self._rule == FIRST_RULE:
            return {"words": words}
        return {"words": words, "rule": self._rule, "spellings": self._spellings}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._rule = state.get("rule", FIRST_RULE)
        self._positions = number_terms(state["words"])
        self._spellings = state.get("spellings", state["words"])
        return self

    def _is_known(self, word: str) -> bool:
        if word in self._positions:
            return True
        characters = telling_characters(word) if self._rule == RULE else []
        return bool(characters) and all(character in self._positions for character in characters)

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

    def _take_apart(self, text: str) -> list[str]:
        words = words_by(self._rule)(text)
        return with_characters(words) if self._rule == RULE else words
