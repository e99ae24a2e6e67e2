"""Exclusive writing to the items of a collection, and never while an import is stored there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.entities import Collection, RunningImport
from app.domain.errors import CollectionNotFoundError, ImportRunningError
from app.domain.ports import Database, UnitOfWork
from app.services.storage.rounds import BYTES_PER_STEP, ROWS_PER_STEP, Round

_POLL_SECONDS = 0.05


def lock_collection(work: UnitOfWork, collection: Collection) -> Collection:
    """Lock a collection against other writers and return its current state.

    Raises
    ------
    CollectionNotFoundError
        If it was deleted, even if another one has its name now.
    """
    current = work.collections.lock(collection.name)
    if current.id != collection.id:
        raise CollectionNotFoundError(collection.name)
    return current


@contextmanager
def writing(
    database: Database, collection: Collection, wait_seconds: float, own_id: str | None = None
) -> Iterator[tuple[UnitOfWork, Collection]]:
    """Open a transaction that may change a collection's items; yields it with the collection's state.

    Leftovers of an interrupted import are removed first.

    Parameters
    ----------
    database : Database
        The database.
    collection : Collection
        As read earlier.
    wait_seconds : float
        Longest wait for an import that is being stored.
    own_id : str, optional
        Id of an earlier attempt of the caller's import, which is not waited for while its lease lasts.

    Raises
    ------
    CollectionNotFoundError
        If it was deleted.
    ImportRunningError
        If an import is still being stored.
    """
    time_left = Round(wait_seconds)
    while True:
        with database.write() as work:
            current = lock_collection(work, collection)
            running = work.imports.running(current)
            if running is None or (running.id == own_id and not running.is_abandoned):
                yield work, current
                return
        _wait(database, current, running, time_left)


def clean_up(database: Database, import_id: str, time_left: Round) -> bool:
    """Remove the leftovers of an import in short transactions; return whether none remain.

    Parameters
    ----------
    database : Database
        The database.
    import_id : str
        An import that is still being stored is left alone.
    time_left : Round
        Each step is a transaction.
    """

    def clean_some() -> bool:
        with database.write() as work:
            return work.imports.clean(import_id, ROWS_PER_STEP, BYTES_PER_STEP)

    return time_left.finish(clean_some)


def _wait(database: Database, collection: Collection, running: RunningImport, time_left: Round) -> None:
    """Wait until an import may have ended; raises ImportRunningError at the end of the time."""
    current: RunningImport | None = running
    while current is not None and current.id == running.id:
        if current.is_abandoned and clean_up(database, current.id, time_left):
            return
        if time_left.is_over:
            with database.read() as work:
                seconds = (work.now() - current.started_at).total_seconds()
            raise ImportRunningError(collection.name, current.size, seconds)
        time.sleep(_POLL_SECONDS)
        with database.read() as work:
            current = work.imports.running(collection)
