"""The schema of the database: every process checks it at its start, without Alembic, which only migrating it
imports."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from app.db.session import READ_ONLY, limit_statements, translate_errors
from app.db.sqlite_file import file_of
from app.domain.errors import DatabaseUnavailableError, UnavailableError

REVISION = "0018"
"""The latest migration; their names are in the order of the alphabet."""
_WAIT_SECONDS = 60  # for another process's upgrade: the first one may have to rewrite tables
_MIGRATIONS = Path(__file__).parents[2] / "migrations"


class DatabaseSchema:
    """The schema of a SQL database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def is_empty(self, patience_seconds: float | None = None) -> bool:
        """Return whether there is no database, or one without a schema; parameters as for `is_current`."""
        return self._revision(patience_seconds) is None

    def is_current(self, patience_seconds: float | None = None) -> bool:
        """Return whether the schema is the one this code expects."""
        return self._revision(patience_seconds) == REVISION

    def is_newer(self, patience_seconds: float | None = None) -> bool:
        """Return whether a later release made the schema; parameters as for `is_current`."""
        return (self._revision(patience_seconds) or "") > REVISION

    def upgrade(self) -> None:
        """Apply every missing migration in one transaction, or create the file of SQLite; a second caller
        waits."""
        # Raises UnavailableError for a newer schema, and DatabaseUnavailableError if only a write-ahead log
        # is there. A new file would discard that log. Nothing else creates the file of a SQLite database.
        from alembic import command
        from alembic.config import Config
        from alembic.util.exc import CommandError

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        file = file_of(self._engine.url)
        if file is not None and not file.exists():
            if file.with_name(f"{file.name}-wal").exists():
                raise DatabaseUnavailableError("database-missing")
            try:
                file.touch()
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    error.errno, "no folder to make the database in", str(file)
                ) from error
        with self._engine.connect() as connection, _patient(connection), connection.begin():
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise UnavailableError(
                    "schema-outdated", f"the database cannot be brought to this schema: {error}"
                ) from error

    def _revision(self, patience_seconds: float | None) -> str | None:
        file = file_of(self._engine.url)
        if file is not None and not file.exists():
            return None
        # Read-only, so that the check waits for no writer.
        reading = self._engine.execution_options(**{READ_ONLY: True})
        with translate_errors(), reading.connect() as connection:
            if patience_seconds is not None:
                limit_statements(connection, patience_seconds)
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision: str | None = connection.execute(
                text("SELECT version_num FROM alembic_version")
            ).scalar_one_or_none()
            return revision


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
