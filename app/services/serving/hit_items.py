"""The items of search results: fetched with the requested fields, and bounded in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable, Mapping

from app.domain.entities import Collection, Item, ShownItem
from app.domain.errors import ContentTooLargeError
from app.domain.limits import MAX_LABEL, MAX_LABELS, MAX_METADATA
from app.domain.ports import UnitOfWork
from app.domain.sizes import json_bytes
from app.services.serving.segments import IndexedItem

_ITEMS_PER_FETCH = 100
"""Bounds what is fetched before the byte limit is checked: a hundred items of the largest allowed size."""
_LARGEST_ITEM_BYTES = 12 * (MAX_METADATA + MAX_LABELS * (MAX_LABEL + 1))
"""JSON of the largest labels and metadata: a character takes up to twelve bytes, as an escaped pair."""
_BYTES_PER_HIT = 250
"""JSON of what every result has: keys, rank, score, probability, and the content address without the id."""
_BYTES_PER_ID_BYTE_IN_ADDRESS = 3
"""A byte of an id that has to be percent-encoded takes three in an address."""


def fetch_hit_items(
    work: UnitOfWork | None,
    collection: Collection,
    modality: str,
    hits: Iterable[IndexedItem],
    fields: AbstractCollection[str],
    max_bytes: int,
) -> Mapping[str, ShownItem]:
    """Return the items of search results by id, without features and fields that were not requested.

    Of items that have nothing but a vector the ranking knows everything, and nothing is read.

    Parameters
    ----------
    work : UnitOfWork or None
        Transaction to read from; None for items of which the ranking knows everything.
    collection : Collection
        Of the items, as the snapshot has it. Items written since are shown as they were ranked.
    modality : str
        Of the items.
    hits : iterable of IndexedItem
        One per result, as it was ranked; several queries may have the same item as a result.
    fields : collection of str
        Which of `HIT_FIELDS` are requested, and ``content_url`` if the answer names the address of contents.
    max_bytes : int
        Largest answer. The size is checked after each hundred items, and fetching ends there.

    Raises
    ------
    ContentTooLargeError
        If all results together would be larger; names `k`.
    """
    results = list(hits)
    if work is None and len(results) * _LARGEST_ITEM_BYTES <= max_bytes:
        return {item.id: item for item in results}
    n_results_by_id = Counter(item.id for item in results)
    ranked = {item.id: item for item in results}
    item_ids = sorted(ranked)
    id_factor = 1 + (_BYTES_PER_ID_BYTE_IN_ADDRESS if "content_url" in fields else 0)
    n_bytes = sum(
        count * (_BYTES_PER_HIT + id_factor * len(item_id.encode()))
        for item_id, count in n_results_by_id.items()
    )
    items: dict[str, Item] = {}
    for start in range(0, len(item_ids), _ITEMS_PER_FETCH):
        batch_ids = item_ids[start : start + _ITEMS_PER_FETCH]
        batch = {item_id: _as_ranked(ranked[item_id], modality, fields) for item_id in batch_ids}
        stored = {} if work is None else work.items.get_many(collection, batch_ids, fields)
        for item in stored.values():
            if item.revision <= collection.revision:
                batch[item.id] = item
        n_bytes += sum(n_results_by_id[item.id] * json_bytes(item) for item in batch.values())
        if n_bytes > max_bytes:
            raise ContentTooLargeError(
                "k",
                f"{len(results)} results would be more than {max_bytes} bytes together: "
                "ask for fewer, or for fewer fields with include",
            )
        items |= batch
    return items


def _as_ranked(ranked: IndexedItem, modality: str, fields: AbstractCollection[str]) -> Item:
    """Return an item that was written since the snapshot, with only what the snapshot knows of it."""
    return Item(
        ranked.id,
        modality,
        labels=ranked.labels if "labels" in fields else (),
        metadata=ranked.metadata if "metadata" in fields else {},
    )
