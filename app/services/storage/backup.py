"""Copies of the data folder with its database, made while the service keeps running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.domain.entities import Installation, Mark
from app.domain.errors import InvalidFieldError
from app.domain.ports import FolderMark
from app.services.storage.ownership import Ownership
from app.services.storage.schema import SchemaService


class Backup:
    """Copies a SQLite database, pictures and bundles.

    Parameters
    ----------
    data_folder : Path
        The folder that is copied.
    schema : SchemaService
        Checks the database.
    ownership : Ownership
        Pairs it with the data folder.
    copy_files : callable
        Copies the pictures and bundles that a folder lacks; returns how many.
    copy_database : callable or None
        Copies the database into a folder and returns the identity and history of the copy; None if it is not
        SQLite.
    mark_of : callable
        Returns the mark of a folder.
    """

    def __init__(
        self,
        data_folder: Path,
        schema: SchemaService,
        ownership: Ownership,
        copy_files: Callable[[Path], int],
        copy_database: Callable[[Path], Installation] | None,
        mark_of: Callable[[Path], FolderMark],
    ) -> None:
        self._data_folder = data_folder
        self._schema = schema
        self._ownership = ownership
        self._copy_files = copy_files
        self._copy_database = copy_database
        self._mark_of = mark_of

    def make(self, folder: Path) -> int:
        """Make a copy that can be used as a data folder; return the number of pictures and bundle files.

        Parameters
        ----------
        folder : Path
            Created here; its parent has to exist.

        Raises
        ------
        InvalidFieldError
            If the folder exists, has no parent, or lies in the data folder; and if the database is not
            SQLite.
        SchemaOutdatedError
            If the database does not have the current schema.
        """
        if self._copy_database is None:
            raise InvalidFieldError(
                "LRBS_DATABASE_URL",
                "is no SQLite database: copy LRBS_DATA_DIR, run pg_dump, copy it again except .database",
            )
        self._require_new(folder)
        self._schema.require_current()
        folder.mkdir()
        # Files before the database and again after it: those that the copied rows refer to existed before
        # the database was copied, or are too young to have been swept.
        n_copied = self._copy_files(folder)
        installation = self._copy_database(folder)
        if installation.points:  # otherwise the original was never paired with its folder
            mark = Mark(installation.identity, installation.points[-1])
            self._mark_of(folder).write(mark, replace=False)
        self._ownership.diverge_from_copy()
        return n_copied + self._copy_files(folder)

    def _require_new(self, folder: Path) -> None:
        if folder.exists():
            raise InvalidFieldError("folder", f"{folder} exists: name a new one")
        if not folder.absolute().parent.is_dir():
            raise InvalidFieldError("folder", f"there is no folder {folder.absolute().parent} to make it in")
        if self._data_folder.resolve() in folder.resolve().parents:
            raise InvalidFieldError("folder", f"{folder} lies in the data folder, which is what is copied")
