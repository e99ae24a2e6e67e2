"""Which columns or metadata keys of items are facets, for measuring how alike items are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from solver.datasets import LABEL

_LONGEST_VALUE = 100
"""Characters: longer texts are descriptions."""
_ROWS_PER_VALUE = 2
"""Fewer rows of a value on average, and the key separates items instead of putting them together."""

Metadata = Sequence[Mapping[str, Any]]
Values = list[tuple[str, ...]]
"""Values of each row; none where they are unknown."""


def facets_of(
    sides: tuple[Metadata, Metadata], is_train: Sequence[bool], names: Sequence[str] | None
) -> dict[str, tuple[Values, Values]]:
    """Return the values of each facet of the rows of both modalities.

    A key is taken by itself if its values are texts, whole numbers, true or false, or lists of these, and if
    in both modalities the training rows have two values or more, and not more than half as many as rows. The
    facet of a key "label" is "metadata.label", since "label" is that of the labels.

    Parameters
    ----------
    sides : tuple of sequence of mapping
        Columns or metadata of the items of each row, by modality.
    is_train : sequence of bool
        Which rows are trained on.
    names : sequence of str, optional
        The keys to take.

    Raises
    ------
    InvalidFieldError
        If a key that was named has no value in one of the modalities; names the option.
    """
    keys = sorted({key for side in sides for entry in side for key in entry})
    if names is None:
        training = [
            [entry for entry, is_fitted in zip(side, is_train, strict=True) if is_fitted] for side in sides
        ]
        names = [key for key in keys if all(_puts_together(side, key) for side in training)]
    facets = {}
    for key in names:
        first, second = ([_values(entry.get(key)) for entry in side] for side in sides)
        if not any(first) or not any(second):
            raise InvalidFieldError(
                "--facets", f"no item has a value of {key!r}, there are {join_words(keys)}"
            )
        facets[f"metadata.{key}" if key == LABEL else key] = first, second
    return facets


def _puts_together(side: Metadata, key: str) -> bool:
    """Return whether the key has several values, each of which several rows can share."""
    entries = [entry[key] for entry in side if key in entry]
    values = [_values(entry) for entry in entries]
    if any(len(row) < len(_entries(entry)) for row, entry in zip(values, entries, strict=True)):
        return False
    n_rows, distinct = sum(map(bool, values)), {value for row in values for value in row}
    return 1 < len(distinct) <= n_rows // _ROWS_PER_VALUE


def _entries(value: Any) -> list[Any]:
    """Return a value as a list; empty where it is null or an empty text."""
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if entry is not None and entry != ""]


def _values(value: Any) -> tuple[str, ...]:
    """Return the categorical values among these."""
    return tuple(
        dict.fromkeys(
            str(entry).lower() if isinstance(entry, bool) else str(entry)
            for entry in _entries(value)
            if isinstance(entry, int) or (isinstance(entry, str) and len(entry) <= _LONGEST_VALUE)
        )
    )
