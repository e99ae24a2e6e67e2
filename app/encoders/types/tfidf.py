"""Text encoder `tfidf`: learned with the model, stored as its terms and their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import scipy.sparse
from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import override

from app.domain.entities import Content, Features
from app.domain.errors import InvalidFieldError
from app.domain.searches import WordReport
from app.domain.words import RULE, characters_of, telling_characters
from app.encoders.entry import EncoderType
from app.encoders.options import MAX_COUNT, expect, options_of
from app.encoders.texts import (
    FIRST_RULE,
    Positions,
    TextEncoder,
    WeightedTerms,
    most_frequent_parts,
    most_frequent_terms,
    no_word,
    number_terms,
    parts_by,
    parts_in,
    positions_in,
    report_words,
    runs_by,
    spellings,
    term_features,
    with_characters,
    with_names,
    words_by,
)

_DEFAULT_FEATURES = 2000
_BATCH = 64  # texts whose terms are held at once
MAX_TERMS = 200_000
"""Largest ``max_features`` of a new collection: a model holds some hundred numbers for each term."""
_MAX_RUN = 5  # longest run of words: longer ones hardly ever occur twice
_SHORTEST_PART = 3  # letters of the shortest n-gram: most pairs of letters occur in most texts
_DEFAULT_PART = 5  # letters of the longest n-gram of a new collection: longer ones are parts of single words
_KNOWN_SHARE = 0.5  # of the parts of a word that is no term
# With the 2000 most frequent parts of product names, 91 % of the plurals and singulars of words learned from
# ten texts or more reach it; with the rule of the last letter all of them are known, and 6 % of English words
# unlike any learned one.
_SHORTEST_HEAD, _LONGEST_HEAD, _SHORTEST_REST = 5, 20, 3
"""Letters of a learned word that a compound ends in ("wristwatch" in "watch"). Of 8030 words of licences and
programs that no product's name has, 0.8 % end in one of five letters or more, 3.6 % in one of four."""
# Two letters before such a word are a slip sooner: "fatrack" is no track, but Fastrack.
_FURTHER = 2048
"""Features of words and parts that were not learned, by their checksums: a word of a later item is the same
word in a query. Of 50 such words with 18 parts each, a third of the features are taken."""
_PART_LENGTHS = (0, 3, 4, 5, 6)
"""Letters that the longest n-gram may have; the number of n-grams grows with each."""


def _check_length(letters: int) -> int:
    if letters not in _PART_LENGTHS:
        raise ValueError("is no length of n-grams")
    return letters


_OPTIONS = options_of(
    "tfidf",
    "texts: words, runs of words, parts of words; learned at each retrain",
    # Collections of earlier releases may have more terms than the document allows new ones.
    max_features=Annotated[
        int,
        Field(
            ge=1,
            le=MAX_COUNT,
            description="words and runs kept at most, and parts of words",
            json_schema_extra={"maximum": MAX_TERMS},
        ),
        expect(f"an integer from 1 to {MAX_COUNT}"),
    ],
    ngrams=Annotated[int, Field(ge=1, le=_MAX_RUN, description="longest run of words")],
    characters=Annotated[
        int,
        Field(description="letters of the longest part of a word, 3 being the fewest; 0: no parts"),
        AfterValidator(_check_length),
        WithJsonSchema({"type": "integer", "enum": list(_PART_LENGTHS)}),
    ],
)


class TfidfEncoder(TextEncoder):
    """Term frequency (sublinear) times inverse document frequency of words, runs of words, parts of words."""

    # Parts of words (character n-grams within a word, its edges included) make plurals and compounds similar
    # to the words that were learned: "handbags" to "handbag". Words with their runs on the one side and parts
    # on the other have the same weight. Options: ``max_features`` (2000) terms at most, and as many parts of
    # words; ``ngrams`` (2) longest run of words; ``characters`` (none) letters of the longest part. Words
    # come before runs, and of each kind the most frequent: else runs such as "of the" would push rare words
    # out.

    # The last features are of words that were not learned, beside those that were, whose values are the same
    # as without them. Nothing is learned of them but how alike two texts are.

    is_fitted_with_model = True
    is_quick = True

    def __init__(self, options: Mapping[str, Any], max_chars: int) -> None:
        super().__init__(max_chars)
        self._max_features = int(options.get("max_features", _DEFAULT_FEATURES))
        self._longest_run = int(options.get("ngrams", 2))
        # Collections made before there were parts of words have no such option, and go on without.
        self._characters: int | None = options.get("characters")
        self._names: Sequence[str] = ()
        self._words = WeightedTerms.restore([], [])
        self._parts: WeightedTerms | None = None
        self._follow(RULE)

    @override
    def settled_options(self) -> dict[str, Any]:
        # Collections of earlier releases may have more.
        if self._max_features > MAX_TERMS:
            raise InvalidFieldError("encoder.max_features", f"expected at most {MAX_TERMS}")
        return {"characters": _DEFAULT_PART} if self._characters is None else {}

    @override
    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        self._names = names
        return self

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn terms and weights; raises ConflictError when the texts hold no word.
        Memory is bounded: where different terms are too many, the rarest are not counted exactly."""
        self._follow(RULE)
        self.n_further = _FURTHER
        size = self._max_features
        runs = (self._list_runs(self._split(text)) for text in texts) if self._longest_run > 1 else iter(())
        counted = (self._list_words(self._split(text)) for text in texts)
        # A run that is written as one word elsewhere is that word.
        terms = list(dict.fromkeys(most_frequent_terms(counted, runs, size)))
        of_names = [word for name in self._names for word in self._list_words(self._split(name))]
        terms, new = with_names(terms, of_names, size)
        if not terms:
            raise no_word()
        positions = number_terms(terms)
        self._spellings = spellings(texts, self._names, positions)
        terms_of_texts = (self._terms_of(self._split(text)) for text in texts)
        self._words = WeightedTerms.learn(
            positions, (positions_in(positions, text) for text in terms_of_texts)
        )
        if self._characters:
            frequent = most_frequent_parts(map(self._split, texts), self._take_apart, size)
            of_names = [part for word in new for part in self._take_apart(word)]
            parts, _ = with_names(frequent, of_names, size)
            self._parts_of = parts_in(number_terms(parts), self._take_apart)
            parts_of_texts = map(self._parts_of, map(self._split, texts))
            self._parts = WeightedTerms.learn(number_terms(parts), parts_of_texts)
        return self

    @override
    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, n_terms + n_further) features as a sparse array: of what was learned, rows of unit
        length, or zero; and of the rest, as long as its words weigh as much."""
        kinds = [kind for kind in (self._words, self._parts) if kind is not None]
        rows = []
        for start in range(0, len(raw), _BATCH):
            texts = [self._split(content.text or "") for content in raw[start : start + _BATCH]]
            learned = term_features(kinds, [self._positions(words) for words in texts], self.n_further)
            rows.append(self._with_further(learned, texts) if self.n_further else learned)
        return rows[0] if len(rows) == 1 else scipy.sparse.csr_array(scipy.sparse.vstack(rows))

    def _with_further(
        self, learned: scipy.sparse.csr_array, texts: Sequence[list[str]]
    ) -> scipy.sparse.csr_array:
        idf, first = self._words.idf, learned.shape[1] - self.n_further
        rows, columns, values = [], [], []
        for row, text in enumerate(texts):
            words = dict.fromkeys(text)
            further = [word for word in words if not self._is_known(word)]
            if not further:
                continue
            own = positions_in(self._words.positions, words)
            length = (len(further) / np.sum((idf[own] / idf.max()) ** 2)) ** 0.5 if len(own) else 1.0
            of_words = self._checksums(further)
            parts = [self._checksums(self._take_apart(word)) for word in further] if self._parts else []
            for terms in (of_words, *([np.concatenate(parts)] if parts else [])):
                columns.append(first + terms)
                rows.append(np.full(len(terms), row))
                values.append(np.full(len(terms), length / (len(terms) * (1 + bool(parts))) ** 0.5))
        if not rows:
            return learned
        cells: Any = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        rest = scipy.sparse.csr_array(cells, shape=learned.shape, dtype=np.float32)
        return scipy.sparse.csr_array(learned + rest)

    def _checksums(self, terms: Sequence[str]) -> npt.NDArray[np.intp]:
        return np.asarray([crc32(term.encode()) % self.n_further for term in terms], np.intp)

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words were learned, but for a last letter, or consist half of learned parts."""
        # A compound is known by the learned word that it ends in. So a word that is spelled like a learned
        # one is known, whatever it means; without parts of words, a word must have been learned as it is.
        text = raw.text or ""
        joined: set[str] = set()
        if self._rule == RULE and self._longest_run > 1:
            pairs = pairwise(self._split(text))
            joined.update(*(pair for pair in pairs if "".join(pair) in self._words.positions))
        guessed: dict[str, None] = {}

        def is_known(word: str) -> bool:
            if word in joined or self._is_known(word):
                return True
            if self._parts is None or characters_of(word):
                return False
            if len(self._parts_of([word])) < _KNOWN_SHARE * len(self._take_apart(word)):
                return False
            if self._rule == RULE:
                guessed[word] = None
            return True

        report = report_words(text, is_known, self._rule)
        return replace(report, guessed=tuple(guessed)) if guessed else report

    @override
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"terms": list(self._words.positions), "idf": self._words.idf.tolist()}
        if self._rule != FIRST_RULE:
            state |= {"rule": self._rule, "spellings": self._spellings}
        state |= {"further": self.n_further} if self.n_further else {}
        if self._parts is None:
            return state
        return {**state, "parts": list(self._parts.positions), "part_idf": self._parts.idf.tolist()}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._follow(state.get("rule", FIRST_RULE))
        self.n_further = state.get("further", 0)
        self._words = WeightedTerms.restore(state["terms"], state["idf"])
        self._spellings = state.get("spellings", [term for term in state["terms"] if " " not in term])
        if "parts" in state:
            self._parts = WeightedTerms.restore(state["parts"], state["part_idf"])
            self._parts_of = parts_in(self._parts.positions, self._take_apart)
        return self

    def _is_known(self, word: str) -> bool:
        """Return whether a word was learned, but for a last letter, or ends in one that was."""
        if word in self._words.positions:
            return True
        characters = telling_characters(word) if self._rule == RULE else []
        if characters:
            learned = (self._parts or self._words).positions
            return all(character in learned for character in characters)
        if self._parts is None or characters_of(word):
            return False
        # A last letter changes most parts of a short word: "bags" shares a third of its parts with "bag".
        if word[:-1] in self._words.positions:
            return True
        lengths = range(_SHORTEST_HEAD, min(len(word) - _SHORTEST_REST, _LONGEST_HEAD) + 1)
        return any(word[-length:] in self._words.positions for length in lengths)

    def _positions(self, words: list[str]) -> list[Positions]:
        """Return the positions of the terms of a text, and of its parts of words if any were learned."""
        positions = positions_in(self._words.positions, self._terms_of(words))
        return [positions] if self._parts is None else [positions, self._parts_of(words)]

    def _follow(self, rule: int) -> None:
        """Take texts apart by this rule."""
        self._rule = rule
        self._split = words_by(rule)
        self._list_runs = runs_by(rule, 2, self._longest_run)
        self._take_apart = parts_by(rule, _SHORTEST_PART, self._characters or _DEFAULT_PART)

    def _list_words(self, words: list[str]) -> list[str]:
        """Return words with their single characters, where these are no parts of words."""
        return words if self._characters or self._rule == FIRST_RULE else with_characters(words)

    def _terms_of(self, words: list[str]) -> list[str]:
        return self._list_words(words) + self._list_runs(words)


ENCODER = EncoderType(
    _OPTIONS, lambda options, resources: TfidfEncoder(options, resources.max_text_chars), "text"
)
