"""Safe opening of pictures, and the types of files."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import join_words

_MEDIA_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
_LONGEST_SIDE = 65_535
"""Pixels: Pillow keeps a table of a picture's rows in memory; most formats allow no longer side."""
_TIMES_HELD = {"WEBP": 3}
"""Memory that a format's decoder takes, relative to the others: WebP's holds several whole pictures."""
_TILE_ROWS, _TILE_COLUMNS = 64, 1 << 14
_UNDO_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each EXIF orientation."""


class PixelBudget:
    """Bounds the pixels that are being decoded by all threads that share it.

    Parameters
    ----------
    max_pixels : int
        Limit on all open pictures together; a larger picture is opened alone.
    """

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._used = 0
        self._turn = threading.Lock()
        self._room = threading.Condition()

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Wait until there is room, first come first served, and take it for the time of the block."""
        # A waiting caller keeps its turn, so that a large picture is not overtaken by small ones.
        with self._turn, self._room:
            self._room.wait_for(lambda: not self._used or self._used + pixels <= self._max_pixels)
            self._used += pixels
        try:
            yield
        finally:
            with self._room:
                self._used -= pixels
                self._room.notify_all()


@contextmanager
def opened_picture(field: str, content: bytes, max_pixels: int, budget: PixelBudget) -> Iterator[Image.Image]:
    """Decode a picture to RGB, upright, for the time of the block.

    Parameters
    ----------
    field : str
        Named in errors.
    content : bytes
        A picture file.
    max_pixels : int
        Refused above, before anything is decoded.
    budget : PixelBudget
        Waited for before anything is decoded.

    Raises
    ------
    InvalidFieldError
        If it is not a picture of a known format, or is damaged.
    ContentTooLargeError
        If it has too many pixels.
    """
    with _translate_errors(field):
        width, height, form = _head(content)
    if max(width, height) > _LONGEST_SIDE:
        raise ContentTooLargeError(field, f"{width} x {height} pixels, no side over {_LONGEST_SIDE} allowed")
    times_held = _TIMES_HELD.get(form, 1)
    allowed = max_pixels // times_held
    if width * height > allowed:
        raise ContentTooLargeError(field, f"{width} x {height} pixels, at most {allowed} allowed in {form}")
    with budget.reserve(times_held * width * height):
        with _translate_errors(field):
            picture = _decode(content)
        yield picture


@contextmanager
def _translate_errors(field: str) -> Iterator[None]:
    """Raise the errors of picture readers as errors of the service."""
    try:
        with warnings.catch_warnings():
            # Of damaged metadata, and of a size above Pillow's own limit; ours is checked by the caller.
            warnings.simplefilter("ignore")
            yield
    except Image.DecompressionBombError as error:
        raise ContentTooLargeError(field, str(error)) from error
    except UnidentifiedImageError as error:
        raise InvalidFieldError(
            field, f"is not a picture; expected a file in {join_words(_MEDIA_TYPES)} format"
        ) from error
    except Exception as error:
        # Pillow's readers raise whatever their parsing meets: struct.error, TypeError, IndexError, ...
        raise InvalidFieldError(field, f"the picture is damaged: {error}") from error


def _head(content: bytes) -> tuple[int, int, str]:
    """Return width, height and format, read from the head of a file."""
    with Image.open(io.BytesIO(content), formats=tuple(_MEDIA_TYPES)) as picture:
        return *picture.size, picture.format or "PNG"


def _decode(content: bytes) -> Image.Image:
    with Image.open(io.BytesIO(content), formats=tuple(_MEDIA_TYPES)) as source:
        source.load()
        orientation = _orientation(source)
        picture = _to_rgb(source)
    # Before it is turned, which makes a copy: a picture may take 160 MB, and here it is held once.
    del source
    return _upright(picture, orientation)


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation; a picture whose EXIF part is damaged is taken as it lies."""
    try:
        return int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return 1


def _upright(picture: Image.Image, orientation: int) -> Image.Image:
    method = _UNDO_ORIENTATION.get(orientation)
    return picture if method is None else picture.transpose(method)


def _to_rgb(picture: Image.Image) -> Image.Image:
    """Return eight bits a channel; transparent parts show the white page they would lie on.

    What needs steps in between takes them tile by tile: whole, each would be one more copy in memory.
    """
    if picture.mode.startswith("I"):
        to_rgb = _from_sixteen_bits
    elif picture.has_transparency_data:
        to_rgb = _on_white
    else:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    page = Image.new("RGB", picture.size)
    for top in range(0, picture.height, _TILE_ROWS):
        bottom = min(top + _TILE_ROWS, picture.height)
        for left in range(0, picture.width, _TILE_COLUMNS):
            right = min(left + _TILE_COLUMNS, picture.width)
            page.paste(to_rgb(picture.crop((left, top, right, bottom))), (left, top))
    return page


def _from_sixteen_bits(tile: Image.Image) -> Image.Image:
    # Sixteen bits of grey: Pillow's own conversion would cut everything above 255.
    levels = np.asarray(tile).astype(np.float64) / 257.0
    return Image.fromarray(np.clip(levels.round(), 0, 255).astype(np.uint8)).convert("RGB")


def _on_white(tile: Image.Image) -> Image.Image:
    page = Image.new("RGBA", tile.size, "white")
    return Image.alpha_composite(page, tile.convert("RGBA")).convert("RGB")


def picture_type(content: bytes) -> str:
    """Return the media type of a picture that `opened_picture` accepted."""
    with Image.open(io.BytesIO(content), formats=tuple(_MEDIA_TYPES)) as picture:
        return _MEDIA_TYPES[picture.format or "PNG"]


def sound_type(content: bytes) -> str:
    """Return the media type of a sound that an encoder accepted."""
    return "audio/flac" if content.startswith(b"fLaC") else "audio/wav"
