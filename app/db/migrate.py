"""Migrating a database to the current schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine

from app.db.sqlite_file import file_of
from app.domain.errors import DatabaseUnavailableError, UnavailableError

_WAIT_SECONDS = 60  # for another process's upgrade: the first one may have to rewrite tables
_MIGRATIONS = Path(__file__).parents[2] / "migrations"


def upgrade(engine: Engine) -> None:
    """Apply every missing migration in one transaction, or create the file of SQLite; a second caller
    waits."""
    # Raises UnavailableError for a newer schema, and DatabaseUnavailableError if only a write-ahead log is
    # there. A new file would discard that log. Nothing else creates the file of a SQLite database.
    config = _config()
    file = file_of(engine.url)
    if file is not None and not file.exists():
        if file.with_name(f"{file.name}-wal").exists():
            raise DatabaseUnavailableError("database-missing")
        try:
            file.touch()
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, "no folder to make the database in", str(file)) from error
    with engine.connect() as connection, _patient(connection), connection.begin():
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise UnavailableError(
                "schema-outdated", f"the database cannot be brought to this schema: {error}"
            ) from error


@contextmanager
def _patient(connection: Connection) -> Iterator[None]:
    """Let a second upgrade wait longer for the first one than ordinary writes wait for each other.
    On PostgreSQL the migration environment does so, within its transaction."""
    raw = connection.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        yield
        return
    (usual,) = raw.execute("PRAGMA busy_timeout").fetchone()
    raw.execute(f"PRAGMA busy_timeout = {_WAIT_SECONDS * 1000}")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {int(usual)}")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config
