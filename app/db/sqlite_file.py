"""The file of a SQLite database: never made by a mere connection, and watched while it is open.

A file that is moved away or replaced while it is open would keep taking writes that are lost.
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
    """Return the file of a SQLite database; None where it is no file, or another database."""
    found = make_url(url)
    if found.get_backend_name() != "sqlite" or found.database in (None, "", ":memory:"):
        return None
    return None if str(found.database).startswith("file:") else Path(str(found.database)).absolute()


def watch(engine: Engine, file: Path) -> None:
    """Have an engine connect to a file that is there only, and leave one that was moved or replaced.

    Parameters
    ----------
    engine : Engine
        Of SQLite.
    file : Path
        Its file. DatabaseMissingError is raised by whoever connects while there is none, and by a commit
        to one that is no longer at its place: what was written is then rolled back.
    """

    def connect(dialect: Any, record: Any, _: Any, arguments: dict[str, Any]) -> Any:
        before = _identity(file)
        made = dialect.connect(f"file:{quote(str(file))}?mode=rw", uri=True, **arguments)
        if _identity(file) != before:
            made.close()
            raise DatabaseMissingError
        record.info[_FILE] = before
        return made

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
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatabaseMissingError from error
    return found.st_dev, found.st_ino
