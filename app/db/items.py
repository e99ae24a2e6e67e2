"""Items in SQL."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Integer, Row, Select, bindparam, false, func, null, select, true
from sqlalchemy.orm import Session

from app.db.item_writes import put_items
from app.db.models import ITEMS, FeedbackRow, ItemRow, ReplacedItemRow
from app.db.published import (
    Columns,
    Condition,
    Stretch,
    count_present,
    first_rows,
    is_published,
    published_items,
    published_revision,
)
from app.db.statements import in_chunks
from app.db.tombstones import newest_tombstone, purge_tombstones
from app.domain.entities import HIT_FIELDS, Carried, Change, Collection, Counts, Item, Modality, vector_of
from app.domain.errors import item_not_found
from app.domain.names import is_storable

_ROWS_PER_PAGE = 1000
"""Enough that the fixed cost of a query is small beside its rows; bounds the memory of a walk."""
_AnyRow = Row[*tuple[Any, ...]]
_COLUMNS = (
    *("item_id", "modality", "text", "content_hash", "content_type"),
    *("labels", "pair_id", "metadata", "train", "revision"),
)
"""Columns that `_item` reads; plain ones, since making mapped objects takes longer than the query itself."""
_PLACED = (*_COLUMNS, "id")


class ItemRepository:
    """Items of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def existing(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        """Return which of the ids are taken."""
        rows = published_items(collection.id, "item_id", "is_deleted")
        query = select(rows.c.item_id).where(rows.c.is_deleted.is_(False))
        return {
            item_id
            for chunk in in_chunks(item_ids)
            for item_id in self._session.scalars(query.where(rows.c.item_id.in_(chunk)))
        }

    def put(self, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
        """Insert items that are not there and replace those that differ; others keep their revision."""
        return put_items(self._session, collection, items, revision)

    def get(self, collection: Collection, item_id: str) -> Item:
        """Return one; raises NotFoundError."""
        if not is_storable(item_id):
            raise item_not_found(collection.name, item_id)
        rows = self._select(collection, [item_id], (*_COLUMNS, "features", "encoding"))
        if not rows:
            raise item_not_found(collection.name, item_id)
        return _item(rows[0], rows[0].features, rows[0].encoding)

    def get_many(
        self, collection: Collection, item_ids: Sequence[str], fields: AbstractCollection[str] = HIT_FIELDS
    ) -> dict[str, Item]:
        """Return those that exist, by id, without features unless named, and the `HIT_FIELDS` not named."""
        left_out = HIT_FIELDS.difference(fields)  # columns have the names of the fields
        names = (*_COLUMNS, "features", "encoding") if "features" in fields else _COLUMNS
        return {
            row[0]: _item(row, *row[len(_COLUMNS) :])
            for chunk in in_chunks(item_ids)
            for row in self._select(collection, chunk, names, left_out)
        }

    def delete(self, collection: Collection, item_id: str, revision: int) -> None:
        """Leave a tombstone; raises NotFoundError."""
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
        if pair_id is not None:
            rows = self._of_pair(collection, pair_id, modality, after, limit)
        else:
            modalities = collection.modality_names if modality is None else (modality,)
            parts = [
                first_rows(self._session, collection.id, _PLACED, _present(name, after), limit)
                for name in modalities
            ]
            rows = sorted(itertools.chain.from_iterable(parts), key=lambda row: row.id)[:limit]
        return [(row.id, _item(row)) for row in rows]

    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield changes after `revision`, in order of revision; for read-only transactions."""
        most = self._session.scalar(select(published_revision(collection.id))) or 0
        if revision < most:
            changed = Stretch("revision", revision + 1, most, 0, lambda _: true())
            for row in self._walk(collection, (*_PLACED, "features", "encoding", "is_deleted"), changed):
                item = None if row.is_deleted else _item(row, row.features, row.encoding)
                yield Change(row.item_id, row.modality, item, row.revision)

    def count_changes(self, collection: Collection, revision: int, most: int) -> int:
        """Return how many items changed after `revision`, deleted ones counted too; counts up to `most`. It
        is also `most` where the number is unknown because tombstones after `revision` were purged."""
        if 0 < revision < collection.purged_through:
            return most
        rows = published_items(collection.id, "id", "revision")
        is_changed = (rows.c.revision > revision) & (rows.c.revision <= published_revision(collection.id))
        changed = select(rows.c.id).where(is_changed).limit(most)
        return self._session.scalar(select(func.count()).select_from(changed.subquery())) or 0

    def unchanged_since(self, collection: Collection, revision: int) -> Iterator[Item]:
        """Yield what was last written at `revision` or before and is still there, without features."""
        for modality in collection.modality_names:
            unchanged = _present(modality, 0, lambda c: c["revision"] + 0 <= revision)
            yield from (_item(row) for row in self._walk(collection, _PLACED, unchanged))

    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality; for read-only transactions."""
        totals: Counter[str] = Counter()
        most = self._session.scalar(select(published_revision(collection.id))) or 0
        for modality, count in self._session.execute(count_present(collection.id, most)):
            totals[modality] += count
        return {modality: count for modality, count in totals.items() if count}

    def training_labels(
        self, collection: Collection, modality: str
    ) -> Generator[tuple[str, ...], None, None]:
        """Yield the labels of each item of a modality that may be trained on and has any. Who stops before
        the end closes the generator."""
        may_train = _present(modality, 0, lambda c: c["train"].is_(True))
        # Page by page: a caller that stops early leaves no cursor open in the database.
        for row in self._walk(collection, ("labels", "modality", "id"), may_train):
            if row.labels:
                yield tuple(row.labels)

    def training_traits(self, collection: Collection, modality: str) -> Generator[Carried, None, None]:
        """Yield what each item of a modality that may be trained on carries. Who stops before the end closes
        the generator."""
        may_train = _present(modality, 0, lambda c: c["train"].is_(True))
        for row in self._walk(collection, ("labels", "pair_id", "metadata", "modality", "id"), may_train):
            yield Carried(tuple(row[0] or ()), row[1], row[2] or {})

    def of_other_encodings(self, collection: Collection, modality: Modality) -> Iterator[Item]:
        """Yield the items of a modality that were stored with another encoder, without features."""
        of_others = _present(modality.name, 0, lambda c: c["encoding"] != modality.encoding)
        for row in self._walk(collection, (*_PLACED, "encoding"), of_others):
            yield _item(row, None, row.encoding)

    def lacking_original(self, collection: Collection, modality: str, form: str) -> tuple[int, str | None]:
        """Return how many items of a modality have no stored "text", "picture" or "sound", and the first."""
        lacks: dict[str, Condition] = {
            "text": lambda c: c["text"].is_(None),
            "picture": lambda c: func.coalesce(c["content_type"], "").not_like("image/%"),
            "sound": lambda c: func.coalesce(c["content_type"], "").not_like("audio/%"),
        }
        lacking = _present(modality, 0, lacks.get(form, lambda _: true()))
        count, first = 0, None
        for row in self._walk(collection, ("item_id", "modality", "id"), lacking):
            count += 1
            first = first or row.item_id
        return count, first

    def newest_tombstone(self, collection: Collection) -> int | None:
        """Return the position of the last deleted item that left a tombstone."""
        return newest_tombstone(self._session, collection.id)

    def purge_tombstones(self, collection: Collection, before: int, grace_seconds: float, limit: int) -> bool:
        """Purge some old tombstones of a locked collection; return whether there may be more to purge. Only
        those of positions before `before`, and made longer ago than the grace period."""
        return purge_tombstones(self._session, collection.id, before, grace_seconds, limit)

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item, or query of any feedback, of any collection has."""
        used: set[str] = set()
        for chunk in in_chunks(content_hashes):
            for table in (ItemRow, ReplacedItemRow, FeedbackRow):
                query = select(table.content_hash).where(table.content_hash.in_(chunk)).distinct()
                used.update(value for value in self._session.scalars(query) if value is not None)
        return used

    def last_position(self, collection: Collection) -> int:
        """Return the position of the item that was created last; 0 if there was none."""
        query = select(func.max(ITEMS.c.id)).where(ITEMS.c.collection_id == collection.id)
        return self._session.scalar(query) or 0

    def count_copies(
        self, collection: Collection, after: int, contents: Sequence[str] = ("content_hash", "text")
    ) -> int:
        """Return how many items beyond a position have the content, of these kinds, of one up to it."""
        copies = 0
        for name in contents:
            new, old = ITEMS.alias("new"), ITEMS.alias("old")
            is_same = (old.c.modality == new.c.modality) & (old.c[name] == new.c[name])
            are_here = (new.c.collection_id == collection.id) & (old.c.collection_id == collection.id)
            are_apart = (new.c.id > after) & (old.c.id <= after) & ~new.c.is_deleted & ~old.c.is_deleted
            query = select(func.count(new.c.id.distinct())).where(are_here, are_apart, is_same)
            copies += self._session.scalar(query) or 0
        return copies

    def _walk(self, collection: Collection, names: Sequence[str], stretch: Stretch) -> Iterator[_AnyRow]:
        """Yield the rows of a stretch, read page by page."""
        while page := first_rows(self._session, collection.id, names, stretch, _ROWS_PER_PAGE):
            yield from page
            stretch = stretch.after_row(page[-1])

    def _of_pair(
        self, collection: Collection, pair_id: str, modality: str | None, after: int, limit: int
    ) -> Sequence[_AnyRow]:
        rows = published_items(collection.id, *_PLACED, "is_deleted")
        # Not `is_`, with which the index of existing items would qualify: that of pairs leaves fewer rows.
        query = select(rows).where(rows.c.pair_id == pair_id, rows.c.is_deleted == false(), rows.c.id > after)
        if modality is not None:
            query = query.where(rows.c.modality == modality)
        return self._session.execute(query.order_by(rows.c.id).limit(limit)).all()

    def _select(
        self,
        collection: Collection,
        item_ids: Sequence[str],
        names: tuple[str, ...],
        left_out: frozenset[str] = frozenset(),
    ) -> Sequence[_AnyRow]:
        """Return columns of the items that exist, with NULL for columns that are left out. Every search calls
        this, so rows replaced by an import are read only if an item is missing otherwise."""
        current, published = _selects(names, left_out)
        values = {"collection": collection.id, "item_ids": item_ids}
        rows = self._session.execute(current, values).all()
        return rows if len(rows) == len(item_ids) else self._session.execute(published, values).all()

    def _live_row(self, collection: Collection, item_id: str) -> ItemRow:
        if not is_storable(item_id):
            raise item_not_found(collection.name, item_id)
        query = select(ItemRow).where(ItemRow.collection_id == collection.id, ItemRow.item_id == item_id)
        row = self._session.scalar(query)
        if row is None or row.is_deleted:
            raise item_not_found(collection.name, item_id)
        return row


@lru_cache
def _selects(names: tuple[str, ...], left_out: frozenset[str]) -> tuple[Select[Any], Select[Any]]:
    """Return `_select`'s statements, of rows as they are and of those published: made once, run often."""
    collection_id = bindparam("collection", type_=Integer)
    published = published_items(collection_id, *names, "is_deleted")

    def of(columns: Columns) -> Select[Any]:
        is_asked = columns["item_id"].in_(bindparam("item_ids", expanding=True))
        shown = (null() if name in left_out else columns[name] for name in names)
        return select(*shown).where(is_asked, columns["is_deleted"].is_(False))

    return of(dict(ITEMS.c)).where(is_published(collection_id)), of(dict(published.c))


def _present(modality: str, after: int, where: Condition = lambda _: true()) -> Stretch:
    """Return the existing items of a modality beyond a position that meet a condition."""
    return Stretch(
        "modality",
        modality,
        modality,
        after,
        lambda columns: columns["is_deleted"].is_(False) & where(columns),
    )


def _item(row: _AnyRow, features: bytes | None = None, encoding: str = "") -> Item:
    """Return the item of a row that begins with `_COLUMNS`."""
    # By position: access by name takes several times as long, and a long ranking needs 700 rows.
    item_id, modality, text, content_hash, content_type, labels, pair_id, metadata, train, revision = row[:10]
    return Item(
        item_id,
        modality,
        text,
        content_hash,
        content_type,
        None if features is None else vector_of(features),
        tuple(labels or ()),
        pair_id,
        metadata or {},
        train,
        revision,
        encoding,
    )
