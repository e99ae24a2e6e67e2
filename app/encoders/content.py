"""Raw content of an item or a query, and safe opening of pictures."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageOps, UnidentifiedImageError

from app.domain.errors import ContentTooLargeError, InvalidFieldError

PICTURE_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}


@dataclass(frozen=True, slots=True)
class Content:
    """What a client sent: exactly one of the three."""

    text: str | None = None
    picture: bytes | None = None
    vector: Sequence[float] | None = None

    @property
    def picture_hash(self) -> str:
        """SHA-256 of the picture file."""
        return hashlib.sha256(self.picture or b"").hexdigest()


def open_picture(field: str, content: bytes, max_pixels: int) -> Image.Image:
    """Decode a picture to RGB, upright.

    Parameters
    ----------
    field : str
        Named in errors.
    content : bytes
        A picture file.
    max_pixels : int
        Refused above, before anything is decoded.

    Raises
    ------
    InvalidFieldError
        If it is not a picture of a known format, or is damaged.
    ContentTooLargeError
        If it has too many pixels.
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own bomb warning has another limit; ours is checked below.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=tuple(PICTURE_TYPES)) as picture:
                if picture.width * picture.height > max_pixels:
                    raise ContentTooLargeError(
                        field, f"{picture.width} x {picture.height} pixels, at most {max_pixels} allowed"
                    )
                return ImageOps.exif_transpose(picture).convert("RGB")
    except Image.DecompressionBombError as error:
        raise ContentTooLargeError(field, str(error)) from error
    except UnidentifiedImageError as error:
        raise InvalidFieldError(field, f"not a picture; expected one of {list(PICTURE_TYPES)}") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise InvalidFieldError(field, f"the picture is damaged: {error}") from error


def picture_type(content: bytes) -> str:
    """Return the media type of a picture that `open_picture` accepted."""
    with Image.open(io.BytesIO(content), formats=tuple(PICTURE_TYPES)) as picture:
        return PICTURE_TYPES[picture.format or "PNG"]
