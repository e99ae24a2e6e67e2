"""Tombstones of deleted items, which are there so that other processes learn of a deletion.

A tombstone does not know when it was made. So a collection has a mark: a revision, and when it was reached at
the latest. Once that was long enough ago, tombstones up to the revision are purged, and the collection
remembers it: whoever is to bring an earlier state up to date compares it with what is still there.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, Table, delete, func, select
from sqlalchemy.orm import Session

from app.db.clock import now
from app.db.models import CollectionRow, ItemRow

_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]


def newest_tombstone(session: Session, collection_id: int) -> int | None:
    """Return the position of the last tombstone of a collection; None when there is none."""
    # As a sum, or PostgreSQL would walk all items by their primary key, from the last one to a tombstone.
    query = select(func.max(_items.c.id + 0)).where(_is_tombstone(collection_id))
    newest: int | None = session.scalar(query)
    return newest


def purge_tombstones(
    session: Session, collection_id: int, before: int, grace_seconds: float, limit: int
) -> bool:
    """Purge some tombstones, or move the mark; return whether there may be more to purge.

    Parameters
    ----------
    session : Session
        Holds the collection's lock, and no import is being stored there.
    collection_id : int
        Primary key of the collection.
    before : int
        Position of a tombstone; only earlier ones are purged. SQLite gives a new item the position after the
        last one, and were that purged, a page might be continued behind the new item.
    grace_seconds : float
        How long ago the mark has to be.
    limit : int
        Most rows.
    """
    row = session.get_one(CollectionRow, collection_id, populate_existing=True)
    if row.marked_at is None:
        row.marked_revision, row.marked_at = row.revision, now(session)
    if now(session) - row.marked_at < timedelta(seconds=grace_seconds):
        return False
    is_old = (_items.c.revision <= row.marked_revision) & (_items.c.id < before)
    found = list(
        session.scalars(select(_items.c.id).where(_is_tombstone(collection_id), is_old).limit(limit))
    )
    if found:
        session.execute(delete(_items).where(_items.c.id.in_(found)))
        row.purged_through = row.marked_revision
    elif row.marked_revision < row.revision:
        row.marked_revision, row.marked_at = row.revision, now(session)
    session.flush()
    return bool(found)


def _is_tombstone(collection_id: int) -> ColumnElement[bool]:
    return (_items.c.collection_id == collection_id) & _items.c.is_deleted.is_(True)
