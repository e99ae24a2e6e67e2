"""Counts of terms: which ones are learned, and weighted, one kind beside the other in a row of features."""

from __future__ import annotations

import heapq
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy.sparse

COUNTED_BYTES = 256 << 20
"""Memory of the terms counted together: 1.3 million of 50 characters."""
_ENTRY_BYTES = 100  # estimated size of a dictionary entry: the slot of a term and its count
_logger = logging.getLogger(__name__)


class TermCounts:
    """Counts terms, and drops the rarest, until half is left, when all of them would take too much memory (as
    estimated)."""

    # The counts are exact until then. Afterwards it is lossy counting (Manku & Motwani 2002): a dropped term
    # is counted from one at its next occurrence, so that counts are too low, never too high, and by little
    # for whatever is frequent. The same texts in the same order give the same counts.

    def __init__(self, max_bytes: int = COUNTED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._counts: dict[str, int] = {}
        self.dropped = 0
        """Dropped terms; one that is dropped again after it came back counts twice."""

    def __len__(self) -> int:
        return len(self._counts)

    def items(self) -> Iterable[tuple[str, int]]:
        """Return the counted terms with their counts."""
        return self._counts.items()

    def add(self, terms: Iterable[str], times: int = 1) -> None:
        """Count the terms of a text, which occurs `times` times."""
        counts = self._counts
        for term in terms:
            seen = counts.get(term)
            if seen is not None:
                counts[term] = seen + times
                continue
            self._bytes += _bytes_of(term)
            if self._bytes > self._max_bytes:
                self._drop_the_rarest()
                counts = self._counts
                self._bytes += _bytes_of(term)
            counts[term] = times

    def most_frequent(self, size: int) -> list[str]:
        """Return at most `size` terms, the most frequent first; equally frequent ones in code point order."""
        ranked = ((-count, term) for term, count in self._counts.items())
        return [term for _, term in heapq.nsmallest(size, ranked)]

    def _drop_the_rarest(self) -> None:
        lowest = self._lowest_kept()
        remaining, room = {}, self._max_bytes // 2
        room -= sum(_bytes_of(term) for term, count in self._counts.items() if count > lowest)
        for term, count in self._counts.items():
            if count == lowest:
                room -= _bytes_of(term)
            if count > lowest or (count == lowest and room >= 0):
                remaining[term] = count
        self.dropped += len(self._counts) - len(remaining)
        self._counts = remaining
        self._bytes = sum(map(_bytes_of, remaining))

    def _lowest_kept(self) -> int:
        """Return the lowest count that is kept; some terms with exactly this count may be dropped, too."""
        of_count: Counter[int] = Counter()
        for term, count in self._counts.items():
            of_count[count] += _bytes_of(term)
        room = self._max_bytes // 2
        for count in sorted(of_count, reverse=True):
            room -= of_count[count]
            if room < 0:
                return count
        return 0


def most_frequent_terms(
    words: Iterator[Iterable[str]], runs: Iterator[Iterable[str]], size: int, max_bytes: int = COUNTED_BYTES
) -> list[str]:
    """Return at most `size` terms of texts: the most frequent words, then the most frequent runs of words."""
    # Runs are looked at only where words leave room; beyond `max_bytes` the rarest are not counted exactly,
    # and the log says so.
    chosen: list[str] = []
    for kind, texts in (("words", words), ("runs of words", runs)):
        if len(chosen) < size:
            chosen += _count(kind, texts, max_bytes).most_frequent(size - len(chosen))
    return chosen


def most_frequent_parts(
    words: Iterator[Iterable[str]],
    take_apart: Callable[[str], Iterable[str]],
    size: int,
    max_bytes: int = COUNTED_BYTES,
) -> list[str]:
    """Return at most `size` parts of words, the most frequent first; `max_bytes` holds for words and for
    parts. Each word is taken apart once, however often it occurs."""
    counts = TermCounts(max_bytes)
    for word, times in _count("words", words, max_bytes).items():
        counts.add(take_apart(word), times)
    _log_dropped("parts of words", counts, max_bytes)
    return counts.most_frequent(size)


def new_terms(terms: Iterable[str], others: Iterable[str], size: int) -> list[str]:
    """Return the others that are not among the terms, in their order, half of `size` at most."""
    present = set(terms)
    return [term for term in dict.fromkeys(others) if term not in present][: size // 2]


def _count(kind: str, texts: Iterator[Iterable[str]], max_bytes: int) -> TermCounts:
    counts = TermCounts(max_bytes)
    for terms in texts:
        counts.add(terms)
    _log_dropped(kind, counts, max_bytes)
    return counts


def _log_dropped(kind: str, counts: TermCounts, max_bytes: int) -> None:
    if counts.dropped:
        _logger.warning(
            "the %s of the texts are too many to be counted in %d MiB: %d rare ones were left out",
            kind,
            max_bytes >> 20,
            counts.dropped,
        )


def _bytes_of(term: str) -> int:
    return sys.getsizeof(term) + _ENTRY_BYTES


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
