"""The most frequent terms of many texts, found in bounded memory."""

from __future__ import annotations

import heapq
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

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
