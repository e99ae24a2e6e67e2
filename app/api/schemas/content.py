"""Content of items and queries, on its way in and out."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from pydantic import Field

from app.api.schemas.base import Strict
from app.domain.entities import Content, Item
from app.domain.errors import InvalidFieldError


class RawIn(Strict):
    """Content in one of its forms."""

    text: str | None = None
    image_base64: str | None = Field(None, description="a picture file, base64")
    vector: list[float] | None = Field(None, description="own features")

    def to_content(self, field: str) -> Content:
        """Return the content; raises InvalidFieldError unless exactly one form is given."""
        given = [name for name in ("text", "image_base64", "vector") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidFieldError(field, f"expected exactly one of text, image_base64, vector; got {given}")
        picture = (
            None if self.image_base64 is None else decode_picture(f"{field}.image_base64", self.image_base64)
        )
        return Content(self.text, picture, self.vector)


def decode_picture(field: str, encoded: str) -> bytes:
    """Return the bytes of a base64 picture; raises InvalidFieldError."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidFieldError(field, f"is not base64: {error}") from error


def content_url(collection: str, item: Item) -> str | None:
    """Return where a picture can be fetched."""
    if item.content_hash is None:
        return None
    return f"/v1/collections/{collection}/items/{quote(item.id, safe='')}/content"
