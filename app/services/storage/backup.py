"""Copies of the data folder with its database, made while the service keeps running, and back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.db.copies import DatabaseCopies
from app.domain.entities import CopiedFiles, Installation, Mark
from app.domain.errors import InvalidFieldError, damaged_files
from app.services.storage.ownership import Ownership, SchemaService
from app.storage.stores import FolderMark

_INCOMPLETE = ".incomplete"  # ends the name of a copy that is being made, or that lacks damaged files


@dataclass(eq=False)
class Backup:
    """Copies database, pictures and bundles into a folder that can be served as it is, and back."""

    # `copy_files` copies what the second folder lacks of the first one, but for damaged ones. `clear_engine`
    # removes what may be later than a copy; InvalidFieldError unless it may or the galleries are surely its
    # own. `upgrade` migrates the database whosesoever the data folder is, which a restore checks by itself.

    _data_folder: Path
    _schema: SchemaService
    _ownership: Ownership
    _copies: DatabaseCopies
    _copy_files: Callable[[Path, Path], CopiedFiles]
    _mark_of: Callable[[Path], FolderMark]
    _upgrade: Callable[[], None]
    _clear_engine: Callable[[bool], None]

    def make(self, folder: Path) -> int:
        """Make a copy that can be used as a data folder, named once it is whole; return the number of
        pictures and bundle files."""
        # Raises InvalidFieldError, UnavailableError: then a folder beside has all
        # other files.
        partial = folder.with_name(f"{folder.name}{_INCOMPLETE}")
        self._require_new(folder)
        if partial.exists():
            raise InvalidFieldError(
                "folder", f"{partial} is there, of a copy that was not finished: remove it"
            )
        self._schema.require_current()
        partial.mkdir()
        try:
            copied = self._fill(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if copied.damaged:
            raise damaged_files(copied.damaged, f"the others were copied into {partial}")
        partial.rename(folder)
        return copied.count

    def _fill(self, folder: Path) -> CopiedFiles:
        # Files before the database and again after it: those that the copied rows refer to existed before
        # the database was copied, or are too young to have been swept.
        first = self._copy_files(self._data_folder, folder)
        installation = self._copies.write(folder)
        if installation.points:  # otherwise the original was never paired with its folder
            self._mark_of(folder).write(_newest_mark(installation), replace=False)
        self._ownership.diverge_from_copy()
        second = self._copy_files(self._data_folder, folder)
        return CopiedFiles(first.count + second.count, second.damaged)

    def _require_new(self, folder: Path) -> None:
        if folder.exists():
            raise InvalidFieldError("folder", f"{folder} exists: name a new one")
        if not folder.absolute().parent.is_dir():
            raise InvalidFieldError("folder", f"there is no folder {folder.absolute().parent} to make it in")
        if self._data_folder.resolve() in folder.resolve().parents:
            raise InvalidFieldError("folder", f"{folder} lies in the data folder, which is what is copied")

    def restore(self, folder: Path, remove_galleries: bool = False) -> int:
        """Bring a copy back into a database without rows, and its files into the data folder; return how many
        it lacked. May be run again: the database is filled last, in one transaction."""
        # Files that lie there stay: if they are newer than the copy, none is removed until somebody declares
        # that they belong together (`Ownership.adopt`).
        #
        # Raises InvalidFieldError if the folder is no copy of this release, the database is in use, the data
        # folder belongs to another database, or the vector engine has galleries that must not be removed;
        # UnavailableError if files of the copy are damaged: then the database is not filled.
        installation = self._copies.read(folder)
        if installation is None:
            raise InvalidFieldError(
                "folder", f"{folder} holds no copy that this release made (lrbs db backup)"
            )
        if self._data_folder.resolve() == folder.resolve():
            raise InvalidFieldError("LRBS_DATA_DIR", "is the copy itself, which can be served as it is")
        self._upgrade()
        if not self._copies.is_unused():
            raise InvalidFieldError("LRBS_DATABASE_URL", "the database holds rows: name an empty one")
        self._clear_engine(remove_galleries)
        self._claim(installation)
        copied = self._copy_files(folder, self._data_folder)
        if copied.damaged:
            raise damaged_files(
                copied.damaged, "the database was not filled: mend them, or remove them to go on without"
            )
        self._copies.restore(folder)
        return copied.count

    def _claim(self, installation: Installation) -> None:
        """Mark the data folder as that of the restored database, unless it is already, with newer files."""
        mark = self._mark_of(self._data_folder)
        present = mark.read()
        if present is not None and present.identity == installation.identity:
            return
        if present is not None and present.identity != self._ownership.identity():
            raise InvalidFieldError("LRBS_DATA_DIR", "the data folder belongs to another database")
        if installation.points:
            mark.write(_newest_mark(installation), replace=True)


def _newest_mark(installation: Installation) -> Mark:
    return Mark(installation.identity, installation.points[-1])
