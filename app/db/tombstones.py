"""Tombstones of deleted items, by which other processes notice a deletion."""
# A tombstone carries no time. Instead each collection has a mark: a revision, and a time by which it had been
# reached. Once that time is long enough ago, tombstones up to the revision are purged, and the collection
# records the revision: a reader with an earlier state then compares its items with those that still exist.

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from app.db.clock import now
from app.db.models import ITEMS, CollectionRow


def newest_tombstone(session: Session, collection_id: int) -> int | None:
    """Return the position of the last tombstone of a collection; None if there is none."""
    # As a sum: PostgreSQL would otherwise scan the primary key backwards through all items to a tombstone.
    query = select(func.max(ITEMS.c.id + 0)).where(_is_tombstone(collection_id))
    newest: int | None = session.scalar(query)
    return newest


def purge_tombstones(
    session: Session, collection_id: int, before: int, grace_seconds: float, limit: int
) -> bool:
    """Purge a batch of tombstones, or move the mark once it is old enough; return whether there may be more
    to purge. The session holds the collection's lock; no import into it may be running."""
    # Only tombstones before a position go: SQLite gives a new item the position after the last row. If that
    # row were purged, a client between two pages might miss the new item.
    row = session.get_one(CollectionRow, collection_id, populate_existing=True)
    if row.marked_at is None:
        row.marked_revision, row.marked_at = row.revision, now(session)
    if now(session) - row.marked_at < timedelta(seconds=grace_seconds):
        return False
    is_old = (ITEMS.c.revision <= row.marked_revision) & (ITEMS.c.id < before)
    row_ids = list(
        session.scalars(select(ITEMS.c.id).where(_is_tombstone(collection_id), is_old).limit(limit))
    )
    if row_ids:
        session.execute(delete(ITEMS).where(ITEMS.c.id.in_(row_ids)))
        row.purged_through = row.marked_revision
    elif row.marked_revision < row.revision:
        row.marked_revision, row.marked_at = row.revision, now(session)
    session.flush()
    return bool(row_ids)


def _is_tombstone(collection_id: int) -> ColumnElement[bool]:
    return (ITEMS.c.collection_id == collection_id) & ITEMS.c.is_deleted.is_(True)
