"""Deletion of collections in SQL: hidden in one short transaction, removed in many."""
# Removing a large collection in one transaction would block all other writers of a SQLite database for its
# whole duration. So `hide` renames the collection to a name no client can choose, which frees its own name,
# and sets the time of its deletion, by which every query excludes it. Nothing writes to it from then on: a
# writer that had read its row before finds it gone when taking its lock. `remove_some` then removes a bounded
# number of rows, and the collection's own row last; after a crash it continues where it stopped.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from app.db.clock import now
from app.db.models import (
    ENCODED_CONTENTS,
    FEEDBACK,
    ITEMS,
    OPEN_STATES,
    REPLACED_ITEMS,
    CollectionRow,
    JobRow,
    ModelRow,
    SavedGalleryRow,
)

IS_NOT_DELETED: ColumnElement[bool] = CollectionRow.deleted_at.is_(None)
"""Condition that a collection is not deleted."""


def is_there(session: Session, collection_id: int) -> bool:
    """Return whether a collection with that id exists and is not deleted."""
    query = select(CollectionRow.id).where(CollectionRow.id == collection_id, IS_NOT_DELETED)
    return session.scalar(query) is not None


def hide(session: Session, collection_id: int) -> list[str] | None:
    """Hide a collection, delete its open job and its models; return the models' bundles.
    Returns None if another transaction was faster."""
    hidden = session.scalar(
        update(CollectionRow)
        .where(CollectionRow.id == collection_id, IS_NOT_DELETED)
        .values(name=f"deleted/{collection_id}", deleted_at=now(session), active_version=None)
        .returning(CollectionRow.id)
    )
    if hidden is None:
        return None
    is_open = JobRow.state.in_(OPEN_STATES)
    session.execute(delete(JobRow).where(JobRow.collection_id == collection_id, is_open))
    session.execute(delete(SavedGalleryRow).where(SavedGalleryRow.collection_id == collection_id))
    models = delete(ModelRow).where(ModelRow.collection_id == collection_id)
    return list(session.scalars(models.returning(ModelRow.bundle)))


def hidden_ids(session: Session) -> list[int]:
    """Return the ids of collections that are deleted but not completely removed yet."""
    return list(session.scalars(select(CollectionRow.id).where(~IS_NOT_DELETED).order_by(CollectionRow.id)))


def remove_some(session: Session, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
    """Remove some rows (one at least, bytes roughly) of a collection hidden by `hide`, in a writing
    transaction. Returns the hashes of their pictures; None when nothing is left."""
    # Its row is locked first, as in every transaction that removes parts of it, to avoid a deadlock.
    is_hidden = (CollectionRow.id == collection_id) & ~IS_NOT_DELETED
    if session.scalar(select(CollectionRow.id).where(is_hidden).with_for_update()) is None:
        return None
    # Replaced rows go before the items: on their own they would be what readers see in place of the items.
    for table, key in (
        (REPLACED_ITEMS, (REPLACED_ITEMS.c.import_id, REPLACED_ITEMS.c.position)),
        (ITEMS, (ITEMS.c.id,)),
        (FEEDBACK, (FEEDBACK.c.id,)),
    ):
        is_its = table.c.collection_id == collection_id
        rows = some_rows(session, table, key, is_its, max_rows, max_bytes)
        if rows:
            session.execute(delete(table).where(tuple_(*key).in_([row[: len(key)] for row in rows])))
            return {row.content_hash for row in rows if row.content_hash is not None}
    if _remove_encoded(session, collection_id, max_rows):
        return set()
    job_id = session.scalar(select(JobRow.id).where(JobRow.collection_id == collection_id).limit(1))
    if job_id is not None:
        session.execute(delete(JobRow).where(JobRow.id == job_id))  # its events go with it
        return set()
    session.execute(delete(CollectionRow).where(is_hidden))
    return None


def _remove_encoded(session: Session, collection_id: int, max_rows: int) -> bool:
    """Remove some features by other encoders; return whether there were any."""
    columns = ENCODED_CONTENTS.c
    key = (columns.modality, columns.encoding, columns.content_hash)
    is_its = columns.collection_id == collection_id
    rows = session.execute(select(*key).where(is_its).limit(max_rows)).all()
    if rows:
        values = [tuple(row) for row in rows]
        session.execute(delete(ENCODED_CONTENTS).where(is_its, tuple_(*key).in_(values)))
    return bool(rows)


def some_rows(
    session: Session,
    table: Table,
    key: Sequence[ColumnElement[Any]],
    condition: ColumnElement[bool],
    max_rows: int,
    max_bytes: int,
) -> list[Any]:
    """Return key columns, picture hash and size of as many rows as one transaction may remove (one at least,
    bytes roughly). The table is of items, of replaced items, or of feedback."""
    sizes = (func.coalesce(func.length(table.c[name]), 0) for name in ("text", "features"))
    query = select(*key, table.c.content_hash, sum(sizes, start=func.length("")).label("size"))
    chosen: list[Any] = []
    size = 0
    for row in session.execute(query.where(condition).limit(max_rows)):
        size += row.size
        if chosen and size > max_bytes:
            break
        chosen.append(row)
    return chosen
