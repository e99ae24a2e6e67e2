"""Metadata by key, so that a filter looks at arrays of numbers and not at each item."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import comparable

_OTHER = 0
"""Code of values that no filter can name: lists and objects."""


class MetadataColumns:
    """The values of every metadata key, by row; a key's column is made when it is first asked for.

    Its memory is bounded by what the rows hold: keys that no row has cost nothing.

    Parameters
    ----------
    documents : sequence of mapping
        Metadata of each row.
    """

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._documents = documents
        self._columns: dict[str, _Column] = {}

    def matching(self, key: str, wanted: Collection[Hashable]) -> npt.NDArray[np.bool]:
        """Return which rows have one of some values under a key; a row without the key has None there.

        Parameters
        ----------
        key : str
            Of the metadata.
        wanted : collection of hashable
            Values as `comparable` returns them.
        """
        matching = np.full(len(self._documents), None in wanted)
        if key in self._keys:
            column = self._columns.get(key)
            if column is None:
                column = self._columns[key] = _Column(enumerate(self._documents), key)
            matching[column.rows] = column.matching(wanted)
        return matching

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for document in self._documents for key in document)


class _Column:
    """Values of one key, as numbers.

    Parameters
    ----------
    documents : iterable of (int, mapping)
        Rows and their metadata.
    key : str
        Some of them have it.
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
        self._values = np.asarray(codes, np.int32)

    def matching(self, wanted: Iterable[Hashable]) -> npt.NDArray[np.bool]:
        """Return which of `rows` have one of the values."""
        is_wanted = np.zeros(len(self._codes) + 1, np.bool)
        is_wanted[[self._codes[value] for value in wanted if value in self._codes]] = True
        return is_wanted[self._values]
