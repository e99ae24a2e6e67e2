"""Engine, unit of work, and errors of the drivers as the service's: the only place that commits."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker

from app.db.collections import CollectionRepository
from app.db.feedback import FeedbackRepository
from app.db.imports import ImportRepository
from app.db.installation import InstallationRepository
from app.db.items import ItemRepository
from app.db.jobs import JobQueue
from app.db.keys import KeyRepository
from app.db.sqlite_file import SqliteFile, file_of, watch
from app.db.statements import now
from app.db.versions import EncodedContentRepository, ModelRepository
from app.domain.entities import Collection
from app.domain.errors import DISK_FAULTS, PROBLEMS, DatabaseUnavailableError

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


READ_ONLY = "lrbs_read_only"
"""Execution option of connections that wait for no writer."""
_POOL_SIZE = 8  # connections that stay open between uses; more are opened under load, and closed after it
_REFUSAL_SECONDS = 60.0  # how long a rejected write is reported as a fault if no later write succeeds
_INCARNATION_SECONDS = 0.5  # how long PostgreSQL is not asked again whether it was restored
_INCARNATION_PATIENCE_SECONDS = 2.0
_INCARNATION = "SELECT oid FROM pg_class WHERE oid = to_regclass('collections')"
"""A table that was dropped and made again, alone or with its database, has another number."""
_CHANGES = "lrbs_changes"
_LOST_CONNECTIONS = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""When libpq gives up a vanished server, in seconds and (timeout) milliseconds: by default after hours."""


def _count_changes(connection: Connection) -> Callable[[], int]:
    """Return what says, before a transaction ends that has just begun, how many rows it inserted, updated or
    deleted: one that only reads does not show that the disk takes writes."""
    driver: Any = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        # SQLite's cursors know the number of changed rows only after all returned rows were fetched.
        before = driver.total_changes
        return lambda: driver.total_changes - before
    n_changed = 0

    def count(_: Connection, cursor: Any, __: str, ___: Any, context: Any, ____: bool) -> None:
        nonlocal n_changed
        if context is not None and (context.isinsert or context.isupdate or context.isdelete):
            n_changed += max(cursor.rowcount, 0)

    event.listen(connection, "after_cursor_execute", count)
    return lambda: n_changed


class UnitOfWork:
    """One transaction and the repositories that work in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.collections = CollectionRepository(session)
        self.items = ItemRepository(session)
        self.models = ModelRepository(session)
        self.jobs = JobQueue(session)
        self.keys = KeyRepository(session)
        self.installation = InstallationRepository(session)
        self.imports = ImportRepository(session)
        self.feedback = FeedbackRepository(session)
        self.encoded = EncodedContentRepository(session)

    def now(self) -> datetime:
        """Return the time by the database's clock, UTC: clocks of hosts may differ."""
        return now(self.session)


class Database:
    """Transactions over an engine. `check_write` and `check_read` are called before each of their kind; they
    raise a ServiceError where it is not allowed."""

    def __init__(
        self,
        engine: Engine,
        check_write: Callable[[], None] = lambda: None,
        check_read: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self._check_write = check_write
        self._check_read = check_read
        self._refused: tuple[float, str] | None = None
        self._write = sessionmaker(engine, expire_on_commit=False)
        event.listen(self._write, "after_begin", _watch_changes)
        options: dict[str, Any] = {READ_ONLY: True}
        if engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        self._read = sessionmaker(engine.execution_options(**options), expire_on_commit=False)
        self._file = SqliteFile.watched_by(engine)
        self._incarnation: tuple[float, Hashable] | None = None

    @contextmanager
    def write(self) -> Iterator[UnitOfWork]:
        """Commit at the end of the block, roll back on an exception."""
        self._check_write()
        has_written = False
        try:
            with translate_errors(), self._write.begin() as session:
                yield UnitOfWork(session)
                session.flush()
                has_written = _CHANGES in session.info and session.info[_CHANGES]() > 0
        except DatabaseUnavailableError as error:
            if error.code in DISK_FAULTS:
                self._refused = time.monotonic(), str(error)
            raise
        if has_written:
            self._refused = None

    @contextmanager
    def read(self, patience_seconds: float | None = None) -> Iterator[UnitOfWork]:
        """Read from one consistent state.
        A statement of PostgreSQL may take so long; SQLite waits for no other process."""
        self._check_read()
        with translate_errors(), self._read() as session:
            if patience_seconds is not None:
                limit_statements(session.connection(), patience_seconds)
            yield UnitOfWork(session)

    @contextmanager
    def read_of(self, name: str) -> Iterator[tuple[UnitOfWork, Collection]]:
        """Read from one consistent state, which has a collection of this name."""
        with self.read() as work:
            yield work, work.collections.get(name)

    def get_collection(self, name: str) -> Collection:
        """Return the collection of a name; raises CollectionNotFoundError."""
        with self.read_of(name) as (_, collection):
            return collection

    def may_read_at_once(self) -> bool:
        """Return whether a read finds an open connection, and reads a file rather than asking a server."""
        pool = self.engine.pool
        return self._file is not None and isinstance(pool, QueuePool) and pool.checkedin() > 0

    def change_mark(self) -> Hashable | None:
        """Return a mark that is the same as an earlier one only if nothing was committed in between; it costs
        microseconds and waits for nothing. None on PostgreSQL, or where the file does not answer."""
        return None if self._file is None else self._file.mark()

    def incarnation(self) -> Hashable:
        """Return what differs once the database was replaced by another one or by a copy of itself: what was
        read before then says nothing. Raises DatabaseUnavailableError."""
        if self._file is not None:
            return self._file.generation()
        if self.engine.dialect.name != "postgresql":
            return None
        seen = self._incarnation
        if seen is None or time.monotonic() - seen[0] >= _INCARNATION_SECONDS:
            with translate_errors(), self._read() as session:
                limit_statements(session.connection(), _INCARNATION_PATIENCE_SECONDS)
                number = session.connection().exec_driver_sql(_INCARNATION).scalar_one_or_none()
            seen = self._incarnation = time.monotonic(), number
        return seen[1]

    def fault_of_writes(self, patience_seconds: float) -> str | None:
        """Return why writes fail, judged by the last write and PostgreSQL's state, without a write; None if
        they do not. Raises DatabaseUnavailableError if it does not answer in time."""
        refused = self._refused
        if refused is not None and time.monotonic() - refused[0] < _REFUSAL_SECONDS:
            return f"the last write was refused: {refused[1]}"
        if self.engine.dialect.name != "postgresql":
            return None
        with translate_errors(), self._read() as session:
            limit_statements(session.connection(), patience_seconds)
            is_read_only = session.connection().exec_driver_sql("SHOW transaction_read_only").scalar_one()
        return "the database is read-only" if is_read_only == "on" else None


def _watch_changes(session: Session, _: SessionTransaction, connection: Connection) -> None:
    session.info[_CHANGES] = _count_changes(connection)


def limit_statements(connection: Connection, seconds: float) -> None:
    """Set a timeout on the statements of the open transaction; only PostgreSQL supports it."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(int(seconds * 1000), 1)}")


def make_engine(url: str, lock_wait_seconds: float = 5.0, connections: int = 15) -> Engine:
    """Return an engine for SQLite or PostgreSQL with the settings this service relies on; `_POOL_SIZE`
    connections stay open. Its errors do not show statement parameters, since they end up in logs."""
    # A statement waits `lock_wait_seconds` for a lock, and a caller as long for a connection.
    size = min(connections, _POOL_SIZE)
    pool = {"pool_timeout": lock_wait_seconds, "pool_size": size, "max_overflow": connections - size}
    both: dict[str, Any] = {"hide_parameters": True, "json_deserializer": _read_json}
    if not url.startswith("sqlite"):
        arguments = {"connect_timeout": max(math.ceil(lock_wait_seconds), 2), **_LOST_CONNECTIONS}
        engine = create_engine(url, pool_pre_ping=True, connect_args=arguments, **pool, **both)
        event.listen(engine, "connect", partial(_prepare_postgres, lock_wait_seconds))
        return engine
    both["connect_args"] = {"timeout": lock_wait_seconds, "check_same_thread": False}
    file = file_of(url)  # a database in memory has no pool with a limit
    engine = create_engine(url, **both, **({} if file is None else pool))
    if file is not None:
        watch(engine, file)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _read_json(text: str | bytes) -> Any:
    """Return a JSON value, as `json.loads` does; three times as fast where it is strict JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:  # halves of characters, numbers beyond float64
        return json.loads(text)


def _prepare_postgres(lock_wait_seconds: float, connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {max(int(lock_wait_seconds * 1000), 1)}")
    connection.commit()


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # Python's driver would begin transactions by itself, and too late for consistent reads.
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its lock immediately: upgrading a read lock later would fail instead of waiting.
    read_only = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
