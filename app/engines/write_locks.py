"""One writer of a gallery at a time, for engines that have neither locks nor transactions."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy import Engine

from app.db.faults import translate_errors

_CLASS = 5141231
"""Distinguishes these advisory locks from others of the database."""


class WriteLocks(Protocol):
    """Locks by name."""

    def hold(self, name: str) -> AbstractContextManager[Callable[[], None]]:
        """Wait for a lock and have it; give a function that raises if the lock was lost meanwhile."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class DatabaseLocks:
    """Locks of a PostgreSQL database, which the processes of all hosts share.

    Parameters
    ----------
    engine : Engine
        Of the database. A lock takes a connection, and is free again if that is lost.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def hold(self, name: str) -> Iterator[Callable[[], None]]:
        """Wait for a lock and have it; see `WriteLocks.hold`."""
        with translate_errors(), self._engine.connect() as connection:
            connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(:class, hashtext(:name))"),
                {"class": _CLASS, "name": name},
            )

            def check() -> None:
                with translate_errors():
                    connection.execute(sa.text("SELECT 1"))

            yield check

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


class FileLocks:
    """Locks of files, which the processes of a host share.

    Parameters
    ----------
    folder : Path
        Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str) -> Iterator[Callable[[], None]]:
        """Wait for a lock and have it; see `WriteLocks.hold`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield lambda: None  # the system keeps it as long as the file is open

    def close(self) -> None:
        """Do nothing: a lock closes its file."""
