"""A cache bounded by the memory of what it holds; the least recently used entries go first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class BoundedCache(Generic[Key, Value]):
    """Computed values by key, of at most `max_bytes`; the value last asked for stays in any case."""

    max_bytes: int
    size_of: Callable[[Value], int]
    _values: dict[Key, Value] = field(default_factory=dict)

    def get(self, key: Key, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed if it is not there."""
        value = self._values.pop(key) if key in self._values else compute()
        self._values[key] = value  # last in the dict: the most recently used
        n_bytes = sum(map(self.size_of, self._values.values()))
        while n_bytes > self.max_bytes and len(self._values) > 1:
            n_bytes -= self.size_of(self._values.pop(next(iter(self._values))))
        return value
