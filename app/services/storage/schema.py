"""Creating, upgrading and checking the schema, but never beside the files of another database."""

from __future__ import annotations

from app.domain.errors import SchemaOutdatedError
from app.domain.ports import DatabaseSchema
from app.services.storage.ownership import Ownership

_NEWER = "a newer release has changed the database: start that release"


class SchemaService:
    """Brings the schema up to date, and checks that it is.

    Parameters
    ----------
    schema : DatabaseSchema
        The schema of the database.
    ownership : Ownership
        Whether the database belongs to the data folder.
    """

    def __init__(self, schema: DatabaseSchema, ownership: Ownership) -> None:
        self._schema = schema
        self._ownership = ownership
        self._was_current = False

    def set_up(self) -> None:
        """Create the schema in an empty database; raises SchemaOutdatedError if it has another one."""
        if self._schema.is_empty():
            self.upgrade()
        self.require_current()

    def upgrade(self) -> None:
        """Migrate to the current schema; raises WrongDatabaseError if the data folder is bound to another."""
        self._ownership.require_database(self._schema.is_empty)
        self._schema.upgrade()

    def adopt(self) -> None:
        """Bind database and data folder to each other as they are; an empty database gets its schema."""
        if self._schema.is_empty():
            self._schema.upgrade()
        self.require_current()
        self._ownership.adopt()

    def require_current(self, patience_seconds: float | None = None) -> None:
        """Check that the database has the current schema.

        Parameters
        ----------
        patience_seconds : float, optional
            How long a statement may take, where the database can limit it.

        Raises
        ------
        SchemaOutdatedError
            If it has another one.
        WrongDatabaseError
            If it is empty beside the files of another database.
        """
        self._ownership.require_database(lambda: self._schema.is_empty(patience_seconds))
        if not self._schema.is_current(patience_seconds):
            raise (
                SchemaOutdatedError(_NEWER)
                if self._schema.is_newer(patience_seconds)
                else SchemaOutdatedError
            )
        self._was_current = True

    def find_fault(self, patience_seconds: float | None = None) -> str | None:
        """Return what is wrong with a schema that this process can serve; parameters, errors as above.

        A process that started on its own schema goes on while a newer release replaces it: a migration leaves
        the release before it working.
        """
        try:
            self.require_current(patience_seconds)
        except SchemaOutdatedError:
            if self._was_current and self._schema.is_newer(patience_seconds):
                return f"{_NEWER} in the place of this process"
            raise
        return None
