"""Searches: conditions of filters, what may be asked for, its answer, and why a filter lets nothing pass."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from unicodedata import normalize

from app.answers import Notice
from app.domain.names import join_words, some_of
from app.domain.words import fold, split_words

if TYPE_CHECKING:  # it brings numpy, which commands over HTTP do without
    from app.domain.entities import ShownItem

_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,17})?", re.ASCII)
_MOST_DIGITS = 40
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


def values_by_key(conditions: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each key that conditions name; those of one key are alternatives."""
    # A value that is no JSON, or a list or an object, is text. A number stands for the text as it was written
    # as well: a code such as 1E5 is found.
    values: dict[str, tuple[Any, ...]] = {}
    for condition in conditions:
        key, _, text = condition.partition("=")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        scalar = text if isinstance(value, list | dict) else value
        is_other_text = not isinstance(scalar, str) and isinstance(scalar, int | float)
        written = (text,) if is_other_text and text not in equal_values(scalar) else ()
        values[key] = (*values.get(key, ()), scalar, *written)
    return values


HIT_FIELDS = frozenset({"labels", "metadata", "text"})
"""Fields of an item that a search result may show besides its id."""
WHOLE_ITEM = HIT_FIELDS | {"features"}
"""Fields of an item that is written again."""


@dataclass(frozen=True)
class ItemFilter:
    """Which items may be returned: any of the labels, and every metadata key with any of its values.
    Labels that are None, and keys that are absent, restrict nothing; an empty tuple lets nothing pass."""

    # Values are JSON values other than lists and objects; each stands for all that count as the same, see
    # `equal_values`.

    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of_conditions(cls, labels: Sequence[str], conditions: Sequence[str]) -> Self:
        """Return the filter by labels and by conditions such as ``colour=red``; none restrict nothing."""
        return cls(tuple(labels) or None, values_by_key(conditions))

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return self.labels is None and not self.metadata

    def accepts(self, labels: Collection[str], metadata: Mapping[str, Any]) -> bool:
        """Return whether an item passes; a key that it does not have counts as null."""
        if self.labels is not None and not any(label in labels for label in self.equal_labels):
            return False
        pairs = ((metadata.get(key), accepted) for key, accepted in self.wanted_values.items())
        return all(isinstance(value, Hashable) and comparable(value) in accepted for value, accepted in pairs)

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash that identifies the filter, of fixed length."""
        labels = None if self.labels is None else sorted(self.labels)
        text = repr((labels, sorted(self.metadata.items())))
        return hashlib.sha256(text.encode(errors="surrogatepass")).digest()

    @cached_property
    def wanted_values(self) -> Mapping[str, frozenset[Hashable]]:
        """Values by key, as sets of `comparable` keys: a row takes equally long, however many there are."""
        return {key: frozenset(map(comparable, values)) for key, values in self.equal_metadata.items()}

    @cached_property
    def equal_labels(self) -> tuple[str, ...]:
        """Labels with all that count as the same."""
        return tuple(itertools.chain.from_iterable(map(equal_texts, self.labels or ())))

    @property
    def equal_metadata(self) -> Mapping[str, tuple[Any, ...]]:
        """Values by key with all that count as the same."""
        return {
            key: tuple(itertools.chain.from_iterable(map(equal_values, values)))
            for key, values in self.metadata.items()
        }


def comparable(value: Hashable) -> Hashable:
    """Return a key equal for values that are equal in JSON: in Python True == 1, in JSON it is not."""
    return (bool, value) if isinstance(value, bool) else value


class Hit(NamedTuple):
    """One search result; a tuple, since many are made."""

    id: str
    rank: int
    score: float
    probability: float | None
    """Of a match; None within one modality, where scores are cosines, and before the first training."""
    item: ShownItem


@dataclass(frozen=True, slots=True)
class WordReport:
    """Which words of a text its encoder knows."""

    n_known: int  # different words
    unknown: tuple[str, ...]  # in the order of the text
    guessed: tuple[str, ...] = ()  # of the known ones, those that are only spelled somewhat like learned ones


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from; `exact` where no better item can have been missed."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: tuple[Hit, ...]
    notices: tuple[Notice, ...] = ()


SAMPLE = 1000
"""Items whose keys and values are named: to read them takes some milliseconds."""
_REASONS = 3  # a filter may have a hundred conditions; a person reads a few
_ASKED, _COMPARED, _LONGEST, _LIKELY = 5, 200, 60, 2
"""Values that are looked up among how many others, characters that are shown of each, and what is offered."""

Traits = tuple[Sequence[str], Mapping[str, Any]]
"""Labels and metadata of an item."""


def explain_filter(
    item_filter: ItemFilter, sample: Sequence[Traits], count: Callable[[ItemFilter], int], n_items: int
) -> tuple[Notice, ...]:
    """Return a notice of why no item passes a filter, by some items and what passes others; none where there
    are no items."""
    if not sample:
        return ()
    reasons = islice(_reasons(item_filter, sample, count, n_items), _REASONS)
    message = ". ".join(reasons) or "each condition is met by some item, but no item meets all of them"
    return (Notice("filter-matches-nothing", message, ()),)


def _reasons(
    item_filter: ItemFilter, sample: Sequence[Traits], count: Callable[[ItemFilter], int], n_items: int
) -> Iterator[str]:
    if item_filter.labels is not None and not count(ItemFilter(item_filter.labels)):
        there = _by_frequency(label for labels, _ in sample for label in labels)
        yield _missing("has the label", item_filter.labels, there, "labels")
    for key, values in item_filter.metadata.items():
        if count(ItemFilter(metadata={key: values})):
            continue
        if count(ItemFilter(metadata={key: (None,)})) == n_items:
            there = _by_frequency(name for _, metadata in sample for name in metadata)
            yield _missing("has the key", (key,), there, "keys")
            continue
        own = [metadata[key] for _, metadata in sample if metadata.get(key) is not None]
        listed = [value for value in own if not isinstance(value, list | dict)]
        if own and not listed:
            yield f"the values of {key!r} are lists or objects, which no filter compares"
        else:
            yield _missing(f"has under {key!r}", values, _by_frequency(listed), _kind_of(listed, values))


def _missing(what: str, wanted_values: Sequence[Any], there: Sequence[Any], kind: str) -> str:
    """Return what no item has, what is written much like it, and what there is."""
    others = _describe_others(wanted_values, there, kind)
    return f"no item {what} {some_of(_shorten(wanted_values)) or 'any value of an empty list'}{others}"


def describe_others(missing: Any, values: Iterable[Any], kind: str) -> str:
    """Return which of some values are written much like one that no item has, and which there are."""
    return _describe_others((missing,), _by_frequency(values), kind)


def _describe_others(wanted_values: Sequence[Any], there: Sequence[Any], kind: str) -> str:
    names = [name for name in there if isinstance(name, str) and len(name) <= _LONGEST][:_COMPARED]
    likely = list(dict.fromkeys(like for value in wanted_values[:_ASKED] for like in _alike(value, names)))
    hint = f" (did you mean {join_words(map(repr, likely))}?)" if likely else ""
    return hint + (f"; {kind} are {some_of(_shorten(there))}" if there else f"; there are no {kind}")


def _shorten(values: Sequence[Any]) -> list[Any]:
    return [
        f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
        for value in values
    ]


def _alike(value: Any, names: Sequence[str]) -> list[str]:
    if not isinstance(value, str) or len(value) > _LONGEST:
        return []
    by_folded = {fold(name).strip(): name for name in names}
    folded = fold(value).strip()
    words = set(split_words(value))
    near = difflib.get_close_matches(folded, by_folded, _LIKELY, 0.75) or [
        name for name in by_folded if words and words <= set(split_words(name))
    ]
    return [by_folded[name] for name in near[:_LIKELY]]


def _kind_of(there: Sequence[Any], wanted_values: Sequence[Any]) -> str:
    """Return what values are called, with their type where nothing of that type was asked for."""
    kinds = {_type_of(value) for value in there}
    is_other = len(kinds) == 1 and not kinds & {_type_of(value) for value in wanted_values}
    return f"the values, which are {kinds.pop()}," if is_other else "values"


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "texts" if isinstance(value, str) else "numbers"


def _by_frequency(values: Iterable[Any]) -> list[Any]:
    """Return different values, the most frequent first; true and 1 are different."""
    counts = Counter(json.dumps(value) for value in values)
    return [json.loads(text) for text, _ in counts.most_common()]
