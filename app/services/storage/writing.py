"""Writing to the items of a collection: one at a time, and not while an import is stored there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from app.domain.entities import Collection, RunningImport
from app.domain.errors import CollectionNotFoundError, ImportRunningError
from app.domain.ports import Database, UnitOfWork
from app.services.storage.rounds import Round

_ROWS_PER_CLEANING = 500
_BYTES_PER_CLEANING = 4 << 20
_POLL_SECONDS = 0.05


def locked(work: UnitOfWork, collection: Collection) -> Collection:
    """Keep other writers out and return the collection as it is now.

    Raises
    ------
    CollectionNotFoundError
        If it is gone, also when another one has its name by now.
    """
    found = work.collections.lock(collection.name)
    if found.id != collection.id:
        raise CollectionNotFoundError(collection.name)
    return found


@contextmanager
def writing(
    database: Database, collection: Collection, wait_seconds: float, own_id: str | None = None
) -> Iterator[tuple[UnitOfWork, Collection]]:
    """Open a transaction that may change a collection's items, and return the collection as it is in it.

    What an import that was cut off has left is removed first.

    Parameters
    ----------
    database : Database
        Where.
    collection : Collection
        As it was read before.
    wait_seconds : float
        How long to wait for an import that is being stored.
    own_id : str, optional
        Of an import that is not waited for while its lease lasts: an earlier attempt of the caller's.

    Raises
    ------
    CollectionNotFoundError
        If it is gone.
    ImportRunningError
        If an import is still being stored.
    """
    time_left = Round(wait_seconds)
    while True:
        with database.write() as work:
            current = locked(work, collection)
            running = work.imports.running(current)
            if running is None or (running.id == own_id and not running.is_abandoned):
                yield work, current
                return
        _wait(database, current, running, time_left)


def clean_up(database: Database, import_id: str, time_left: Round) -> bool:
    """Remove what an import left, in short transactions; return whether nothing remains to be removed.

    Parameters
    ----------
    database : Database
        Where.
    import_id : str
        Nothing is removed of one that is still being stored.
    time_left : Round
        Each step is a transaction.
    """
    while True:
        with database.write() as work:
            if work.imports.clean(import_id, _ROWS_PER_CLEANING, _BYTES_PER_CLEANING):
                return True
        if not time_left.goes_on():
            return False


def _wait(database: Database, collection: Collection, running: RunningImport, time_left: Round) -> None:
    """Return when an import may be over; raises ImportRunningError when the time is."""
    found: RunningImport | None = running
    while found is not None and found.id == running.id:
        if found.is_abandoned and clean_up(database, found.id, time_left):
            return
        if time_left.is_over:
            seconds = (datetime.now(UTC) - found.started_at).total_seconds()
            raise ImportRunningError(collection.name, found.size, seconds)
        time.sleep(_POLL_SECONDS)
        with database.read() as work:
            found = work.imports.running(collection)
