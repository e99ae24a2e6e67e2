"""The constraint that an IntegrityError is about: PostgreSQL names it, SQLite names its columns."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError


def violates_unique(error: IntegrityError, constraint: str, *columns: str) -> bool:
    """Return whether a unique constraint was violated.

    Parameters
    ----------
    error : IntegrityError
        As raised by a flush.
    constraint : str
        Name of the constraint.
    *columns : str
        Columns of the constraint, each as ``table.column``.
    """
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
