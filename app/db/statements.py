"""What repositories share: bound parameters, inserts, violated constraints, the clock of either database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.models import UtcDateTime

_VALUES_PER_QUERY = 500  # far below the limits of both databases on bound parameters
_Value = TypeVar("_Value")


class Repository:
    """What is read and written of one kind of rows, in one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _add(self, row: Any, value: object, *names: str) -> None:
        """Store a row with what a value has under these names."""
        copy_fields(value, row, names)
        self._session.add(row)
        self._session.flush()

    def _execute_for(self, query: Select[Any], column: Any, values: Sequence[Any]) -> Iterator[Any]:
        """Yield the rows of a query that have one of the values in a column."""
        for chunk in in_chunks(values):
            yield from self._session.execute(query.where(column.in_(chunk)))

    def _find_used(self, column: Any, values: Sequence[str]) -> set[str]:
        """Return which of the values some row has in a column."""
        return {value for (value,) in self._execute_for(select(column).distinct(), column, values)}


def copy_fields(value: object, row: Any, names: Sequence[str]) -> None:
    """Give a row what a value has under these names."""
    for name in names:
        setattr(row, name, getattr(value, name))


def in_chunks(values: Sequence[_Value], size: int = _VALUES_PER_QUERY) -> Iterator[Sequence[_Value]]:
    """Yield slices of a size, by default short enough for one query; the last one may be shorter."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def insert_into(session: Session, table: Any) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def violates(error: IntegrityError, constraint: str, column: str | None = None) -> bool:
    """Return whether a flush violated a unique constraint of a column, which is named as ``table.column``; or
    a foreign key, whose referenced row is missing."""
    diagnosis = getattr(error.orig, "diag", None)
    if diagnosis is not None:
        return bool(diagnosis.constraint_name == constraint)
    # SQLite names the column of the first, and nothing of the second.
    failed = "FOREIGN KEY constraint failed" if column is None else f"UNIQUE constraint failed: {column}"
    return str(error.orig) == failed


def now(session: Session) -> datetime:
    """Return the time that all processes share: the database server's, or with SQLite the host's.
    It is read within the transaction, since beginning one may have to wait for a lock."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        # Not the start time of the transaction, which may have waited for a lock since. Executed on the
        # connection: a session would first flush half-changed rows, and a second write of a row takes more
        # locks.
        return connection.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()
    return datetime.now(UTC)
