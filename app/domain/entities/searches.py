"""What a search may ask for, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.entities.collections import Item


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Which items may be returned: any of the labels, and every metadata key with any of its values."""

    labels: tuple[str, ...] = ()
    metadata: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return not self.labels and not self.metadata

    def accepts(self, labels: tuple[str, ...], metadata: Mapping[str, Any]) -> bool:
        """Return whether an item with these labels and metadata passes."""
        if self.labels and not set(self.labels) & set(labels):
            return False
        return all(
            any(_same(metadata.get(key), value) for value in values) for key, values in self.metadata.items()
        )


def _same(left: Any, right: Any) -> bool:
    # In Python True == 1, in JSON it is not.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    id: str
    rank: int
    score: float
    probability: float
    item: Item


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: tuple[Hit, ...]
