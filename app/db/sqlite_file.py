"""The file of a SQLite database: never created by a connection, and watched while it is open."""
# A file that is moved away or replaced while it is open would go on accepting writes, which would be lost;
# and the log of the file before (``-wal``) would be taken for that of its successor.

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import InvalidatePoolError

from app.domain.errors import DatabaseUnavailableError

_GENERATION = "lrbs_generation"
_WATCH = "lrbs_watch"
_HEAD_BYTES = 1 << 20  # of the file, by which an older copy differs: its first pages change with every write
_LOG_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24
"""Of the log, and of each page in it."""
_INDEX_BYTES = 136
"""Head of the file ``-shm``: the state of the log, and how much of it was copied into the database."""
_SETTLED_SECONDS = 0.2  # without a further change, until a file counts as copied to its end
_MOMENT_SECONDS = 0.05  # between two looks at the log and its index, where only a mark is asked for
_KEPT_OPEN: dict[tuple[int, int], int] = {}
"""Descriptors by file. Closing one would release the locks that SQLite holds on the file in this process."""
_logger = logging.getLogger(__name__)
_Id = tuple[int, int]


def file_of(url: URL | str) -> Path | None:
    """Return the file of a SQLite database; None for one in memory or given as a URI, and for PostgreSQL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return None if str(parsed.database).startswith("file:") else Path(str(parsed.database)).absolute()


@dataclass(frozen=True, slots=True)
class _State:
    """What shows whether a database was changed by anything but SQLite; of files device and number, None
    where missing."""

    file: _Id
    log: _Id | None
    index: _Id | None  # of the log
    stamp: tuple[int, int]  # time of the last change of the database, and its size
    # how much of which log was copied into the database, and was to be: only that changes it
    copied: tuple[bytes, int, int] | None
    is_log_cut: bool  # the log is shorter than its index says

    @property
    def is_being_copied(self) -> bool:
        """Whether SQLite changes the database at this moment."""
        return self.copied is not None and self.copied[1] != self.copied[2]


class SqliteFile:
    """Watches the file of a SQLite database, with a connection of its own that never writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log, self._index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
        self._lock = threading.RLock()
        self._state: _State | None = None
        self._head = b""
        self._guard: sqlite3.Connection | None = None
        self._generation = self._n_guards = 0
        self._is_damaged = False
        self._seen_at = 0.0
        self._unsettled: tuple[tuple[int, int], float] | None = None

    @classmethod
    def watched_by(cls, engine: Engine) -> SqliteFile | None:
        """Return what `watch` made for an engine."""
        watch: SqliteFile | None = engine.get_execution_options().get(_WATCH)
        return watch

    def generation(self) -> int:
        """Return how often the file was replaced meanwhile; connections of earlier generations are void."""
        # Raises DatabaseUnavailableError if it is missing, also while one is copied into its place, or if it
        # was overwritten.
        with self._lock:
            number = self._find_generation(may_replace=True)
            assert number is not None
            return number

    def mark(self) -> Hashable | None:
        """Return a mark that every commit of any process changes; None where the file is locked or gone, or
        was just replaced. It is SQLite's `data_version`, which every commit of another connection changes."""
        # An event loop asks: it waits for no copy of a large file.
        if not self._lock.acquire(timeout=_MOMENT_SECONDS):
            return None
        try:
            seen = self._was_just_seen()
            generation = self._generation if seen else self._find_generation(may_replace=False)
            if generation is None:
                return None
            if self._guard is None:
                self._open_guard()
            assert self._guard is not None
            ((version,),) = self._guard.execute("PRAGMA data_version").fetchall()
        except (sqlite3.Error, OSError, DatabaseUnavailableError):
            return None
        finally:
            self._lock.release()
        # Versions of two connections have nothing to do with each other.
        return generation, self._n_guards, version

    def close(self) -> None:
        """Close the connection; the next look opens another, and knows nothing of the time before."""
        with self._lock:
            self._state = None
            self._close_guard()

    def _find_generation(self, may_replace: bool) -> int | None:
        """Return the generation, under the lock; None where the file was replaced and that is not to be dealt
        with."""
        state = self._look()
        before, self._state = self._state, state
        if before is None:
            self._note_head()
            self._open_guard()
            self._state = self._look()
        elif self._guard is not None and (state.file, None) == (before.file, before.log) and state.log:
            with contextlib.suppress(sqlite3.Error):
                _hold(self._guard)  # the database has a log only now
        elif (state != before or state.is_log_cut) and (
            change := self._find_change(before, state)
        ) is not None:
            self._state, self._seen_at = before, 0.0  # until all is done
            if not may_replace:
                return None
            try:
                self._replace(before, change)
            except OSError as error:
                message = f"the database file {change} while in use, and cannot be taken: {error.strerror}"
                raise DatabaseUnavailableError(message=message) from error
        if self._is_damaged:
            raise DatabaseUnavailableError("database-damaged")
        return self._generation

    def _was_just_seen(self) -> bool:
        """Return whether a look a moment ago suffices, since the file itself is as it was."""
        if self._state is None or self._is_damaged or time.monotonic() - self._seen_at > _MOMENT_SECONDS:
            return False
        status = os.stat(self._path)
        file, stamp = (status.st_dev, status.st_ino), (status.st_mtime_ns, status.st_size)
        return (file, stamp) == (self._state.file, self._state.stamp)

    def _look(self) -> _State:
        self._seen_at = time.monotonic()
        try:
            # Before the index: what was changed by SQLite was announced there.
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DatabaseUnavailableError("database-missing") from error
        index = _read(self._index, _INDEX_BYTES)
        return _State(
            (status.st_dev, status.st_ino),
            _identity(self._log),
            _identity(self._index),
            (status.st_mtime_ns, status.st_size),
            _copied_by(index),
            self._is_log_cut(index),
        )

    def _find_change(self, before: _State, now: _State) -> str | None:
        """Return by what the database was changed that is not SQLite; None if by nothing."""
        if now.file != before.file:
            return "was replaced"
        if self._is_damaged:  # SQLite changes nothing then
            return "was overwritten"
        # As long as this connection is open, SQLite removes neither.
        if (
            self._guard is not None
            and before.log is not None
            and (now.log, now.index) != (before.log, before.index)
        ):
            return "lost its files -wal and -shm"
        if now.is_log_cut:
            return "got another log"
        # A new database is written without a log until its first connection begins one.
        has_log = None not in (now.copied, before.copied)
        if now.stamp == before.stamp or now.copied != before.copied or now.is_being_copied or not has_log:
            if (now.stamp, now.copied) != (before.stamp, before.copied):
                self._note_head()
            return None
        # A program that only touches the file changes its time.
        return None if _head_of(self._path) == self._head else "was overwritten"

    def _replace(self, before: _State, change: str) -> None:
        """Take the file for another database, and leave behind what belongs to the one before."""
        with _alone(self._path):
            now = self._look()  # another process may have done the same
            is_in_place = now.file == before.file
            if is_in_place:
                if not self._is_settled(now):
                    raise DatabaseUnavailableError("database-missing")
                self._renew(now, before)
            elif now.log is not None and now.log == before.log:
                self._log.unlink(missing_ok=True)
                self._index.unlink(missing_ok=True)
            self._generation += 1
            self._open_guard()
            self._is_damaged = (is_in_place or self._guard is None) and not self._is_whole()
            self._state = self._look()
            self._note_head()
        holds = "it is damaged" if self._is_damaged else "what it holds now is taken"
        _logger.error("the database file %s while it was in use: %s", change, holds)

    def _renew(self, now: _State, before: _State) -> None:
        """Give a file that was overwritten in place a new number.
        SQLite keeps what it knows of a file by its number, for all connections of a process."""
        if now.log is not None and now.log == before.log:
            # It is that of the database before, unless it was brought along.
            if now.stamp == before.stamp or self._has_other_log():
                _copy_to_place(self._log)
            else:
                self._log.unlink(missing_ok=True)
        self._index.unlink(missing_ok=True)
        _copy_to_place(self._path)

    def _is_settled(self, now: _State) -> bool:
        """Return whether the file has been as it is for a moment."""
        if self._unsettled is None or self._unsettled[0] != now.stamp:
            self._unsettled = now.stamp, time.monotonic()
        return time.monotonic() - self._unsettled[1] >= _SETTLED_SECONDS

    def _has_other_log(self) -> bool:
        """Return whether the log was overwritten, too, and so is not the one that the index describes."""
        index = _read(self._index, _INDEX_BYTES)
        salts = _read(self._log, _LOG_HEAD_BYTES)[16:24]
        return self._is_log_cut(index) or salts not in (b"", index[32:40])

    def _is_log_cut(self, index: bytes) -> bool:
        """Return whether the log is shorter than an index says; pages are written before they are indexed."""
        if len(index) < _INDEX_BYTES:
            return False
        page_size, n_pages = struct.unpack_from("=HI", index, 14)
        n_bytes = n_pages * (_FRAME_HEAD_BYTES + (page_size if page_size > 1 else 1 << 16))
        with contextlib.suppress(FileNotFoundError):
            return bool(n_pages and self._log.stat().st_size < _LOG_HEAD_BYTES + n_bytes)
        return False

    def _is_whole(self) -> bool:
        connection = sqlite3.connect(_uri(self._path), isolation_level=None, uri=True)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)])
        except sqlite3.OperationalError:  # it is locked, which says nothing of what it holds
            return True
        except sqlite3.DatabaseError:
            return False
        finally:
            connection.close()

    def _note_head(self) -> None:
        self._head = _head_of(self._path)

    def _open_guard(self) -> None:
        self._close_guard()
        # It waits for no lock: the caller goes on without it.
        guard = sqlite3.connect(
            _uri(self._path), timeout=0.0, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            _hold(guard)
            copied = _copied_by(_read(self._index, _INDEX_BYTES))
            if copied is not None and copied[1] != copied[2]:
                # As a process that was killed has left it; otherwise every change would look like its rest.
                guard.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:  # it is locked, damaged, or on a disk that cannot be written
            guard.close()
            return
        self._guard = guard
        self._n_guards += 1

    def _close_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            with contextlib.suppress(sqlite3.Error):
                guard.close()


def watch(engine: Engine, path: Path) -> None:
    """Let an engine connect only to a file that exists, and drop connections to one moved or replaced."""
    # Connecting raises DatabaseUnavailableError if there is none; so does a commit, which is rolled back,
    # if it is not in its place.
    file = SqliteFile(path)
    engine.update_execution_options(**{_WATCH: file})

    def connect(dialect: Any, record: Any, _: Any, arguments: dict[str, Any]) -> Any:
        before = file.generation()
        connection = dialect.connect(_uri(path), uri=True, **arguments)
        if file.generation() != before:
            connection.close()
            raise DatabaseUnavailableError("database-missing")
        record.info[_GENERATION] = before
        return connection

    def check_out(_: sqlite3.Connection, record: Any, __: Any) -> None:
        if record.info.get(_GENERATION) != file.generation():
            raise InvalidatePoolError("the database file was replaced")

    def before_commit(connection: Connection) -> None:
        if connection.info.get(_GENERATION) != file.generation():
            raise DatabaseUnavailableError("database-missing")

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", check_out)
    event.listen(engine, "commit", before_commit)
    event.listen(engine, "engine_disposed", lambda _: file.close())


def _hold(connection: sqlite3.Connection) -> None:
    """Have a connection open its file, and the log, which SQLite does with the first statement."""
    connection.execute("PRAGMA schema_version").fetchall()


def _uri(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=rw"


def _identity(path: Path) -> _Id | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _read(path: Path, size: int) -> bytes:
    """Return the beginning of a file; nothing where there is none."""
    identity = _identity(path)
    if identity is None:
        return b""
    if identity not in _KEPT_OPEN:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        status = os.fstat(descriptor)
        _KEPT_OPEN.setdefault((status.st_dev, status.st_ino), descriptor)
    return os.pread(_KEPT_OPEN[identity], size, 0) if identity in _KEPT_OPEN else b""


def _copied_by(index: bytes) -> tuple[bytes, int, int] | None:
    """Return which log an index is of, how much of it was copied into the database, and was to be."""
    if len(index) < _INDEX_BYTES:
        return None
    return index[32:40], *struct.unpack_from("=I", index, 96), *struct.unpack_from("=I", index, 128)


def _head_of(path: Path) -> bytes:
    return hashlib.blake2b(_read(path, _HEAD_BYTES), digest_size=16).digest()


def _copy_to_place(path: Path) -> None:
    """Put a copy of a file into its place."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}-copy-", delete=False) as copy:
        try:
            with path.open("rb") as original:
                shutil.copyfileobj(original, copy, _HEAD_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
            shutil.copymode(path, copy.name)
            with contextlib.suppress(PermissionError):
                shutil.chown(copy.name, path.stat().st_uid, path.stat().st_gid)
            os.replace(copy.name, path)
        except BaseException:
            Path(copy.name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from doing the same to a database."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
