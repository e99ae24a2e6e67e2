"""Content of items and queries, on its way in and out."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from pydantic import Field, FiniteFloat

from app.api.schemas.base import Strict
from app.domain.entities import Content, Item
from app.domain.errors import InvalidFieldError
from app.domain.names import joined, listed


class RawIn(Strict):
    """Content in one of its forms."""

    text: str | None = None
    image_base64: str | None = Field(None, description="a picture file, base64")
    # Of a long list only the first mistake is told: all of them take far more memory than the request.
    vector: list[FiniteFloat] | None = Field(None, fail_fast=True, description="own features")

    def to_content(self, place: str) -> Content:
        """Return the content; raises InvalidFieldError unless exactly one form is given."""
        self.check_one_of(place, ("text", "image_base64", "vector"))
        field = joined(place, "image_base64")
        picture = None if self.image_base64 is None else decode_picture(field, self.image_base64)
        return Content(self.text, picture, self.vector)

    def check_one_of(self, place: str, forms: tuple[str, ...]) -> None:
        """Refuse none and several of the fields; names the second of several."""
        given = [name for name in forms if getattr(self, name) is not None]
        if len(given) != 1:
            field = joined(place, given[1]) if given else place or "body"
            got = listed(given, "and") if given else "none"
            raise InvalidFieldError(field, f"expected exactly one of {listed(forms)}, got {got}")


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
