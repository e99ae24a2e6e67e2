"""Translation of database driver errors into the service's errors."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.domain.errors import PROBLEMS, DatabaseUnavailableError

_BY_SQLSTATE = {
    "53100": "storage-full",
    "25006": "storage-read-only",
    "42P01": "schema-outdated",
    "42703": "schema-outdated",
}
"""disk_full, read_only_sql_transaction, undefined_table, undefined_column."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_SPACE = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""SQLite's codes for a file that cannot grow for another reason than a full disk: a quota or a limit."""
_SCHEMA_MESSAGES = ("no such table", "no such column", "has no column named")
"""SQLite has no code of its own for these errors, only messages."""
_LONGEST_MESSAGE = 300  # characters of what a driver says; PostgreSQL quotes the statement after the reason
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
        code = _code_of(error)
        if code is None:
            raise
        is_away = code == "database-unavailable"
        problem = "unavailable" if is_away else "rejected a statement"
        # In one line, and without the statement: where the schema is missing, every one of them is rejected.
        message = " ".join(str(error.orig).split())[:_LONGEST_MESSAGE]
        _logger.warning("database %s: %s", problem, message, extra={"cause": message if is_away else code})
        raise PROBLEMS[code].family(code) from error


def _code_of(error: DBAPIError) -> str | None:
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate]
    code = getattr(error.orig, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_FULL or code in _NO_SPACE:
        return "storage-full"
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return "database-missing"
    if code & 0xFF in _DAMAGED:
        return "database-damaged"
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return "database-unopened"
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        return "storage-read-only"
    if code == sqlite3.SQLITE_ERROR and str(error.orig).startswith(_SCHEMA_MESSAGES):
        return "schema-outdated"
    return "database-unavailable" if isinstance(error, (OperationalError, InterfaceError)) else None
