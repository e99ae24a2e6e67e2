"""The schema of the database.
Every process checks it at its start, without Alembic, which only `app.db.migrate` imports."""

from __future__ import annotations

from sqlalchemy import Engine, inspect, text

from app.db.faults import translate_errors
from app.db.session import READ_ONLY, limit_statements
from app.db.sqlite_file import file_of

REVISION = "0016"
"""The latest migration; their names are in the order of the alphabet."""


class DatabaseSchema:
    """The schema of a SQL database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def is_empty(self, patience_seconds: float | None = None) -> bool:
        """Return whether there is no database, or one without a schema; parameters as for `is_current`."""
        return self._revision(patience_seconds) is None

    def is_current(self, patience_seconds: float | None = None) -> bool:
        """Return whether the schema is the one this code expects."""
        return self._revision(patience_seconds) == REVISION

    def is_newer(self, patience_seconds: float | None = None) -> bool:
        """Return whether a later release made the schema; parameters as for `is_current`."""
        return (self._revision(patience_seconds) or "") > REVISION

    def upgrade(self) -> None:
        """Bring the schema up to date, and create a missing database; raises UnavailableError."""
        from app.db.migrate import upgrade  # imports Alembic, which nothing else needs

        upgrade(self._engine)

    def _revision(self, patience_seconds: float | None) -> str | None:
        file = file_of(self._engine.url)
        if file is not None and not file.exists():
            return None
        # Read-only, so that the check waits for no writer.
        reading = self._engine.execution_options(**{READ_ONLY: True})
        with translate_errors(), reading.connect() as connection:
            if patience_seconds is not None:
                limit_statements(connection, patience_seconds)
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision: str | None = connection.execute(
                text("SELECT version_num FROM alembic_version")
            ).scalar_one_or_none()
            return revision
