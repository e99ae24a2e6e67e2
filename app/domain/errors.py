"""What can go wrong, in the service's own words; `app.api.problems` says what each is on the wire."""

from __future__ import annotations

import errno


class ServiceError(Exception):
    """Base class of every refusal the service makes on purpose."""


class CollectionNotFoundError(ServiceError):
    """No collection of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")
        self.name = name


class CollectionExistsError(ServiceError):
    """A collection of that name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a collection {name!r} exists already: delete it first or choose another name")
        self.name = name


class ItemNotFoundError(ServiceError):
    """No item of that id in the collection."""

    def __init__(self, collection: str, item_id: str) -> None:
        super().__init__(f"collection {collection!r} has no item {item_id!r}")
        self.item_id = item_id


class ContentMissingError(ServiceError):
    """The picture of an item is no longer in the store."""

    def __init__(self, collection: str, item_id: str) -> None:
        super().__init__(
            f"the picture of item {item_id!r} of {collection!r} is lost: PUT the item with it again"
        )
        self.item_id = item_id


class ItemExistsError(ServiceError):
    """An item of that id exists already, or the id stands twice in one request."""

    def __init__(self, field: str, item_id: str) -> None:
        super().__init__(f"{field}: an item {item_id!r} exists already; PUT replaces one")
        self.field = field
        self.item_id = item_id


class InvalidFieldError(ServiceError):
    """A field's value is not what the collection or the encoder expects."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class UnknownModalityError(ServiceError):
    """A modality that the collection does not have."""

    def __init__(self, field: str, modality: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{field}: unknown modality {modality!r}, the collection has {' and '.join(known)}")
        self.field = field
        self.modality = modality


class UnknownLabelError(ServiceError):
    """A label that no item of the collection carries."""

    def __init__(self, field: str, label: str, collection: str) -> None:
        super().__init__(f"{field}: no item of collection {collection!r} has the label {label!r}")
        self.field = field
        self.label = label


class ContentTooLargeError(ServiceError):
    """A picture, a text or a batch over its limit."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class LineError(ServiceError):
    """A line of an import that cannot be stored; `cause` says why, and nothing of the import is stored."""

    def __init__(self, line: int, cause: ServiceError) -> None:
        super().__init__(f"line {line}: {cause}")
        self.line = line
        self.cause = cause
        self.field: str | None = getattr(cause, "field", None)


class RepeatedItemError(ServiceError):
    """An id that stands on two lines of one import."""

    def __init__(self, field: str, item_id: str, earlier: int) -> None:
        super().__init__(f"{field}: item {item_id!r} stands on line {earlier} already")
        self.field = field
        self.item_id = item_id


class ModelNotTrainedError(ServiceError):
    """The collection has no active model yet; says why its last retrain failed, if it did."""

    def __init__(self, collection: str, last_failure: str | None = None) -> None:
        self.collection = collection
        self.last_failure = last_failure
        super().__init__(self.told(f"POST /v1/admin/collections/{collection}/retrain"))

    def told(self, what_to_do: str) -> str:
        """Return the message to somebody who starts a retrain that way."""
        failure = f"; its last retrain failed: {self.last_failure}" if self.last_failure else ""
        return (
            f"collection {self.collection!r} has no trained model: add labelled items of both modalities, "
            f"then {what_to_do}{failure}"
        )


class ModelNotFoundError(ServiceError):
    """No model version of that number."""

    def __init__(self, collection: str, version: int) -> None:
        super().__init__(f"collection {collection!r} has no model version {version}")
        self.version = version


class TrainingAlreadyRunningError(ServiceError):
    """A retrain of the collection is queued or running."""

    def __init__(self, collection: str) -> None:
        super().__init__(f"a retrain of {collection!r} is already queued or running")
        self.collection = collection


class TrainingDataError(ServiceError):
    """The items at hand cannot be trained on."""


class JobNotFoundError(ServiceError):
    """No job of that id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}")
        self.job_id = job_id


class JobCancelledError(ServiceError):
    """The job was asked to stop, or belongs to another worker by now."""


class DamagedBundleError(ServiceError):
    """A model bundle on disk is incomplete or does not match its sums."""


class DamagedVersionError(ServiceError):
    """A version that was to serve has a damaged bundle; whatever serves goes on."""

    def __init__(self, collection: str, version: int, damage: str) -> None:
        super().__init__(f"version {version} of {collection!r} cannot serve: {damage}; nothing was changed")
        self.version = version


class ActiveVersionConflictError(ServiceError):
    """Another version is active than the caller took for granted."""

    def __init__(self, collection: str, expected: int | None, active: int | None) -> None:
        super().__init__(
            f"expected_version: {_version(expected)} was expected to be active in {collection!r}, "
            f"but {_version(active)} is"
        )
        self.field = "expected_version"
        self.active = active


class NoPreviousVersionError(ServiceError):
    """There is nothing to roll back to."""

    def __init__(self, collection: str) -> None:
        super().__init__(f"collection {collection!r} had no other version active before: nothing was changed")
        self.collection = collection


class EncoderUnavailableError(ServiceError):
    """An encoder needs a library or a file that is not there, or not as it was."""


class DatabaseUnavailableError(ServiceError):
    """The database does not answer, or a lock was not given in time."""

    def __init__(self, reason: str = "the database does not answer or is busy: try again") -> None:
        super().__init__(reason)


class StorageFullError(DatabaseUnavailableError):
    """There is no room for what was to be written."""

    def __init__(self) -> None:
        super().__init__("no space is left for this: nothing was stored")


class StorageReadOnlyError(DatabaseUnavailableError):
    """The database, or the disk it lies on, takes no writes."""

    def __init__(self) -> None:
        super().__init__("the storage is read-only: nothing was stored")


_OF_SYSTEM: dict[int | None, type[StorageFullError] | type[StorageReadOnlyError]] = {
    errno.ENOSPC: StorageFullError,
    errno.EDQUOT: StorageFullError,
    errno.EFBIG: StorageFullError,
    errno.EROFS: StorageReadOnlyError,
}


def storage_error(error: OSError) -> StorageFullError | StorageReadOnlyError | None:
    """Return what an error of the file system is in the service's words; None when it is another fault."""
    told = _OF_SYSTEM.get(error.errno)
    return None if told is None else told()


class DatabaseUnopenedError(DatabaseUnavailableError):
    """The file of a SQLite database is there and cannot be opened."""

    def __init__(self) -> None:
        super().__init__(
            "the database file cannot be opened: correct its permissions; on a read-only disk SQLite needs "
            "the -wal and -shm files beside it"
        )


class DatabaseMissingError(DatabaseUnavailableError):
    """The file of a SQLite database is not at its place."""

    def __init__(self) -> None:
        super().__init__("the database file is not at its place: nothing was written; bring it back")


class WrongDatabaseError(DatabaseUnavailableError):
    """The database at hand is not the one that the files of the data folder belong to."""


class ImportRunningError(ServiceError):
    """An import is being stored into the collection, and other writes to it have to wait."""

    retry_after_seconds = 5

    def __init__(self, collection: str, size: int, seconds: float) -> None:
        super().__init__(
            f"an import of {size} items is being stored into {collection!r}, since {seconds:.0f} s: "
            "try again when it is done"
        )
        self.collection = collection


class ImportLostError(DatabaseUnavailableError):
    """An import was silent for longer than its lease, and somebody else began to remove it."""

    def __init__(self) -> None:
        super().__init__("the import was interrupted for too long and nothing of it is stored: try again")


class SchemaOutdatedError(ServiceError):
    """The database's schema is not the one this code expects."""

    def __init__(self, reason: str = "the database schema is not current: run lrbs db upgrade") -> None:
        super().__init__(reason)


class UnknownReportFormatError(SchemaOutdatedError):
    """A training report was stored by a newer release, in a format that this one does not know."""

    def __init__(self, stored: object, known: int) -> None:
        super().__init__(
            f"the training report of a model version has format {stored!r}, and this release reads formats "
            f"up to {known}: run the release that wrote it, or a newer one"
        )
        self.stored = stored
        self.known = known


class UnauthenticatedError(ServiceError):
    """The call needs a key."""


class ForbiddenError(ServiceError):
    """The key is valid but lacks the scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope!r}")
        self.scope = scope


class KeyIsBoundError(ServiceError):
    """The key is bound to collections, and the call is not about one of them."""

    def __init__(self) -> None:
        super().__init__("the key is bound to some collections, and this call is not about one of them")


class RateLimitedError(ServiceError):
    """More requests than the key is allowed."""

    def __init__(self, requests_per_minute: int, retry_after_seconds: int) -> None:
        super().__init__(
            f"more than {requests_per_minute} requests in a minute: try again in {retry_after_seconds} s"
        )
        self.retry_after_seconds = retry_after_seconds


class OverloadedError(ServiceError):
    """More work is waiting than will be begun soon."""

    retry_after_seconds = 1

    def __init__(self, reason: str = "too many requests are waiting already") -> None:
        super().__init__(f"{reason}: try again in a moment")


class StoppingError(ServiceError):
    """The service ends before the work is done; whether a write was stored is not known."""

    retry_after_seconds = 5

    def __init__(self) -> None:
        super().__init__("the service is stopping before this is finished: send it again in a moment")


class BodyTimeoutError(ServiceError):
    """The rest of a body did not come in time."""

    def __init__(self) -> None:
        super().__init__("body: the rest of it did not come in time")
        self.field = "body"


class KeyNotFoundError(ServiceError):
    """No key of that id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no key {key_id!r}")
        self.key_id = key_id


def _version(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
