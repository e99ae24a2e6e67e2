"""What readers see of a collection's items: the state of its published revision.

While an import is stored (see `app.db.imports`), its rows carry a revision that the collection has not
reached; they are left out, and in place of those it changed readers get the rows as they were before.
Everything that reads items reads them through `published`; writers keep imports out and use the table.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, ScalarSelect, Subquery, Table, select, union_all

from app.db.models import CollectionRow, ItemRow, ReplacedItemRow

_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_replaced: Table = ItemRow.metadata.tables[ReplacedItemRow.__tablename__]


def published(collection_id: int, *names: str) -> Subquery:
    """Return columns of the items of a collection, tombstones included, as a table to select from.

    Parameters
    ----------
    collection_id : int
        Primary key of the collection.
    *names : str
        Columns of `items`; the ``id`` of an item, its place among the others, stays when it is changed.
    """
    current = select(*(_items.c[name] for name in names)).where(is_published(collection_id))
    before = select(*(_replaced.c["position" if name == "id" else name].label(name) for name in names)).where(
        _replaced.c.collection_id == collection_id, _replaced.c.replaced_at > reached(collection_id)
    )
    return union_all(current, before).subquery("published")


def is_published(collection_id: int) -> ColumnElement[bool]:
    """Return the condition that a row of `items` is of that collection and published."""
    # As a sum it is no reason to walk the index of revisions, which all rows but a few satisfy.
    is_reached = _items.c.revision + 0 <= reached(collection_id)
    return (_items.c.collection_id == collection_id) & is_reached


def reached(collection_id: int) -> ScalarSelect[int]:
    """Return the published revision, asked in the same statement: what a caller holds may be older."""
    return select(CollectionRow.revision).where(CollectionRow.id == collection_id).scalar_subquery()
