"""Base classes and types of the wire models, and the content that they carry."""

from __future__ import annotations

import base64
import binascii
import re
from array import array
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import quote

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue

from app.domain.entities import Content, ShownItem
from app.domain.errors import InvalidFieldError
from app.domain.names import (
    IDENTIFIER_PATTERN,
    MAX_IDENTIFIER,
    MAX_LABEL,
    MAX_MAGNITUDE,
    MAX_NAME,
    NAME_PATTERN,
    STORABLE_PATTERN,
    is_storable,
    join_path,
    join_words,
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
NAME: JsonDict = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": f"^{NAME_PATTERN}$"}
"""What the document says of a collection's or a modality's name; `app.domain.names` refuses the rest."""


_WITH_TEXT = (str, list, dict)
_NEVER_QUOTED = re.compile(r"[A-Za-z0-9_.~-]+")
"""Ids that stand in an address as they are, as most; to find that out by `quote` takes five times as long."""


class Strict(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed; so is text no database can hold.

    Values are of their field's type: a number in quotes is no number, and ``false`` is no zero.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="after")
    def _check_characters(self) -> Self:
        for name, value in self.__dict__.items():  # faster than the model's iterator
            if name == "vector":
                continue  # its numbers are finite already, and may be millions
            if isinstance(value, _WITH_TEXT) and not is_storable(value):
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
    field: str | None = Field(None, description="path of the faulty field in the request: items.3.vector")
    line: int | None = Field(None, description="in an import: the line of the field")
    errors: list[FieldError] | None = Field(None, description="of an invalid request, each with its field")
    correlation_id: str | None = Field(None, description="of an unexpected error, to find it in the log")


_File = Annotated[str, WithJsonSchema({"type": "string", "format": "byte", "minLength": 4})]
_Number = Annotated[
    FiniteFloat, WithJsonSchema({"type": "number", "minimum": -MAX_MAGNITUDE, "maximum": MAX_MAGNITUDE})
]


class RawIn(Strict):
    """Content in exactly one of its forms."""

    FORMS: ClassVar[tuple[str, ...]] = ("text", "image_base64", "sound_base64", "vector")

    text: Text | None = None
    image_base64: _File | None = Field(
        None, description="a picture file (JPEG, PNG, WebP, TIFF, AVIF and others), base64"
    )
    sound_base64: _File | None = Field(None, description="a sound file, base64")
    # Only the first mistake in a list is reported: all of them would take far more memory than the request.
    vector: list[_Number] | None = Field(
        None, fail_fast=True, description="own features", json_schema_extra={"minItems": 1}
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say that one of the forms is given and the others are absent or null."""
        schema = handler(core_schema)
        handler.resolve_ref_schema(schema)["oneOf"] = [
            {
                "title": form,
                "required": [form],
                "properties": {
                    other: {"not": {"type": "null"}} if other == form else {"type": "null"}
                    for other in cls.FORMS
                },
            }
            for form in cls.FORMS
        ]
        return schema

    def to_content(self, place: str) -> Content:
        """Return the content; raises InvalidFieldError unless exactly one form is given."""
        self.check_one_of(place)
        picture, sound = (
            None if encoded is None else decode_file(join_path(place, name), encoded)
            for name, encoded in (("image_base64", self.image_base64), ("sound_base64", self.sound_base64))
        )
        # A list of Python's numbers takes four times as much, and a request may bring many.
        vector = None if self.vector is None else array("d", self.vector)
        return Content(self.text, picture, vector, "image_base64", sound, "sound_base64")

    def check_one_of(self, place: str) -> None:
        """Refuse none and several of the forms; names the second of several."""
        forms = [name for name in self.FORMS if getattr(self, name) is not None]
        if len(forms) != 1:
            field = join_path(place, forms[1]) if forms else place or "body"
            got = join_words(forms, "and") if forms else "none"
            raise InvalidFieldError(field, f"expected exactly one of {join_words(self.FORMS)}, got {got}")


def decode_file(field: str, encoded: str) -> bytes:
    """Return the bytes of a picture or sound in base64; raises InvalidFieldError."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidFieldError(field, f"is not base64: {error}") from error


def content_url(collection: str, item: ShownItem, root_path: str) -> str | None:
    """Return where a picture or sound can be fetched, of a service under a path."""
    if item.content_hash is None:
        return None
    item_id = item.id if _NEVER_QUOTED.fullmatch(item.id) else quote(item.id, safe="")
    return f"{root_path}/v1/collections/{collection}/items/{item_id}/content"
