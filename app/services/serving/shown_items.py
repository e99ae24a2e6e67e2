"""The items of search results: fetched with the fields that are shown, and bounded in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable

from app.domain.entities import Collection, Item
from app.domain.errors import ContentTooLargeError
from app.domain.ports import UnitOfWork
from app.domain.sizes import json_bytes
from app.services.serving.galleries import Row

_ITEMS_PER_FETCH = 100


_BYTES_PER_HIT, _TIMES_IN_ADDRESS = 250, 3
"""Of what every result has: rank, score, probability, and the content's address without the id, of which a
byte takes three there."""


def fetch_shown(
    work: UnitOfWork,
    collection: Collection,
    modality: str,
    hits: Iterable[Row],
    fields: AbstractCollection[str],
    max_bytes: int,
) -> dict[str, Item]:
    """Return the items of search results by id, without features and without the fields not shown.

    Parameters
    ----------
    work : UnitOfWork
        Transaction that is read from.
    collection : Collection
        Of the items, as the snapshot has it. Items written since are shown as they were ranked.
    modality : str
        Of the items.
    hits : iterable of Row
        One for each result, as it is ranked; the same item may be a result of several queries.
    fields : collection of str
        Which of `labels`, `metadata` and `text` are shown.
    max_bytes : int
        Largest answer. It is counted while items are fetched, a hundred at a time, and fetching ends there.

    Raises
    ------
    ContentTooLargeError
        If all results together would be larger, naming `k`.
    """
    rows = list(hits)
    times, ranked = Counter(row.id for row in rows), {row.id: row for row in rows}
    n_hits, wanted = times.total(), sorted(times)
    items: dict[str, Item] = {}
    times_id = 1 + (_TIMES_IN_ADDRESS if "content_url" in fields else 0)
    size = sum(n * (_BYTES_PER_HIT + times_id * len(item_id.encode())) for item_id, n in times.items())
    for start in range(0, len(wanted), _ITEMS_PER_FETCH):
        ids = wanted[start : start + _ITEMS_PER_FETCH]
        found = {item_id: _as_ranked(ranked[item_id], modality, fields) for item_id in ids}
        for item in work.items.get_many(collection, ids, fields).values():
            if item.revision <= collection.revision:
                found[item.id] = item
        size += sum(times[item.id] * json_bytes(item) for item in found.values())
        if size > max_bytes:
            raise ContentTooLargeError(
                "k",
                f"{n_hits} results would be more than {max_bytes} bytes together: "
                "ask for fewer, or for fewer fields with include",
            )
        items |= found
    return items


def _as_ranked(row: Row, modality: str, fields: AbstractCollection[str]) -> Item:
    """Return an item that was written since the snapshot: only what the snapshot keeps of it is known."""
    return Item(
        row.id,
        modality,
        labels=row.labels if "labels" in fields else (),
        metadata=row.metadata if "metadata" in fields else {},
    )
