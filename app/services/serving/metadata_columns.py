"""Metadata by key, so that a filter compares arrays of integers rather than every item."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import comparable

_OTHER = 0
"""Code of the values that no filter can name: arrays and objects."""


class MetadataColumns:
    """The values of every metadata key, by row; a key's column is built when it is first filtered by.

    Memory is bounded by what the rows hold: keys that occur in no row cost nothing.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    read_keys : callable
        Returns the keys of each row.
    read_values : callable
        Returns row number and value of each row that has a key.
    """

    def __init__(
        self,
        n_rows: int,
        read_keys: Callable[[], Iterable[Iterable[str]]],
        read_values: Callable[[str], Iterable[tuple[int, Any]]],
    ) -> None:
        self._n_rows = n_rows
        self._read_keys = read_keys
        self._read_values = read_values
        self._is_key_missed = False
        self._columns: dict[str, _Column] = {}

    def matches(self, key: str, values: Collection[Hashable]) -> npt.NDArray[np.bool]:
        """Return which rows have one of the values under a key; a row without the key has None there.

        Parameters
        ----------
        key : str
            Metadata key.
        values : collection of hashable
            As `comparable` returns them.
        """
        mask = np.full(self._n_rows, None in values)
        column = self._columns.get(key) or self._read_column(key)
        if column is not None:
            mask[column.rows] = column.matches(values)
        return mask

    def count(self, key: str, alive: npt.NDArray[np.bool] | None) -> dict[Hashable, int]:
        """Return how many rows have each value under a key, as `comparable` returns it.

        Parameters
        ----------
        key : str
            Metadata key.
        alive : ndarray of bool, shape (n_rows,), or None
            Which rows count; None for all.
        """
        column = self._columns.get(key) or self._read_column(key)
        return {} if column is None else column.count(alive)

    def _read_column(self, key: str) -> _Column | None:
        """Return a new column; None for a key of no row, after the first of which all keys are known."""
        if self._is_key_missed and key not in self._keys:
            return None
        column = _Column(self._read_values(key))
        if not len(column.rows):
            self._is_key_missed = True
            return None
        self._columns[key] = column
        return column

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for keys in self._read_keys() for key in keys)


class _Column:
    """The values of one key, dictionary-encoded.

    Parameters
    ----------
    values : iterable of (int, object)
        Row numbers and values.
    """

    def __init__(self, values: Iterable[tuple[int, Any]]) -> None:
        self._codes: dict[Hashable, int] = {}
        rows, codes = [], []
        for row, value in values:
            rows.append(row)
            codes.append(
                self._codes.setdefault(comparable(value), len(self._codes) + 1)
                if isinstance(value, Hashable)
                else _OTHER
            )
        self.rows = np.asarray(rows, np.int32)
        self._row_codes = np.asarray(codes, np.int32)

    def count(self, alive: npt.NDArray[np.bool] | None) -> dict[Hashable, int]:
        """Return how many of `rows` that are alive have each value."""
        codes = self._row_codes if alive is None else self._row_codes[alive[self.rows]]
        counts = np.bincount(codes, minlength=len(self._codes) + 1).tolist()
        return {value: counts[code] for value, code in self._codes.items() if counts[code]}

    def matches(self, values: Iterable[Hashable]) -> npt.NDArray[np.bool]:
        """Return which of `rows` have one of the values."""
        code_matches = np.zeros(len(self._codes) + 1, np.bool)
        code_matches[[self._codes[value] for value in values if value in self._codes]] = True
        return code_matches[self._row_codes]
