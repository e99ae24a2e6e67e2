"""What engines have in common: names of galleries, maps as bytes, when rows are few, one writer at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from app.db.session import translate_errors
from app.domain.errors import VectorEngineUnavailableError
from app.domain.ports import GalleryKey, NewGallery
from app.index import Balance

BEHIND = "its gallery is being made again: try again"
"""Why changes since a revision are of no use."""
BUSY = "another process is making or writing its galleries: try again"
"""Why a caller gets no lock."""
LARGEST_RANK_OF_A_GRAPH = 2000
"""pgvector's bound on what HNSW takes; rows of more numbers are compared one by one."""
ROWS_COMPARED = 5000
"""A gallery of fewer rows is compared one by one: some milliseconds."""
REVISIONS_BETWEEN_COUNTS = 100
"""A gallery that is large is taken to be so for that long; if it is not, a search compares its rows."""
LOCK_NOT_AVAILABLE = "55P03"
"""SQLSTATE of a lock that was not free in time."""
_CLASS = 5141231  # distinguishes these advisory locks from others of the database
_LOOK_SECONDS = 0.01  # how often somebody who waits for a lock of a file looks whether it is free


def name_of(key: GalleryKey) -> str:
    """Return the name of a gallery: letters, digits and ``_``."""
    digest = sha256(f"{key.bundle}\0{key.modality}".encode()).hexdigest()[:16]
    return f"gallery_{key.collection_id}_{digest}"


def pack_balance(balance: Balance) -> bytes:
    """Return maps as bytes."""
    return np.concatenate([balance.mean[None], balance.row_map, balance.query_map]).astype("<f4").tobytes()


def unpack_balance(data: bytes) -> Balance:
    """Return the maps of `pack_balance`."""
    values = np.frombuffer(data, "<f4")
    rank = int((np.sqrt(8 * len(values) + 1) - 1) / 4)
    rows = values.reshape(2 * rank + 1, rank)
    return Balance(rows[0], rows[1 : rank + 1], rows[rank + 1 :])


def balance_of(new: NewGallery) -> Balance | None:
    """Return the maps of a gallery, None if it has no graph; of an empty one they change nothing."""
    rank = new.vectors.shape[1]
    if rank > LARGEST_RANK_OF_A_GRAPH:
        return None
    if len(new.vectors):
        return Balance.between(new.vectors, new.queries)
    return Balance(np.zeros(rank, np.float32), np.eye(rank, dtype=np.float32), np.eye(rank, dtype=np.float32))


HoldLock = Callable[[str], AbstractContextManager[Callable[[], None]]]
"""Waits for a lock of a name and has it for the time of a block; gives a function that raises if the lock was
lost meanwhile. Raises VectorEngineUnavailableError if it is not free in time."""


@contextmanager
def lock_in_database(engine: Engine, name: str) -> Iterator[Callable[[], None]]:
    """Have a lock of a PostgreSQL database, which the processes of all hosts share, as of `HoldLock`; the
    engine says how long to wait. It takes a connection, and is free again if that is lost."""
    with translate_errors(), engine.connect() as connection:
        lock = sa.text("SELECT pg_advisory_xact_lock(:class, hashtext(:name))")
        # The server would take a lock from who writes elsewhere meanwhile, as it would seem to be idle.
        connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        try:
            connection.execute(lock, {"class": _CLASS, "name": name})
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            raise VectorEngineUnavailableError(BUSY) from error

        def check() -> None:
            with translate_errors():
                connection.execute(sa.text("SELECT 1"))

        yield check


@contextmanager
def lock_file(folder: Path, patience_seconds: float, name: str) -> Iterator[Callable[[], None]]:
    """Have a lock of a file, which the processes of a host share, as of `HoldLock`; the file is there as long
    as its lock is held."""
    folder.mkdir(parents=True, exist_ok=True)
    path, deadline = folder / f"{name}.lock", time.monotonic() + patience_seconds
    while (file := _try_to_lock(path)) is None:
        if time.monotonic() > deadline:
            raise VectorEngineUnavailableError(BUSY)
        time.sleep(_LOOK_SECONDS)
    with file:
        try:
            yield lambda: None  # the system keeps it as long as the file is open
        finally:
            path.unlink(missing_ok=True)


def _try_to_lock(path: Path) -> IO[str] | None:
    """Return the file with its lock; None if somebody else has it, or has just removed the file."""
    with ExitStack() as unless_locked:
        file = unless_locked.enter_context(path.open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            return None
        if is_there:
            unless_locked.pop_all()
        return file if is_there else None
