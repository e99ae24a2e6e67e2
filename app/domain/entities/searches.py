"""What a search may ask for, and its answer."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from app.answers import Notice
from app.domain.conditions import equal_texts, equal_values, values_by_key

HIT_FIELDS = frozenset({"labels", "metadata", "text"})
"""Fields of an item that a search result may show besides its id."""
WHOLE_ITEM = HIT_FIELDS | {"features"}
"""Fields of an item that is written again."""


@dataclass(frozen=True)
class ItemFilter:
    """Which items may be returned: any of the labels, and every metadata key with any of its values.
    Labels that are None, and keys that are absent, restrict nothing; an empty tuple lets nothing pass."""

    # Values are JSON values other than lists and objects; each stands for all that count as the same, see
    # `equal_values`.

    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of_conditions(cls, labels: Sequence[str], conditions: Sequence[str]) -> Self:
        """Return the filter by labels and by conditions such as ``colour=red``; none restrict nothing."""
        return cls(tuple(labels) or None, values_by_key(conditions))

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return self.labels is None and not self.metadata

    def accepts(self, labels: Collection[str], metadata: Mapping[str, Any]) -> bool:
        """Return whether an item passes; a key that it does not have counts as null."""
        if self.labels is not None and not any(label in labels for label in self.equal_labels):
            return False
        pairs = ((metadata.get(key), accepted) for key, accepted in self.wanted_values.items())
        return all(isinstance(value, Hashable) and comparable(value) in accepted for value, accepted in pairs)

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash that identifies the filter, of fixed length."""
        labels = None if self.labels is None else sorted(self.labels)
        text = repr((labels, sorted(self.metadata.items())))
        return hashlib.sha256(text.encode(errors="surrogatepass")).digest()

    @cached_property
    def wanted_values(self) -> Mapping[str, frozenset[Hashable]]:
        """Values by key, as sets of `comparable` keys: a row takes equally long, however many there are."""
        return {key: frozenset(map(comparable, values)) for key, values in self.equal_metadata.items()}

    @cached_property
    def equal_labels(self) -> tuple[str, ...]:
        """Labels with all that count as the same."""
        return tuple(itertools.chain.from_iterable(map(equal_texts, self.labels or ())))

    @property
    def equal_metadata(self) -> Mapping[str, tuple[Any, ...]]:
        """Values by key with all that count as the same."""
        return {
            key: tuple(itertools.chain.from_iterable(map(equal_values, values)))
            for key, values in self.metadata.items()
        }


def comparable(value: Hashable) -> Hashable:
    """Return a key equal for values that are equal in JSON: in Python True == 1, in JSON it is not."""
    return (bool, value) if isinstance(value, bool) else value


class ShownItem(Protocol):
    """What a search result shows of its item."""

    @property
    def id(self) -> str:
        """As of `Item`, like all of these."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Client's own facts."""
        ...

    @property
    def text(self) -> str | None:
        """Raw text, where that is known."""
        ...

    @property
    def content_hash(self) -> str | None:
        """Identifies the stored picture, where that is known."""
        ...


class Hit(NamedTuple):
    """One search result; a tuple, since many are made."""

    id: str
    rank: int
    score: float
    probability: float | None
    """Of a match; None within one modality, where scores are cosines."""
    item: ShownItem


@dataclass(frozen=True, slots=True)
class WordReport:
    """Which words of a text its encoder knows."""

    n_known: int  # different words
    unknown: tuple[str, ...]  # in the order of the text
    guessed: tuple[str, ...] = ()  # of the known ones, those that are only spelled somewhat like learned ones


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from; `exact` where no better item can have been missed."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: tuple[Hit, ...]
    notices: tuple[Notice, ...] = ()
