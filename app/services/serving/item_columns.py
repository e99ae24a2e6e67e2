"""Labels and metadata of items by column, so that filters compare arrays of integers, not every item.
A column is read from the items when it is first needed, which takes about a second per million of them."""

from __future__ import annotations

import functools
import operator
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.domain.searches import ItemFilter, comparable
from app.services.storage.pacing import no_pause

ROWS_READ_BY_A_SEARCH = 20_000
"""Rows whose columns a search may read itself: some 20 ms. More of them are read in the background."""
ABSENT: Final = object()
"""Stands for the value of a key that an item does not have."""
_OTHER = 0  # code of the values that no filter can name: arrays and objects
_NONE = -1  # code of the rows without the key


class ColumnSource(ABC):
    """Where columns are read from, in batches of rows, in row order."""

    @abstractmethod
    def label_batches(self) -> Iterator[Sequence[Collection[str]]]:
        """Yield the labels of each row."""

    @abstractmethod
    def key_batches(self) -> Iterator[Sequence[Iterable[str]]]:
        """Yield the metadata keys of each row."""

    @abstractmethod
    def value_batches(self, keys: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield for each of the keys the values of the rows, `ABSENT` where a row does not have it."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Some columns: whether labels are among them, and metadata keys."""

    labels: bool = False
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, item_filter: ItemFilter) -> ColumnNames:
        """Return what a filter compares."""
        return cls(item_filter.labels is not None, frozenset(item_filter.metadata))

    @classmethod
    def union(cls, parts: Iterable[ColumnNames]) -> ColumnNames:
        """Return the columns that are in any of the parts."""
        return functools.reduce(operator.or_, parts, cls())

    def __or__(self, other: ColumnNames) -> ColumnNames:
        return ColumnNames(self.labels or other.labels, self.keys | other.keys)

    def __sub__(self, other: ColumnNames) -> ColumnNames:
        return ColumnNames(self.labels and not other.labels, self.keys - other.keys)

    def __bool__(self) -> bool:
        return self.labels or bool(self.keys)


class ItemColumns:
    """The columns of a segment's items, in memory bounded by what rows hold: keys of no row cost nothing."""

    def __init__(self, n_rows: int, source: ColumnSource) -> None:
        self._n_rows = n_rows
        self._source = source
        self._lock = threading.Lock()
        """Held while columns are read: others that need them wait instead of reading them, too."""
        self._rows_by_label: Mapping[str, npt.NDArray[np.int32]] | None = None
        self._by_key: dict[str, _Column] = {}
        self._keys: frozenset[str] | None = None  # all keys, known since one was asked for that no row has

    @property
    def names(self) -> ColumnNames:
        """Those that were read."""
        return ColumnNames(self._rows_by_label is not None, frozenset(self._by_key.copy()))

    def missing(self, names: ColumnNames) -> ColumnNames:
        """Return which columns have yet to be read."""
        keys = names.keys.difference(self._by_key)
        if self._keys is not None:
            keys &= self._keys
        return ColumnNames(names.labels and self._rows_by_label is None, keys)

    def read(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        """Read columns unless they are there; `pause` is called between steps."""
        with self._lock:
            missing = self.missing(names)
            if missing.labels:
                self._rows_by_label = self._read_labels(pause)
            if missing.keys:
                self._read_keys(sorted(missing.keys), pause)

    @property
    def rows_by_label(self) -> Mapping[str, npt.NDArray[np.int32]]:
        """Row numbers of each label."""
        if self._rows_by_label is None:
            self.read(ColumnNames(labels=True))
        assert self._rows_by_label is not None
        return self._rows_by_label

    def matches(self, key: str, values: Collection[Hashable]) -> npt.NDArray[np.bool]:
        """Return which rows have one of the values (`comparable`) under a key (None: it is absent)."""
        column = self._column(key)
        if column is None:
            return np.full(self._n_rows, None in values)
        return column.matches(values)

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

    def _read_labels(self, pause: Callable[[], None]) -> dict[str, npt.NDArray[np.int32]]:
        rows: dict[str, array[int]] = {}
        n_read = 0
        for batch in self._source.label_batches():
            for row, labels in enumerate(batch, n_read):
                for label in labels:
                    if label not in rows:
                        rows[label] = array("i")
                    rows[label].append(row)
            n_read += len(batch)
            pause()
        return {label: np.asarray(numbers, np.int32) for label, numbers in rows.items()}

    def _read_keys(self, keys: Sequence[str], pause: Callable[[], None]) -> None:
        builders = {key: _ColumnBuilder() for key in keys}
        for batch in self._source.value_batches(keys):
            for builder, values in zip(builders.values(), batch, strict=True):
                builder.add(values)
            pause()
        columns = {key: builder.column() for key, builder in builders.items()}
        by_key = {key: column for key, column in columns.items() if column is not None}
        if self._keys is None and len(by_key) < len(columns):
            all_keys: set[str] = set()
            for rows in self._source.key_batches():
                all_keys.update(*rows)
                pause()
            self._keys = frozenset(all_keys)
        self._by_key |= by_key


@dataclass(frozen=True, slots=True, eq=False)
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

    def matches(self, values: Collection[Hashable]) -> npt.NDArray[np.bool]:
        """Return which rows have one of the values; those without the key have None."""
        code_matches = np.zeros(len(self.codes) + 1, np.bool)
        code_matches[[self.codes[value] for value in values if value in self.codes]] = True
        matches: npt.NDArray[np.bool] = code_matches[self.row_codes]
        if self.rows is None:
            return matches
        mask = np.full(self.n_rows, None in values)
        mask[self.rows] = matches
        return mask


class _ColumnBuilder:
    """Encodes the values of one key, batch by batch."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._row_codes = array("i")

    def add(self, values: Iterable[Any]) -> None:
        """Add the values of the next rows."""
        self._row_codes.extend(map(self._encode, values))

    def column(self) -> _Column | None:
        """Return the column; None where no row has the key."""
        row_codes = np.asarray(self._row_codes, np.int32)
        has_key = row_codes != _NONE
        if has_key.all():
            return _Column(len(row_codes), self._codes, row_codes, None)
        rows = np.flatnonzero(has_key).astype(np.int32)
        return _Column(len(row_codes), self._codes, row_codes[rows], rows) if len(rows) else None

    def _encode(self, value: Any) -> int:
        if value is ABSENT:
            return _NONE
        try:
            return self._codes.setdefault(comparable(value), len(self._codes) + 1)
        except TypeError:  # arrays and objects have no hash
            return _OTHER
