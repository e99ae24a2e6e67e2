"""Errors of collections, their items, and imports."""

from __future__ import annotations

from typing import Literal

from app.domain.errors.base import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    UnavailableError,
)
from app.domain.errors.storage import DatabaseUnavailableError


class CollectionNotFoundError(NotFoundError):
    """No collection of that name."""

    code = "collection-not-found"
    title = "Collection not found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")


class CollectionExistsError(ConflictError):
    """A collection of that name exists already."""

    code = "collection-exists"
    title = "Collection exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"a collection {name!r} exists already: delete it first or choose another name")


class ItemNotFoundError(NotFoundError):
    """No item of that id in the collection; `field` says where the request names it, if in its body."""

    code = "item-not-found"
    title = "Item not found"

    def __init__(self, collection: str, item_id: str, field: str | None = None) -> None:
        place = "" if field is None else f"{field}: "
        super().__init__(f"{place}collection {collection!r} has no item {item_id!r}")
        self.field = field


class FeedbackNotFoundError(NotFoundError):
    """No feedback of that id in the collection."""

    code = "feedback-not-found"
    title = "Feedback not found"

    def __init__(self, collection: str, feedback_id: int) -> None:
        super().__init__(f"collection {collection!r} has no feedback {feedback_id}")


class ContentMissingError(ServiceError):
    """The picture of an item is no longer in the store."""

    code = "content-missing"
    title = "Content missing"

    def __init__(self, collection: str, item_id: str) -> None:
        super().__init__(f"the picture of item {item_id!r} of {collection!r} is lost")


class ItemExistsError(ConflictError):
    """An item of that id exists already, or the id stands twice in one request."""

    code = "item-exists"
    title = "Item exists"

    def __init__(self, field: str, item_id: str) -> None:
        super().__init__(f"{field}: an item {item_id!r} exists already")
        self.field = field


class InvalidFieldError(InvalidRequestError):
    """A field's value is not what the collection or the encoder expects."""

    code = "invalid-field"
    title = "Invalid field"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


ContentForm = Literal["picture", "sound", "text", "vector"]
_EXPECTED: dict[ContentForm, str] = {
    "picture": "a picture",
    "sound": "a sound",
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


class UnknownLabelError(InvalidRequestError):
    """A label that no item of the collection carries."""

    code = "unknown-label"
    title = "Unknown label"

    def __init__(self, field: str, label: str, collection: str) -> None:
        super().__init__(f"{field}: no item of collection {collection!r} has the label {label!r}")
        self.field = field


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


class ImportLostError(DatabaseUnavailableError):
    """An import was silent for longer than its lease, and somebody else began to remove it."""

    title = "Import interrupted"

    def __init__(self) -> None:
        super().__init__("the import was interrupted for too long and nothing of it is stored: try again")
