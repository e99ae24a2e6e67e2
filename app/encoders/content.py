"""Safe opening of pictures."""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.domain.names import listed

_MEDIA_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
_METHODS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each EXIF orientation."""


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
            # Of damaged metadata, and of a size above Pillow's own limit; ours is checked below.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=tuple(_MEDIA_TYPES)) as picture:
                if picture.width * picture.height > max_pixels:
                    raise ContentTooLargeError(
                        field, f"{picture.width} x {picture.height} pixels, at most {max_pixels} allowed"
                    )
                picture.load()
                return _upright(_to_rgb(picture), _orientation(picture))
    except ServiceError:
        raise
    except Image.DecompressionBombError as error:
        raise ContentTooLargeError(field, str(error)) from error
    except UnidentifiedImageError as error:
        raise InvalidFieldError(
            field, f"is not a picture; expected a file in {listed(_MEDIA_TYPES)} format"
        ) from error
    except Exception as error:
        # Pillow's readers raise whatever their parsing meets: struct.error, TypeError, IndexError, ...
        raise InvalidFieldError(field, f"the picture is damaged: {error}") from error


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation; a picture whose EXIF part is damaged is taken as it lies."""
    try:
        return int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return 1


def _upright(picture: Image.Image, orientation: int) -> Image.Image:
    method = _METHODS.get(orientation)
    return picture if method is None else picture.transpose(method)


def _to_rgb(picture: Image.Image) -> Image.Image:
    """Return eight bits a channel; transparent parts show the white page they would lie on."""
    if picture.mode.startswith("I"):
        # Sixteen bits of grey: Pillow's own conversion would cut everything above 255.
        levels = np.asarray(picture).astype(np.float64) / 257.0
        return Image.fromarray(np.clip(levels.round(), 0, 255).astype(np.uint8)).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    page = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(page, picture.convert("RGBA")).convert("RGB")


def picture_type(content: bytes) -> str:
    """Return the media type of a picture that `open_picture` accepted."""
    with Image.open(io.BytesIO(content), formats=tuple(_MEDIA_TYPES)) as picture:
        return _MEDIA_TYPES[picture.format or "PNG"]
