"""The items of search results: fetched with the requested fields, and bounded in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable, Mapping

from app.db.session import UnitOfWork
from app.domain.entities import Item, json_bytes
from app.domain.errors import ContentTooLargeError
from app.domain.names import MAX_LABEL, MAX_LABELS, MAX_METADATA
from app.domain.searches import ShownItem
from app.services.serving.segments import IndexedItem
from app.services.serving.snapshot import Snapshot

_ITEMS_PER_FETCH = 100
"""Bounds what is fetched before the byte limit is checked: a hundred items of the largest allowed size."""
_LARGEST_ITEM_BYTES = 12 * (MAX_METADATA + MAX_LABELS * (MAX_LABEL + 1))
"""JSON of the largest labels and metadata: a character takes up to twelve bytes, as an escaped pair."""
_MOST_KEPT, _LARGEST_KEPT = 2048, 1024
"""Rows of hits that a snapshot keeps, and their JSON: some 4 MB, which hold a collection of a thousand
pictures or what is often found in a large one."""
_BYTES_PER_HIT = 250
"""JSON of what every result has: keys, rank, score, probability, and the content address without the id."""
_BYTES_PER_ID_BYTE_IN_ADDRESS = 3  # a byte of an id that has to be percent-encoded takes three in an address


def fetch_hit_items(
    work: UnitOfWork | None,
    snapshot: Snapshot,
    is_newest: bool,
    modality: str,
    hits: Iterable[IndexedItem],
    fields: AbstractCollection[str],
    max_bytes: int,
) -> Mapping[str, ShownItem]:
    """Return the items of results by id, with the `HIT_FIELDS` requested; without a transaction, as the
    ranking knows them. Items written since are shown as ranked."""
    # Raises ContentTooLargeError (names `k`) within a hundred items of `max_bytes`.
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
    collection, kind = snapshot.collection, frozenset(fields)
    shown = snapshot.shown if is_newest else {}
    items: dict[str, Item] = {}
    for start in range(0, len(item_ids), _ITEMS_PER_FETCH):
        batch_ids = item_ids[start : start + _ITEMS_PER_FETCH]
        batch = {item_id: item for item_id in batch_ids if (item := shown.get((item_id, kind))) is not None}
        unread = [item_id for item_id in batch_ids if item_id not in batch]
        batch |= {item_id: _as_ranked(ranked[item_id], modality, fields) for item_id in unread}
        stored = {} if work is None or not unread else work.items.get_many(collection, unread, fields)
        for item in stored.values():
            if item.revision <= collection.revision:
                batch[item.id] = item
                _keep(snapshot, item, kind)
        n_bytes += sum(n_results_by_id[item.id] * json_bytes(item) for item in batch.values())
        if n_bytes > max_bytes:
            raise ContentTooLargeError(
                "k",
                f"{len(results)} results would be more than {max_bytes} bytes together: "
                "ask for fewer, or for fewer fields with include",
            )
        items |= batch
    return items


def _keep(snapshot: Snapshot, item: Item, kind: frozenset[str]) -> None:
    """Keep a row for the next searches of its revision, unless it is large."""
    if json_bytes(item) <= _LARGEST_KEPT:
        if len(snapshot.shown) >= _MOST_KEPT:
            snapshot.shown.clear()
        snapshot.shown[item.id, kind] = item


def _as_ranked(ranked: IndexedItem, modality: str, fields: AbstractCollection[str]) -> Item:
    """Return an item that was written since the snapshot, with only what the snapshot knows of it."""
    return Item(
        ranked.id,
        modality,
        labels=ranked.labels if "labels" in fields else (),
        metadata=ranked.metadata if "metadata" in fields else {},
    )
