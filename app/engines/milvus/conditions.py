"""What a row is found by: digests of its labels and metadata, and conditions in Milvus's language."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from hashlib import sha256

from app.domain.ports import EngineItem
from app.domain.searches import ItemFilter

FOREVER = 2**62
"""The end of a row that is alive."""
MOST_FACETS, DIGEST = 4096, 24
"""Of a row, and characters of each: labels, keys and values that can be filtered by."""


def digest_of(*parts: str) -> str:
    """Return some digits for texts, which need no quotes in a condition."""
    return sha256("\0".join(parts).encode()).hexdigest()[:DIGEST]


def _value_digest(key: str, value: Hashable) -> str:
    """Return the same for values that are equal in JSON, such as 3 and 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return digest_of("value", key, json.dumps(value))


def facets_of(item: EngineItem) -> list[str]:
    """Return what filters ask for: the labels, the keys that have a value, and the values."""
    facets = [digest_of("label", label) for label in item.labels]
    for key, value in item.metadata.items():
        if value is not None:
            facets.append(digest_of("key", key))
        if isinstance(value, str | int | float | bool):
            facets.append(_value_digest(key, value))
    return facets[:MOST_FACETS]


def condition_of(revision: int, item_filter: ItemFilter) -> str:
    """Return the rows of a revision that match a filter, in Milvus's language."""
    parts = [alive_at(revision), "is_ranked == true"]
    if item_filter.labels is not None:
        parts.append(_any_of([digest_of("label", label) for label in item_filter.equal_labels]))
    for key, values in item_filter.equal_metadata.items():
        accepted = [_any_of([_value_digest(key, value) for value in values if value is not None])]
        if None in values:
            accepted.append(f"not {_any_of([digest_of('key', key)])}")
        parts.append(f"({' or '.join(accepted)})")
    return " and ".join(parts)


def _any_of(facets: Sequence[str]) -> str:
    """Return the rows that have one of some facets; none of none."""
    return f"array_contains_any(facets, {json.dumps(list(facets) or ['none'])})"


def alive_at(revision: int) -> str:
    """Return the condition of the rows of a revision."""
    return f"since <= {revision} and until > {revision}"
