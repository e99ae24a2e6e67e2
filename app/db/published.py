"""What readers see of a collection's items: the state of its published revision."""
# While an import is being stored (see `app.db.imports`), its rows carry a revision that the collection has
# not reached. Readers do not see them; in place of changed rows they get the rows as they were before.
# Everything that reads items does so through `published_items`, for selecting a few by their values, or
# through `first_rows`, which scans an index; writers exclude imports and use the table itself.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BindParameter,
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

from app.db.models import ITEMS, REPLACED_ITEMS, CollectionRow

CollectionId = int | BindParameter[int]
"""Primary key of a collection, or the parameter of a statement that is made once for all."""
Columns = Mapping[str, ColumnElement[Any]]
Condition = Callable[[Columns], ColumnElement[bool]]
"""A condition on rows, given their columns; the columns of replaced items have the same names."""
_AnyRow = Row[*tuple[Any, ...]]
_Range = tuple[ColumnElement[bool], tuple[ColumnElement[Any], ...]]  # a condition and an order
_CURRENT: Columns = dict(ITEMS.c)
_BEFORE: Columns = {
    column.name: REPLACED_ITEMS.c["position" if column.name == "id" else column.name] for column in ITEMS.c
}


def published_items(collection_id: CollectionId, *names: str) -> Subquery:
    """Return columns of the published items of a collection, tombstones included, as a table to select from.
    The ``id`` of an item, its position among the others, does not change with it."""
    current = select(*(_CURRENT[name] for name in names)).where(is_published(collection_id))
    before = select(*(_BEFORE[name].label(name) for name in names)).where(_is_shown_instead(collection_id))
    return union_all(current, before).subquery("published")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of rows in the order of a column and their id, which is the order of an index."""

    column: str  # of `items`; follows the collection in an index, and is followed there by the id
    start: Any
    end: Any
    after: int  # of the rows with the first value, only those with a larger id
    where: Condition  # further condition, such as that of a partial index
    until: int | None = None  # of the rows with the last value, those with a larger id may be left out

    def after_row(self, row: _AnyRow) -> Stretch:
        """Return the part after one of its rows."""
        return replace(self, start=getattr(row, self.column), after=row.id)

    def up_to_row(self, row: _AnyRow) -> Stretch:
        """Return the part up to and including one of its rows."""
        return replace(self, end=getattr(row, self.column), until=row.id)


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
    """Return the first visible rows of one table that are in a stretch."""
    ranges = _one_range if session.get_bind().dialect.name == "postgresql" else _two_ranges
    selected = [columns[name].label(name) for name in names]
    rows: list[_AnyRow] = []
    for is_within, order in ranges(columns, stretch):
        query = select(*selected).where(is_shown, is_within, stretch.where(columns)).order_by(*order)
        rows += session.execute(query.limit(limit - len(rows))).all()
        if len(rows) == limit:
            break
    return rows


def _one_range(columns: Columns, stretch: Stretch) -> Iterator[_Range]:
    # For an order by id alone PostgreSQL would scan all items by their primary key.
    lead, row_id = columns[stretch.column], columns["id"]
    is_within = (tuple_(lead, row_id) > tuple_(stretch.start, stretch.after)) & (lead <= stretch.end)
    if stretch.until is not None:
        is_within &= tuple_(lead, row_id) <= tuple_(stretch.end, stretch.until)
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


def count_present(collection_id: int, most: int) -> CompoundSelect[str, int]:
    """Return a query for item counts by modality, which the caller has to add up; some are negative. `most`
    is the published revision as a number: PostgreSQL then finds the few rows beyond it by its statistics."""
    # All existing items are counted in an index, without reading the rows; then those of an unpublished
    # import are subtracted, and the ones it replaces are added.
    is_its, is_beyond = ITEMS.c.collection_id == collection_id, ITEMS.c.revision > most
    is_before = _is_shown_instead(collection_id) & REPLACED_ITEMS.c.is_deleted.is_(False)
    return union_all(
        _by_modality(ITEMS, func.count(), is_its & ITEMS.c.is_deleted.is_(False)),
        _by_modality(ITEMS, -func.count(), is_its & is_beyond & (ITEMS.c.is_deleted == false())),
        _by_modality(REPLACED_ITEMS, func.count(), is_before),
    )


def _by_modality(
    table: Table, number: ColumnElement[int], condition: ColumnElement[bool]
) -> Select[str, int]:
    return select(table.c.modality, number).where(condition).group_by(table.c.modality)


def is_published(collection_id: CollectionId) -> ColumnElement[bool]:
    """Return the condition that a row of `items` belongs to that collection and is published."""
    # As a sum, so that the index of revisions is not scanned: all rows but a few satisfy this.
    is_reached = ITEMS.c.revision + 0 <= published_revision(collection_id)
    return (ITEMS.c.collection_id == collection_id) & is_reached


def _is_shown_instead(collection_id: CollectionId) -> ColumnElement[bool]:
    """Return the condition that a replaced row is of that collection and its successor unpublished."""
    # As a sum, so that the index of all replaced rows is not scanned where only a few ids are requested.
    is_replaced_later = REPLACED_ITEMS.c.replaced_at + 0 > published_revision(collection_id)
    return (REPLACED_ITEMS.c.collection_id == collection_id) & is_replaced_later


def _is_replaced_by_the_running_one(collection_id: int) -> ColumnElement[bool]:
    """Return the same condition for an index: only the import of the next revision can be unpublished."""
    is_next = REPLACED_ITEMS.c.replaced_at == published_revision(collection_id) + 1
    return (REPLACED_ITEMS.c.collection_id == collection_id) & is_next


def published_revision(collection_id: CollectionId) -> ScalarSelect[int]:
    """Return the published revision as a subquery: the number that a caller has read may be outdated."""
    return select(CollectionRow.revision).where(CollectionRow.id == collection_id).scalar_subquery()
