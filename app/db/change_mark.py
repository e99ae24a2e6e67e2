"""A mark of what is committed to a SQLite database, read without a transaction."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Hashable
from pathlib import Path
from urllib.parse import quote


class ChangeMark:
    """Reads SQLite's `data_version`, which every commit of another connection changes.

    The connection used for that never writes, so every commit, of whatever process, is one of another.

    Parameters
    ----------
    file : Path
        The database.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._n_connections = 0

    def read(self) -> Hashable | None:
        """Return the mark; None where the file is missing or locked."""
        with self._lock:
            try:
                status = self._file.stat()
                identity = status.st_dev, status.st_ino
                if self._connection is None or identity != self._identity:
                    self._connect(identity)
                assert self._connection is not None
                ((version,),) = self._connection.execute("PRAGMA data_version").fetchall()
            except (sqlite3.Error, OSError):
                self._close()
                return None
            # Versions of two connections have nothing to do with each other.
            return self._n_connections, version

    def close(self) -> None:
        """Close the connection; the next mark opens another."""
        with self._lock:
            self._close()

    def _connect(self, identity: tuple[int, int]) -> None:
        self._close()
        uri = f"file:{quote(str(self._file))}?mode=rw"
        # It waits for no lock: the caller goes on without a mark.
        self._connection = sqlite3.connect(
            uri, timeout=0.0, isolation_level=None, check_same_thread=False, uri=True
        )
        self._identity = identity
        self._n_connections += 1

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
