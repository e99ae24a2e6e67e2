"""Copies of a SQLite database that is in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine

from app.db.session import SqlDatabase, make_engine
from app.domain.entities import Installation


def copy_sqlite(engine: Engine, target: Path) -> None:
    """Write a consistent copy of the database to a new file, while other processes read and write.

    Parameters
    ----------
    engine : Engine
        Engine of a SQLite database.
    target : Path
        File to create; raises FileExistsError if it exists.
    """
    target.touch(exist_ok=False)
    with closing(engine.raw_connection()) as pooled, closing(sqlite3.connect(target)) as copy:
        source = pooled.driver_connection
        assert isinstance(source, sqlite3.Connection)
        # All pages in one step: a copy in several steps starts over at every write.
        source.backup(copy)


def read_installation(file: Path) -> Installation:
    """Return the identity and history that a SQLite database has.

    Parameters
    ----------
    file : Path
        Its file.
    """
    engine = make_engine(f"sqlite:///{file.resolve()}")
    try:
        with SqlDatabase(engine).read() as work:
            return work.installation.get()
    finally:
        engine.dispose()
