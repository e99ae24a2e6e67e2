"""Base classes and types of the wire models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from app.domain.names import (
    IDENTIFIER_PATTERN,
    MAX_IDENTIFIER,
    MAX_LABEL,
    MAX_NAME,
    NAME_PATTERN,
    STORABLE_PATTERN,
    is_storable,
)


def whole(value: Any) -> Any:
    """Return a float without a fraction as an integer, and anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def one_of(words: Iterable[str]) -> str:
    """Return the pattern that exactly these words match."""
    return f"^({'|'.join(words)})$"


Integer = Annotated[int, BeforeValidator(whole)]
"""To JSON 3.0 is an integer, whatever a strict model thinks of it."""
Identifier = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_IDENTIFIER, pattern=f"^{IDENTIFIER_PATTERN}$")
]
Label = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_LABEL),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_LABEL, "pattern": STORABLE_PATTERN}),
]
Text = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "pattern": STORABLE_PATTERN})]
NAME: JsonDict = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME,
    "pattern": f"^{NAME_PATTERN}$",
}
"""What the document says of a collection's or a modality's name; `app.domain.names` refuses the rest."""


EXAMPLE_TIME = "2026-01-31T12:00:00Z"


class Strict(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed; so is text no database can hold.

    Values are of their field's type: a number in quotes is no number, and ``false`` is no zero.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="after")
    def _check_characters(self) -> Self:
        for name, value in self:
            if name == "vector":
                continue  # its numbers are finite already, and may be millions
            if isinstance(value, str | list | dict) and not is_storable(value):
                raise ValueError(f"{name} contains NUL, a lone surrogate, NaN or infinity")
        return self


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str
    message: str


class Problem(BaseModel):
    """An error as RFC 9457 describes it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/invalid-request",
                    "title": "Invalid request",
                    "status": 422,
                    "detail": "items.3.vector.1: Input should be a finite number",
                    "instance": "/v1/collections/products/items",
                    "field": "items.3.vector.1",
                    "errors": [{"field": "items.3.vector.1", "message": "Input should be a finite number"}],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str
    field: str | None = Field(None, description="path of the faulty field in the request: items.3.vector")
    line: int | None = Field(None, description="in an import: the line of the field")
    errors: list[FieldError] | None = Field(None, description="of an invalid request, each with its field")
    correlation_id: str | None = Field(None, description="of an unexpected error, to find it in the log")
