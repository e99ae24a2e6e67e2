"""What a search may ask for, and its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.domain.entities.collections import Item


@dataclass(frozen=True)
class ItemFilter:
    """Which items may be returned: any of the labels, and every metadata key with any of its values.

    Values are what JSON has besides lists and objects.
    """

    labels: tuple[str, ...] = ()
    metadata: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return not self.labels and not self.metadata

    @cached_property
    def fingerprint(self) -> bytes:
        """What tells it from other filters, short however long it is."""
        told = repr((sorted(self.labels), sorted(self.metadata.items())))
        return hashlib.sha256(told.encode(errors="surrogatepass")).digest()

    def accepts(self, labels: tuple[str, ...], metadata: Mapping[str, Any]) -> bool:
        """Return whether an item with these labels and metadata passes."""
        wanted_labels, wanted_values = self._wanted
        if wanted_labels and wanted_labels.isdisjoint(labels):
            return False
        return all(_is_among(metadata.get(key), values) for key, values in wanted_values.items())

    @cached_property
    def _wanted(self) -> tuple[frozenset[str], Mapping[str, frozenset[tuple[bool, Any]]]]:
        """Labels, and values by key, as sets: a row costs the same, however many there are."""
        values = {key: frozenset(map(_comparable, values)) for key, values in self.metadata.items()}
        return frozenset(self.labels), values


def _is_among(value: Any, wanted: frozenset[tuple[bool, Any]]) -> bool:
    return isinstance(value, Hashable) and _comparable(value) in wanted


def _comparable(value: Any) -> tuple[bool, Any]:
    # In Python True == 1, in JSON it is not.
    return isinstance(value, bool), value


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
    notices: tuple[str, ...] = ()
    """What else is to be known of this answer, in words."""
