"""Imports in SQL: stored in many short transactions, published in one."""
# Storing a long import in one transaction would block all other writers of a SQLite database for its whole
# duration. So it is stored in parts, each of a bounded number of rows and bytes:
#
# `begin` reserves the revision after the collection's own, R, in a row of `imports`. Until that row is
# published no other writer may change the items of this collection; other collections are not affected.
#
# `write` inserts new items into `items` and updates existing ones in place, with revision R; the previous
# state of an updated row goes to `replaced_items` in the same transaction. Readers see only rows up to the
# collection's revision, and the replaced rows in place of those beyond it: the complete state before the
# import (`app.db.items`). Unchanged items are left alone.
#
# `publish` sets the collection's revision to R. From that transaction on readers see the whole import, and no
# rows have to be moved: only the replaced rows remain to be removed.
#
# `clean` removes leftovers, a bounded number of rows and bytes at a time: the replaced rows of a published
# import; for an abandoned one it first restores the replaced rows and then deletes the new ones. After a
# crash it continues where it stopped: none of its transactions changes what readers see.
#
# The process that stores an import renews a lease with every part. When the lease has expired, or the process
# has abandoned the import, the next writer to the collection cleans up first; workers clean up periodically
# as well. A process that resumes too late sees from the state of the row that it no longer owns the import.

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import and_, delete, insert, literal, or_, select, update

from app.db.collections import IS_NOT_DELETED, is_there, some_rows
from app.db.items import Plan, write_plan
from app.db.models import ITEMS, REPLACED_ITEMS, CollectionRow, ImportRow
from app.db.statements import Repository, in_chunks, now
from app.domain.entities import Collection, RunningImport
from app.domain.errors import CollectionNotFoundError, DatabaseUnavailableError

_PENDING, _ABANDONED, _PUBLISHED = "pending", "abandoned", "published"
_COPIED = tuple(column.name for column in ITEMS.columns if column.name != "id")
_RESTORED = tuple(name for name in _COPIED if name not in ("collection_id", "item_id"))


class ImportRepository(Repository):
    """Imports of a collection."""

    def running(self, collection: Collection) -> RunningImport | None:
        """Return the one that keeps writers out of a collection."""
        query = select(ImportRow).where(
            ImportRow.collection_id == collection.id, ImportRow.state != _PUBLISHED
        )
        row = self._session.scalar(query.execution_options(populate_existing=True))
        return None if row is None else self._running(row)

    def begin(self, collection: Collection, import_id: str, size: int, lease_seconds: float) -> RunningImport:
        """Begin one in a locked collection that has none running, or take up the one that has this id. An
        attempt to begin it may have been stored although its answer was lost."""
        started = now(self._session)
        row = self._session.get(ImportRow, import_id, populate_existing=True)
        if row is None:
            row = ImportRow(
                id=import_id,
                collection_id=collection.id,
                revision=collection.revision + 1,
                state=_PENDING,
                size=size,
                started_at=started,
            )
            self._session.add(row)
        row.lease_expires_at = started + timedelta(seconds=lease_seconds)
        self._session.flush()
        return self._running(row)

    def write(self, running: RunningImport, planned: Plan, lease_seconds: float) -> None:
        """Write a part where no reader sees it yet, and renew the lease. CollectionNotFoundError if that is
        gone, DatabaseUnavailableError if its lease is long over and others began to remove it."""
        row = self._lock_pending(running)
        row.lease_expires_at = now(self._session) + timedelta(seconds=lease_seconds)
        for row_ids in in_chunks(planned.changed_ids):
            self._copy_rows(running, row_ids)
        write_plan(self._session, planned)

    def renew(self, running: RunningImport, lease_seconds: float) -> bool:
        """Renew the lease; return whether it is published already. Raises what `write` raises."""
        row = self._lock(running.id)
        if row is not None and row.state == _PUBLISHED:
            return True
        self._lock_pending(running).lease_expires_at = now(self._session) + timedelta(seconds=lease_seconds)
        return False

    def publish(self, running: RunningImport) -> None:
        """Let readers see all of it, in a locked collection; raises what `write` raises."""
        self._lock_pending(running).state = _PUBLISHED
        updated = self._session.execute(
            update(CollectionRow)
            .where(CollectionRow.id == running.collection_id, CollectionRow.revision == running.revision - 1)
            .values(revision=running.revision)
            .returning(CollectionRow.id)
        ).one_or_none()
        if updated is None:
            raise RuntimeError(f"the collection is not at the revision before that of import {running.id}")

    def abandon(self, running: RunningImport) -> None:
        """Give one up that is not published: what it wrote may be removed."""
        is_it = and_(ImportRow.id == running.id, ImportRow.state == _PENDING)
        self._session.execute(update(ImportRow).where(is_it).values(state=_ABANDONED))

    def clean(self, import_id: str, max_rows: int, max_bytes: int) -> bool:
        """Remove some rows of what an import left; return whether nothing remains to be removed. Of one that
        is still being stored nothing is."""
        row = self._lock(import_id)
        if row is None:
            return True
        if row.state == _PENDING:
            if row.lease_expires_at >= now(self._session):
                return True
            row.state = _ABANDONED
            self._session.flush()
        bounds = max_rows, max_bytes
        if self._clear_replaced(row, *bounds) or (row.state == _ABANDONED and self._remove_new(row, *bounds)):
            return False
        self._session.delete(row)
        self._session.flush()
        return True

    def leftover_ids(self) -> list[str]:
        """Return the ids of imports with leftovers: abandoned, silent, or published and not cleaned up after.
        One that is published is left to its own process as long as its lease lasts."""
        is_silent = ImportRow.lease_expires_at < now(self._session)
        query = select(ImportRow.id).where(or_(ImportRow.state == _ABANDONED, is_silent))
        return list(self._session.scalars(query))

    def _lock_pending(self, running: RunningImport) -> ImportRow:
        """Lock the row of an import; raises DatabaseUnavailableError if this process no longer owns it."""
        row = self._lock(running.id)
        if row is None and not is_there(self._session, running.collection_id):
            raise CollectionNotFoundError(f"number {running.collection_id}")
        if row is None or row.state != _PENDING:
            raise DatabaseUnavailableError("import-lost")
        return row

    def _lock(self, import_id: str) -> ImportRow | None:
        # The collection before the import, in the order of a deletion, to avoid a deadlock.
        owner = select(ImportRow.collection_id).where(ImportRow.id == import_id).scalar_subquery()
        collection = select(CollectionRow.id).where(CollectionRow.id == owner, IS_NOT_DELETED)
        if self._session.scalar(collection.with_for_update(read=True, key_share=True)) is None:
            return None  # a deleted collection's imports are removed with it
        query = select(ImportRow).where(ImportRow.id == import_id).with_for_update()
        return self._session.scalar(query.execution_options(populate_existing=True))

    def _copy_rows(self, running: RunningImport, row_ids: Sequence[int]) -> None:
        """Copy rows that are about to be changed to `replaced_items`."""
        names = ("import_id", "position", "replaced_at", *_COPIED)
        values = (literal(running.id), ITEMS.c.id, literal(running.revision))
        # Of a row that it changed before, its partner's place in galleries, there is a copy already.
        is_before = ITEMS.c.id.in_(row_ids) & (ITEMS.c.revision != running.revision)
        rows = select(*values, *(ITEMS.c[name] for name in _COPIED)).where(is_before)
        self._session.execute(insert(REPLACED_ITEMS).from_select(names, rows))

    def _clear_replaced(self, row: ImportRow, max_rows: int, max_bytes: int) -> bool:
        """Delete a batch of the rows that an import replaced, put back before if it is abandoned; return
        False if none are left."""
        position, is_its = REPLACED_ITEMS.c.position, REPLACED_ITEMS.c.import_id == row.id
        rows = some_rows(self._session, REPLACED_ITEMS, (position,), is_its, max_rows, max_bytes)
        is_in_batch = is_its & position.in_([replaced.position for replaced in rows])
        if rows and row.state == _ABANDONED:
            before = {name: REPLACED_ITEMS.c[name] for name in _RESTORED}
            self._session.execute(update(ITEMS).where(ITEMS.c.id == position, is_in_batch).values(before))
        if rows:
            self._session.execute(delete(REPLACED_ITEMS).where(is_in_batch))
        return bool(rows)

    def _remove_new(self, row: ImportRow, max_rows: int, max_bytes: int) -> bool:
        """Delete a batch of an abandoned import's new items, once all is undone; return False at the end."""
        is_its = and_(ITEMS.c.collection_id == row.collection_id, ITEMS.c.revision == row.revision)
        items = some_rows(self._session, ITEMS, (ITEMS.c.id,), is_its, max_rows, max_bytes)
        if items:
            self._session.execute(delete(ITEMS).where(ITEMS.c.id.in_([item.id for item in items])))
        return bool(items)

    def _running(self, row: ImportRow) -> RunningImport:
        is_abandoned = row.state == _ABANDONED or row.lease_expires_at < now(self._session)
        return RunningImport(row.id, row.collection_id, row.revision, row.size, row.started_at, is_abandoned)
