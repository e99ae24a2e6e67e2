"""Filters: trees of conditions on items, equal values, and conditions as people type them."""
# A filter is read in three ways that have to agree: on columns of galleries in memory, in SQL, and in words
# of an engine. `ItemFilter.fold` gives each of them conditions and their complements: "not" is nowhere else.
#
# What an item lacks, null included, equals nothing, is in no range and has no words: `ne` and `not_in` hold
# for it, as `not` does of anything that does not hold. In ranges numbers are compared with numbers and texts
# with texts, by code points, in which dates of ISO 8601 are in order; nothing else is (true is no 1).
# Equality takes a number for a text that spells it, see `equal_values`. A list equals nothing; `contains`
# compares its elements as `eq` does. `text` holds where all words that are asked for are among the text's.

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Self, TypeVar
from unicodedata import normalize

from app.domain.errors import InvalidFieldError
from app.domain.words import split_words

RANGES: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
"""Operators of ranges, and how they compare a value with their bound."""
_SIGNS = {"=": "in", "!=": "not_in", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_SIGN, _WORD = re.compile(r"!=|[<>]=?|="), re.compile(r"\s(not in|in|contains|text)\s")
_WITH_COMMA = re.compile(r"([-+]?[0-9]+),(?:([0-9]{3})|([0-9]+))", re.ASCII)
_DAY_FIRST = re.compile(r"(0?[1-9]|[12][0-9]|3[01])\.(0?[1-9]|1[0-2])\.([0-9]{4})", re.ASCII)
_Reading = TypeVar("_Reading")

_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,17})?", re.ASCII)
_MOST_DIGITS = 40
_LONGEST_WORD = 200  # characters of a key and a word: PostgreSQL's index takes 2.7 kB
_BOOLEANS = {True: ("true", "True", "TRUE"), False: ("false", "False", "FALSE")}


def compose(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels in the one form in which they are stored, however their accents were composed."""
    return tuple(normalize("NFC", label) for label in labels)


def equal_texts(text: str) -> tuple[str, ...]:
    """Return a text as it is, and with its accents composed and decomposed."""
    return tuple(dict.fromkeys((text, normalize("NFC", text), normalize("NFD", text))))


def equal_values(value: Any) -> tuple[Any, ...]:
    """Return a JSON value that a filter names with those that count as the same."""
    # A number is the same as a text that spells it, as tables without types of columns leave it: 42 as "42",
    # "42.0" and "42.00", 19.9 as "19.9" and "19.90". So are true and "true", "True" or "TRUE". Texts are the
    # same as no texts but those that differ in how accents are composed, and numbers as no other numbers.
    if isinstance(value, bool):
        return (value, *_BOOLEANS[value])
    if isinstance(value, int | float):
        return (value, *_spellings(value))
    if not isinstance(value, str):
        return (value,)
    if _DECIMAL.fullmatch(value):
        number = float(value) if "." in value else int(value)
        return (value, number) if value in _spellings(number) else (value,)
    return (*equal_texts(value), *(answer for answer, spellings in _BOOLEANS.items() if value in spellings))


def _spellings(number: float) -> tuple[str, ...]:
    """Return the texts that spell a number: as short as can be, or with one or two decimals."""
    if isinstance(number, int) or number.is_integer():
        if abs(number) >= 10**_MOST_DIGITS:
            return ()
        whole = str(int(number))
        return whole, f"{whole}.0", f"{whole}.00"
    shortest = repr(number)
    rounded = f"{number:.2f}"
    return (shortest, rounded) if rounded != shortest and float(rounded) == number else (shortest,)


def filter_of(labels: Sequence[str], conditions: Sequence[str]) -> dict[str, Any]:
    """Return the filter by labels and conditions such as ``price<50`` as REST has it; of one key any of the
    values that are asked for. Raises InvalidFieldError (names `where`)."""
    equal: dict[str, dict[str, list[Any]]] = {}
    others: list[dict[str, Any]] = []
    for number, condition in enumerate(conditions):
        match = _SIGN.search(condition) or _WORD.search(condition.strip() + " ")
        key = "" if match is None else match.string[: match.start()].strip()
        if match is None or not key:
            forms = "KEY=VALUE, KEY!=VALUE, KEY<VALUE, KEY in A,B or KEY text WORDS"
            message = f"expected a condition such as {forms}, got {condition!r}"
            raise InvalidFieldError(f"where.{number}", message)
        sign, text = match[0].strip(), match.string[match.end() :].strip()
        name = _SIGNS.get(sign, sign.replace(" ", "_"))
        texts = text.split(",") if sign in ("in", "not in") else [text]
        values = [text] if name == "text" else list(chain.from_iterable(map(_parse, texts)))
        if name == "in":
            equal.setdefault(key, {"in": []})["in"] += values
        else:
            others.append({"metadata": {key: {name: values if name == "not_in" else values[0]}}})
    parts = {"labels": list(labels), "metadata": equal, "all": others}
    return {name: value for name, value in parts.items() if value}


def as_stored(text: str) -> str | None:
    """Return the number or date that a text is where commas and days come first, which imports store so."""
    if match := _WITH_COMMA.fullmatch(text):
        whole = f"{match[1]}{match[2]} or " if match[2] else ""
        return f"{whole}{match[1]}.{match[2] or match[3]} for a number"
    if match := _DAY_FIRST.fullmatch(text):
        return f"{match[3]}-{match[2]:0>2}-{match[1]:0>2} for a date"
    return None


def _parse(text: str) -> tuple[Any, ...]:
    """Return the JSON value that a text is; one that is none, or a list or an object, is the text."""
    # A number stands for the text as it was written as well: a code such as 1E5 is found.
    text = text.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return (text,)
    if isinstance(value, list | dict):
        return (text,)
    return (value, text) if isinstance(value, int | float) and text not in equal_values(value) else (value,)


@dataclass(frozen=True)
class Condition:
    """What an item has to have: as its id, modality or pair_id, among its labels, or under a key of its
    metadata. Values of ``in`` and ``contains`` are alternatives; null is an absent key."""

    subject: Literal["id", "modality", "pair_id", "labels", "metadata"]
    operator: str  # "in", "exists", "contains", "text", or one of `RANGES`
    values: tuple[Any, ...] = ()
    key: str = ""
    path: str = field(default="", compare=False)  # of the values in the request
    is_literal: bool = False  # whether values count as no others, though these spell them

    @cached_property
    def equal(self) -> tuple[Any, ...]:
        """Values with all that count as the same."""
        if self.is_literal:
            return self.values
        same = equal_texts if self.subject == "labels" else equal_values
        return tuple(chain.from_iterable(map(same, self.values)))

    @cached_property
    def wanted(self) -> frozenset[Hashable]:
        """The same as `comparable` keys: a row takes equally long, however many there are."""
        return frozenset(map(comparable, self.equal))

    @cached_property
    def words(self) -> frozenset[str]:
        """Words of which all have to be there."""
        return frozenset(chain.from_iterable(map(split_words, self.values)))

    @property
    def is_of_terms(self) -> bool:
        """Whether it looks into values: for elements of lists or words."""
        return self.operator in ("contains", "text")

    def holds(self, item: Any) -> bool:
        """Return whether an item meets it, which has what the condition is on."""
        if self.subject == "labels":
            return not self.wanted.isdisjoint(item.labels)
        if self.subject != "metadata":
            return getattr(item, self.subject) in self.values
        value = item.metadata.get(self.key)
        match self.operator:
            case "in":
                return self.has(value)
            case "exists":
                return value is not None
            case "contains":
                return isinstance(value, list) and any(map(self.has, value))
            case "text":
                return isinstance(value, str) and self.words <= set(split_words(value))
        return is_ordered(value, self.values[0]) and RANGES[self.operator](value, self.values[0])

    def has(self, value: Any) -> bool:
        """Return whether a value is the same as one of its own."""
        return isinstance(value, Hashable) and comparable(value) in self.wanted


@dataclass(frozen=True)
class ItemFilter:
    """Which items are meant: those that all of its parts hold for, any, or none; without parts it is all."""

    parts: tuple[Condition | ItemFilter, ...] = ()
    kind: Literal["all", "any", "none"] = "all"

    @classmethod
    def of(
        cls, labels: Sequence[str] | None = None, metadata: Mapping[str, Sequence[Any]] | None = None
    ) -> Self:
        """Return the filter by any of the labels, and every metadata key with any of its values. Labels that
        are None, and keys that are absent, restrict nothing; an empty list lets nothing pass."""
        by_label = () if labels is None else (Condition("labels", "in", tuple(labels), "", "filter.labels"),)
        values = (metadata or {}).items()
        return cls((*by_label, *(Condition("metadata", "in", tuple(of_key), key) for key, of_key in values)))

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return self.kind == "all" and not self.parts

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions, however deep."""
        return self.fold(lambda one, _: (one,), lambda _, parts: tuple(chain(*parts)))

    @cached_property
    def excluded(self) -> tuple[Condition, ...]:
        """Conditions of which the complement is asked for, as by ``ne``."""
        return self.fold(lambda one, negated: (one,) * negated, lambda _, parts: tuple(chain(*parts)))

    @cached_property
    def is_of_rows(self) -> bool:
        """Whether it asks for what only rows of the database have: a pair or a modality."""
        return any(condition.subject in ("pair_id", "modality") for condition in self.conditions)

    def fold(
        self,
        read: Callable[[Condition, bool], _Reading],
        join: Callable[[bool, Iterator[_Reading]], _Reading],
        negated: bool = False,
    ) -> _Reading:
        """Return what the readings of all conditions, or of their complements (True), are when joined; `join`
        gets whether all of them have to hold, or any."""
        inside = negated != (self.kind == "none")
        readings = (
            part.fold(read, join, inside) if isinstance(part, ItemFilter) else read(part, inside)
            for part in self.parts
        )
        return join((self.kind == "all") != inside, readings)

    def replace(self, by: Callable[[Condition], Condition | ItemFilter]) -> ItemFilter:
        """Return the filter with another part in the place of each condition."""
        parts = (part.replace(by) if isinstance(part, ItemFilter) else by(part) for part in self.parts)
        return ItemFilter(tuple(parts), self.kind)

    def accepts(self, item: Any) -> bool:
        """Return whether an item passes, which has what the conditions are on."""
        return self.fold(
            lambda condition, negated: condition.holds(item) != negated,
            lambda is_all, results: all(results) if is_all else any(results),
        )

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash that identifies the filter, of fixed length."""
        text = self.fold(
            lambda one, negated: repr(
                (negated, one.subject, one.operator, one.key, one.is_literal, sorted(map(repr, one.values)))
            ),
            lambda is_all, parts: _digest(repr((is_all, sorted(parts)))),  # a repr of reprs grows with depth
        )
        return bytes.fromhex(text)


NO_FILTER = ItemFilter()  # lets everything through


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def is_ordered(value: Any, bound: Any) -> bool:
    """Return whether a value can be in a range: both are numbers, or texts."""
    if isinstance(value, bool) or isinstance(bound, bool):
        return False
    kind = str if isinstance(bound, str) else int | float
    return isinstance(value, kind)


def comparable(value: Hashable) -> Hashable:
    """Return a key equal for values that are equal in JSON: in Python True == 1, in JSON it is not."""
    return (bool, value) if isinstance(value, bool) else value


def keyed_words(metadata: Mapping[str, Any]) -> list[str]:
    """Return the words of the texts in metadata, each with its key before it, as engines look for them."""
    texts = ((key, value) for key, value in metadata.items() if isinstance(value, str))
    return list(dict.fromkeys(keyed_word(key, word) for key, text in texts for word in split_words(text)))


def keyed_word(key: str, word: str) -> str:
    """Return a word with its key before it; a digest of what an index would not take."""
    text = f"{key} {word}"
    return text if len(text) <= _LONGEST_WORD else _digest(text)
