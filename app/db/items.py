"""Items in SQL: unchanged ones are left alone, others written in batches, deleted ones leave tombstones."""
# By tombstones other processes notice a deletion. They carry no time.
# Instead each collection has a mark: a revision, and a time by which it had been reached. Once that time is
# long enough ago, tombstones up to the revision are purged, and the collection records the revision: a reader
# with an earlier state then compares its items with those that still exist.

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection as AbstractCollection
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    false,
    func,
    null,
    select,
    text,
    true,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.db.filters import FilterSql
from app.db.models import ITEMS, CollectionRow, FeedbackRow, ItemRow, ReplacedItemRow
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
from app.db.statements import Repository, in_chunks, now
from app.domain.entities import (
    MOST_PARTNERS,
    Change,
    Collection,
    Counts,
    Item,
    Modality,
    vector_bytes,
    vector_of,
)
from app.domain.errors import item_not_found
from app.domain.filters import ItemFilter
from app.domain.names import is_storable
from app.domain.searches import HIT_FIELDS

_AS_THEY_ARE = ("modality", "text", "content_hash", "content_type", "encoding", "pair_id", "train")
_PLAIN = (*_AS_THEY_ARE, "features")
_DOCUMENTS = ("labels", "metadata")
_INSERTED = ("collection_id", "item_id", "revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_UPDATED = ("revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_STORED = (
    *(ITEMS.c[name] for name in ("item_id", "id", "is_deleted", *_PLAIN)),
    *(cast(ITEMS.c[name], Text) for name in _DOCUMENTS),
)
_UPDATE = (
    update(ITEMS)
    .where(ITEMS.c.id == bindparam("row_id"))
    .values({name: bindparam(f"new_{name}") for name in _UPDATED})
)
_TOMBSTONE = {
    **dict.fromkeys(("text", "features", "content_hash", "content_type", "pair_id")),
    **{"is_deleted": True, "labels": [], "metadata": {}},
}
_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to insert and to update for a list of items, ready for the driver."""

    counts: Counts
    new: Sequence[_Row]
    changed: Sequence[Mapping[str, Any]]
    partners: Sequence[int] = ()  # rows whose partners change, and so their places in galleries
    revision: int = 0

    @property
    def changed_ids(self) -> list[int]:
        """Primary keys of the rows to update."""
        return [*(entry["row_id"] for entry in self.changed), *self.partners]


def write_plan(session: Session, plan: Plan) -> None:
    """Write a plan; no other writer may have changed the collection since it was made."""
    # In input order, which determines the positions of new items, and so the order of pages.
    if plan.new:
        _insert(session.connection(), plan.new)
    if plan.changed:
        session.execute(_UPDATE, list(plan.changed))
    for row_ids in in_chunks(plan.partners):
        session.execute(update(ITEMS).where(ITEMS.c.id.in_(row_ids)).values(revision=plan.revision))


def _rows_by_id(
    session: Session, collection: Collection, item_ids: Sequence[str]
) -> Mapping[str, Sequence[Any]]:
    query = select(*_STORED).where(ITEMS.c.collection_id == collection.id, ITEMS.c.item_id.in_(item_ids))
    return {row[0]: row[1:] for row in session.execute(query)}


def _insert(connection: Connection, rows: Sequence[_Row]) -> None:
    """Insert rows of `_INSERTED` directly with the driver: SQLAlchemy would take longer than the database."""
    columns = ", ".join(_INSERTED)
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        kind = connection.dialect.loaded_dbapi.Error
        statement = f"COPY items ({columns}) FROM STDIN"
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except kind as error:
            # As SQLAlchemy does for statements that it executes.
            raise DBAPIError.instance(
                statement, None, error, kind, hide_parameters=True, dialect=connection.dialect
            ) from error
    else:
        places = ", ".join("?" * len(_INSERTED))
        connection.exec_driver_sql(f"INSERT INTO items ({columns}) VALUES ({places})", list(rows))


def _plain(item: Item) -> _Row:
    features = None if item.features is None else vector_bytes(item.features)
    return (*(getattr(item, name) for name in _AS_THEY_ARE), features)


def _is_same(stored: Sequence[Any], new: Sequence[Any]) -> bool:
    """Compare values of `_PLAIN`, and of `_DOCUMENTS` as JSON texts."""
    n_plain = len(_PLAIN)
    if tuple(stored[:n_plain]) != tuple(new[:n_plain]):
        return False
    pairs = zip(stored[n_plain:], new[n_plain:], strict=True)
    return all(left == right or _canonical(left) == _canonical(right) for left, right in pairs)


def _canonical(document: str) -> str:
    # As text: 1, 1.0 and true are equal in Python, but different in JSON.
    return json.dumps(json.loads(document), sort_keys=True)


_NO_FILTER = ItemFilter()
_ROWS_PER_PAGE = 1000
"""Enough that the fixed cost of a query is small beside its rows; bounds the memory of a walk."""
_AnyRow = Row[*tuple[Any, ...]]
_COLUMNS = (
    *("item_id", "modality", "text", "content_hash", "content_type"),
    *("labels", "pair_id", "metadata", "train", "revision"),
)
"""Columns that `_item` reads; plain ones, since making mapped objects takes longer than the query itself."""
_PLACED = (*_COLUMNS, "id")


class ItemRepository(Repository):
    """Items of a collection."""

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
        # The session holds the collection's lock, so that no other writer comes between the comparison and
        # the write. Every id comes at most once.
        planned = self.plan(collection, items, revision)
        write_plan(self._session, planned)
        return planned.counts

    def plan(self, collection: Collection, items: Sequence[Item], revision: int) -> Plan:
        """Compare items, each id at most once, with the stored ones of a locked collection."""
        new: list[_Row] = []
        changed: list[dict[str, Any]] = []
        left: Counter[str | None] = Counter()  # items that a pair loses
        joined: Counter[str | None] = Counter()  # and gets
        unchanged = revived = 0
        for chunk in in_chunks(items):
            rows = _rows_by_id(self._session, collection, [item.id for item in chunk])
            for item in chunk:
                row, plain = rows.get(item.id), _plain(item)
                labels, metadata = json.dumps(item.labels), json.dumps(item.metadata)
                if row is None:
                    joined[item.pair_id] += 1
                    new.append((collection.id, item.id, revision, False, *plain, labels, metadata))
                    continue
                row_id, is_deleted, *stored = row
                if not is_deleted and _is_same(stored, (*plain, labels, metadata)):
                    unchanged += 1
                    continue
                before = stored[_AS_THEY_ARE.index("pair_id")]
                if before != item.pair_id:
                    left[before] += 1
                    joined[item.pair_id] += 1
                revived += int(is_deleted)
                values = (revision, False, *plain, list(item.labels), dict(item.metadata))
                named = {f"new_{name}": value for name, value in zip(_UPDATED, values, strict=True)}
                changed.append({"row_id": row_id, **named})
        written = {entry["row_id"] for entry in changed}
        members = self._members(collection, revision, left, joined)
        partners = [row for row in members if row not in written]
        counts = Counts(len(new) + revived, len(changed) - revived, unchanged)
        return Plan(counts, new, changed, partners, revision)

    def _members(
        self,
        collection: Collection,
        revision: int,
        left: Mapping[str | None, int],
        joined: Mapping[str | None, int],
    ) -> list[int]:
        """Return rows before a revision that are placed again without a changed item in their pair."""
        # Items left the pair, or it has too many for partners.
        rows: list[int] = []
        # Groups that grow are looked for where a version serves: it would take long in a first import.
        pairs = left.keys() | joined.keys() if collection.active_version is not None else left.keys()
        names = sorted(name for name in pairs if name is not None)
        for chunk in in_chunks(names):
            # Not `is_`, as in `_of_pair`.
            is_there = (ITEMS.c.collection_id == collection.id) & (ITEMS.c.is_deleted == false())
            is_member = is_there & ITEMS.c.pair_id.in_(chunk)
            n_before = func.sum(case((ITEMS.c.revision < revision, 1), else_=0))
            sizes = select(ITEMS.c.pair_id, func.count(), n_before).where(is_member).group_by(ITEMS.c.pair_id)
            moved = [
                name
                for name, size, before in self._session.execute(sizes)
                if (name in left and before <= 2 * MOST_PARTNERS + left[name])
                or (before <= 2 * MOST_PARTNERS and size + joined.get(name, 0) > MOST_PARTNERS)
            ]
            if moved:
                is_moved = is_there & ITEMS.c.pair_id.in_(moved) & (ITEMS.c.revision + 0 < revision)
                rows += self._session.scalars(select(ITEMS.c.id).where(is_moved))
        return rows

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

    def delete(self, collection: Collection, item_ids: Sequence[str], revision: int) -> set[str]:
        """Leave tombstones, in a locked collection; return the hashes of files. Raises NotFoundError."""
        is_its = (ITEMS.c.collection_id == collection.id) & ITEMS.c.is_deleted.is_(False)
        names = ("id", "item_id", "pair_id", "content_hash")
        query = select(*(ITEMS.c[name] for name in names)).where(is_its)
        rows = [
            row
            for chunk in in_chunks(item_ids)
            for row in self._session.execute(query.where(ITEMS.c.item_id.in_(chunk)))
        ]
        missing = set(item_ids).difference(row.item_id for row in rows)
        if missing:
            raise item_not_found(collection.name, min(missing))
        members = self._members(collection, revision, Counter(row.pair_id for row in rows), {})
        for row_ids in in_chunks(members):
            self._session.execute(update(ITEMS).where(ITEMS.c.id.in_(row_ids)).values(revision=revision))
        for row_ids in in_chunks([row.id for row in rows]):
            emptied = update(ITEMS).where(ITEMS.c.id.in_(row_ids)).values(_TOMBSTONE)
            self._session.execute(emptied.values(revision=revision))
        return {row.content_hash for row in rows if row.content_hash is not None}

    def of_pairs(self, collection: Collection, pair_ids: AbstractCollection[str]) -> list[Item]:
        """Return all items of some pairs, with features, in order of creation; none of a pair of more items
        than are partners."""
        members: list[Item] = []
        for chunk in in_chunks(sorted(pair_ids)):
            rows = published_items(collection.id, *_PLACED, "features", "encoding", "is_deleted")
            is_asked = rows.c.pair_id.in_(chunk) & (rows.c.is_deleted == false())
            sizes = select(rows.c.pair_id).where(is_asked).group_by(rows.c.pair_id)
            small = list(self._session.scalars(sizes.having(func.count() <= 2 * MOST_PARTNERS)))
            query = select(rows).where(rows.c.pair_id.in_(small), rows.c.is_deleted == false())
            members += (
                _item(row, row.features, row.encoding)
                for row in self._session.execute(query.order_by(rows.c.id))
            )
        return members

    def ids_of_pairs(self, collection: Collection, modality: str, pair_ids: Sequence[str]) -> list[str]:
        """Return the items of a modality that are of some pairs."""
        rows = published_items(collection.id, "item_id", "pair_id", "modality", "is_deleted")
        query = select(rows.c.item_id).where(rows.c.modality == modality, rows.c.is_deleted == false())
        chunks = in_chunks(pair_ids)
        return [
            one for chunk in chunks for one in self._session.scalars(query.where(rows.c.pair_id.in_(chunk)))
        ]

    def page(
        self,
        collection: Collection,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
        item_filter: ItemFilter = _NO_FILTER,
        until: int | None = None,
    ) -> list[tuple[int, Item]]:
        """Return items with their stable position, in order of creation; of one pair when it is given. Of
        those that do not pass the filter some are left out, as of `FilterSql`."""
        if pair_id is not None:
            rows = self._of_pair(collection, pair_id, modality, after, limit)
        else:
            modalities = collection.modality_names if modality is None else (modality,)
            passes = (lambda _: true()) if item_filter.is_empty else self._narrow(item_filter)
            stretches = (_present(name, after, passes) for name in modalities)
            parts = [
                first_rows(self._session, collection.id, _PLACED, replace(stretch, until=until), limit)
                for stretch in stretches
            ]
            rows = sorted(itertools.chain.from_iterable(parts), key=lambda row: row.id)[:limit]
        return [(row.id, _item(row)) for row in rows]

    def _narrow(self, item_filter: ItemFilter) -> Condition:
        """Return a condition that every item meets that passes a filter."""
        sql = FilterSql(self._session.get_bind().dialect.name == "sqlite")
        condition = text(item_filter.fold(sql.read, sql.join)).bindparams(**sql.parameters)
        return lambda _: and_(condition)

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

    def training_traits(self, collection: Collection, modality: str) -> Generator[Item, None, None]:
        """Yield the items of a modality that may be trained on, with labels, pair and metadata alone.
        Who stops before the end closes the generator."""
        may_train = _present(modality, 0, lambda c: c["train"].is_(True))
        for row in self._walk(collection, ("labels", "pair_id", "metadata", "modality", "id"), may_train):
            labels, pair_id, metadata = row[:3]
            yield Item("", modality, labels=tuple(labels or ()), pair_id=pair_id, metadata=metadata or {})

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
        """Return the position of the last deleted item that left a tombstone; None if there is none."""
        # As a sum: PostgreSQL would otherwise scan the primary key backwards through all items to one.
        query = select(func.max(ITEMS.c.id + 0)).where(_is_tombstone(collection.id))
        newest: int | None = self._session.scalar(query)
        return newest

    def purge_tombstones(self, collection: Collection, before: int, grace_seconds: float, limit: int) -> bool:
        """Purge some old tombstones of a locked collection, or move the mark once it is old enough; return
        whether there may be more to purge. No import into it may be running."""
        # Only tombstones before a position go: SQLite gives a new item the position after the last row. If
        # that row were purged, a client between two pages might miss the new item.
        row = self._session.get_one(CollectionRow, collection.id, populate_existing=True)
        if row.marked_at is None:
            row.marked_revision, row.marked_at = row.revision, now(self._session)
        if now(self._session) - row.marked_at < timedelta(seconds=grace_seconds):
            return False
        is_old = (ITEMS.c.revision <= row.marked_revision) & (ITEMS.c.id < before)
        old = select(ITEMS.c.id).where(_is_tombstone(collection.id), is_old).limit(limit)
        row_ids = list(self._session.scalars(old))
        if row_ids:
            self._session.execute(delete(ITEMS).where(ITEMS.c.id.in_(row_ids)))
            row.purged_through = row.marked_revision
        elif row.marked_revision < row.revision:
            row.marked_revision, row.marked_at = row.revision, now(self._session)
        self._session.flush()
        return bool(row_ids)

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item, or query of any feedback, of any collection has."""
        tables = (ItemRow, ReplacedItemRow, FeedbackRow)
        return set().union(*(self._find_used(table.content_hash, content_hashes) for table in tables))

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


def _is_tombstone(collection_id: int) -> ColumnElement[bool]:
    return (ITEMS.c.collection_id == collection_id) & ITEMS.c.is_deleted.is_(True)


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
