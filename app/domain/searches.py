"""Searches: what may be shown, the answer, and why a filter lets nothing pass."""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from app.answers import Notice, Reason
from app.domain.filters import Condition, ItemFilter, as_stored
from app.domain.names import join_words, some_of
from app.domain.words import fold, split_words

if TYPE_CHECKING:  # it brings numpy, which commands over HTTP do without
    from app.domain.entities import ShownItem

HIT_FIELDS = frozenset({"labels", "metadata", "text"})
"""Fields of an item that a search result may show besides its id."""
WHOLE_ITEM = HIT_FIELDS | {"features"}
"""Fields of an item that is written again."""


LONGEST_TYPED = 500
"""Characters of a text that is respelled: its words are compared with all learned ones, which takes time."""


def floor_percent(probability: float) -> str:
    """Return a probability in percent, not rounded up, so that a result is as probable as its figure."""
    return f"{math.floor(1000.0 * probability) / 10.0:.1f}"


class Hit(NamedTuple):
    """One search result; a tuple, since many are made."""

    id: str
    rank: int
    score: float
    probability: float | None
    """Of a match; None within one modality, where scores are cosines, and before the first training."""
    item: ShownItem
    explanation: Sequence[Reason] | None = None


@dataclass(frozen=True, slots=True)
class WordReport:
    """Which words of a text its encoder knows."""

    n_known: int  # different words
    unknown: tuple[str, ...]  # in the order of the text
    guessed: tuple[str, ...] = ()  # of the known ones, those that are only spelled somewhat like learned ones
    misspelt: tuple[str, ...] = ()  # of the known ones, those that are most likely others
    unseen: tuple[str, ...] = ()  # the known ones, where no text, label or value has any of them

    def knowing(self, words: Collection[str]) -> WordReport:
        """Return it with some words among the known ones."""
        unknown, guessed = (tuple(w for w in one if w not in words) for one in (self.unknown, self.guessed))
        n_known = self.n_known + len(self.unknown) - len(unknown)
        return replace(self, n_known=n_known, unknown=unknown, guessed=guessed)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from; `exact` where no better item can have been missed."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: tuple[Hit, ...]
    notices: tuple[Notice, ...] = ()
    facts: Mapping[str, Sequence[str] | None] = field(default_factory=dict)  # of the model, beside reasons


SAMPLE = 1000
"""Items whose keys and values are named: to read them takes some milliseconds."""
_REASONS = 3  # a filter may have a hundred conditions; a person reads a few
_ASKED, _COMPARED, _LONGEST, _LIKELY = 5, 200, 60, 2
"""Values that are looked up among how many others, characters that are shown of each, and what is offered."""

Traits = tuple[Sequence[str], Mapping[str, Any]]
"""Labels and metadata of an item."""


def explain_filter(
    item_filter: ItemFilter, items: Iterable[Any], count: Callable[[ItemFilter], int], passes: bool
) -> tuple[Notice, ...]:
    """Return a notice of why no item passes a filter or, if one `passes`, of what it leaves out in vain."""
    if passes:
        of_items = (one for one in item_filter.excluded if one.key or one.subject == "labels")
        of_values = (one for one in of_items if {*one.values} - {None})
        item_filter = ItemFilter(tuple(islice(of_values, _ASKED)))
    unmet = list(islice(_find_unmet(item_filter, count), _REASONS))
    sample = [(item.labels, item.metadata) for item in items] if unmet or not passes else []
    if not sample:
        return ()
    message = ". ".join(dict.fromkeys(_reason(condition, sample, count) for condition in unmet))
    if passes:
        return (Notice("filter-excludes-nothing", f"a part of the filter leaves nothing out: {message}", ()),)
    message = message or "each condition is met by some item, but no item meets all of them"
    return (Notice("filter-matches-nothing", message, ()),)


def _find_unmet(item_filter: ItemFilter, count: Callable[[ItemFilter], int]) -> Iterator[Condition]:
    """Find the conditions that let no item through, in a filter that lets none through."""
    if item_filter.kind == "none":
        return
    for part in item_filter.parts:
        if item_filter.kind == "all" and count(ItemFilter((part,))):
            continue
        if isinstance(part, Condition):
            yield part
        else:
            yield from _find_unmet(part, count)


def _reason(condition: Condition, sample: Sequence[Traits], count: Callable[[ItemFilter], int]) -> str:
    """Return why no item meets a condition."""
    key, values = condition.key, condition.values
    if condition.subject == "labels":
        there = _by_frequency(label for labels, _ in sample for label in labels)
        return _missing("has the label", values, there, "labels")
    if condition.subject != "metadata":
        return f"no item has the {condition.subject} {some_of(values)}"
    if not count(ItemFilter((Condition("metadata", "exists", key=key),))):
        there = _by_frequency(name for _, metadata in sample for name in metadata)
        return _missing("has the key", (key,), there, "keys")
    own = [metadata[key] for _, metadata in sample if metadata.get(key) is not None]
    listed = [value for value in own if not isinstance(value, list | dict)]
    if own and not listed and condition.operator != "contains":
        return f"the values of {key!r} are lists or objects, of which 'contains' compares elements of lists"
    there, kind = _by_frequency(listed), _kind_of(listed, values)
    if condition.operator != "in":
        others = f"; {kind} are {some_of(_shorten(there))}" if there else ""
        return f"no item has a value under {key!r} that meets {condition.operator!r} {values[0]!r}{others}"
    return _missing(f"has under {key!r}", values, there, kind)


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
    if kind not in ("labels", "keys"):
        likely = likely or list(filter(None, (as_stored(str(value)) for value in wanted_values[:_ASKED])))
    hint = f" (did you mean {join_words(likely)}?)" if likely else ""
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
    return [repr(by_folded[name]) for name in near[:_LIKELY]]


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
