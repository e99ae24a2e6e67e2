"""Deletion of collections in SQL: hidden in one short transaction, removed in many.

Removing a large collection in one transaction would keep every other writer out of a SQLite database for as
long as it takes. So `hide` renames the collection to what no client can call one, which frees its name, and
gives it the time of its deletion, which every look-up leaves out. Nobody writes to it from then on: who had
found it before finds it gone under its lock. `remove_some` then removes a bounded number of rows, and the
collection's own row last; it goes on after a crash wherever it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from app.db.clock import now
from app.db.models import CollectionRow, ItemRow, JobRow, ModelRow, ReplacedItemRow, SavedGalleryRow
from app.domain.entities import JobState

IS_THERE: ColumnElement[bool] = CollectionRow.deleted_at.is_(None)
"""That a collection is not deleted."""
_OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)
_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_replaced: Table = ItemRow.metadata.tables[ReplacedItemRow.__tablename__]


def is_there(session: Session, collection_id: int) -> bool:
    """Return whether there is a collection of that id, and it is not deleted."""
    query = select(CollectionRow.id).where(CollectionRow.id == collection_id, IS_THERE)
    return session.scalar(query) is not None


def hide(session: Session, collection_id: int) -> list[str] | None:
    """Hide a collection, end its job and forget its models; return their bundles.

    Returns None when another transaction was faster.
    """
    hidden = session.scalar(
        update(CollectionRow)
        .where(CollectionRow.id == collection_id, IS_THERE)
        .values(name=f"deleted/{collection_id}", deleted_at=now(session), active_version=None)
        .returning(CollectionRow.id)
    )
    if hidden is None:
        return None
    is_open = JobRow.state.in_(_OPEN)
    session.execute(delete(JobRow).where(JobRow.collection_id == collection_id, is_open))
    session.execute(delete(SavedGalleryRow).where(SavedGalleryRow.collection_id == collection_id))
    models = delete(ModelRow).where(ModelRow.collection_id == collection_id)
    return list(session.scalars(models.returning(ModelRow.bundle)))


def hidden_ids(session: Session) -> list[int]:
    """Return the ids of collections that are deleted and not yet removed."""
    return list(session.scalars(select(CollectionRow.id).where(~IS_THERE).order_by(CollectionRow.id)))


def remove_some(session: Session, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
    """Remove some rows of a hidden collection.

    Parameters
    ----------
    session : Session
        In a transaction that writes.
    collection_id : int
        Of one that `hide` has hidden; of others nothing is removed.
    max_rows, max_bytes : int
        Most rows, and about as many bytes of texts and features; one row is removed in any case.

    Returns
    -------
    set of str or None
        Hashes of the pictures these rows had; None when nothing is left of the collection.
    """
    # Its row is locked first, as others do who remove something of it: they would wait for each other.
    is_hidden = (CollectionRow.id == collection_id) & ~IS_THERE
    if session.scalar(select(CollectionRow.id).where(is_hidden).with_for_update()) is None:
        return None
    # What an import replaced goes before the items, or it would be readers' view of them again.
    for table, key in (
        (_replaced, (_replaced.c.import_id, _replaced.c.position)),
        (_items, (_items.c.id,)),
    ):
        is_its = table.c.collection_id == collection_id
        found = some_rows(session, table, key, is_its, max_rows, max_bytes)
        if found:
            session.execute(delete(table).where(tuple_(*key).in_([row[: len(key)] for row in found])))
            return {row.content_hash for row in found if row.content_hash is not None}
    job_id = session.scalar(select(JobRow.id).where(JobRow.collection_id == collection_id).limit(1))
    if job_id is not None:
        session.execute(delete(JobRow).where(JobRow.id == job_id))  # its events go with it
        return set()
    session.execute(delete(CollectionRow).where(is_hidden))
    return None


def some_rows(
    session: Session,
    table: Table,
    key: Sequence[ColumnElement[Any]],
    is_wanted: ColumnElement[bool],
    max_rows: int,
    max_bytes: int,
) -> list[Any]:
    """Return keys and picture hashes of as many rows as may go in one transaction.

    Parameters
    ----------
    session : Session
        Where.
    table : Table
        Of items, or of replaced ones.
    key : sequence of ColumnElement
        Columns that are returned before `content_hash` and `size`.
    is_wanted : ColumnElement
        Of which rows.
    max_rows, max_bytes : int
        Most rows, and about as many bytes of texts and features; one row is returned in any case.
    """
    sizes = (func.coalesce(func.length(table.c[name]), 0) for name in ("text", "features"))
    query = select(*key, table.c.content_hash, sum(sizes, start=func.length("")).label("size"))
    chosen: list[Any] = []
    size = 0
    for row in session.execute(query.where(is_wanted).limit(max_rows)):
        size += row.size
        if chosen and size > max_bytes:
            break
        chosen.append(row)
    return chosen
