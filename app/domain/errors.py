"""Errors of the service: they carry facts, and each way in adds what its users can do about them.

`app.api.problems` maps them to problems of HTTP, `app.cli.main` to lines of the terminal.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Literal


class ServiceError(Exception):
    """Base class of every error that the service raises deliberately.

    Attributes
    ----------
    code : str
        Stable name of this kind of error; never changes once released.
    title : str
        Summary of this kind of error.
    """

    code: ClassVar[str]
    title: ClassVar[str]


class NotFoundError(ServiceError):
    """Something that the caller named does not exist."""


class ConflictError(ServiceError):
    """The call does not fit the state of what it is about."""


class InvalidRequestError(ServiceError):
    """A value that the caller sent is not allowed."""


class AccessDeniedError(ServiceError):
    """The key is valid, but not for this call."""

    code = "forbidden"


class UnavailableError(ServiceError):
    """The service cannot do its work at the moment."""


class CollectionNotFoundError(NotFoundError):
    """No collection of that name."""

    code = "collection-not-found"
    title = "Collection not found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")
        self.name = name


class CollectionExistsError(ConflictError):
    """A collection of that name exists already."""

    code = "collection-exists"
    title = "Collection exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"a collection {name!r} exists already: delete it first or choose another name")
        self.name = name


class ItemNotFoundError(NotFoundError):
    """No item of that id in the collection."""

    code = "item-not-found"
    title = "Item not found"

    def __init__(self, collection: str, item_id: str) -> None:
        super().__init__(f"collection {collection!r} has no item {item_id!r}")
        self.item_id = item_id


class ContentMissingError(ServiceError):
    """The picture of an item is no longer in the store."""

    code = "content-missing"
    title = "Content missing"

    def __init__(self, collection: str, item_id: str) -> None:
        super().__init__(f"the picture of item {item_id!r} of {collection!r} is lost")
        self.item_id = item_id


class ItemExistsError(ConflictError):
    """An item of that id exists already, or the id stands twice in one request."""

    code = "item-exists"
    title = "Item exists"

    def __init__(self, field: str, item_id: str) -> None:
        super().__init__(f"{field}: an item {item_id!r} exists already")
        self.field = field
        self.item_id = item_id


class InvalidFieldError(InvalidRequestError):
    """A field's value is not what the collection or the encoder expects."""

    code = "invalid-field"
    title = "Invalid field"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


ContentForm = Literal["picture", "text", "vector"]
_EXPECTED: dict[ContentForm, str] = {
    "picture": "a picture",
    "text": "a text that is not empty",
    "vector": "a vector of numbers",
}


class WrongContentError(InvalidFieldError):
    """An item or a query has content of another form than its modality's encoder takes, or an empty text."""

    def __init__(self, field: str, form: ContentForm) -> None:
        super().__init__(field, f"expected {_EXPECTED[form]}")
        self.form = form


class UnknownModalityError(InvalidRequestError):
    """A modality that the collection does not have."""

    code = "unknown-modality"
    title = "Unknown modality"

    def __init__(self, field: str, modality: str, modalities: tuple[str, ...]) -> None:
        super().__init__(
            f"{field}: unknown modality {modality!r}, the collection has {' and '.join(modalities)}"
        )
        self.field = field
        self.modality = modality


class UnknownLabelError(InvalidRequestError):
    """A label that no item of the collection carries."""

    code = "unknown-label"
    title = "Unknown label"

    def __init__(self, field: str, label: str, collection: str) -> None:
        super().__init__(f"{field}: no item of collection {collection!r} has the label {label!r}")
        self.field = field
        self.label = label


class ContentTooLargeError(ServiceError):
    """A picture, a text or a batch over its limit."""

    code = "content-too-large"
    title = "Content too large"

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


class RepeatedItemError(ConflictError):
    """An id that stands on two lines of one import."""

    code = "item-repeated"
    title = "Item repeated"

    def __init__(self, field: str, item_id: str, earlier: int) -> None:
        super().__init__(f"{field}: item {item_id!r} stands on line {earlier} already")
        self.field = field
        self.item_id = item_id


class ModelNotTrainedError(ConflictError):
    """The collection has no active model yet; says why its last retrain failed, if it did."""

    code = "model-not-trained"
    title = "No trained model"

    def __init__(self, collection: str, last_failure: str | None = None) -> None:
        self.collection = collection
        self.last_failure = last_failure
        super().__init__(self.message("train"))

    def message(self, how_to_train: str) -> str:
        """Return the message for a caller who starts a training by `how_to_train`."""
        failure = f"; its last retrain failed: {self.last_failure}" if self.last_failure else ""
        return (
            f"collection {self.collection!r} has no trained model: add labelled items of both modalities, "
            f"then {how_to_train}{failure}"
        )


class ModelNotFoundError(NotFoundError):
    """No model version of that number."""

    code = "model-not-found"
    title = "Model version not found"

    def __init__(self, collection: str, version: int) -> None:
        super().__init__(f"collection {collection!r} has no model version {version}")
        self.version = version


class TrainingAlreadyRunningError(ConflictError):
    """A retrain of the collection is queued or running."""

    code = "training-already-running"
    title = "Training already running"

    def __init__(self, collection: str) -> None:
        super().__init__(f"a retrain of {collection!r} is already queued or running")
        self.collection = collection


class TrainingDataError(ConflictError):
    """The items at hand cannot be trained on."""

    code = "training-data"
    title = "Nothing to train on"


class JobNotFoundError(NotFoundError):
    """No job of that id."""

    code = "job-not-found"
    title = "Job not found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}")
        self.job_id = job_id


class JobCancelledError(ConflictError):
    """The job was asked to stop, or belongs to another worker by now."""

    code = "job-cancelled"
    title = "Job cancelled"


class DamagedBundleError(UnavailableError):
    """A model bundle on disk is incomplete or does not match its sums."""

    code = "damaged-bundle"
    title = "Model bundle damaged"


class DamagedVersionError(ConflictError):
    """A version that was to serve has a damaged bundle; whatever serves goes on."""

    code = "damaged-version"
    title = "Model version damaged"

    def __init__(self, collection: str, version: int, damage: str) -> None:
        super().__init__(f"version {version} of {collection!r} cannot serve: {damage}; nothing was changed")
        self.version = version


class ActiveVersionConflictError(ConflictError):
    """Another version is active than the caller took for granted."""

    code = "active-version-conflict"
    title = "Another version is active"

    def __init__(self, collection: str, expected: int | None, active: int | None) -> None:
        super().__init__(
            f"{_version(expected)} was expected to be active in {collection!r}, but {_version(active)} is"
        )
        self.expected = expected
        self.active = active


class NoPreviousVersionError(ConflictError):
    """There is nothing to roll back to."""

    code = "no-previous-version"
    title = "Nothing to roll back to"

    def __init__(self, collection: str) -> None:
        super().__init__(f"collection {collection!r} had no other version active before: nothing was changed")
        self.collection = collection


class EncoderUnavailableError(UnavailableError):
    """An encoder needs a library or a file that is not there, or not as it was."""

    code = "encoder-unavailable"
    title = "Encoder unavailable"


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


class ImportRunningError(UnavailableError):
    """An import is being stored into the collection, and other writes to it have to wait."""

    code = "import-running"
    title = "Import running"

    retry_after_seconds = 5

    def __init__(self, collection: str, size: int, seconds: float) -> None:
        super().__init__(
            f"an import of {size} items is being stored into {collection!r}, since {seconds:.0f} s: "
            "try again when it is done"
        )
        self.collection = collection


class ImportLostError(DatabaseUnavailableError):
    """An import was silent for longer than its lease, and somebody else began to remove it."""

    title = "Import interrupted"

    def __init__(self) -> None:
        super().__init__("the import was interrupted for too long and nothing of it is stored: try again")


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
        self.stored = stored
        self.newest = newest


class UnauthenticatedError(ServiceError):
    """The call needs a key."""

    code = "unauthenticated"
    title = "Key needed"


class KeyMissingError(UnauthenticatedError):
    """The call needs a key and came without one."""

    def __init__(self) -> None:
        super().__init__("this call needs a key")


class ForbiddenError(AccessDeniedError):
    """The key is valid but lacks the scope."""

    title = "Key lacks a scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope!r}")
        self.scope = scope


class KeyIsBoundError(AccessDeniedError):
    """The key is bound to collections, and the call is not about one of them."""

    title = "Key is bound to collections"

    def __init__(self) -> None:
        super().__init__("the key is bound to some collections, and this call is not about one of them")


class RateLimitedError(ServiceError):
    """More requests than the key is allowed."""

    code = "rate-limited"
    title = "Too many requests"

    def __init__(self, requests_per_minute: int, retry_after_seconds: int) -> None:
        super().__init__(
            f"more than {requests_per_minute} requests in a minute: try again in {retry_after_seconds} s"
        )
        self.retry_after_seconds = retry_after_seconds


class OverloadedError(UnavailableError):
    """More work is waiting than will be begun soon."""

    code = "overloaded"
    title = "Service overloaded"

    retry_after_seconds = 1

    def __init__(self, reason: str = "too many requests are waiting already") -> None:
        super().__init__(f"{reason}: try again in a moment")


class StoppingError(UnavailableError):
    """The service ends before the work is done; whether a write was stored is not known."""

    code = "stopping"
    title = "Service stopping"

    retry_after_seconds = 5

    def __init__(self) -> None:
        super().__init__("the service is stopping before this is finished: send it again in a moment")


class BodyTimeoutError(ServiceError):
    """The rest of a body did not come in time."""

    code = "body-timeout"
    title = "Body incomplete"

    def __init__(self) -> None:
        super().__init__("body: the rest of it did not come in time")
        self.field = "body"


class KeyNotFoundError(NotFoundError):
    """No key of that id."""

    code = "key-not-found"
    title = "Key not found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no key {key_id!r}")
        self.key_id = key_id


def _version(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
