"""Copies of a database: a SQLite file of the same schema, whichever database it is made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, Table, create_engine, delete, insert, select, text

from app.db.models import Base, CallCountsRow, InstallationRow
from app.db.schema import DatabaseSchema
from app.db.session import READ_ONLY, Database, make_engine, translate_errors
from app.domain.entities import Installation

_ROWS = 500  # rows in memory at the same time: with long texts and features some ten megabytes
_INSTALLATION: Table = Base.metadata.tables[InstallationRow.__tablename__]
_KEPT = [table for table in Base.metadata.sorted_tables if table.name != CallCountsRow.__tablename__]
"""What is worth a copy: counts of calls are over after a minute."""


@dataclass(eq=False)
class DatabaseCopies:
    """Copies of a SQL database; a copy of SQLite has its file of that name."""

    _engine: Engine
    _file_name: str

    def write(self, folder: Path) -> Installation:
        """Write a consistent copy into a folder while others read and write; return what the copy says."""
        file = folder / self._file_name
        if self._engine.dialect.name == "sqlite":
            copy_sqlite(self._engine, file)
        else:
            copy = make_engine(f"sqlite:///{file.resolve()}")
            try:
                DatabaseSchema(copy).upgrade()
                _copy_rows(self._engine, copy)
            finally:
                copy.dispose()
        return self._installation(file)

    def read(self, folder: Path) -> Installation | None:
        """Return what the copy in a folder says of itself; None without one of the current schema."""
        file = folder / self._file_name
        if not file.is_file():
            return None
        with _open_copy(file) as copy:
            if not DatabaseSchema(copy).is_current():
                return None
        return self._installation(file)

    def is_unused(self) -> bool:
        """Return whether the database, which has the current schema, holds nothing yet."""
        with translate_errors(), self._engine.connect() as connection:
            return all(
                connection.execute(select(table).limit(1)).first() is None
                for table in _KEPT
                if table is not _INSTALLATION
            )

    def restore(self, folder: Path) -> None:
        """Fill the database, which must be unused, with the copy in a folder, in one transaction."""
        with _open_copy(folder / self._file_name) as copy:
            _copy_rows(copy, self._engine)

    @staticmethod
    def _installation(file: Path) -> Installation:
        with _open_copy(file) as copy, Database(copy).read() as work:
            return work.installation.get()


@contextmanager
def _open_copy(file: Path) -> Iterator[Engine]:
    """Open a copy for reading, also where nothing can be written; one that was served may have a log."""
    if file.with_name(f"{file.name}-wal").exists():
        engine = make_engine(f"sqlite:///{file.resolve()}")
    else:
        unchanged = f"{file.resolve().as_uri()}?immutable=1"
        engine = create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(unchanged, uri=True), poolclass=NullPool
        )
    try:
        yield engine
    finally:
        engine.dispose()


def copy_sqlite(engine: Engine, target: Path) -> None:
    """Write a consistent copy of a SQLite database to a new file, while other processes read and write.
    Raises FileExistsError."""
    target.touch(exist_ok=False)
    with closing(engine.raw_connection()) as pooled, closing(sqlite3.connect(target)) as copy:
        source = pooled.driver_connection
        assert isinstance(source, sqlite3.Connection)
        # All pages in one step: a copy in several steps starts over at every write.
        source.backup(copy)


def _copy_rows(source: Engine, target: Engine) -> None:
    """Copy one consistent state into a database of the same schema without rows, in one transaction."""
    options = {READ_ONLY: True, "stream_results": True, "yield_per": _ROWS}
    if source.dialect.name == "postgresql":
        source = source.execution_options(isolation_level="REPEATABLE READ")
    with (
        translate_errors(),
        source.execution_options(**options).connect() as reading,
        target.begin() as writing,
    ):
        writing.execute(delete(_INSTALLATION))
        for table in _KEPT:
            for rows in reading.execute(select(table)).mappings().partitions():
                writing.execute(insert(table), [dict(row) for row in rows])
            if table.autoincrement_column is not None:
                _number_from(writing, table, _last_number(reading, table))


def _last_number(connection: Connection, table: Table) -> int:
    """Return the highest number that a table gave to a row, also to one that was deleted since."""
    if connection.dialect.name == "postgresql":
        query = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}"
        name = connection.scalar(text("SELECT pg_get_serial_sequence(:table, 'id')"), {"table": table.name})
        return int(connection.scalar(text(query.format(name))) or 0)
    if table.dialect_options["sqlite"]["autoincrement"]:
        query = "SELECT seq FROM sqlite_sequence WHERE name = :table"
        return int(connection.scalar(text(query), {"table": table.name}) or 0)
    return int(connection.scalar(text(f"SELECT max(id) FROM {table.name}")) or 0)


def _number_from(connection: Connection, table: Table, last: int) -> None:
    """Let a table number its next row after `last`."""
    if connection.dialect.name == "postgresql":
        query = "SELECT setval(pg_get_serial_sequence(:table, 'id'), greatest(:last, 1), :last > 0)"
        connection.execute(text(query), {"table": table.name, "last": last})
    elif table.dialect_options["sqlite"]["autoincrement"] and last:
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table.name})
        query = "INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"
        connection.execute(text(query), {"table": table.name, "last": last})
