"""What readers see of a collection's items: the state of its published revision.

While an import is stored (see `app.db.imports`), its rows carry a revision that the collection has not
reached; they are left out, and in place of those it changed readers get the rows as they were before.
Everything that reads items reads them through `published`, which finds a few by what they are, or through
`first_rows`, which walks along an index; writers keep imports out and use the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Row,
    ScalarSelect,
    Select,
    Subquery,
    Table,
    false,
    func,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.orm import Session

from app.db.models import CollectionRow, ItemRow, ReplacedItemRow

_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_replaced: Table = ItemRow.metadata.tables[ReplacedItemRow.__tablename__]

Columns = Mapping[str, ColumnElement[Any]]
Condition = Callable[[Columns], ColumnElement[bool]]
"""What rows have to be, by their columns; those of replaced items have the same names."""
_AnyRow = Row[*tuple[Any, ...]]
_Range = tuple[ColumnElement[bool], tuple[ColumnElement[Any], ...]]
"""What is within it, and the order."""
_CURRENT: Columns = dict(_items.c)
_BEFORE: Columns = {
    column.name: _replaced.c["position" if column.name == "id" else column.name] for column in _items.c
}


def published(collection_id: int, *names: str) -> Subquery:
    """Return columns of the items of a collection, tombstones included, as a table to select from.

    Parameters
    ----------
    collection_id : int
        Primary key of the collection.
    *names : str
        Columns of `items`; the ``id`` of an item, its place among the others, stays when it is changed.
    """
    current = select(*(_CURRENT[name] for name in names)).where(is_published(collection_id))
    before = select(*(_BEFORE[name].label(name) for name in names)).where(_is_shown_instead(collection_id))
    return union_all(current, before).subquery("published")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows in order of a column and their id, as an index has them.

    Parameters
    ----------
    column : str
        Of `items`; an index has it after the collection, and the id after it.
    start, end : str or int
        First and last value of the column.
    after : int
        Of rows with the first value, only those with a larger id.
    where : callable
        What else rows have to be, by their columns; such as what an index is restricted to.
    until : int, optional
        Of rows with the last value, those with a larger id need not be found.
    """

    column: str
    start: Any
    end: Any
    after: int
    where: Condition
    until: int | None = None

    def after_row(self, row: _AnyRow) -> Stretch:
        """Return what follows a row of it."""
        return replace(self, start=getattr(row, self.column), after=row.id)

    def up_to_row(self, row: _AnyRow) -> Stretch:
        """Return what of it comes no later than a row of it."""
        return replace(self, end=getattr(row, self.column), until=row.id)


def first_rows(
    session: Session, collection_id: int, names: Sequence[str], stretch: Stretch, limit: int
) -> list[_AnyRow]:
    """Return the first published rows of a stretch, in its order, without a look at the others.

    To read on, ask for those after the last one. The transaction has to be one that only reads: it sees the
    same state all the time.

    Parameters
    ----------
    session : Session
        Where to read.
    collection_id : int
        Primary key of the collection.
    names : sequence of str
        Columns of `items` to return, among them ``id`` and that of the stretch.
    stretch : Stretch
        Which ones, and their order.
    limit : int
        Most rows.
    """
    # Not as a union, of which both databases would sort all rows before they return the first.
    before = _in_order(
        session, _BEFORE, _is_replaced_by_the_running_one(collection_id), names, stretch, limit
    )
    if len(before) == limit:
        # Or those that came in their place would all be passed over in search of published ones beyond.
        stretch = stretch.up_to_row(before[-1])
    rows = before + _in_order(session, _CURRENT, is_published(collection_id), names, stretch, limit)
    lead, row_id = names.index(stretch.column), names.index("id")
    return sorted(rows, key=lambda row: (row[lead], row[row_id]))[:limit]


def _in_order(
    session: Session,
    columns: Columns,
    is_shown: ColumnElement[bool],
    names: Sequence[str],
    stretch: Stretch,
    limit: int,
) -> list[_AnyRow]:
    """Return the first rows of one table that are in a stretch and shown."""
    ranges = _one_range if session.get_bind().dialect.name == "postgresql" else _two_ranges
    wanted = [columns[name].label(name) for name in names]
    found: list[_AnyRow] = []
    for is_within, order in ranges(columns, stretch):
        query = select(*wanted).where(is_shown, is_within, stretch.where(columns)).order_by(*order)
        found += session.execute(query.limit(limit - len(found))).all()
        if len(found) == limit:
            break
    return found


def _one_range(columns: Columns, stretch: Stretch) -> Iterator[_Range]:
    # PostgreSQL would walk all items by their primary key where it is asked for the order of ids alone.
    lead, row_id = columns[stretch.column], columns["id"]
    is_within = (tuple_(lead, row_id) > tuple_(stretch.start, stretch.after)) & (lead <= stretch.end)
    if stretch.until is not None:
        is_within &= tuple_(lead, row_id) <= tuple_(stretch.end, stretch.until)
    yield is_within, (lead, row_id)


def _two_ranges(columns: Columns, stretch: Stretch) -> Iterator[_Range]:
    # SQLite finds no place in an index by a pair of values when the second one is the primary key.
    lead, row_id = columns[stretch.column], columns["id"]
    is_first = (lead == stretch.start) & (row_id > stretch.after)
    if stretch.end != stretch.start:
        yield is_first, (row_id,)
        yield (lead > stretch.start) & (lead <= stretch.end), (lead, row_id)
    else:
        yield is_first if stretch.until is None else is_first & (row_id <= stretch.until), (row_id,)


def count_present(collection_id: int, most: int) -> CompoundSelect[str, int]:
    """Return the query for numbers of items by modality, which are to be added up; some are negative.

    All that are there are counted in an index, without a look at the rows; then those of an import that is
    not published are taken away, and what it replaces is added.

    Parameters
    ----------
    collection_id : int
        Primary key of the collection.
    most : int
        Its published revision: by a number, which it has statistics of, PostgreSQL finds the few beyond.
    """
    is_its, is_beyond = _items.c.collection_id == collection_id, _items.c.revision > most
    is_before = _is_shown_instead(collection_id) & _replaced.c.is_deleted.is_(False)
    return union_all(
        _by_modality(_items, func.count(), is_its & _items.c.is_deleted.is_(False)),
        _by_modality(_items, -func.count(), is_its & is_beyond & (_items.c.is_deleted == false())),
        _by_modality(_replaced, func.count(), is_before),
    )


def _by_modality(
    table: Table, number: ColumnElement[int], condition: ColumnElement[bool]
) -> Select[str, int]:
    return select(table.c.modality, number).where(condition).group_by(table.c.modality)


def is_published(collection_id: int) -> ColumnElement[bool]:
    """Return the condition that a row of `items` is of that collection and published."""
    # As a sum it is no reason to walk the index of revisions, which all rows but a few satisfy.
    is_reached = _items.c.revision + 0 <= reached(collection_id)
    return (_items.c.collection_id == collection_id) & is_reached


def _is_shown_instead(collection_id: int) -> ColumnElement[bool]:
    """Return the condition that a replaced row is of that collection and its successor unpublished."""
    # As a sum it is no reason to walk an index of all that is replaced, where few ids are asked for.
    is_replaced_later = _replaced.c.replaced_at + 0 > reached(collection_id)
    return (_replaced.c.collection_id == collection_id) & is_replaced_later


def _is_replaced_by_the_running_one(collection_id: int) -> ColumnElement[bool]:
    """Return the same as an index finds it: only the import of the next revision can be unpublished."""
    is_next = _replaced.c.replaced_at == reached(collection_id) + 1
    return (_replaced.c.collection_id == collection_id) & is_next


def reached(collection_id: int) -> ScalarSelect[int]:
    """Return the published revision, asked in the same statement: what a caller holds may be older."""
    return select(CollectionRow.revision).where(CollectionRow.id == collection_id).scalar_subquery()
