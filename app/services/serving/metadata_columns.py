"""Metadata by key, so that a filter compares arrays of integers rather than every item."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
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
    documents : sequence of mapping
        Metadata of each row.
    """

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._documents = documents
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
        mask = np.full(len(self._documents), None in values)
        if key in self._keys:
            column = self._columns.get(key)
            if column is None:
                column = self._columns[key] = _Column(enumerate(self._documents), key)
            mask[column.rows] = column.matches(values)
        return mask

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for document in self._documents for key in document)


class _Column:
    """The values of one key, dictionary-encoded.

    Parameters
    ----------
    documents : iterable of (int, mapping)
        Row numbers and metadata.
    key : str
        Occurs in at least one of them.
    """

    def __init__(self, documents: Iterable[tuple[int, Mapping[str, Any]]], key: str) -> None:
        self._codes: dict[Hashable, int] = {}
        rows, codes = [], []
        for row, document in documents:
            if key in document:
                value = document[key]
                rows.append(row)
                codes.append(
                    self._codes.setdefault(comparable(value), len(self._codes) + 1)
                    if isinstance(value, Hashable)
                    else _OTHER
                )
        self.rows = np.asarray(rows, np.int32)
        self._row_codes = np.asarray(codes, np.int32)

    def matches(self, values: Iterable[Hashable]) -> npt.NDArray[np.bool]:
        """Return which of `rows` have one of the values."""
        code_matches = np.zeros(len(self._codes) + 1, np.bool)
        code_matches[[self._codes[value] for value in values if value in self._codes]] = True
        return code_matches[self._row_codes]
