"""Errors of the service: each says what is wrong, and each way in adds what its users can do about it.
`app.api.problems` makes problems of HTTP of them, `app.cli.failures` lines of the terminal."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, NamedTuple

_SHOWN = 5
"""Names of files in a message."""
_EXPECTED = {
    "picture": "a picture",
    "sound": "a sound",
    "text": "a text that is not empty",
    "vector": "a vector of numbers",
}
"""What to say of the form of content that an encoder takes."""


class ServiceError(Exception):
    """What the service refuses or cannot do: its `code` (see `PROBLEMS`), where (`field`, and `line` of an
    import), the message of its code unless it has its own, and `facts` for what a way in says besides."""

    def __init__(self, code: str, message: str | None = None, field: str | None = None, **facts: Any) -> None:
        super().__init__(PROBLEMS[code].message if message is None else message)
        self.code, self.field, self.facts = code, field, facts
        self.line: int | None = None

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.line is None else f"line {self.line}: {message}"

    def at_line(self, line: int) -> ServiceError:
        """Return this error as one of a line."""
        self.line = line
        return self


class NotFoundError(ServiceError):
    """Something that the caller named does not exist."""


class CollectionNotFoundError(NotFoundError):
    """No collection of that name."""

    def __init__(self, name: str) -> None:
        super().__init__("collection-not-found", f"there is no collection {name!r}")


class ConflictError(ServiceError):
    """The call does not fit the state of what it is about."""


class JobCancelledError(ConflictError):
    """The job was asked to stop, or belongs to another worker by now."""

    def __init__(self, message: str) -> None:
        super().__init__("job-cancelled", message)


class InvalidFieldError(ServiceError):
    """The value of a field is not allowed, or not what the collection or the encoder expects."""

    field: str

    def __init__(self, field: str, message: str, code: str = "invalid-field", **facts: Any) -> None:
        super().__init__(code, f"{field}: {message}", field, **facts)
        self.message = message


class ContentTooLargeError(ServiceError):
    """A picture, a text or a batch over its limit."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__("content-too-large", f"{field}: {message}", field)


class UnavailableError(ServiceError):
    """The service cannot do its work at the moment."""


class DatabaseUnavailableError(UnavailableError):
    """The database does not answer, takes no writes, or is not the right one."""

    def __init__(self, code: str = "database-unavailable", message: str | None = None) -> None:
        super().__init__(code, message)


class DamagedBundleError(UnavailableError):
    """A model bundle on disk is incomplete or does not match its sums."""

    def __init__(self, message: str) -> None:
        super().__init__("damaged-bundle", message)


class EncoderUnavailableError(UnavailableError):
    """An encoder needs a library or a file that is not there, or not as it was."""

    def __init__(self, message: str) -> None:
        super().__init__("encoder-unavailable", message)


class VectorEngineUnavailableError(UnavailableError):
    """The engine that keeps the galleries cannot do its work."""

    def __init__(self, reason: str, code: str = "vector-engine-unavailable") -> None:
        super().__init__(code, f"the vector engine cannot be used: {reason}")


class Problem(NamedTuple):
    """A kind of error: its status and title, the class it is caught as, and what it says by default.
    `type` is its name on the wire where several kinds share one; `wait` the seconds until a retry."""

    status: int
    title: str
    family: type[ServiceError]
    message: str = ""
    type: str | None = None
    wait: int | None = None


def _of_database(title: str, message: str) -> Problem:
    """Return a kind of error that is one of the database on the wire."""
    return Problem(503, title, DatabaseUnavailableError, message, "database-unavailable")


_AGAIN = "try again in a moment"
PROBLEMS: dict[str, Problem] = {
    "unauthenticated": Problem(401, "Key needed", ServiceError),
    "key-missing": Problem(401, "Key needed", ServiceError, "this call needs a key", "unauthenticated"),
    "forbidden": Problem(403, "Key lacks a scope", ServiceError),
    "key-bound": Problem(
        403,
        "Key is bound to collections",
        ServiceError,
        "the key is bound to some collections, and this call is not about one of them",
        "forbidden",
    ),
    "collection-not-found": Problem(404, "Collection not found", CollectionNotFoundError),
    "item-not-found": Problem(404, "Item not found", NotFoundError),
    "feedback-not-found": Problem(404, "Feedback not found", NotFoundError),
    "key-not-found": Problem(404, "Key not found", NotFoundError),
    "model-not-found": Problem(404, "Model version not found", NotFoundError),
    "plot-not-found": Problem(404, "Nothing to plot", NotFoundError),
    "job-not-found": Problem(404, "Job not found", NotFoundError),
    "body-timeout": Problem(
        408, "Body incomplete", ServiceError, "body: the rest of it did not come in time"
    ),
    "collection-exists": Problem(409, "Collection exists", ConflictError),
    "item-exists": Problem(409, "Item exists", ConflictError),
    "item-repeated": Problem(409, "Item repeated", ConflictError),
    "model-not-trained": Problem(409, "No trained model", ConflictError),
    "training-already-running": Problem(409, "Training already running", ConflictError),
    "training-data": Problem(409, "Nothing to train on", ConflictError),
    "job-cancelled": Problem(409, "Job cancelled", JobCancelledError),
    "damaged-version": Problem(409, "Model version damaged", ConflictError),
    "active-version-conflict": Problem(409, "Another version is active", ConflictError),
    "no-previous-version": Problem(409, "Nothing to roll back to", ConflictError),
    "content-missing": Problem(410, "Content missing", ServiceError),
    "content-too-large": Problem(413, "Content too large", ContentTooLargeError),
    "invalid-field": Problem(422, "Invalid field", InvalidFieldError),
    "unknown-modality": Problem(422, "Unknown modality", InvalidFieldError),
    "unknown-label": Problem(422, "Unknown label", InvalidFieldError),
    "rate-limited": Problem(429, "Too many requests", ServiceError),
    "database-unavailable": _of_database(
        "Database unavailable", "the database does not answer or is busy: try again"
    ),
    "database-unopened": _of_database(
        "Database file cannot be opened",
        "the database file cannot be opened: correct its permissions; on a read-only disk SQLite needs "
        "the -wal and -shm files beside it",
    ),
    "database-damaged": _of_database(
        "Database file damaged", "the database file is damaged: move a whole copy into its place"
    ),
    "database-missing": _of_database(
        "Database file missing", "the database file is not at its place: nothing was written; bring it back"
    ),
    "import-lost": _of_database(
        "Import interrupted", "the import was interrupted for too long and nothing of it is stored: try again"
    ),
    "wrong-database": Problem(503, "Not the database of the data folder", DatabaseUnavailableError),
    "schema-outdated": Problem(
        503,
        "Database schema outdated",
        UnavailableError,
        "the database schema is not current: run lrbs db upgrade",
    ),
    "newer-report": Problem(
        503, "Database written by a newer release", UnavailableError, type="schema-outdated"
    ),
    "damaged-bundle": Problem(503, "Model bundle damaged", DamagedBundleError),
    "damaged-files": Problem(503, "Stored files damaged", UnavailableError),
    "encoder-unavailable": Problem(503, "Encoder unavailable", EncoderUnavailableError),
    "import-running": Problem(503, "Import running", UnavailableError),
    "overloaded": Problem(503, "Service overloaded", UnavailableError, wait=1),
    "plots-unavailable": Problem(
        503, "Plots unavailable", UnavailableError, wait=3600
    ),  # an operator has to install the library first
    "stopping": Problem(
        503,
        "Service stopping",
        UnavailableError,
        "the service is stopping before this is finished: send it again in a moment",
    ),
    "storage-unavailable": Problem(503, "Storage unavailable", UnavailableError),
    "vector-engine-unavailable": Problem(503, "Vector engine unavailable", VectorEngineUnavailableError),
    "galleries-gone": Problem(
        503, "Vector engine unavailable", VectorEngineUnavailableError, type="vector-engine-unavailable"
    ),
    "storage-full": Problem(
        507, "Storage full", DatabaseUnavailableError, "no space is left for this: nothing was stored"
    ),
    "storage-read-only": Problem(
        507, "Storage read-only", DatabaseUnavailableError, "the storage is read-only: nothing was stored"
    ),
}
"""Every kind of error by its code, which never changes once released."""
DISK_FAULTS = ("storage-full", "storage-read-only")
_OF_SYSTEM = {
    errno.ENOSPC: "storage-full",
    errno.EDQUOT: "storage-full",
    errno.EFBIG: "storage-full",
    errno.EROFS: "storage-read-only",
}


def storage_error(error: OSError) -> ServiceError | None:
    """Return the storage error that an error of the file system stands for; None for any other fault."""
    code = _OF_SYSTEM.get(error.errno or 0)
    return None if code is None else DatabaseUnavailableError(code)


def storage_unavailable(reason: str) -> UnavailableError:
    """Return the error of an object store that does not answer, or refuses."""
    return UnavailableError(
        "storage-unavailable", f"the storage of LRBS_STORAGE_URL cannot be used: {reason}"
    )


def galleries_gone() -> VectorEngineUnavailableError:
    """Return the error of an engine that has no such gallery any more; the next search has it made again."""
    return VectorEngineUnavailableError(
        "its galleries are gone, and are made again: try again", "galleries-gone"
    )


def overload(reason: str = "too many requests are waiting already") -> UnavailableError:
    """Return the error of more work waiting than will be begun soon."""
    return UnavailableError("overloaded", f"{reason}: {_AGAIN}")


def not_trainable(reason: str) -> ConflictError:
    """Return the error of a training, or what needs one, without enough to learn from."""
    return ConflictError("training-data", reason)


def item_not_found(collection: str, item_id: str, field: str | None = None) -> NotFoundError:
    """Return the error of an id that no item has; `field` is where the body of a request names it."""
    place = "" if field is None else f"{field}: "
    message = f"{place}collection {collection!r} has no item {item_id!r}"
    return NotFoundError("item-not-found", message, field)


def job_not_found(job_id: str) -> NotFoundError:
    """Return the error of an id that no job has."""
    return NotFoundError("job-not-found", f"there is no job {job_id!r}")


def content_missing(collection: str, item_id: str) -> ServiceError:
    """Return the error of an item whose picture is no longer in the store."""
    return ServiceError("content-missing", f"the picture of item {item_id!r} of {collection!r} is lost")


def item_exists(field: str, item_id: str) -> ConflictError:
    """Return the error of an id that an item has already, or that stands twice in one request."""
    return ConflictError("item-exists", f"{field}: an item {item_id!r} exists already", field)


def wrong_content(field: str, form: str) -> InvalidFieldError:
    """Return the error of content of another form than an encoder takes, or of an empty text."""
    return InvalidFieldError(field, f"expected {_EXPECTED[form]}", form=form)


def unknown_modality(field: str, modality: str, modalities: tuple[str, ...]) -> InvalidFieldError:
    """Return the error of a modality that the collection does not have."""
    message = f"unknown modality {modality!r}, the collection has {' and '.join(modalities)}"
    return InvalidFieldError(field, message, "unknown-modality")


def model_not_trained(collection: str, material: str, last_failure: str | None = None) -> ConflictError:
    """Return the error of a collection without an active model, which says what there is to train on. A way
    in joins the `parts` of its message by its own way to train."""
    failure = f"; its last retrain failed: {last_failure}" if last_failure else ""
    parts = f"collection {collection!r} has no trained model: {material}; to train: ", failure
    message = "request a retrain".join(parts)
    return ConflictError("model-not-trained", message, collection=collection, parts=parts)


def damaged_version(collection: str, version: int, damage: str) -> ConflictError:
    """Return the error of a version that was to serve and has a damaged bundle; whatever serves goes on."""
    message = f"version {version} of {collection!r} cannot serve: {damage}; nothing was changed"
    return ConflictError("damaged-version", message)


def other_version_active(collection: str, expected: int | None, active: int | None) -> ConflictError:
    """Return the error of another version being active than the caller took for granted."""
    message = f"{_version(expected)} was expected to be active in {collection!r}, but {_version(active)} is"
    return ConflictError("active-version-conflict", message, "expected_version")


def damaged_files(names: Sequence[str], advice: str) -> UnavailableError:
    """Return the error of files that were to be copied and are missing, or do not match their sums."""
    others = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return UnavailableError("damaged-files", f"damaged: {', '.join(names[:_SHOWN])}{others}; {advice}")


def _version(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
