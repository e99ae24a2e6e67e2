"""Weighted counts of terms, one kind beside the other in a row of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy.sparse

Positions = npt.NDArray[np.int32]
_CACHED_WORDS = 4096  # most texts consist of the few thousand most frequent words
_LONGEST_CACHED = 500  # letters of a cached word: the positions of its parts take 8 KB


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """Terms of one kind, such as words, in the order of their features."""

    positions: dict[str, int]  # the feature of each term
    idf: npt.NDArray[np.float64]  # (n_terms,), inverse document frequencies

    @classmethod
    def restore(cls, terms: Sequence[str], idf: Sequence[float]) -> WeightedTerms:
        """Return terms with their weights, from what a model stored."""
        return cls(number_terms(terms), np.asarray(idf, dtype=np.float64))

    @classmethod
    def learn(cls, positions: dict[str, int], texts: Iterable[Positions]) -> WeightedTerms:
        """Return terms with smoothed weights: the logarithm of (n + 1) / (texts with the term + 1), plus 1.
        `texts` are the positions of the terms of one text after the other."""
        n_texts, texts_with = 1, np.ones(len(positions))
        for text in texts:
            n_texts += 1
            texts_with[np.unique(text)] += 1
        return cls(positions, np.log(n_texts / texts_with) + 1.0)

    def list_terms(self) -> list[str]:
        """Return the terms in the order of their features."""
        return sorted(self.positions, key=self.positions.__getitem__)


class WordParts:
    """The positions of the known parts of words; those of the words used last are cached."""

    def __init__(self, take_apart: Callable[[str], Iterable[str]], positions: dict[str, int]) -> None:
        self._take_apart = take_apart
        self._positions = positions
        self._cached = lru_cache(_CACHED_WORDS)(self._of_word)

    def of_text(self, words: Iterable[str]) -> Positions:
        """Return the positions of all parts of the words of a text."""
        parts = [np.empty(0, np.int32)]
        for word in words:
            parts.append(self._of_word(word) if len(word) > _LONGEST_CACHED else self._cached(word))
        return np.concatenate(parts)

    def _of_word(self, word: str) -> Positions:
        return positions_in(self._positions, self._take_apart(word))


def number_terms(terms: Sequence[str]) -> dict[str, int]:
    """Return the position of each term."""
    return {term: position for position, term in enumerate(terms)}


def positions_in(positions: dict[str, int], terms: Iterable[str]) -> Positions:
    """Return the positions of the terms that have one."""
    return np.asarray([place for term in terms if (place := positions.get(term)) is not None], np.int32)


def term_features(
    kinds: Sequence[WeightedTerms], texts: Sequence[Sequence[Positions]]
) -> scipy.sparse.csr_array:
    """Return the features of texts, (n_texts, terms of all kinds together), as sparse float32; both arguments
    by kind."""
    # A feature is 1 + log(count) times the inverse document frequency. What a row has of each kind is scaled
    # to the same length, the one that gives a row with terms of every kind unit length: otherwise the kind of
    # which a text has most terms would decide alone.
    offsets = np.cumsum([0, *(len(kind.positions) for kind in kinds)])
    n_terms, starts = int(offsets[-1]), offsets[:-1].tolist()
    cells, counts = np.unique(
        np.concatenate(
            [
                positions.astype(np.int64) + (number * n_terms + start)
                for number, text in enumerate(texts)
                for start, positions in zip(starts, text, strict=True)
            ]
        ),
        return_counts=True,
    )
    rows, indices = np.divmod(cells, n_terms)
    idf = kinds[0].idf if len(kinds) == 1 else np.concatenate([kind.idf for kind in kinds])
    values = (np.log(counts) + 1.0) * idf[indices]
    part = rows * len(kinds) + np.searchsorted(offsets[1:-1], indices, side="right")
    norms = np.sqrt(np.bincount(part, values * values, minlength=1) * len(kinds))
    features = (values / norms[part]).astype(np.float32)
    ends = np.searchsorted(rows, np.arange(len(texts) + 1))
    columns, ends = indices.astype(np.int32), ends.astype(np.int32)
    return scipy.sparse.csr_array((features, columns, ends), shape=(len(texts), n_terms))
