"""Pictures: what is taken, safe opening, what is coded in an AVIF file; and what encoders of them share."""

from __future__ import annotations

import ctypes
import functools
import importlib
import io
import logging
import math
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    PHOTOMETRIC_INTERPRETATION,
    ROWSPERSTRIP,
    SAMPLESPERPIXEL,
    TILELENGTH,
    TILEWIDTH,
    ImageFileDirectory_v2,
    TiffImageFile,
)
from typing_extensions import override

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError, wrong_content
from app.domain.names import join_words
from app.encoders.base import BaseEncoder, map_in_threads

_CONTAINERS = (b"meta", b"moov", b"trak", b"mdia", b"minf", b"stbl")
_SEQUENCE_HEADER = 1
_MOST_PARTS, _TIMES_READ = 100_000, 4
"""Parts of a file that are looked at, and how often its bytes are: parts may be empty, and may overlap."""


def _bit_reader(content: memoryview, start: int = 0) -> Callable[[int], int]:
    """Return what reads the next number from bytes, given how many bits it has."""
    place = 8 * start

    def read(count: int) -> int:
        nonlocal place
        first, last = place // 8, (place + count + 7) // 8
        if last > len(content):
            raise EOFError("a part of the file is cut off")
        number = int.from_bytes(content[first:last])
        place += count
        return number >> (8 * last - place) & ((1 << count) - 1)

    return read


def coded_pixels(content: bytes) -> int:
    """Return how many pixels are coded in an AVIF file; of a damaged one raise whatever comes."""
    totals = {"picture": 0, "film": 0}  # a file may have both, of which one is decoded
    n_parts = n_bytes = 0
    for form, stream in _streams(memoryview(content)):
        place, n_bytes = 0, n_bytes + len(stream)
        if n_bytes > _TIMES_READ * len(content):
            raise ValueError("its parts overlap")
        while place < len(stream):
            n_parts += 1
            if n_parts > _MOST_PARTS:
                raise ValueError("it has too many parts")
            read = _bit_reader(stream, place)
            kind, has_extension, has_size, _ = (read(count) for count in (5, 1, 1, 1))
            place += 1 + has_extension
            size = len(stream) - place
            if has_size:
                size = 0
                for byte in range(8):  # little-endian, seven bits each
                    part = _bit_reader(stream, place)(8)
                    size, place = size | (part & 127) << 7 * byte, place + 1
                    if part < 128:
                        break
            if kind == _SEQUENCE_HEADER:
                totals[form] += _sequence_pixels(_bit_reader(stream, place))
            place += size
    return max(totals.values())


def _sequence_pixels(read: Callable[[int], int]) -> int:
    """Return the pixels of a frame; 5.5.1 of the specification of AV1."""
    read(4)
    if read(1):  # of a still picture
        read(5)
    else:
        delay_bits = 0
        if read(1):  # with times
            read(64)
            if read(1):
                zeros = 0
                while not read(1):
                    zeros += 1
                read(zeros)
            if read(1):
                delay_bits = read(5) + 1
                read(42)
        has_delays = read(1)
        for _ in range(read(5) + 1):
            read(12)
            if read(5) > 7:
                read(1)
            if delay_bits and read(1):
                read(2 * delay_bits + 1)
            if has_delays and read(1):
                read(4)
    width_bits, height_bits = read(4) + 1, read(4) + 1
    return (read(width_bits) + 1) * (read(height_bits) + 1)


def _boxes(content: memoryview, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the type of each box with start and end of what it holds, those inside containers, too."""
    while start + 8 <= end:
        size, kind, head = (
            int.from_bytes(content[start : start + 4]),
            bytes(content[start + 4 : start + 8]),
            8,
        )
        if size == 1:
            size, head = int.from_bytes(content[start + 8 : start + 16]), 16
        stop = end if size == 0 else min(start + max(size, head), end)
        yield kind, start + head, stop
        if kind in _CONTAINERS:
            yield from _boxes(content, start + head + 4 * (kind == b"meta"), stop)
        start = stop


def _streams(content: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield what is coded: each item of a still picture, and the first frame of each track of a film."""
    boxes = list(islice(_boxes(content, 0, len(content)), _MOST_PARTS))
    if len(boxes) == _MOST_PARTS:
        raise ValueError("it has too many parts")
    data_start = next((start for kind, start, _ in boxes if kind == b"idat"), 0)
    size = 0
    for kind, start, _ in boxes:
        if kind == b"iloc":
            yield from (("picture", item) for item in _items(content, start, data_start))
        elif kind == b"stsz":
            same, _, first = (
                int.from_bytes(content[place : place + 4]) for place in range(start + 4, start + 16, 4)
            )
            size = same or first
        elif kind in (b"stco", b"co64"):
            width = 8 if kind == b"co64" else 4
            place = int.from_bytes(content[start + 8 : start + 8 + width])
            yield "film", content[place : place + size]


def _items(content: memoryview, start: int, data_start: int) -> Iterator[memoryview]:
    read = _bit_reader(content, start)
    version = read(8)
    read(24)
    offset_bits, length_bits, base_bits, index_bits = (8 * read(4) for _ in range(4))
    number_bits, n_parts = 32 if version == 2 else 16, 0
    for _ in range(read(number_bits)):
        read(number_bits)
        method = read(16) & 15 if version else 0
        read(16)
        base = read(base_bits) + (data_start if method == 1 else 0)
        parts: list[memoryview] = []
        for _ in range(read(16)):
            n_parts += 1
            if n_parts > _MOST_PARTS:
                raise ValueError("it has too many parts")
            read(index_bits if version else 0)
            first, length = base + read(offset_bits), read(length_bits)
            parts.append(content[first : first + length] if length else content[first:])
        if sum(map(len, parts)) > _TIMES_READ * len(content):
            raise ValueError("its parts overlap")
        yield parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


_logger = logging.getLogger(__name__)


class _Format(NamedTuple):
    media_type: str
    endings: str
    """Of files, with spaces between them."""
    in_browsers: bool = False
    """Whether every browser shows it."""
    times_held: float = 1
    """Memory that its decoder takes, relative to the others."""


_FORMATS = {
    "JPEG": _Format("image/jpeg", ".jpg .jpeg .jpe .jfif", True),
    "MPO": _Format("image/jpeg", ".mpo", True),  # a JPEG that is followed by others, as phones make them
    "PNG": _Format("image/png", ".png .apng", True),
    "WEBP": _Format("image/webp", ".webp", True, 3),
    "GIF": _Format("image/gif", ".gif", True),
    "BMP": _Format("image/bmp", ".bmp", True),
    "TIFF": _Format("image/tiff", ".tif .tiff"),
    "AVIF": _Format("image/avif", ".avif", True, 1.5),
    "HEIF": _Format("image/heic", ".heic .heif .hif", False, 1.5),
    "JPEG2000": _Format("image/jp2", ".jp2 .j2k .j2c .jpc .jpf .jpx", False, 3),
    "PPM": _Format("image/x-portable-anymap", ".ppm .pgm .pbm .pnm .pfm"),
    "PSD": _Format("image/vnd.adobe.photoshop", ".psd"),
    "SGI": _Format("image/sgi", ".sgi"),
    "PCX": _Format("image/x-pcx", ".pcx"),
    "TGA": _Format("image/x-tga", ".tga"),
}
"""The still pictures that are taken, by Pillow's names."""
# Left out are what runs or needs another program (EPS, WMF), what is no still picture (films, data of
# sciences and of games), what Python decodes step by step, which takes many seconds (QOI, XPM), and icons,
# whose parts may have any size.
PICTURE_ENDINGS = frozenset(" ".join(entry.endings for entry in _FORMATS.values()).split())
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_LONGEST_SIDE = 65_535
"""Pixels: Pillow keeps a table of a picture's rows in memory; most formats allow no longer side."""
_BYTES_HELD = 9
"""Of each pixel: four of what is decoded, four of the RGB picture made of it, and what goes with them."""
_RENDITION_SIDE = 1600
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
    """Bounds the pixels that all threads that share it decode at once; a larger picture is opened alone."""

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
    """Decode a picture to RGB, upright, for the time of the block, once the budget has room. Raises
    InvalidFieldError for no known format, or damage, and ContentTooLargeError before anything is decoded."""
    with reading(field, "picture"), _open(field, content) as head:
        n_pixels = _pixels_held(field, head, max_pixels, content)
    with budget.reserve(n_pixels):
        with reading(field, "picture"):
            picture = _decode(field, content)
        yield picture


@contextmanager
def reading(field: str, what: str) -> Iterator[None]:
    """Refuse content that a library cannot read: on what users send it may raise anything.
    The block holds what the library does, so that mistakes of the service itself remain such."""
    try:
        with warnings.catch_warnings():
            # Of damaged metadata, and of a size above Pillow's own limit; ours is checked by the caller.
            warnings.simplefilter("ignore")
            yield
    except ServiceError:
        raise
    except Image.DecompressionBombError as error:
        raise ContentTooLargeError(field, str(error)) from error
    except Exception as error:
        reason = str(error)[:200] or type(error).__name__
        _logger.info("a damaged %s is refused: %s: %s", what, type(error).__name__, reason)
        raise InvalidFieldError(field, f"the {what} is damaged: {reason}") from error


@functools.cache
def _readable_formats() -> tuple[str, ...]:
    """Return those of the table that this installation reads, by the names of their readers."""
    # The C library keeps the memory of pictures, which is of blocks of 16 MB, once it has seen one go: eight
    # large ones, one after the other, took 1.4 GB. With a fixed bound (M_MMAP_THRESHOLD) they take .6 GB.
    with suppress(AttributeError, TypeError):  # only glibc's has it
        ctypes.CDLL(None).mallopt(-3, 8 << 20)
    with suppress(ImportError):
        heif = importlib.import_module("pillow_heif")
        heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    Image.init()
    # Types of numbers that libtiff reads and Pillow leaves out: only libtiff would know the size of a part.
    loaders = ImageFileDirectory_v2._load_dispatch
    for eight_bytes in (17, 18):
        loaders.setdefault(eight_bytes, loaders[16])
    return tuple(name for name in _FORMATS if name in Image.OPEN and name in Image.MIME)


def _open(field: str, content: bytes) -> Image.Image:
    """Return a picture whose head is read."""
    formats = _readable_formats()
    try:
        picture = Image.open(io.BytesIO(content), formats=formats)
    except UnidentifiedImageError as error:
        if "HEIF" not in formats and content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS:
            raise InvalidFieldError(
                field,
                "is a HEIC picture, for which the server needs the extra 'heic': pip install 'lrbs[heic]'",
            ) from error
        raise InvalidFieldError(
            field, f"is not a picture; expected a file in {join_words(formats)} format"
        ) from error
    if picture.tile and picture.tile[0][0] == "ppm_plain":  # decoded in Python: seconds for a megabyte
        raise InvalidFieldError(field, "is a PPM file of digits, expected a binary one")
    return picture


def _pixels_held(field: str, picture: Image.Image, max_pixels: int, content: bytes) -> int:
    """Return how many pixels take as much memory as decoding a picture; raises ContentTooLargeError."""
    width, height = picture.size
    form, times = str(picture.format), _FORMATS[str(picture.format)].times_held
    if max(width, height) > _LONGEST_SIDE:
        raise ContentTooLargeError(field, f"{width} x {height} pixels, no side over {_LONGEST_SIDE} allowed")
    allowed = int(max_pixels / times)
    if width * height > allowed:
        raise ContentTooLargeError(field, f"{width} x {height} pixels, at most {allowed} allowed in {form}")
    n_pixels = math.ceil(times * width * height)
    if form == "AVIF":
        # Each coded picture takes three numbers of two bytes a pixel, whatever size the file is said to have.
        n_coded = coded_pixels(content)
        n_pixels = max(n_pixels, 6 * n_coded // _BYTES_HELD)
        if n_pixels > max_pixels:
            raise ContentTooLargeError(field, f"{n_coded} pixels are coded in it, which are too many")
    if isinstance(picture, TiffImageFile) and picture.tile and picture.tile[0][0] == "libtiff":
        # One of its parts is held as it is stored, too, whatever the size of the picture.
        tags = picture.tag_v2
        columns = tags.get(TILEWIDTH, width)
        rows = tags.get(TILELENGTH) or min(tags.get(ROWSPERSTRIP, height), height)
        bits = max(tags.get(BITSPERSAMPLE, (1,))) * tags.get(SAMPLESPERPIXEL, 1)
        n_pixels = max(n_pixels, (8 * width * height + columns * rows * bits // 8) // _BYTES_HELD)
        if n_pixels > max_pixels:
            raise ContentTooLargeError(
                field, f"is stored in parts of {columns} x {rows} pixels, which are too large"
            )
    return n_pixels


def _decode(field: str, content: bytes) -> Image.Image:
    with _open(field, content) as source:
        source.load()
        orientation = _orientation(source)
        picture = _to_rgb(source)
    # Before it is turned, which makes a copy: a picture may take 160 MB, and here it is held once.
    del source
    method = _UNDO_ORIENTATION.get(orientation)
    return picture if method is None else picture.transpose(method)


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation; a picture whose EXIF part is damaged is taken as it lies."""
    try:
        return int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # whatever the library raises: the pixels themselves may be whole
        return 1


def _to_rgb(picture: Image.Image) -> Image.Image:
    """Return eight bits a channel; transparent parts show the white page they would lie on.
    What needs steps in between takes them tile by tile: whole, each would be one more copy in memory."""
    if picture.mode.startswith(("I", "F")):
        is_white_first = (
            isinstance(picture, TiffImageFile) and picture.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0
        )
        to_rgb = _from_levels(*_range_of_levels(picture), is_white_first)
    elif picture.has_transparency_data:
        to_rgb = _on_white
    else:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    page = Image.new("RGB", picture.size)
    for box in _tiles(picture):
        page.paste(to_rgb(picture.crop(box)), box[:2])
    return page


def _tiles(picture: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, picture.height, _TILE_ROWS):
        bottom = min(top + _TILE_ROWS, picture.height)
        for left in range(0, picture.width, _TILE_COLUMNS):
            yield left, top, min(left + _TILE_COLUMNS, picture.width), bottom


def _range_of_levels(picture: Image.Image) -> tuple[float, float]:
    """Return which level of grey is black and which is white."""
    # Integers are of sixteen bits. Wider ones, and numbers with a point, are of 0 to 1, to 255 or to 65,535,
    # or else range from the lowest to the highest there is.
    if picture.mode.startswith("I;16"):
        return 0.0, 65_535.0
    lowest, highest = np.inf, -np.inf
    for box in _tiles(picture):
        levels = np.asarray(picture.crop(box), np.float64)
        levels = levels[np.isfinite(levels)]
        lowest, highest = min(lowest, levels.min(initial=np.inf)), max(highest, levels.max(initial=-np.inf))
    if lowest > highest:
        return 0.0, 1.0
    scales = (65_535.0,) if picture.mode == "I" else (1.0, 255.0, 65_535.0)
    white = next((scale for scale in scales if highest <= scale), None)
    return (0.0, white) if white is not None and lowest >= 0.0 else (lowest, highest)


def _from_levels(black: float, white: float, is_white_first: bool) -> Callable[[Image.Image], Image.Image]:
    # Pillow's own conversion would cut everything above 255.
    def to_rgb(tile: Image.Image) -> Image.Image:
        levels = np.nan_to_num(np.asarray(tile).astype(np.float64), nan=black)
        shades = (levels.clip(black, white) - black) * (255.0 / ((white - black) or 1.0))
        shades = 255.0 - shades if is_white_first else shades
        return Image.fromarray(shades.round().astype(np.uint8)).convert("RGB")

    return to_rgb


def _on_white(tile: Image.Image) -> Image.Image:
    page = Image.new("RGBA", tile.size, "white")
    return Image.alpha_composite(page, tile.convert("RGBA")).convert("RGB")


def picture_type(content: bytes) -> str:
    """Return the media type of a picture that `opened_picture` accepted."""
    with reading("picture", "picture"), _open("picture", content) as picture:
        return _FORMATS[str(picture.format)].media_type


def rendition(content: bytes, media_type: str, max_pixels: int, budget: PixelBudget) -> bytes | None:
    """Return a picture as a JPEG of moderate size; None of what browsers show, or is no picture."""
    if not any(entry.media_type == media_type and not entry.in_browsers for entry in _FORMATS.values()):
        return None
    with opened_picture("picture", content, max_pixels, budget) as picture:
        picture.thumbnail((_RENDITION_SIDE, _RENDITION_SIDE))
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=88)
        return stream.getvalue()


def gradient_directions(
    gray: npt.NDArray[np.float32], turn: float, n_directions: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """Return length and direction of the gradients, as the lower of two of the directions in a turn, and the
    share of the next one."""
    dy, dx = np.gradient(gray)
    direction = np.mod(np.arctan2(dy, dx), turn) / turn * n_directions
    lower = np.floor(direction).astype(np.intp)
    return np.hypot(dx, dy), lower, direction - lower


def sound_type(content: bytes) -> str:
    """Return the media type of a sound that an encoder accepted."""
    return "audio/flac" if content.startswith(b"fLaC") else "audio/wav"


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """Largest pictures that encoders accept."""

    max_bytes: int  # of a file
    max_pixels: int  # of what is decoded
    budget: PixelBudget  # of all pictures that are decoded at once in this process

    def check_size(self, field: str, content: bytes) -> None:
        """Refuse a file, of a picture or of a sound, that is too large."""
        if len(content) > self.max_bytes:
            raise ContentTooLargeError(field, f"{len(content)} bytes, at most {self.max_bytes} allowed")


class PictureEncoder(BaseEncoder):
    """Encodes pictures, several at a time where there are several; a subclass describes each."""

    content_form = "picture"

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits

    @abstractmethod
    def describe(self, picture: Image.Image) -> Vector:
        """Return the features of an RGB picture, float32."""

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.picture is None:
            raise wrong_content(field, "picture")
        self._limits.check_size(field, raw.picture)
        with opened_picture(field, raw.picture, self._limits.max_pixels, self._limits.budget):
            pass

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        return np.stack(map_in_threads(self._encode_one, raw))

    def _encode_one(self, content: Content) -> Vector:
        limits = self._limits
        with opened_picture("picture", content.picture or b"", limits.max_pixels, limits.budget) as picture:
            return self.describe(picture)
