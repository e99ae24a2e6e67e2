"""The items of search results: fetched with the fields that are shown, and bounded in bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable, Mapping
from typing import Any

from app.domain.entities import Collection, Item
from app.domain.errors import ContentTooLargeError
from app.domain.ports import UnitOfWork

_ITEMS_PER_FETCH = 100
_BYTES_PER_HIT = 300
"""Of what every result has: id, rank, score, probability, address of its content."""


def fetch_shown(
    work: UnitOfWork,
    collection: Collection,
    hit_ids: Iterable[str],
    fields: AbstractCollection[str],
    max_bytes: int,
) -> dict[str, Item]:
    """Return the items of search results by id, without features and without the fields not shown.

    Parameters
    ----------
    work : UnitOfWork
        Transaction that is read from.
    collection : Collection
        Of the items.
    hit_ids : iterable of str
        One id for each result; the same item may be a result of several queries.
    fields : collection of str
        Which of `labels`, `metadata` and `text` are shown.
    max_bytes : int
        Largest answer. It is counted while items are fetched, a hundred at a time, and fetching ends there.

    Raises
    ------
    ContentTooLargeError
        If all results together would be larger, naming `k`.
    """
    times = Counter(hit_ids)
    n_hits, wanted = times.total(), sorted(times)
    items: dict[str, Item] = {}
    size = n_hits * _BYTES_PER_HIT
    for start in range(0, len(wanted), _ITEMS_PER_FETCH):
        found = work.items.get_many(collection, wanted[start : start + _ITEMS_PER_FETCH], fields)
        size += sum(times[item.id] * json_bytes(item) for item in found.values())
        if size > max_bytes:
            raise ContentTooLargeError(
                "k",
                f"{n_hits} results would be more than {max_bytes} bytes together: "
                "ask for fewer, or for fewer fields with include",
            )
        items |= found
    return items


def json_bytes(item: Item) -> int:
    """Return how many bytes the item's labels, metadata and text take as JSON."""
    parts: tuple[str | tuple[str, ...] | Mapping[str, Any] | None, ...]
    parts = (item.labels, item.metadata, item.text)
    return sum(len(json.dumps(part, ensure_ascii=False).encode()) for part in parts if part)
