"""Long lists of values in short queries: databases limit the parameters of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_VALUES_PER_QUERY = 500
"""Far below the limits of both databases on bound parameters."""
_Value = TypeVar("_Value")


def in_chunks(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield the values in lists that are short enough for one query."""
    for start in range(0, len(values), _VALUES_PER_QUERY):
        yield values[start : start + _VALUES_PER_QUERY]
