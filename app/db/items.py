"""Items in SQL."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Row, func, null, select
from sqlalchemy.orm import Session

from app.db.item_writes import put_items
from app.db.models import ItemRow
from app.domain.entities import HIT_FIELDS, Change, Collection, Counts, Item, Vector
from app.domain.errors import ItemNotFoundError

_IDS_PER_QUERY = 500
_ROWS_PER_FETCH = 1000
_ROWS_PER_STEP = 250
"""Of long reads: whoever replays them lets others work between two steps."""
_AnyRow = Row[*tuple[Any, ...]]
_COLUMNS = (
    ItemRow.item_id,
    ItemRow.modality,
    ItemRow.text,
    ItemRow.content_hash,
    ItemRow.content_type,
    ItemRow.labels,
    ItemRow.pair_id,
    ItemRow.attributes,
    ItemRow.train,
    ItemRow.revision,
)
"""What `_item` reads; plain columns, since mapped objects cost more than the query that fetched them."""
_FIELD_OF: Mapping[str, str] = {"labels": "labels", "attributes": "metadata", "text": "text"}
"""Which of `HIT_FIELDS` a column holds."""


class SqlItemRepository:
    """Items of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def existing(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        """Return which of the ids are taken."""
        query = select(ItemRow.item_id).where(
            ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False)
        )
        return {
            item_id
            for wanted in _chunks(item_ids)
            for item_id in self._session.scalars(query.where(ItemRow.item_id.in_(wanted)))
        }

    def put(self, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
        """Insert items that are not there and replace those that differ; others keep their revision."""
        return put_items(self._session, collection, items, revision)

    def get(self, collection: Collection, item_id: str) -> Item:
        """Return one; raises ItemNotFoundError."""
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        query = select(*_COLUMNS, ItemRow.features).where(
            ItemRow.collection_id == collection.id,
            ItemRow.item_id == item_id,
            ItemRow.is_deleted.is_(False),
        )
        row = self._session.execute(query).one_or_none()
        if row is None:
            raise ItemNotFoundError(collection.name, item_id)
        return _item(row, row.features)

    def get_many(
        self, collection: Collection, item_ids: Sequence[str], fields: AbstractCollection[str] = HIT_FIELDS
    ) -> dict[str, Item]:
        """Return those that exist, by id, without features and without the `HIT_FIELDS` not named."""
        left_out = HIT_FIELDS.difference(fields)
        columns = [null() if _FIELD_OF.get(column.key) in left_out else column for column in _COLUMNS]
        query = select(*columns).where(ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False))
        return {
            row[0]: _item(row)
            for wanted in _chunks(item_ids)
            for row in self._session.execute(query.where(ItemRow.item_id.in_(wanted)))
        }

    def delete(self, collection: Collection, item_id: str, revision: int) -> None:
        """Leave a tombstone; raises ItemNotFoundError."""
        row = self._live_row(collection, item_id)
        row.is_deleted, row.revision = True, revision
        row.text, row.features, row.content_hash, row.content_type = None, None, None, None
        row.labels, row.attributes, row.pair_id = [], {}, None
        self._session.flush()

    def page(
        self,
        collection: Collection,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
    ) -> list[tuple[int, Item]]:
        """Return items with their stable position, in order of creation; of one pair when it is given."""
        query = select(*_COLUMNS, ItemRow.id).where(
            ItemRow.collection_id == collection.id, ItemRow.id > after, ItemRow.is_deleted.is_(False)
        )
        if modality is not None:
            query = query.where(ItemRow.modality == modality)
        if pair_id is not None:
            query = query.where(ItemRow.pair_id == pair_id)
        rows = self._session.execute(query.order_by(ItemRow.id).limit(limit))
        return [(row.id, _item(row)) for row in rows]

    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield what changed after `revision`, in order of revision."""
        query = (
            select(*_COLUMNS, ItemRow.features, ItemRow.is_deleted)
            .where(ItemRow.collection_id == collection.id, ItemRow.revision > revision)
            .order_by(ItemRow.revision, ItemRow.id)
            .execution_options(yield_per=_ROWS_PER_STEP)
        )
        for row in self._session.execute(query):
            item = None if row.is_deleted else _item(row, row.features)
            yield Change(row.item_id, row.modality, item, row.revision)

    def count_changes(self, collection: Collection, revision: int, most: int) -> int:
        """Return how many items changed after `revision`, deleted ones counted too; counts up to `most`."""
        changed = (
            select(ItemRow.id)
            .where(ItemRow.collection_id == collection.id, ItemRow.revision > revision)
            .limit(most)
        )
        return self._session.scalar(select(func.count()).select_from(changed.subquery())) or 0

    def unchanged_since(self, collection: Collection, revision: int) -> Iterator[Item]:
        """Yield what was last written at `revision` or before and is still there, without features."""
        query = (
            select(*_COLUMNS)
            .where(
                ItemRow.collection_id == collection.id,
                ItemRow.revision <= revision,
                ItemRow.is_deleted.is_(False),
            )
            .order_by(ItemRow.id)
            .execution_options(yield_per=_ROWS_PER_STEP)
        )
        return (_item(row) for row in self._session.execute(query))

    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality."""
        query = (
            select(ItemRow.modality, func.count())
            .where(ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False))
            .group_by(ItemRow.modality)
        )
        return {row[0]: row[1] for row in self._session.execute(query)}

    def training_labels(
        self, collection: Collection, modality: str
    ) -> Generator[tuple[str, ...], None, None]:
        """Yield the labels of each item of a modality that may be trained on and has any."""
        query = select(ItemRow.id, ItemRow.labels).where(
            ItemRow.collection_id == collection.id,
            ItemRow.modality == modality,
            ItemRow.train.is_(True),
            ItemRow.is_deleted.is_(False),
        )
        query, last = query.order_by(ItemRow.id).limit(_ROWS_PER_FETCH), 0
        # Page by page: whoever has seen enough leaves no cursor open in the database.
        while rows := self._session.execute(query.where(ItemRow.id > last)).all():
            yield from (tuple(labels) for _, labels in rows if labels)
            last = rows[-1].id

    def content_of(self, collection: Collection) -> list[str]:
        """Return the hashes of a collection's pictures, each once."""
        query = select(ItemRow.content_hash).where(ItemRow.collection_id == collection.id)
        found = self._session.scalars(query.where(ItemRow.content_hash.is_not(None)).distinct())
        return [content_hash for content_hash in found if content_hash is not None]

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item of any collection has."""
        used: set[str] = set()
        for start in range(0, len(content_hashes), _IDS_PER_QUERY):
            wanted = content_hashes[start : start + _IDS_PER_QUERY]
            found = self._session.scalars(
                select(ItemRow.content_hash).where(ItemRow.content_hash.in_(wanted)).distinct()
            )
            used.update(content_hash for content_hash in found if content_hash is not None)
        return used

    def _live_row(self, collection: Collection, item_id: str) -> ItemRow:
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        query = select(ItemRow).where(ItemRow.collection_id == collection.id, ItemRow.item_id == item_id)
        row = self._session.scalar(query)
        if row is None or row.is_deleted:
            raise ItemNotFoundError(collection.name, item_id)
        return row


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
