"""Exclusive writing to the items of a collection, and never while an import is stored there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Counts, Item, RunningImport
from app.domain.errors import CollectionNotFoundError, UnavailableError
from app.services.storage.pacing import BYTES_PER_STEP, ROWS_PER_STEP, Round

_POLL_SECONDS = 0.05


def lock_collection(work: UnitOfWork, collection: Collection) -> Collection:
    """Lock a collection against other writers and return its current state.
    Raises CollectionNotFoundError if it was deleted, even if another one has its name now."""
    current = work.collections.lock(collection.name)
    if current.id != collection.id:
        raise CollectionNotFoundError(collection.name)
    return current


def put_items(work: UnitOfWork, current: Collection, items: Sequence[Item]) -> tuple[Counts, int]:
    """Store items of a locked collection; return what was done, and the revision since: the same if that is
    nothing."""
    counts = work.items.put(current, items, current.revision + 1)
    return counts, work.collections.next_revision(current) if counts.changed else current.revision


@contextmanager
def writing(
    database: Database,
    collection: Collection,
    wait_seconds: float,
    own_id: str | None = None,
    key_id: str | None = None,
) -> Iterator[tuple[UnitOfWork, Collection]]:
    """Yield a transaction that may change a collection's items, and its state, after removing what an
    interrupted import left."""
    # Raises CollectionNotFoundError if it was deleted, and UnavailableError if an import is stored for
    # longer than `wait_seconds`, but for an attempt before of the caller's own (`own_id`) while its lease
    # lasts. The next search of the key that writes (`key_id`) finds the collection as it is at the end of the
    # transaction.
    time_left = Round(wait_seconds)
    while True:
        with database.write() as work:
            current = lock_collection(work, collection)
            running = work.imports.running(current)
            if running is None or (running.id == own_id and not running.is_abandoned):
                yield work, current
                if key_id is not None:
                    work.collections.note_write(current, key_id)
                return
        _wait(database, current, running, time_left)


def clean_up(database: Database, import_id: str, time_left: Round) -> bool:
    """Remove the leftovers of an import in short transactions, not those of one that is being stored; return
    whether none remain."""

    def clean_some() -> bool:
        with database.write() as work:
            return work.imports.clean(import_id, ROWS_PER_STEP, BYTES_PER_STEP)

    return time_left.finish(clean_some)


def _wait(database: Database, collection: Collection, running: RunningImport, time_left: Round) -> None:
    """Wait until an import may have ended; raises UnavailableError at the end of the time."""
    current: RunningImport | None = running
    while current is not None and current.id == running.id:
        if current.is_abandoned and clean_up(database, current.id, time_left):
            return
        if time_left.is_over:
            with database.read() as work:
                seconds = (work.now() - current.started_at).total_seconds()
            raise UnavailableError(
                "import-running",
                f"an import of {current.size} items is being stored into {collection.name!r}, since "
                f"{seconds:.0f} s: try again when it is done",
            )
        time.sleep(_POLL_SECONDS)
        with database.read() as work:
            current = work.imports.running(collection)
