"""Creating, upgrading and checking the schema, but never beside the files of another database."""

from __future__ import annotations

from app.db.schema import DatabaseSchema
from app.domain.errors import UnavailableError
from app.services.storage.ownership import Ownership

_NEWER = "a newer release has changed the database: start that release"


class SchemaService:
    """Brings the schema up to date, and checks that it is."""

    def __init__(self, schema: DatabaseSchema, ownership: Ownership) -> None:
        self._schema = schema
        self._ownership = ownership
        self._was_current = False

    def set_up(self) -> None:
        """Create the schema in an empty database; raises UnavailableError if it has another one."""
        if self._schema.is_empty():
            self.upgrade()
        self.require_current()

    def upgrade(self) -> None:
        """Migrate to the current schema; raises DatabaseUnavailableError if the folder is of another."""
        self._ownership.require_database(self._schema.is_empty)
        self._schema.upgrade()

    def adopt(self) -> None:
        """Bind database and data folder to each other as they are; an empty database gets its schema."""
        if self._schema.is_empty():
            self._schema.upgrade()
        self.require_current()
        self._ownership.adopt()

    def require_current(self, patience_seconds: float | None = None) -> None:
        """Check that the database has the current schema, in bounded time where it can limit a statement."""
        # Raises UnavailableError, or DatabaseUnavailableError if it is empty beside the files of another one.
        self._ownership.require_database(lambda: self._schema.is_empty(patience_seconds))
        if not self._schema.is_current(patience_seconds):
            is_newer = self._schema.is_newer(patience_seconds)
            raise UnavailableError("schema-outdated", _NEWER if is_newer else None)
        self._was_current = True

    def find_fault(self, patience_seconds: float | None = None) -> str | None:
        """Return what is wrong with a schema that can be served; raises as `require_current` does."""
        # A process that started on its own schema goes on under a newer one: a migration leaves the release
        # before it working.
        try:
            self.require_current(patience_seconds)
        except UnavailableError as error:
            is_outdated = error.code == "schema-outdated"
            if is_outdated and self._was_current and self._schema.is_newer(patience_seconds):
                return f"{_NEWER} in the place of this process"
            raise
        return None
