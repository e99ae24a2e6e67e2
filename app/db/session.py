"""Engine and unit of work: the only place that commits."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker

from app.db.calls import SqlCallRepository
from app.db.change_mark import ChangeMark
from app.db.changes import Changes
from app.db.clock import now
from app.db.collections import SqlCollectionRepository
from app.db.encoded_contents import SqlEncodedContentRepository
from app.db.faults import translate_errors
from app.db.feedback import SqlFeedbackRepository
from app.db.imports import SqlImportRepository
from app.db.installation import SqlInstallationRepository
from app.db.items import SqlItemRepository
from app.db.jobs import SqlJobQueue
from app.db.keys import SqlKeyRepository
from app.db.sqlite_file import file_of, watch
from app.db.versions import SqlModelRepository
from app.domain.errors import StorageFullError, StorageReadOnlyError

READ_ONLY = "lrbs_read_only"
"""Execution option of connections that wait for no writer."""
_POOL_SIZE = 8
"""Connections that stay open between uses; more are opened under load, and closed after it."""
_REFUSAL_SECONDS = 60.0
"""How long a rejected write is reported as a fault if no later write succeeds."""
_CHANGES = "lrbs_changes"
_LOST_CONNECTIONS = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""When libpq gives up a vanished server, in seconds and (timeout) milliseconds: by default after hours."""


@dataclass(frozen=True, slots=True)
class SqlUnitOfWork:
    """Repositories over one session."""

    session: Session
    collections: SqlCollectionRepository
    items: SqlItemRepository
    models: SqlModelRepository
    jobs: SqlJobQueue
    keys: SqlKeyRepository
    installation: SqlInstallationRepository
    imports: SqlImportRepository
    feedback: SqlFeedbackRepository
    encoded: SqlEncodedContentRepository
    calls: SqlCallRepository

    @classmethod
    def over(cls, session: Session) -> SqlUnitOfWork:
        """Return the repositories that work in `session`."""
        return cls(
            session,
            SqlCollectionRepository(session),
            SqlItemRepository(session),
            SqlModelRepository(session),
            SqlJobQueue(session),
            SqlKeyRepository(session),
            SqlInstallationRepository(session),
            SqlImportRepository(session),
            SqlFeedbackRepository(session),
            SqlEncodedContentRepository(session),
            SqlCallRepository(session),
        )

    def now(self) -> datetime:
        """Return the time that the processes of all hosts share."""
        return now(self.session)


def _allow_write() -> None:
    """Raise nothing."""


class SqlDatabase:
    """Transactions over an engine.

    Parameters
    ----------
    engine : Engine
        As made by `make_engine`.
    check_write : callable
        Called before each writing transaction; raises a ServiceError if writing is not allowed.
    """

    def __init__(self, engine: Engine, check_write: Callable[[], None] = _allow_write) -> None:
        self.engine = engine
        self._check_write = check_write
        self._refused: tuple[float, str] | None = None
        self._write = sessionmaker(engine, expire_on_commit=False)
        event.listen(self._write, "after_begin", _watch_changes)
        options: dict[str, Any] = {READ_ONLY: True}
        if engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        self._read = sessionmaker(engine.execution_options(**options), expire_on_commit=False)
        file = file_of(engine.url)
        self._change_mark = None if file is None else ChangeMark(file)
        if self._change_mark is not None:
            event.listen(engine, "engine_disposed", self._close_change_mark)

    @contextmanager
    def write(self) -> Iterator[SqlUnitOfWork]:
        """Commit at the end of the block, roll back on an exception."""
        self._check_write()
        has_written = False
        try:
            with translate_errors(), self._write.begin() as session:
                yield SqlUnitOfWork.over(session)
                session.flush()
                has_written = _CHANGES in session.info and session.info[_CHANGES].are_made()
        except (StorageFullError, StorageReadOnlyError) as error:
            self._refused = time.monotonic(), str(error)
            raise
        if has_written:
            self._refused = None

    @contextmanager
    def read(self, patience_seconds: float | None = None) -> Iterator[SqlUnitOfWork]:
        """Read from one consistent state.

        Parameters
        ----------
        patience_seconds : float, optional
            How long PostgreSQL may take for a statement; SQLite reads a file and waits for no other process.
        """
        with translate_errors(), self._read() as session:
            if patience_seconds is not None:
                limit_statements(session.connection(), patience_seconds)
            yield SqlUnitOfWork.over(session)

    def change_mark(self) -> Hashable | None:
        """Return a mark of what is committed, as of `app.domain.ports.Database`; PostgreSQL has none."""
        return None if self._change_mark is None else self._change_mark.read()

    def _close_change_mark(self, _: Engine) -> None:
        if self._change_mark is not None:
            self._change_mark.close()

    def fault_of_writes(self, patience_seconds: float) -> str | None:
        """Return why writes fail, judged by the last write and by PostgreSQL's state; None if they do not.

        Nothing is written to find out. Raises DatabaseUnavailableError.

        Parameters
        ----------
        patience_seconds : float
            How long the database may take to answer.
        """
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
    session.info[_CHANGES] = Changes(connection)


def limit_statements(connection: Connection, seconds: float) -> None:
    """Set a timeout on the statements of the open transaction; only PostgreSQL supports it."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(int(seconds * 1000), 1)}")


def make_engine(url: str, lock_wait_seconds: float = 5.0, connections: int = 15) -> Engine:
    """Return an engine for SQLite or PostgreSQL with the settings this service relies on.

    Its errors do not show statement parameters, since they end up in logs.

    Parameters
    ----------
    url : str
        SQLAlchemy URL.
    lock_wait_seconds : float, > 0
        How long a statement waits for a lock, and a caller for a connection.
    connections : int
        Maximum number at the same time; up to `_POOL_SIZE` of them stay open.
    """
    size = min(connections, _POOL_SIZE)
    pool = {"pool_timeout": lock_wait_seconds, "pool_size": size, "max_overflow": connections - size}
    if not url.startswith("sqlite"):
        engine = create_engine(
            url,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"connect_timeout": max(math.ceil(lock_wait_seconds), 2), **_LOST_CONNECTIONS},
            **pool,
        )
        event.listen(engine, "connect", partial(_prepare_postgres, lock_wait_seconds))
        return engine
    arguments = {"timeout": lock_wait_seconds, "check_same_thread": False}
    file = file_of(url)  # a database in memory has no pool with a limit
    engine = create_engine(
        url, connect_args=arguments, hide_parameters=True, **({} if file is None else pool)
    )
    if file is not None:
        watch(engine, file)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


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
