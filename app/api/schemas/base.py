"""What all wire models share."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from app.domain.names import is_storable

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:@+\-]+$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Strict(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed; so is text no database can hold."""

    model_config = ConfigDict(extra="forbid")

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

    type: str
    title: str
    status: int
    detail: str
    instance: str
    field: str | None = Field(None, description="path of the culprit in what was sent: items.3.vector")
    line: int | None = Field(None, description="of an import: the line that the field stands on")
    errors: list[FieldError] | None = Field(None, description="of an invalid request, each with its field")
    correlation_id: str | None = Field(None, description="of an unexpected error, to find it in the log")
