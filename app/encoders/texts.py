"""What text encoders do alike: take texts within a limit, take them apart into words, weight terms."""

from __future__ import annotations

import heapq
import itertools
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
from typing_extensions import override

from app.domain import errors
from app.domain.entities import Content
from app.domain.searches import WordReport
from app.domain.words import (
    RULE,
    characters_of,
    fold,
    is_telling,
    spell_words,
    split_stretches,
    split_words,
    telling_characters,
)
from app.encoders.base import BaseEncoder

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
    words: Iterator[Iterable[str]], take_apart: Callable[[str], Iterable[str]], size: int
) -> list[str]:
    """Return at most `size` parts of words, the most frequent first; words and parts have a bound each.
    Each word is taken apart once, however often it occurs."""
    counts = TermCounts(COUNTED_BYTES)
    for word, times in _count("words", words, COUNTED_BYTES).items():
        counts.add(take_apart(word), times)
    _log_dropped("parts of words", counts, COUNTED_BYTES)
    return counts.most_frequent(size)


def with_names(terms: Sequence[str], others: Iterable[str], size: int) -> tuple[list[str], list[str]]:
    """Return at most `size` terms in order, the rarest of which others that are new take the place of; and
    these others, in their order, half of `size` at most."""
    present = set(terms)
    new = [term for term in dict.fromkeys(others) if term not in present][: size // 2]
    return sorted([*terms[: size - len(new)], *new]), new


def no_word() -> errors.ConflictError:
    """Return the error of texts of which nothing can be learned."""
    return errors.not_trainable("the texts cannot be encoded: they hold no word")


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


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTerms:
    """Terms of one kind, such as words, in the order of their features."""

    positions: dict[str, int]  # the feature of each term, in the order of features
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


def parts_in(
    positions: dict[str, int], take_apart: Callable[[str], Iterable[str]]
) -> Callable[[Iterable[str]], Positions]:
    """Return what returns the positions of all known parts of the words of a text; those of the words used
    last are cached."""

    def of_word(word: str) -> Positions:
        return positions_in(positions, take_apart(word))

    cached = lru_cache(_CACHED_WORDS)(of_word)

    def of_words(words: Iterable[str]) -> Positions:
        parts = (of_word(word) if len(word) > _LONGEST_CACHED else cached(word) for word in words)
        return np.concatenate([np.empty(0, np.int32), *parts])

    return of_words


def number_terms(terms: Sequence[str]) -> dict[str, int]:
    """Return the position of each term."""
    return {term: position for position, term in enumerate(terms)}


def positions_in(positions: dict[str, int], terms: Iterable[str]) -> Positions:
    """Return the positions of the terms that have one."""
    return np.asarray([place for term in terms if (place := positions.get(term)) is not None], np.int32)


def term_features(
    kinds: Sequence[WeightedTerms], texts: Sequence[Sequence[Positions]], n_further: int = 0
) -> scipy.sparse.csr_array:
    """Return the features of texts, (n_texts, terms of all kinds together), as sparse float32; both arguments
    by kind. Of `n_further` more each text has none."""
    # A feature is 1 + log(count) times the inverse document frequency. What a row has of each kind is scaled
    # to the same length, the one that gives a row with terms of every kind unit length: otherwise the kind of
    # which a text has most terms would decide alone.
    # NumPy's `unique` and `searchsorted` take as long to begin as a short text to be weighed.
    idf, offsets = _join_kinds(tuple(kinds))
    *starts, n_terms = offsets.tolist()
    cells = np.concatenate(
        [
            positions + np.int64(number * n_terms + start)
            for number, text in enumerate(texts)
            for start, positions in zip(starts, text, strict=True)
        ]
    )
    cells.sort()
    is_first = np.ones(len(cells) + 1, np.bool_)
    np.not_equal(cells[1:], cells[:-1], out=is_first[1:-1])
    bounds = is_first.nonzero()[0]
    cells, counts = cells[bounds[:-1]], bounds[1:] - bounds[:-1]
    rows, indices = np.divmod(cells, n_terms)
    values = (np.log(counts) + 1.0) * idf[indices]
    part = rows * len(kinds) + offsets[1:-1].searchsorted(indices, side="right")
    norms = np.sqrt(np.bincount(part, values * values, minlength=1) * len(kinds))
    features = (values / norms[part]).astype(np.float32)
    ends = rows.searchsorted(np.arange(len(texts) + 1))
    columns, ends = indices.astype(np.int32), ends.astype(np.int32)
    return scipy.sparse.csr_array((features, columns, ends), shape=(len(texts), n_terms + n_further))


@lru_cache(maxsize=4)
def _join_kinds(kinds: tuple[WeightedTerms, ...]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the weights of all kinds one after the other, and where each kind begins, and the last ends."""
    offsets = np.cumsum([0, *(len(kind.positions) for kind in kinds)])
    return np.concatenate([kind.idf for kind in kinds]), offsets


_WORD = re.compile(r"\b\w\w+\b")  # a word by the first rule: what scikit-learn's vectorizers take for one
_SHORTEST_MISSPELT, _LONGEST_MISSPELT = 3, 50
_LEAST_SIMILARITY, _MOST_NEAREST = 0.65, 3
"""Share of the letters of a word that are right: one of three may be wrong, missing or exchanged."""
_SHORTEST_BEGINNING = 4
_UMLAUT = re.compile("([aou])e")
"""How German umlauts are typed where the keyboard has none."""
FIRST_RULE = 1
"""Of models whose state names none."""


class TextEncoder(BaseEncoder):
    """Encodes texts."""

    content_form = "text"

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._spellings: list[str] = []

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.text is None or not raw.text.strip():
            raise errors.wrong_content(field, "text")
        if "\x00" in raw.text:
            raise errors.InvalidFieldError(field, "contains a NUL character")
        if len(raw.text) > self._max_chars:
            raise errors.ContentTooLargeError(
                field, f"{len(raw.text)} characters, at most {self._max_chars} allowed"
            )

    @override
    def nearest_words(self, word: str) -> tuple[str, ...]:
        """Return the words that it learned whose spelling is nearest, as most texts write them.
        Where none is near, those that begin as one half of the word does: "sailing boats" of "sailboat"."""
        if not _SHORTEST_MISSPELT <= len(word) <= _LONGEST_MISSPELT:
            return ()
        compared = _as_compared(word)
        beginning = compared[: max(_SHORTEST_BEGINNING, (len(compared) + 1) // 2)]
        near = (
            self._nearest(compared, self._compared_spellings)
            or self._nearest(_UMLAUT.sub(r"\1", compared), self._compared_spellings)
            or self._nearest(
                compared,
                {
                    place: spelling
                    for place, spelling in self._compared_spellings.items()
                    if len(beginning) >= _SHORTEST_BEGINNING and spelling.startswith(beginning)
                },
                alike_in_part=True,
            )
        )
        return tuple(self._spellings[place] for place in near)

    @staticmethod
    def _nearest(
        compared: str,
        spellings: Mapping[int, str],
        alike_in_part: bool = False,
        least: float = _LEAST_SIMILARITY,
    ) -> list[int]:
        """Return those with the fewest misspelt characters; or, `alike_in_part`, with the most in common."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA, Indel

        matches = process.extract(
            compared,
            spellings,
            scorer=(Indel if alike_in_part else OSA).normalized_similarity,
            score_cutoff=0.0 if alike_in_part else least,
            limit=_MOST_NEAREST,
        )
        return [place for _, _, place in matches]

    @cached_property
    def _compared_spellings(self) -> dict[int, str]:
        return dict(enumerate(map(_as_compared, self._spellings)))


def _as_compared(spelling: str) -> str:
    return fold(spelling).replace("'", "")


def words_as_written(text: str) -> list[str]:
    """Return the words of a text by the first rule: two characters or more, in capitals where it has them."""
    return _WORD.findall(text)


def words_by(rule: int) -> Callable[[str], list[str]]:
    """Return what lists the words of a text by a rule: that of `app.domain.words`, or the first one."""
    return split_words if rule == RULE else lambda text: words_as_written(text.lower())


def with_characters(words: list[str]) -> list[str]:
    """Return words, and the single characters of those that are two of a script without spaces."""
    return words + [part for word in words if len(word) > 1 for part in characters_of(word)]


def runs_by(rule: int, shortest: int, longest: int) -> Callable[[list[str]], list[str]]:
    """Return what lists the runs of words; by the present rule "wi fi" is the same as "wifi"."""
    joint = "" if rule == RULE else " "

    def list_runs(words: list[str]) -> list[str]:
        runs: list[str] = []
        for length in range(shortest, min(longest, len(words)) + 1):
            runs += [joint.join(words[start : start + length]) for start in range(len(words) - length + 1)]
        return runs

    return list_runs


def spellings(texts: Iterable[str], names: Sequence[str], words: Container[str]) -> list[str]:
    """Return each word as most texts and names write it, the most frequent first; then names of several."""
    pieces = TermCounts()
    for text in itertools.chain(texts, names):
        pieces.add(text.split())
    times: Counter[tuple[str, str]] = Counter()
    for piece, count in pieces.items():
        for word, start, end in spell_words(piece):
            if word in words:
                times[word, piece[start:end]] += count
    written: dict[str, str] = {}
    for (word, spelling), _ in sorted(times.items(), key=lambda entry: (-entry[1], entry[0])):
        written.setdefault(word, spelling)
    of_several = (name for name in names if len(name) <= _LONGEST_MISSPELT and len(split_words(name)) > 1)
    return list(dict.fromkeys([*written.values(), *of_several]))


def report_words(text: str, is_known: Callable[[str], bool], rule: int) -> WordReport:
    """Return which of the words of a text are known; the others as the text writes them, in small letters."""
    # What is written without spaces is unknown if less than half of its pairs of characters are known.
    # Letters alone and function words count only where there is no other word.
    if rule != RULE:
        words = list(dict.fromkeys(words_by(rule)(text)))
        unknown = [word for word in words if not is_known(word)]
        return WordReport(len(words) - len(unknown), tuple(unknown))
    stretches = dict(split_stretches(text))
    telling = [stretch for stretch in stretches if is_telling(stretch)] or list(stretches)
    n_known, unknown = 0, []
    for stretch in telling:
        answers = list(map(is_known, stretches[stretch]))
        n_known += any(answers)
        if 2 * sum(answers) < len(answers):
            unknown.append(stretch)
    if unknown:
        written = {word: text[start:end].lower() for word, start, end in spell_words(text)}
        unknown = [written.get(word, word) for word in unknown]
    return WordReport(n_known, tuple(unknown))


def parts_by(rule: int, shortest: int, longest: int) -> Callable[[str], list[str]]:
    """Return what lists the parts of a word: those of `parts_between`, or single characters of a pair."""
    list_parts = parts_between(shortest, longest)
    return list_parts if rule != RULE else lambda word: characters_of(word) or list_parts(word)


def parts_between(shortest: int, longest: int) -> Callable[[str], list[str]]:
    """Return what lists the parts of words: the letters of a word with a space at each edge, this many each.
    A word with its edges that is shorter than that is a part of its own, once."""

    def list_parts(text: str) -> list[str]:
        parts = []
        for word in text.lower().split():
            edged = f" {word} "
            for length in range(shortest, min(longest, max(len(edged), shortest)) + 1):
                parts += [edged[start : start + length] for start in range(max(len(edged) - length, 0) + 1)]
        return parts

    return list_parts


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
        words, _ = with_names(words, of_names, self._max_words)
        if not words:
            raise no_word()
        self._positions = number_terms(words)
        self._spellings = spellings(texts, self._names, self._positions)
        return self

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words were learned as they are; a pair of characters is known by both of them, too."""
        return report_words(raw.text or "", self._is_known, self._rule)

    @override
    def state(self) -> dict[str, Any]:
        words = list(self._positions)
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
