"""What the drivers' errors are in the domain's words."""

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

_OF_SQLSTATE: dict[str, type[ServiceError]] = {
    "53100": StorageFullError,
    "25006": StorageReadOnlyError,
    "42P01": SchemaOutdatedError,
    "42703": SchemaOutdatedError,
}
"""disk_full, read_only_sql_transaction, undefined_table, undefined_column."""
_NO_SPACE = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What SQLite says of a file that cannot grow for another reason than a full disk: a quota or a limit."""
_NO_SUCH = ("no such table", "no such column", "has no column named")
_logger = logging.getLogger(__name__)


@contextmanager
def translated() -> Iterator[None]:
    """Say in the domain's words what is wrong with the database; the driver's words stand in the log."""
    try:
        yield
    except PoolTimeoutError as error:
        _logger.warning("no connection to the database was free: %s", error)
        raise DatabaseUnavailableError from error
    except DBAPIError as error:
        kind = _kind_of(error)
        if kind is None:
            raise
        what = "does not answer" if kind is DatabaseUnavailableError else "refuses"
        _logger.warning("the database %s: %s", what, error)
        raise kind() from error


def _kind_of(error: DBAPIError) -> type[ServiceError] | None:
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _OF_SQLSTATE:
        return _OF_SQLSTATE[sqlstate]
    code = getattr(error.orig, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_FULL or code in _NO_SPACE:
        return StorageFullError
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return DatabaseMissingError
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return DatabaseUnopenedError
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        return StorageReadOnlyError
    if code == sqlite3.SQLITE_ERROR and str(error.orig).startswith(_NO_SUCH):
        return SchemaOutdatedError
    return DatabaseUnavailableError if isinstance(error, (OperationalError, InterfaceError)) else None
