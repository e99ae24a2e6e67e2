"""Items in SQL."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Row, Table, false, func, null, select, true
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.item_writes import put_items
from app.db.models import ItemRow, ReplacedItemRow
from app.db.published import Condition, Stretch, count_present, first_rows, is_published, published, reached
from app.db.tombstones import newest_tombstone, purge_tombstones
from app.domain.entities import HIT_FIELDS, Change, Collection, Counts, Item, Vector
from app.domain.errors import ItemNotFoundError
from app.domain.ports import ItemRepository

_IDS_PER_QUERY = 500
_ROWS_PER_PAGE = 1000
_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_AnyRow = Row[*tuple[Any, ...]]
_COLUMNS = (
    *("item_id", "modality", "text", "content_hash", "content_type"),
    *("labels", "pair_id", "metadata", "train", "revision"),
)
"""What `_item` reads; plain columns, since mapped objects cost more than the query that fetched them."""
_PLACED = (*_COLUMNS, "id")
_COLUMN_OF: Mapping[str, str] = {"labels": "labels", "metadata": "metadata", "text": "text"}
"""Which column holds one of `HIT_FIELDS`."""


class SqlItemRepository(ItemRepository):
    """Items of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def existing(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        rows = published(collection.id, "item_id", "is_deleted")
        query = select(rows.c.item_id).where(rows.c.is_deleted.is_(False))
        return {
            item_id
            for wanted in _chunks(item_ids)
            for item_id in self._session.scalars(query.where(rows.c.item_id.in_(wanted)))
        }

    @override
    def put(self, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
        return put_items(self._session, collection, items, revision)

    @override
    def get(self, collection: Collection, item_id: str) -> Item:
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        found = self._found(collection, [item_id], (*_COLUMNS, "features"))
        if not found:
            raise ItemNotFoundError(collection.name, item_id)
        return _item(found[0], found[0].features)

    @override
    def get_many(
        self, collection: Collection, item_ids: Sequence[str], fields: AbstractCollection[str] = HIT_FIELDS
    ) -> dict[str, Item]:
        left_out = {_COLUMN_OF[name] for name in HIT_FIELDS.difference(fields) if name in _COLUMN_OF}
        return {
            row[0]: _item(row)
            for wanted in _chunks(item_ids)
            for row in self._found(collection, wanted, _COLUMNS, left_out)
        }

    @override
    def delete(self, collection: Collection, item_id: str, revision: int) -> None:
        row = self._live_row(collection, item_id)
        row.is_deleted, row.revision = True, revision
        row.text, row.features, row.content_hash, row.content_type = None, None, None, None
        row.labels, row.attributes, row.pair_id = [], {}, None
        self._session.flush()

    @override
    def page(
        self,
        collection: Collection,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
    ) -> list[tuple[int, Item]]:
        if pair_id is not None:
            found = self._of_pair(collection, pair_id, modality, after, limit)
        else:
            modalities = collection.modality_names if modality is None else (modality,)
            parts = [
                first_rows(self._session, collection.id, _PLACED, _present(name, after), limit)
                for name in modalities
            ]
            found = sorted(itertools.chain.from_iterable(parts), key=lambda row: row.id)[:limit]
        return [(row.id, _item(row)) for row in found]

    @override
    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield what changed after `revision`, in order of revision; in a transaction that only reads."""
        most = self._session.scalar(select(reached(collection.id))) or 0
        if revision < most:
            changed = Stretch("revision", revision + 1, most, 0, lambda _: true())
            for row in self._walk(collection, (*_PLACED, "features", "is_deleted"), changed):
                item = None if row.is_deleted else _item(row, row.features)
                yield Change(row.item_id, row.modality, item, row.revision)

    @override
    def count_changes(self, collection: Collection, revision: int, most: int) -> int:
        if 0 < revision < collection.purged_through:
            return most
        rows = published(collection.id, "id", "revision")
        is_changed = (rows.c.revision > revision) & (rows.c.revision <= reached(collection.id))
        changed = select(rows.c.id).where(is_changed).limit(most)
        return self._session.scalar(select(func.count()).select_from(changed.subquery())) or 0

    @override
    def unchanged_since(self, collection: Collection, revision: int) -> Iterator[Item]:
        for modality in collection.modality_names:
            unchanged = _present(modality, 0, lambda c: c["revision"] + 0 <= revision)
            yield from (_item(row) for row in self._walk(collection, _PLACED, unchanged))

    @override
    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality; in a transaction that only reads."""
        counted: Counter[str] = Counter()
        most = self._session.scalar(select(reached(collection.id))) or 0
        for modality, count in self._session.execute(count_present(collection.id, most)):
            counted[modality] += count
        return {modality: count for modality, count in counted.items() if count}

    @override
    def training_labels(
        self, collection: Collection, modality: str
    ) -> Generator[tuple[str, ...], None, None]:
        may_train = _present(modality, 0, lambda c: c["train"].is_(True))
        # Page by page: a caller that stops early leaves no cursor open in the database.
        for row in self._walk(collection, ("labels", "modality", "id"), may_train):
            if row.labels:
                yield tuple(row.labels)

    @override
    def newest_tombstone(self, collection: Collection) -> int | None:
        return newest_tombstone(self._session, collection.id)

    @override
    def purge_tombstones(self, collection: Collection, before: int, grace_seconds: float, limit: int) -> bool:
        return purge_tombstones(self._session, collection.id, before, grace_seconds, limit)

    @override
    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        used: set[str] = set()
        for start in range(0, len(content_hashes), _IDS_PER_QUERY):
            wanted = content_hashes[start : start + _IDS_PER_QUERY]
            for table in (ItemRow, ReplacedItemRow):
                query = select(table.content_hash).where(table.content_hash.in_(wanted)).distinct()
                used.update(found for found in self._session.scalars(query) if found is not None)
        return used

    def _walk(self, collection: Collection, names: Sequence[str], stretch: Stretch) -> Iterator[_AnyRow]:
        """Yield the rows of a stretch, read page by page."""
        while found := first_rows(self._session, collection.id, names, stretch, _ROWS_PER_PAGE):
            yield from found
            stretch = stretch.after_row(found[-1])

    def _of_pair(
        self, collection: Collection, pair_id: str, modality: str | None, after: int, limit: int
    ) -> Sequence[_AnyRow]:
        rows = published(collection.id, *_PLACED, "is_deleted")
        # Not `is_`: an index of what is there would do, too, but that of pairs leaves few rows.
        query = select(rows).where(rows.c.pair_id == pair_id, rows.c.is_deleted == false(), rows.c.id > after)
        if modality is not None:
            query = query.where(rows.c.modality == modality)
        return self._session.execute(query.order_by(rows.c.id).limit(limit)).all()

    def _found(
        self,
        collection: Collection,
        item_ids: Sequence[str],
        names: Sequence[str],
        left_out: AbstractCollection[str] = (),
    ) -> Sequence[_AnyRow]:
        """Return columns of those that exist, NULL in place of what is left out.

        Each search asks: those that an import replaces are looked at only where some are not found so.
        """
        query = select(*(null() if name in left_out else _items.c[name] for name in names)).where(
            is_published(collection.id), _items.c.item_id.in_(item_ids), _items.c.is_deleted.is_(False)
        )
        found = self._session.execute(query).all()
        if len(found) == len(item_ids):
            return found
        rows = published(collection.id, *names, "is_deleted")
        wanted = select(*(null() if name in left_out else rows.c[name] for name in names)).where(
            rows.c.item_id.in_(item_ids), rows.c.is_deleted.is_(False)
        )
        return self._session.execute(wanted).all()

    def _live_row(self, collection: Collection, item_id: str) -> ItemRow:
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        query = select(ItemRow).where(ItemRow.collection_id == collection.id, ItemRow.item_id == item_id)
        row = self._session.scalar(query)
        if row is None or row.is_deleted:
            raise ItemNotFoundError(collection.name, item_id)
        return row


def _present(modality: str, after: int, where: Condition = lambda _: true()) -> Stretch:
    """Return the items of a modality beyond a position that are there and meet a condition."""
    return Stretch(
        "modality",
        modality,
        modality,
        after,
        lambda columns: columns["is_deleted"].is_(False) & where(columns),
    )


def _chunks(item_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield as many ids at a time as one statement may bind."""
    for start in range(0, len(item_ids), _IDS_PER_QUERY):
        yield item_ids[start : start + _IDS_PER_QUERY]


def _item(row: _AnyRow, features: bytes | None = None) -> Item:
    """Return the item of a row that begins with `_COLUMNS`."""
    # By position: a row finds a column by name at several times the cost, 700 times for a long ranking.
    item_id, modality, text, content_hash, content_type, labels, pair_id, metadata, train, revision = row[:10]
    vector: Vector | None = None
    if features is not None:
        vector = np.frombuffer(features, dtype="<f4").astype(np.float32, copy=False)
    return Item(
        item_id,
        modality,
        text,
        content_hash,
        content_type,
        vector,
        tuple(labels or ()),
        pair_id,
        metadata or {},
        train,
        revision,
    )
