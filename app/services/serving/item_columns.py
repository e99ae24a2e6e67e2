"""Labels and metadata of items by column, so that filters compare arrays of integers, not every item.
A column is read from the items when it is first needed, which takes about a second per million of them."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from app.domain.entities import IndexedItem
from app.domain.filters import RANGES, Condition, ItemFilter, comparable, is_ordered
from app.domain.words import split_words
from app.services.serving.stored_items import StoredItems, batches_of
from app.services.storage.pacing import no_pause

ROWS_READ_BY_A_SEARCH = 20_000
"""Rows whose columns a search may read itself: some 20 ms. More of them are read in the background."""
ABSENT: Final = object()
"""Stands for the value of a key that an item does not have."""
_KEY_BYTES = 8  # by which texts are sorted first
_Term = TypeVar("_Term", bound=Hashable)
_RowsByTerm = Mapping[_Term, npt.NDArray[np.int32]]
"""Row numbers of labels, words, or elements of lists."""
_OTHER = 0  # code of the values that no filter can name: arrays and objects
_NONE = -1  # code of the rows without the key


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Some columns: whether labels are among them, metadata keys, and keys whose values are looked into."""

    labels: bool = False
    keys: frozenset[str] = frozenset()
    terms: frozenset[str] = frozenset()

    @classmethod
    def of(cls, item_filter: ItemFilter) -> ColumnNames:
        """Return what a filter compares."""
        of_metadata = [one for one in item_filter.conditions if one.subject == "metadata"]
        return cls(
            any(one.subject == "labels" for one in item_filter.conditions),
            frozenset(one.key for one in of_metadata if not one.is_of_terms),
            frozenset(one.key for one in of_metadata if one.is_of_terms),
        )

    @classmethod
    def union(cls, parts: Iterable[ColumnNames]) -> ColumnNames:
        """Return the columns that are in any of the parts."""
        return functools.reduce(operator.or_, parts, cls())

    def __or__(self, other: ColumnNames) -> ColumnNames:
        return ColumnNames(self.labels or other.labels, self.keys | other.keys, self.terms | other.terms)

    def __sub__(self, other: ColumnNames) -> ColumnNames:
        labels = self.labels and not other.labels
        return ColumnNames(labels, self.keys - other.keys, self.terms - other.terms)

    def __bool__(self) -> bool:
        return self.labels or bool(self.keys or self.terms)


class ItemColumns:
    """The columns of a segment's items, in memory bounded by what rows hold: keys of no row cost nothing."""

    def __init__(self, items: Sequence[IndexedItem]) -> None:
        self._n_rows = len(items)
        self._items = items
        self._lock = threading.Lock()
        """Held while columns are read: others that need them wait instead of reading them, too."""
        self._rows_by_label: _RowsByTerm[str] | None = None
        self._by_key: dict[str, _Column] = {}
        self._terms_by_key: dict[str, _RowsByTerm[Hashable]] = {}
        self._keys: frozenset[str] | None = None  # all keys, known since one was asked for that no row has

    @property
    def names(self) -> ColumnNames:
        """Those that were read."""
        keys, terms = self._by_key.copy(), self._terms_by_key.copy()
        return ColumnNames(self._rows_by_label is not None, frozenset(keys), frozenset(terms))

    def missing(self, names: ColumnNames) -> ColumnNames:
        """Return which columns have yet to be read."""
        keys, terms = names.keys.difference(self._by_key), names.terms.difference(self._terms_by_key)
        if self._keys is not None:
            keys, terms = keys & self._keys, terms & self._keys
        return ColumnNames(names.labels and self._rows_by_label is None, keys, terms)

    def read(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        """Read columns unless they are there; `pause` is called between steps."""
        with self._lock:
            missing = self.missing(names)
            if missing.labels:
                batches = batches_of(self._items, labels=tuple[str, ...])
                labels = ([of_row for _, of_row, _ in batch] for batch in batches)
                self._rows_by_label = _rows_by_term(labels, pause)
            if missing.terms:
                self._read_terms(sorted(missing.terms), pause)
            if missing.keys:
                self._read_keys(sorted(missing.keys), pause)

    @property
    def rows_by_label(self) -> _RowsByTerm[str]:
        """Row numbers of each label."""
        if self._rows_by_label is None:
            self.read(ColumnNames(labels=True))
        assert self._rows_by_label is not None
        return self._rows_by_label

    def matches(self, condition: Condition) -> npt.NDArray[np.bool]:
        """Return which rows meet a condition on labels or metadata."""
        if condition.subject == "metadata" and not condition.is_of_terms:
            column = self._column(condition.key)
            if column is None:
                return np.full(self._n_rows, condition.operator == "in" and condition.has(None))
            return column.matches(condition)
        if condition.operator == "text":
            has_all = np.ones(self._n_rows, np.bool)
            for word in condition.words:
                has_all &= self._mark(self._terms(condition.key), [(str, word)])
            return has_all
        is_label = condition.subject == "labels"
        rows: _RowsByTerm[Any] = self.rows_by_label if is_label else self._terms(condition.key)
        return self._mark(rows, condition.wanted)

    def _mark(self, rows: _RowsByTerm[Any], terms: Iterable[Hashable]) -> npt.NDArray[np.bool]:
        """Return which rows have one of some terms."""
        mask = np.zeros(self._n_rows, np.bool)
        for term in terms:
            mask[rows.get(term, [])] = True
        return mask

    def count(self, key: str, alive: npt.NDArray[np.bool] | None) -> dict[Hashable, int]:
        """Return how many alive rows (None: all) have each value (`comparable`) under a key."""
        column = self._column(key)
        return {} if column is None else column.count(alive)

    def _column(self, key: str) -> _Column | None:
        """Return a column, which is read unless it is there; None for a key of no row."""
        names = ColumnNames(keys=frozenset({key}))
        if self.missing(names):
            self.read(names)
        return self._by_key.get(key)

    def _terms(self, key: str) -> _RowsByTerm[Hashable]:
        """Return the rows of the terms under a key, which are read unless they are there."""
        names = ColumnNames(terms=frozenset({key}))
        if self.missing(names):
            self.read(names)
        return self._terms_by_key.get(key, {})

    def _read_terms(self, keys: Sequence[str], pause: Callable[[], None]) -> None:
        for key in keys:
            batches = (list(map(_terms_of, values)) for (values,) in self._values([key]))
            terms = _rows_by_term(batches, pause)
            if terms:
                self._terms_by_key[key] = terms
        self._note_keys(self._terms_by_key, keys, pause)
        for key in self._keys.intersection(keys) if self._keys is not None else ():
            self._terms_by_key.setdefault(key, {})  # it has neither texts nor lists

    def _note_keys(self, there: Collection[str], keys: Sequence[str], pause: Callable[[], None]) -> None:
        """Remember which keys there are once one was asked for of which there is nothing."""
        if self._keys is None and not all(key in there for key in keys):
            all_keys: set[str] = set()
            for batch in batches_of(self._items, metadata=dict[str, Raw]):
                all_keys.update(*(metadata for _, _, metadata in batch))
                pause()
            self._keys = frozenset(all_keys)

    def _read_keys(self, keys: Sequence[str], pause: Callable[[], None]) -> None:
        codes: list[dict[Hashable, int]] = [{} for _ in keys]
        row_codes = [array("i") for _ in keys]
        for batch in self._values(keys):
            for values, of_key, of_rows in zip(batch, codes, row_codes, strict=True):
                of_rows.extend(map(partial(_encode, of_key), values))
            pause()
        columns = zip(keys, map(_make_column, codes, row_codes), strict=True)
        by_key = {key: column for key, column in columns if column is not None}
        self._note_keys(by_key, keys, pause)
        self._by_key |= by_key

    def _values(self, keys: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield for each of the keys the values of some rows, `ABSENT` where a row does not have it."""
        names = [f"value_{number}" for number in range(len(keys))]
        document: Any = dict[str, Any]
        if isinstance(self._items, StoredItems):
            fields = [(name, Any, ABSENT) for name in names]
            with contextlib.suppress(ValueError):  # not every character may be in such a name
                renamed = dict(zip(names, keys, strict=True))
                document = msgspec.defstruct("_Document", fields, rename=renamed, gc=False)
        for batch in batches_of(self._items, metadata=document):
            if isinstance(batch[0][2], Mapping):
                yield [[metadata.get(key, ABSENT) for _, _, metadata in batch] for key in keys]
            else:
                yield [
                    [values(metadata) for _, _, metadata in batch]
                    for values in map(operator.attrgetter, names)
                ]


def _terms_of(value: Any) -> Iterable[Hashable]:
    """Return what can be looked for in a value: the words of a text, the elements of a list."""
    if isinstance(value, str):
        return {(str, word) for word in split_words(value)}
    return {comparable(one) for one in value if isinstance(one, Hashable)} if isinstance(value, list) else ()


def _rows_by_term(
    batches: Iterable[Sequence[Iterable[_Term]]], pause: Callable[[], None]
) -> _RowsByTerm[_Term]:
    """Return the row numbers of each term, in order."""
    rows: dict[_Term, array[int]] = {}
    n_read = 0
    for batch in batches:
        for row, terms in enumerate(batch, n_read):
            for term in terms:
                if term not in rows:
                    rows[term] = array("i")
                rows[term].append(row)
        n_read += len(batch)
        pause()
    return {term: np.asarray(numbers, np.int32) for term, numbers in rows.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Sorted:
    """The rows that have numbers, or texts, in the order of these: those of value n begin at `starts[n]`."""

    values: Sequence[Any]  # different ones
    rows: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]

    @classmethod
    def of(cls, codes: Mapping[Hashable, int], row_codes: npt.NDArray[np.int32], kind: type) -> _Sorted:
        """Return the texts (str) or the numbers (float) of a dictionary-encoded column."""
        example = kind()
        values = [value for value in codes if is_ordered(value, example)]
        # By eight bytes, for which other threads need not wait; what is equal there by itself.
        keys = np.array([_sort_key(value) for value in values], f"S{_KEY_BYTES}" if kind is str else "f8")
        order = np.argsort(keys, kind="stable")
        ends = np.flatnonzero(np.append(keys[order][1:] != keys[order][:-1], True)) + 1
        begins = np.append(0, ends[:-1])
        for tied in map(slice, begins[ends - begins > 1], ends[ends - begins > 1]):
            order[tied] = sorted(order[tied].tolist(), key=values.__getitem__)
        values = [values[number] for number in order.tolist()]
        ranks = np.full(len(codes) + 1, len(values), np.int32)
        ranks[[codes[value] for value in values]] = np.arange(len(values))
        row_ranks = ranks[row_codes]
        starts = np.append(0, np.cumsum(np.bincount(row_ranks, minlength=len(values))[: len(values)]))
        return cls(values, np.argsort(row_ranks, kind="stable")[: starts[-1]], starts)

    def mark(self, condition: Condition, n_rows: int) -> npt.NDArray[np.bool]:
        """Return which rows are in a range."""
        bisect = bisect_left if condition.operator in ("lt", "gte") else bisect_right
        place = self.starts[bisect(self.values, condition.values[0])]
        inside, outside = self.rows[:place], self.rows[place:]
        if condition.operator in ("gt", "gte"):
            inside, outside = outside, inside
        if len(inside) > n_rows / 2 and len(self.rows) == n_rows:
            mask = np.ones(n_rows, np.bool)
            mask[outside] = False
        else:
            mask = np.zeros(n_rows, np.bool)
            mask[inside] = True
        return mask


def _sort_key(value: Any) -> float | bytes:
    if isinstance(value, str):
        return value[:_KEY_BYTES].encode(errors="surrogatepass")[:_KEY_BYTES]
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, eq=False)
class _Column:
    """The values of one key, dictionary-encoded from 1."""

    n_rows: int
    codes: Mapping[Hashable, int]  # by value
    row_codes: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32] | None  # those that have the key, None for all

    def count(self, alive: npt.NDArray[np.bool] | None) -> dict[Hashable, int]:
        """Return how many rows that are alive have each value."""
        if alive is None:
            codes = self.row_codes
        else:
            codes = self.row_codes[alive if self.rows is None else alive[self.rows]]
        counts = np.bincount(codes, minlength=len(self.codes) + 1).tolist()
        return {value: counts[code] for value, code in self.codes.items() if counts[code]}

    def matches(self, condition: Condition) -> npt.NDArray[np.bool]:
        """Return which rows meet a condition; those without the key have None."""
        if condition.operator in RANGES:
            order = self._texts if isinstance(condition.values[0], str) else self._numbers
            matches = order.mark(condition, len(self.row_codes))
        else:
            code_matches = np.full(len(self.codes) + 1, condition.operator == "exists")
            named = condition.wanted if condition.operator == "in" else (None,)
            code_matches[[self.codes[value] for value in named if value in self.codes]] ^= True
            matches = code_matches[self.row_codes]
        if self.rows is None:
            return matches
        mask = np.full(self.n_rows, condition.operator == "in" and condition.has(None))
        mask[self.rows] = matches
        return mask

    @cached_property
    def _numbers(self) -> _Sorted:
        return _Sorted.of(self.codes, self.row_codes, float)

    @cached_property
    def _texts(self) -> _Sorted:
        return _Sorted.of(self.codes, self.row_codes, str)


def _encode(codes: dict[Hashable, int], value: Any) -> int:
    """Return the code of a value, which gets the next one if it has none yet."""
    if value is ABSENT:
        return _NONE
    try:
        return codes.setdefault(comparable(value), len(codes) + 1)
    except TypeError:  # arrays and objects have no hash
        return _OTHER


def _make_column(codes: Mapping[Hashable, int], of_rows: array[int]) -> _Column | None:
    """Return the column of the codes of all rows; None where no row has the key."""
    row_codes = np.asarray(of_rows, np.int32)
    has_key = row_codes != _NONE
    if has_key.all():
        return _Column(len(row_codes), codes, row_codes, None)
    rows = np.flatnonzero(has_key).astype(np.int32)
    return _Column(len(row_codes), codes, row_codes[rows], rows) if len(rows) else None
