"""What text encoders do alike: take texts within a limit, and take them apart into words."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
from typing_extensions import override

from app.domain.entities import Content
from app.domain.errors import ConflictError, ContentTooLargeError, InvalidFieldError, wrong_content
from app.domain.searches import WordReport
from app.domain.words import (
    RULE,
    characters_of,
    fold,
    is_minor,
    spell_words,
    split_stretches,
    split_words,
    telling_characters,
)
from app.encoders.base import BaseEncoder
from app.encoders.counting import TermCounts, most_frequent_terms, new_terms, number_terms, positions_in

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
            raise wrong_content(field, "text")
        if "\x00" in raw.text:
            raise InvalidFieldError(field, "contains a NUL character")
        if len(raw.text) > self._max_chars:
            raise ContentTooLargeError(
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
    def _nearest(compared: str, spellings: Mapping[int, str], alike_in_part: bool = False) -> list[int]:
        """Return those with the fewest misspelt characters; or, `alike_in_part`, with the most in common."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA, Indel

        matches = process.extract(
            compared,
            spellings,
            scorer=(Indel if alike_in_part else OSA).normalized_similarity,
            score_cutoff=0.0 if alike_in_part else _LEAST_SIMILARITY,
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
    # Letters alone, such as articles, count only where there is no other word.
    if rule != RULE:
        words = list(dict.fromkeys(words_by(rule)(text)))
        unknown = [word for word in words if not is_known(word)]
        return WordReport(len(words) - len(unknown), tuple(unknown))
    stretches = dict(split_stretches(text))
    telling = [stretch for stretch in stretches if not is_minor(stretch)] or list(stretches)
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
