"""The file of a SQLite database: never created by a connection, and watched while it is open.

A file that is moved away or replaced while it is open would go on accepting writes, which would be lost.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import InvalidatePoolError

from app.domain.errors import DatabaseMissingError

_FILE = "lrbs_file"


def file_of(url: URL | str) -> Path | None:
    """Return the file of a SQLite database; None for one in memory or given as a URI, and for PostgreSQL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return None if str(parsed.database).startswith("file:") else Path(str(parsed.database)).absolute()


def watch(engine: Engine, file: Path) -> None:
    """Let an engine connect only to a file that exists, and drop connections to one moved or replaced.

    Parameters
    ----------
    engine : Engine
        SQLite engine.
    file : Path
        Its database file. Connecting raises DatabaseMissingError if there is none; so does a commit if the
        file is no longer in its place, and the transaction is rolled back.
    """

    def connect(dialect: Any, record: Any, _: Any, arguments: dict[str, Any]) -> Any:
        before = _identity(file)
        connection = dialect.connect(f"file:{quote(str(file))}?mode=rw", uri=True, **arguments)
        if _identity(file) != before:
            connection.close()
            raise DatabaseMissingError
        record.info[_FILE] = before
        return connection

    def check_out(_: sqlite3.Connection, record: Any, __: Any) -> None:
        if not _is_at(file, record.info):
            raise InvalidatePoolError("the database file was replaced")

    def before_commit(connection: Connection) -> None:
        if not _is_at(file, connection.info):
            raise DatabaseMissingError

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", check_out)
    event.listen(engine, "commit", before_commit)


def _is_at(file: Path, info: Any) -> bool:
    try:
        return bool(info.get(_FILE) == _identity(file))
    except DatabaseMissingError:
        return False


def _identity(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatabaseMissingError from error
    return status.st_dev, status.st_ino
