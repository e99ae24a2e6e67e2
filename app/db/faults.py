"""Translation of database driver errors into the service's errors."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.domain.errors import (
    DatabaseMissingError,
    DatabaseUnavailableError,
    DatabaseUnopenedError,
    SchemaOutdatedError,
    ServiceError,
    StorageFullError,
    StorageReadOnlyError,
)

_BY_SQLSTATE: dict[str, type[ServiceError]] = {
    "53100": StorageFullError,
    "25006": StorageReadOnlyError,
    "42P01": SchemaOutdatedError,
    "42703": SchemaOutdatedError,
}
"""disk_full, read_only_sql_transaction, undefined_table, undefined_column."""
_NO_SPACE = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""SQLite's codes for a file that cannot grow for another reason than a full disk: a quota or a limit."""
_SCHEMA_MESSAGES = ("no such table", "no such column", "has no column named")
"""SQLite has no code of its own for these errors, only messages."""
_logger = logging.getLogger(__name__)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the service's errors in place of the driver's, whose messages go to the log."""
    try:
        yield
    except PoolTimeoutError as error:
        _logger.warning("database connection pool exhausted: %s", error)
        raise DatabaseUnavailableError from error
    except DBAPIError as error:
        kind = _kind_of(error)
        if kind is None:
            raise
        problem = "unavailable" if kind is DatabaseUnavailableError else "rejected a statement"
        _logger.warning("database %s: %s", problem, error)
        raise kind() from error


def _kind_of(error: DBAPIError) -> type[ServiceError] | None:
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate]
    code = getattr(error.orig, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_FULL or code in _NO_SPACE:
        return StorageFullError
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return DatabaseMissingError
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return DatabaseUnopenedError
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        return StorageReadOnlyError
    if code == sqlite3.SQLITE_ERROR and str(error.orig).startswith(_SCHEMA_MESSAGES):
        return SchemaOutdatedError
    return DatabaseUnavailableError if isinstance(error, (OperationalError, InterfaceError)) else None
