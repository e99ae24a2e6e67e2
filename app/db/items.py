"""Items in SQL as readers see them: unchanged ones are left alone, others written in batches."""
# While an import is being stored (see `app.db.imports`), its rows carry a revision that the collection has
# not reached. Readers do not see them; in place of changed rows they get the rows as they were before.
# Everything that reads items does so through `published_items`, for selecting a few by their values, or
# through `first_rows`, which scans an index; writers exclude imports and use the table itself.
#
# By tombstones other processes notice a deletion. They carry no time.
# Instead each collection has a mark: a revision, and a time by which it had been reached. Once that time is
# long enough ago, tombstones up to the revision are purged, and the collection records the revision: a reader
# with an earlier state then compares its items with those that still exist.

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.db.filters import FilterSql
from app.db.models import ITEMS, REPLACED_ITEMS, CollectionRow, FeedbackRow, ItemRow, ReplacedItemRow
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
from app.domain.filters import NO_FILTER, ItemFilter
from app.domain.names import is_storable
from app.domain.searches import HIT_FIELDS, WHOLE_ITEM

CollectionId = int | sa.BindParameter[int]
"""Primary key of a collection, or the parameter of a statement that is made once for all."""
Columns = Mapping[str, sa.ColumnElement[Any]]
Condition = Callable[[Columns], sa.ColumnElement[bool]]
"""A condition on rows, given their columns; the columns of replaced items have the same names."""
_AnyRow = sa.Row[*tuple[Any, ...]]
_Range = tuple[sa.ColumnElement[bool], tuple[sa.ColumnElement[Any], ...]]  # a condition and an order
_CURRENT: Columns = dict(ITEMS.c)
_BEFORE: Columns = {
    column.name: REPLACED_ITEMS.c["position" if column.name == "id" else column.name] for column in ITEMS.c
}


def published_items(collection_id: CollectionId, *names: str) -> sa.Subquery:
    """Return columns of the published items of a collection, tombstones included, as a table to select from.
    The ``id`` of an item, its position among the others, does not change with it."""
    current = sa.select(*(_CURRENT[name] for name in names)).where(is_published(collection_id))
    before = sa.select(*(_BEFORE[name].label(name) for name in names)).where(_is_shown_instead(collection_id))
    return sa.union_all(current, before).subquery("published")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of rows in the order of a column and their id, which is the order of an index."""

    column: str  # of `items`; follows the collection in an index, and is followed there by the id
    start: Any
    end: Any
    after: int  # of the rows with the first value, only those with a larger id
    where: Condition  # further condition, such as that of a partial index
    until: int | None = None  # of the rows with the last value, those with a larger id may be left out


def first_rows(
    session: Session, collection_id: int, names: Sequence[str], stretch: Stretch, limit: int
) -> list[_AnyRow]:
    """Return the first published rows of a stretch, in its order, without reading the others; `names` has
    ``id`` and its column."""
    # The next page is the stretch after the last row. The transaction has to be read-only, so that every page
    # sees the same state.
    # Not a union: both databases would sort all of its rows before returning the first.
    before = _in_order(
        session, _BEFORE, _is_replaced_by_the_running_one(collection_id), names, stretch, limit
    )
    if len(before) == limit:
        # Otherwise all their unpublished successors would be scanned in search of published rows beyond.
        last = before[-1]
        stretch = replace(stretch, end=getattr(last, stretch.column), until=last.id)
    rows = before + _in_order(session, _CURRENT, is_published(collection_id), names, stretch, limit)
    lead, row_id = names.index(stretch.column), names.index("id")
    return sorted(rows, key=lambda row: (row[lead], row[row_id]))[:limit]


def _in_order(
    session: Session,
    columns: Columns,
    is_shown: sa.ColumnElement[bool],
    names: Sequence[str],
    stretch: Stretch,
    limit: int,
) -> list[_AnyRow]:
    """Return the first visible rows of one table that are in a stretch."""
    ranges = _one_range if session.get_bind().dialect.name == "postgresql" else _two_ranges
    selected = [columns[name].label(name) for name in names]
    rows: list[_AnyRow] = []
    for is_within, order in ranges(columns, stretch):
        query = sa.select(*selected).where(is_shown, is_within, stretch.where(columns)).order_by(*order)
        rows += session.execute(query.limit(limit - len(rows))).all()
        if len(rows) == limit:
            break
    return rows


def _one_range(columns: Columns, stretch: Stretch) -> Iterator[_Range]:
    # For an order by id alone PostgreSQL would scan all items by their primary key.
    lead, row_id = columns[stretch.column], columns["id"]
    is_within = (sa.tuple_(lead, row_id) > sa.tuple_(stretch.start, stretch.after)) & (lead <= stretch.end)
    if stretch.until is not None:
        is_within &= sa.tuple_(lead, row_id) <= sa.tuple_(stretch.end, stretch.until)
    yield is_within, (lead, row_id)


def _two_ranges(columns: Columns, stretch: Stretch) -> Iterator[_Range]:
    # SQLite cannot seek in an index by a pair of values whose second one is the primary key.
    lead, row_id = columns[stretch.column], columns["id"]
    is_first = (lead == stretch.start) & (row_id > stretch.after)
    if stretch.end != stretch.start:
        yield is_first, (row_id,)
        yield (lead > stretch.start) & (lead <= stretch.end), (lead, row_id)
    else:
        yield is_first if stretch.until is None else is_first & (row_id <= stretch.until), (row_id,)


def count_present(collection_id: int, most: int) -> sa.CompoundSelect[str, int]:
    """Return a query for item counts by modality, which the caller has to add up; some are negative. `most`
    is the published revision as a number: PostgreSQL then finds the few rows beyond it by its statistics."""
    # All existing items are counted in an index, without reading the rows; then those of an unpublished
    # import are subtracted, and the ones it replaces are added.
    is_its, is_beyond = ITEMS.c.collection_id == collection_id, ITEMS.c.revision > most
    is_before = _is_shown_instead(collection_id) & REPLACED_ITEMS.c.is_deleted.is_(False)
    return sa.union_all(
        _by_modality(ITEMS, sa.func.count(), is_its & ITEMS.c.is_deleted.is_(False)),
        _by_modality(ITEMS, -sa.func.count(), is_its & is_beyond & (ITEMS.c.is_deleted == sa.false())),
        _by_modality(REPLACED_ITEMS, sa.func.count(), is_before),
    )


def _by_modality(
    table: sa.Table, number: sa.ColumnElement[int], condition: sa.ColumnElement[bool]
) -> sa.Select[str, int]:
    return sa.select(table.c.modality, number).where(condition).group_by(table.c.modality)


def is_published(collection_id: CollectionId) -> sa.ColumnElement[bool]:
    """Return the condition that a row of `items` belongs to that collection and is published."""
    # As a sum, so that the index of revisions is not scanned: all rows but a few satisfy this.
    is_reached = ITEMS.c.revision + 0 <= published_revision(collection_id)
    return (ITEMS.c.collection_id == collection_id) & is_reached


def _is_shown_instead(collection_id: CollectionId) -> sa.ColumnElement[bool]:
    """Return the condition that a replaced row is of that collection and its successor unpublished."""
    # As a sum, so that the index of all replaced rows is not scanned where only a few ids are requested.
    is_replaced_later = REPLACED_ITEMS.c.replaced_at + 0 > published_revision(collection_id)
    return (REPLACED_ITEMS.c.collection_id == collection_id) & is_replaced_later


def _is_replaced_by_the_running_one(collection_id: int) -> sa.ColumnElement[bool]:
    """Return the same condition for an index: only the import of the next revision can be unpublished."""
    is_next = REPLACED_ITEMS.c.replaced_at == published_revision(collection_id) + 1
    return (REPLACED_ITEMS.c.collection_id == collection_id) & is_next


def published_revision(collection_id: CollectionId) -> sa.ScalarSelect[int]:
    """Return the published revision as a subquery: the number that a caller has read may be outdated."""
    return sa.select(CollectionRow.revision).where(CollectionRow.id == collection_id).scalar_subquery()


_AS_THEY_ARE = ("modality", "text", "content_hash", "content_type", "encoding", "pair_id", "train")
_PLAIN = (*_AS_THEY_ARE, "features")
_DOCUMENTS = ("labels", "metadata")
_INSERTED = ("collection_id", "item_id", "revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_UPDATED = ("revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_STORED = (
    *(ITEMS.c[name] for name in ("item_id", "id", "is_deleted", *_PLAIN)),
    *(sa.cast(ITEMS.c[name], sa.Text) for name in _DOCUMENTS),
)
_UPDATE = (
    sa.update(ITEMS)
    .where(ITEMS.c.id == sa.bindparam("row_id"))
    .values({name: sa.bindparam(f"new_{name}") for name in _UPDATED})
)
_TOMBSTONE: dict[str, Any] = {
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
    _update_rows(session, plan.partners, revision=plan.revision)


def _update_rows(session: Session, row_ids: Sequence[int], **values: Any) -> None:
    for chunk in in_chunks(row_ids):
        session.execute(sa.update(ITEMS).where(ITEMS.c.id.in_(chunk)).values(values))


def _rows_by_id(
    session: Session, collection: Collection, item_ids: Sequence[str]
) -> Mapping[str, Sequence[Any]]:
    query = sa.select(*_STORED).where(ITEMS.c.collection_id == collection.id, ITEMS.c.item_id.in_(item_ids))
    return {row[0]: row[1:] for row in session.execute(query)}


def _insert(connection: sa.Connection, rows: Sequence[_Row]) -> None:
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


_ROWS_PER_PAGE = 1000
"""Enough that the fixed cost of a query is small beside its rows; bounds the memory of a walk."""
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
        query = sa.select(rows.c.item_id).where(rows.c.is_deleted.is_(False))
        return {item_id for (item_id,) in self._execute_for(query, rows.c.item_id, item_ids)}

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
            # Not `is_`, as in `_select_pair`.
            is_there = (ITEMS.c.collection_id == collection.id) & (ITEMS.c.is_deleted == sa.false())
            is_member = is_there & ITEMS.c.pair_id.in_(chunk)
            n_before = sa.func.sum(sa.case((ITEMS.c.revision < revision, 1), else_=0))
            sizes = (
                sa.select(ITEMS.c.pair_id, sa.func.count(), n_before)
                .where(is_member)
                .group_by(ITEMS.c.pair_id)
            )
            moved = [
                name
                for name, size, before in self._session.execute(sizes)
                if (name in left and before <= 2 * MOST_PARTNERS + left[name])
                or (before <= 2 * MOST_PARTNERS and size + joined.get(name, 0) > MOST_PARTNERS)
            ]
            if moved:
                is_moved = is_there & ITEMS.c.pair_id.in_(moved) & (ITEMS.c.revision + 0 < revision)
                rows += self._session.scalars(sa.select(ITEMS.c.id).where(is_moved))
        return rows

    def get(self, collection: Collection, item_id: str) -> Item:
        """Return one; raises NotFoundError."""
        items = self.get_many(collection, [item_id] if is_storable(item_id) else [], WHOLE_ITEM)
        if not items:
            raise item_not_found(collection.name, item_id)
        return items[item_id]

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
        query = sa.select(*(ITEMS.c[name] for name in names)).where(is_its)
        rows = list(self._execute_for(query, ITEMS.c.item_id, item_ids))
        missing = set(item_ids).difference(row.item_id for row in rows)
        if missing:
            raise item_not_found(collection.name, min(missing))
        members = self._members(collection, revision, Counter(row.pair_id for row in rows), {})
        _update_rows(self._session, members, revision=revision)
        _update_rows(self._session, [row.id for row in rows], revision=revision, **_TOMBSTONE)
        return {row.content_hash for row in rows if row.content_hash is not None}

    def of_pairs(self, collection: Collection, pair_ids: AbstractCollection[str]) -> list[Item]:
        """Return all items of some pairs, in order of creation; none of a pair of more items than are
        partners."""
        names = (*_PLACED, "features", "encoding")
        members: list[Item] = []
        for chunk in in_chunks(sorted(pair_ids)):
            rows = published_items(collection.id, *names, "is_deleted")
            is_asked = rows.c.pair_id.in_(chunk) & (rows.c.is_deleted == sa.false())
            sizes = sa.select(rows.c.pair_id).where(is_asked).group_by(rows.c.pair_id)
            small = list(self._session.scalars(sizes.having(sa.func.count() <= 2 * MOST_PARTNERS)))
            query = sa.select(rows).where(rows.c.pair_id.in_(small), rows.c.is_deleted == sa.false())
            members += (
                _item(row, row.features, row.encoding)
                for row in self._session.execute(query.order_by(rows.c.id))
            )
        return members

    def ids_of_pairs(self, collection: Collection, modality: str, pair_ids: Sequence[str]) -> list[str]:
        """Return the items of a modality that are of some pairs."""
        rows = published_items(collection.id, "item_id", "pair_id", "modality", "is_deleted")
        query = sa.select(rows.c.item_id).where(rows.c.modality == modality, rows.c.is_deleted == sa.false())
        return [item_id for (item_id,) in self._execute_for(query, rows.c.pair_id, pair_ids)]

    def page(
        self,
        collection: Collection,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
        item_filter: ItemFilter = NO_FILTER,
        until: int | None = None,
    ) -> list[tuple[int, Item]]:
        """Return items with their stable position, in order of creation; of one pair when it is given. Of
        those that do not pass the filter some are left out, as of `FilterSql`."""
        if pair_id is not None:
            values = {"collection": collection.id, "pair": pair_id, "after": after, "limit": limit}
            rows = self._session.execute(_select_pair(modality), values).all()
        else:
            modalities = collection.modality_names if modality is None else (modality,)
            passes = (lambda _: sa.true()) if item_filter.is_empty else self._narrow(item_filter)
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
        condition = sa.text(item_filter.fold(sql.read, sql.join)).bindparams(**sql.parameters)
        return lambda _: sa.and_(condition)

    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield changes after `revision`, in order of revision; for read-only transactions."""
        most = self._session.scalar(sa.select(published_revision(collection.id))) or 0
        if revision < most:
            changed = Stretch("revision", revision + 1, most, 0, lambda _: sa.true())
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
        changed = sa.select(rows.c.id).where(is_changed).limit(most)
        return self._session.scalar(sa.select(sa.func.count()).select_from(changed.subquery())) or 0

    def unchanged_since(self, collection: Collection, revision: int) -> Iterator[Item]:
        """Yield what was last written at `revision` or before and is still there, without features."""
        for modality in collection.modality_names:
            unchanged = _present(modality, 0, lambda c: c["revision"] + 0 <= revision)
            yield from (_item(row) for row in self._walk(collection, _PLACED, unchanged))

    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality; for read-only transactions."""
        totals: Counter[str] = Counter()
        most = self._session.scalar(sa.select(published_revision(collection.id))) or 0
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
            "picture": lambda c: sa.func.coalesce(c["content_type"], "").not_like("image/%"),
            "sound": lambda c: sa.func.coalesce(c["content_type"], "").not_like("audio/%"),
        }
        lacking = _present(modality, 0, lacks.get(form, lambda _: sa.true()))
        count, first = 0, None
        for row in self._walk(collection, ("item_id", "modality", "id"), lacking):
            count += 1
            first = first or row.item_id
        return count, first

    def newest_tombstone(self, collection: Collection) -> int | None:
        """Return the position of the last deleted item that left a tombstone; None if there is none."""
        # As a sum: PostgreSQL would otherwise scan the primary key backwards through all items to one.
        query = sa.select(sa.func.max(ITEMS.c.id + 0)).where(_is_tombstone(collection.id))
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
        old = sa.select(ITEMS.c.id).where(_is_tombstone(collection.id), is_old).limit(limit)
        row_ids = list(self._session.scalars(old))
        if row_ids:
            self._session.execute(sa.delete(ITEMS).where(ITEMS.c.id.in_(row_ids)))
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
        query = sa.select(sa.func.max(ITEMS.c.id)).where(ITEMS.c.collection_id == collection.id)
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
            query = sa.select(sa.func.count(new.c.id.distinct())).where(are_here, are_apart, is_same)
            copies += self._session.scalar(query) or 0
        return copies

    def _walk(self, collection: Collection, names: Sequence[str], stretch: Stretch) -> Iterator[_AnyRow]:
        """Yield the rows of a stretch, read page by page."""
        while page := first_rows(self._session, collection.id, names, stretch, _ROWS_PER_PAGE):
            yield from page
            last = page[-1]
            stretch = replace(stretch, start=getattr(last, stretch.column), after=last.id)

    def _select(
        self,
        collection: Collection,
        item_ids: Sequence[str],
        names: tuple[str, ...],
        left_out: frozenset[str],
    ) -> Sequence[_AnyRow]:
        """Return columns of the items that exist, with NULL for columns that are left out. Every search calls
        this, so rows replaced by an import are read only if an item is missing otherwise."""
        current, published = _selects(names, left_out)
        values = {"collection": collection.id, "item_ids": item_ids}
        rows = self._session.execute(current, values).all()
        return rows if len(rows) == len(item_ids) else self._session.execute(published, values).all()


def _is_tombstone(collection_id: int) -> sa.ColumnElement[bool]:
    return (ITEMS.c.collection_id == collection_id) & ITEMS.c.is_deleted.is_(True)


@lru_cache
def _selects(names: tuple[str, ...], left_out: frozenset[str]) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return `_select`'s statements, of rows as they are and of those published: made once, run often."""
    collection_id = sa.bindparam("collection", type_=sa.Integer)
    published = published_items(collection_id, *names, "is_deleted")

    def of(columns: Columns) -> sa.Select[Any]:
        is_asked = columns["item_id"].in_(sa.bindparam("item_ids", expanding=True))
        shown = (sa.null() if name in left_out else columns[name] for name in names)
        return sa.select(*shown).where(is_asked, columns["is_deleted"].is_(False))

    return of(dict(ITEMS.c)).where(is_published(collection_id)), of(dict(published.c))


@lru_cache
def _select_pair(modality: str | None) -> sa.Select[Any]:
    rows = published_items(sa.bindparam("collection", type_=sa.Integer), *_PLACED, "is_deleted")
    # Not `is_`, with which the index of existing items would qualify: that of pairs leaves fewer rows.
    is_its = (rows.c.pair_id == sa.bindparam("pair")) & (rows.c.is_deleted == sa.false())
    is_of = sa.true() if modality is None else rows.c.modality == modality
    query = sa.select(rows).where(is_its, rows.c.id > sa.bindparam("after"), is_of).order_by(rows.c.id)
    return query.limit(sa.bindparam("limit", type_=sa.Integer))


def _present(modality: str, after: int, where: Condition) -> Stretch:
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
