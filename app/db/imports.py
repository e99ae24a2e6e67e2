"""Imports in SQL: stored in many short transactions, seen all at once.

Storing a long import in one transaction would keep every other writer out of a SQLite database for as long as
it takes. So it is stored in parts, each of a bounded number of rows and bytes:

* `begin` reserves the revision after the collection's own, R, in a row of `imports`. As long as that row is
  not published no other writer may change the collection's items; those of other collections are free.
* `write` inserts new items into `items`, and changes others there in place, with revision R; what a changed
  row was before goes to `replaced_items` in the same transaction. Readers see rows up to the collection's
  revision only, and the replaced ones in place of those beyond it: the state before the import, whole
  (`app.db.published`). An item that is the same already is left alone.
* `publish` sets the collection's revision to R. From that transaction on readers see all of the import, and
  nothing has to be moved: only the replaced rows are left to remove.
* `clean` removes what is left, a bounded number of rows and bytes at a time: replaced rows of a published
  import; of one that was abandoned it first puts the replaced rows back and then deletes the new ones. It
  goes on after a crash wherever it was: each of its transactions leaves what readers see as it is.

The process that stores an import renews a lease with every part. When the lease has run out, or the process
gave the import up, whoever wants to write to the collection cleans up first, and a worker does so now and
then; the state of the row tells a process that comes back too late that its import is no longer its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Table, and_, delete, insert, literal, or_, select, update
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.clock import now
from app.db.deletions import IS_THERE, is_there, some_rows
from app.db.item_writes import Plan, plan_items, write_plan
from app.db.models import CollectionRow, ImportRow, ItemRow, ReplacedItemRow
from app.domain.entities import Collection, Item, RunningImport
from app.domain.errors import CollectionNotFoundError, ImportLostError
from app.domain.ports import ImportRepository, PlannedWrite

_PENDING, _ABANDONED, _PUBLISHED = "pending", "abandoned", "published"
_IDS_PER_QUERY = 500
_items: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_replaced: Table = ItemRow.metadata.tables[ReplacedItemRow.__tablename__]
_KEPT = tuple(column.name for column in _items.columns if column.name != "id")
_RESTORED = tuple(name for name in _KEPT if name not in ("collection_id", "item_id"))


class SqlImportRepository(ImportRepository):
    """Imports of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def running(self, collection: Collection) -> RunningImport | None:
        query = select(ImportRow).where(
            ImportRow.collection_id == collection.id, ImportRow.state != _PUBLISHED
        )
        row = self._session.scalar(query.execution_options(populate_existing=True))
        return None if row is None else self._running(row)

    @override
    def begin(self, collection: Collection, import_id: str, size: int, lease_seconds: float) -> RunningImport:
        began = now(self._session)
        row = self._session.get(ImportRow, import_id, populate_existing=True)
        if row is None:
            row = ImportRow(
                id=import_id,
                collection_id=collection.id,
                revision=collection.revision + 1,
                state=_PENDING,
                size=size,
                started_at=began,
            )
            self._session.add(row)
        row.lease_expires_at = began + timedelta(seconds=lease_seconds)
        self._session.flush()
        return self._running(row)

    @override
    def plan(self, collection: Collection, items: Sequence[Item], revision: int) -> PlannedWrite:
        return plan_items(self._session, collection, items, revision)

    @override
    def write(self, running: RunningImport, planned: PlannedWrite, lease_seconds: float) -> None:
        if not isinstance(planned, Plan):
            raise TypeError(f"expected what `plan` returned, got {type(planned).__name__}")
        row = self._held(running)
        row.lease_expires_at = now(self._session) + timedelta(seconds=lease_seconds)
        changed = planned.changed_ids
        for start in range(0, len(changed), _IDS_PER_QUERY):
            self._keep(running, changed[start : start + _IDS_PER_QUERY])
        write_plan(self._session, planned)

    @override
    def renew(self, running: RunningImport, lease_seconds: float) -> bool:
        row = self._locked(running.id)
        if row is not None and row.state == _PUBLISHED:
            return True
        self._held(running).lease_expires_at = now(self._session) + timedelta(seconds=lease_seconds)
        return False

    @override
    def publish(self, running: RunningImport) -> None:
        self._held(running).state = _PUBLISHED
        reached = self._session.execute(
            update(CollectionRow)
            .where(CollectionRow.id == running.collection_id, CollectionRow.revision == running.revision - 1)
            .values(revision=running.revision)
            .returning(CollectionRow.id)
        ).one_or_none()
        if reached is None:
            raise RuntimeError(f"the collection is not at the revision before that of import {running.id}")

    @override
    def abandon(self, running: RunningImport) -> None:
        is_it = and_(ImportRow.id == running.id, ImportRow.state == _PENDING)
        self._session.execute(update(ImportRow).where(is_it).values(state=_ABANDONED))

    @override
    def clean(self, import_id: str, max_rows: int, max_bytes: int) -> bool:
        row = self._locked(import_id)
        if row is None:
            return True
        if row.state == _PENDING:
            if row.lease_expires_at >= now(self._session):
                return True
            row.state = _ABANDONED
            self._session.flush()
        bounds = max_rows, max_bytes
        if row.state == _ABANDONED and (self._put_back(row, *bounds) or self._remove_new(row, *bounds)):
            return False
        if row.state == _PUBLISHED and self._forget_replaced(row, *bounds):
            return False
        self._session.delete(row)
        self._session.flush()
        return True

    @override
    def finished(self) -> list[str]:
        is_silent = ImportRow.lease_expires_at < now(self._session)
        query = select(ImportRow.id).where(or_(ImportRow.state == _ABANDONED, is_silent))
        return list(self._session.scalars(query))

    def _held(self, running: RunningImport) -> ImportRow:
        row = self._locked(running.id)
        if row is None and not is_there(self._session, running.collection_id):
            raise CollectionNotFoundError(f"number {running.collection_id}")
        if row is None or row.state != _PENDING:
            raise ImportLostError
        return row

    def _locked(self, import_id: str) -> ImportRow | None:
        # The collection before the import, as its deletion goes, or the two would wait for each other.
        owner = select(ImportRow.collection_id).where(ImportRow.id == import_id).scalar_subquery()
        collection = select(CollectionRow.id).where(CollectionRow.id == owner, IS_THERE)
        if self._session.scalar(collection.with_for_update(read=True, key_share=True)) is None:
            return None  # a deleted collection's imports are removed with it
        query = select(ImportRow).where(ImportRow.id == import_id).with_for_update()
        return self._session.scalar(query.execution_options(populate_existing=True))

    def _keep(self, running: RunningImport, row_ids: Sequence[int]) -> None:
        """Copy rows that are about to be changed."""
        names = ("import_id", "position", "replaced_at", *_KEPT)
        values = (literal(running.id), _items.c.id, literal(running.revision))
        rows = select(*values, *(_items.c[name] for name in _KEPT)).where(_items.c.id.in_(row_ids))
        self._session.execute(insert(_replaced).from_select(names, rows))

    def _put_back(self, row: ImportRow, max_rows: int, max_bytes: int) -> bool:
        """Undo some changes of an abandoned import; return False when all are undone."""
        positions = self._replaced_by(row, max_rows, max_bytes)
        is_kept = and_(_replaced.c.import_id == row.id, _replaced.c.position.in_(positions))
        if positions:
            before = {name: _replaced.c[name] for name in _RESTORED}
            self._session.execute(
                update(_items).where(_items.c.id == _replaced.c.position, is_kept).values(before)
            )
            self._session.execute(delete(_replaced).where(is_kept))
        return bool(positions)

    def _remove_new(self, row: ImportRow, max_rows: int, max_bytes: int) -> bool:
        """Delete some new items of an abandoned import whose changes are undone; return False at the end."""
        is_its = and_(_items.c.collection_id == row.collection_id, _items.c.revision == row.revision)
        found = some_rows(self._session, _items, (_items.c.id,), is_its, max_rows, max_bytes)
        if found:
            self._session.execute(delete(_items).where(_items.c.id.in_([each.id for each in found])))
        return bool(found)

    def _forget_replaced(self, row: ImportRow, max_rows: int, max_bytes: int) -> bool:
        """Forget some of what a published import replaced; return False at the end."""
        positions = self._replaced_by(row, max_rows, max_bytes)
        if positions:
            is_its = and_(_replaced.c.import_id == row.id, _replaced.c.position.in_(positions))
            self._session.execute(delete(_replaced).where(is_its))
        return bool(positions)

    def _replaced_by(self, row: ImportRow, max_rows: int, max_bytes: int) -> list[int]:
        key, is_its = (_replaced.c.position,), _replaced.c.import_id == row.id
        found = some_rows(self._session, _replaced, key, is_its, max_rows, max_bytes)
        return [each.position for each in found]

    def _running(self, row: ImportRow) -> RunningImport:
        is_abandoned = row.state == _ABANDONED or row.lease_expires_at < now(self._session)
        return RunningImport(row.id, row.collection_id, row.revision, row.size, row.started_at, is_abandoned)
