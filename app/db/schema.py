"""Checking whether a database has the current schema.

Every process does this at its start, without Alembic, which only `app.db.migrate` imports.
"""

from __future__ import annotations

from sqlalchemy import Engine, inspect, text

from app.db.faults import translate_errors
from app.db.session import READ_ONLY, limit_statements
from app.db.sqlite_file import file_of

REVISION = "0012"
"""The latest migration."""


def is_empty(engine: Engine, patience_seconds: float | None = None) -> bool:
    """Return whether there is no database yet, or one without a schema; parameters as for `is_current`."""
    return _revision(engine, patience_seconds) is None


def is_current(engine: Engine, patience_seconds: float | None = None) -> bool:
    """Return whether the schema is the one this code expects.

    Parameters
    ----------
    engine : Engine
        As made by `app.db.session.make_engine`.
    patience_seconds : float, optional
        How long a statement may take.

    Raises
    ------
    DatabaseUnavailableError
        If the database does not answer.
    """
    return _revision(engine, patience_seconds) == REVISION


def _revision(engine: Engine, patience_seconds: float | None) -> str | None:
    file = file_of(engine.url)
    if file is not None and not file.exists():
        return None
    # Read-only, so that the check waits for no writer.
    reading = engine.execution_options(**{READ_ONLY: True})
    with translate_errors(), reading.connect() as connection:
        if patience_seconds is not None:
            limit_statements(connection, patience_seconds)
        if not inspect(connection).has_table("alembic_version"):
            return None
        revision: str | None = connection.execute(
            text("SELECT version_num FROM alembic_version")
        ).scalar_one_or_none()
        return revision
