"""What statements of SQLite and PostgreSQL differ in: bound parameters, inserts, violated constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

_VALUES_PER_QUERY = 500  # far below the limits of both databases on bound parameters
_Value = TypeVar("_Value")


def in_chunks(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield the values in lists that are short enough for one query."""
    for start in range(0, len(values), _VALUES_PER_QUERY):
        yield values[start : start + _VALUES_PER_QUERY]


def insert_into(session: Session, table: Any) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def violates_unique(error: IntegrityError, constraint: str, *columns: str) -> bool:
    """Return whether a flush violated a unique constraint, whose columns are named as ``table.column``."""
    # PostgreSQL names the constraint, SQLite its columns.
    diagnosis = getattr(error.orig, "diag", None)
    if diagnosis is not None:
        return bool(diagnosis.constraint_name == constraint)
    return str(error.orig) == f"UNIQUE constraint failed: {', '.join(columns)}"


def violates_foreign_key(error: IntegrityError, constraint: str) -> bool:
    """Return whether a referenced row is missing; SQLite does not name the constraint."""
    diagnosis = getattr(error.orig, "diag", None)
    if diagnosis is not None:
        return bool(diagnosis.constraint_name == constraint)
    return str(error.orig) == "FOREIGN KEY constraint failed"
