"""Whether a transaction changed any row: one that only reads does not show that the disk takes writes."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, event


class Changes:
    """Count the rows that a transaction, which has just begun, changes from now on."""

    def __init__(self, connection: Connection) -> None:
        self._rows = 0
        self._sqlite: sqlite3.Connection | None = None
        driver: Any = connection.connection.dbapi_connection
        if isinstance(driver, sqlite3.Connection):
            # SQLite's cursors know the number of changed rows only after all returned rows were fetched.
            self._sqlite, self._before = driver, driver.total_changes
        else:
            event.listen(connection, "after_cursor_execute", self._count)

    def are_made(self) -> bool:
        """Return whether a row was inserted, updated or deleted; to be called before the transaction ends."""
        if self._sqlite is not None:
            return self._sqlite.total_changes > self._before
        return self._rows > 0

    def _count(self, _: Connection, cursor: Any, __: str, ___: Any, context: Any, ____: bool) -> None:
        if context is not None and (context.isinsert or context.isupdate or context.isdelete):
            self._rows += max(cursor.rowcount, 0)
