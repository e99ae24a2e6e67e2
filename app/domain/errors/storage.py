"""Errors of the database and of the disk."""

from __future__ import annotations

import errno

from app.domain.errors.base import UnavailableError


class DatabaseUnavailableError(UnavailableError):
    """The database does not answer, or a lock was not given in time."""

    code = "database-unavailable"
    title = "Database unavailable"

    def __init__(self, reason: str = "the database does not answer or is busy: try again") -> None:
        super().__init__(reason)


class StorageFullError(DatabaseUnavailableError):
    """There is no room for what was to be written."""

    code = "storage-full"
    title = "Storage full"

    def __init__(self) -> None:
        super().__init__("no space is left for this: nothing was stored")


class StorageReadOnlyError(DatabaseUnavailableError):
    """The database, or the disk it lies on, takes no writes."""

    code = "storage-read-only"
    title = "Storage read-only"

    def __init__(self) -> None:
        super().__init__("the storage is read-only: nothing was stored")


class StorageUnavailableError(UnavailableError):
    """The object store that keeps pictures and models does not answer, or refuses."""

    code = "storage-unavailable"
    title = "Storage unavailable"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the storage of LRBS_STORAGE_URL cannot be used: {reason}")


_OF_SYSTEM: dict[int | None, type[StorageFullError] | type[StorageReadOnlyError]] = {
    errno.ENOSPC: StorageFullError,
    errno.EDQUOT: StorageFullError,
    errno.EFBIG: StorageFullError,
    errno.EROFS: StorageReadOnlyError,
}


def storage_error(error: OSError) -> StorageFullError | StorageReadOnlyError | None:
    """Return the storage error that an error of the file system stands for; None for any other fault."""
    kind = _OF_SYSTEM.get(error.errno)
    return None if kind is None else kind()


class DatabaseUnopenedError(DatabaseUnavailableError):
    """The file of a SQLite database is there and cannot be opened."""

    title = "Database file cannot be opened"

    def __init__(self) -> None:
        super().__init__(
            "the database file cannot be opened: correct its permissions; on a read-only disk SQLite needs "
            "the -wal and -shm files beside it"
        )


class DatabaseMissingError(DatabaseUnavailableError):
    """The file of a SQLite database is not at its place."""

    title = "Database file missing"

    def __init__(self) -> None:
        super().__init__("the database file is not at its place: nothing was written; bring it back")


class WrongDatabaseError(DatabaseUnavailableError):
    """The database at hand is not the one that the files of the data folder belong to."""

    code = "wrong-database"
    title = "Not the database of the data folder"


class SchemaOutdatedError(UnavailableError):
    """The database's schema is not the one this code expects."""

    code = "schema-outdated"
    title = "Database schema outdated"

    def __init__(self, reason: str = "the database schema is not current: run lrbs db upgrade") -> None:
        super().__init__(reason)


class UnknownReportFormatError(SchemaOutdatedError):
    """A training report was stored by a newer release, in a format that this one does not know."""

    title = "Database written by a newer release"

    def __init__(self, stored: object, newest: int) -> None:
        super().__init__(
            f"the training report of a model version has format {stored!r}, and this release reads formats "
            f"up to {newest}: run the release that wrote it, or a newer one"
        )
