"""Mutations of picture files: damaged headers, sizes that are only declared, bombs, other formats."""

import base64
import functools
import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pillow_heif
from PIL import ExifTags, Image

from tests.fuzz.wire import Good, Wire, rendered

PICTURE_FORMS = (
    "PNG",
    "JPEG",
    "MPO",
    "GIF",
    "WEBP",
    "BMP",
    "TIFF",
    "AVIF",
    "HEIF",
    "JPEG2000",
    "PPM",
    "SGI",
    "PCX",
    "TGA",
    "PSD",
)
_MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"),
    "JPEG2000": ("L", "LA", "RGB", "RGBA", "I;16"),
    "HEIF": ("L", "RGB", "RGBA"),
    "AVIF": ("L", "RGB", "RGBA"),
    "JPEG": ("L", "RGB", "CMYK"),
}
"""Of others: colours alone."""
_TIFF_OPTIONS = ("raw", "tiff_deflate", "tiff_lzw", "packbits", "jpeg", "tiff_adobe_deflate")
_SIZES = (0, 1, 6400, 65_535, 1 << 24, (1 << 31) - 1, (1 << 32) - 1)


def _file(random: Random, form: str | None = None) -> bytes:
    """Return a good picture, of several frames and with EXIF data where the format has these."""
    pillow_heif.register_heif_opener()
    form = form or random.choice(PICTURE_FORMS)
    pixels = np.random.default_rng(random.getrandbits(32)).integers(0, 255, (17, 23, 3)).astype(np.uint8)
    if form == "PSD":  # which Pillow cannot write
        head = struct.pack(">4sH6xHIIHHIIIH", b"8BPS", 1, 3, 17, 23, 8, 3, 0, 0, 0, 0)
        return head + pixels.tobytes()
    mode = random.choice(_MODES.get(form, ("RGB",)))
    grey = pixels[..., 0].astype(np.uint16 if mode == "I;16" else np.float32)
    source = Image.fromarray(grey if mode in ("I;16", "F") else pixels).convert(mode)
    options: dict[str, Any] = {}
    if form == "TIFF":
        options["compression"] = random.choice(
            _TIFF_OPTIONS[: 4 if mode in ("1", "P", "LA", "I;16", "F") else 6]
        )
    if form in ("JPEG", "MPO", "TIFF", "PNG", "WEBP", "AVIF", "HEIF") and random.random() < 0.5:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation], exif[ExifTags.Base.Make] = random.randrange(1, 9), "maker"
        options["exif"] = exif.tobytes()
    # Pillow's writer of AVIF ends the process where both are asked for.
    has_frames = form in ("MPO", "TIFF", "PNG", "GIF", "WEBP", "AVIF", "HEIF") and random.random() < 0.5
    if has_frames and not (form == "AVIF" and options):
        options |= {"save_all": True, "append_images": [source, source.transpose(Image.Transpose.ROTATE_180)]}
    stored = io.BytesIO()
    source.save(stored, form, **options)
    return stored.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(width: int, height: int, packed: bytes, *more: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def damaged_picture(random: Random, form: str | None = None) -> bytes:
    """Return a picture that is damaged somehow."""
    return damaged_file(random, _file(random, form))


def damaged_file(random: Random, whole: bytes) -> bytes:
    """Return a file with changed bytes, a changed number, or a part that is gone, doubled or elsewhere."""
    content = bytearray(whole)
    reach = random.choice((80, 400, len(content)))
    change = random.choice(("bytes", "number", "swap", "double", "cut", "end"))
    place = random.randrange(min(len(content), reach))
    length = random.choice((1, 4, 8, 12, 30))
    if change == "bytes":
        for _ in range(random.choice((1, 3, 20))):
            content[random.randrange(min(len(content), reach))] = random.randrange(256)
    elif change == "number":
        number = random.choice((*_SIZES, 2, 3, 5, 255, 256, 32_768, 1 << 30))
        content[place : place + 4] = struct.pack(random.choice(("<I", ">I")), number)
    elif change == "swap":
        one, other = content[place : place + length], content[place + length : place + 2 * length]
        content[place : place + 2 * length] = other + one
    elif change == "double":
        content[place:place] = content[place : place + length]
    elif change == "cut":
        del content[place : place + length]
    else:
        del content[random.randrange(len(content)) :]
    return bytes(content)


def _declared(random: Random) -> bytes:
    """A size that the file only declares."""
    width, height = (random.choice(_SIZES) for _ in range(2))
    form = random.choice(PICTURE_FORMS)
    content = bytearray(_file(random, form))
    if form == "PNG":
        return _png(width, height, zlib.compress(b"\x00" * 100))
    if form == "JPEG":
        place = content.find(b"\xff\xc0") + 5
        content[place : place + 4] = struct.pack(">HH", height & 0xFFFF, width & 0xFFFF)
    elif form == "GIF":
        content[6:10] = struct.pack("<HH", width & 0xFFFF, height & 0xFFFF)
        place = content.find(b"\x2c", 13) + 5
        content[place : place + 4] = struct.pack("<HH", width & 0xFFFF, height & 0xFFFF)
    elif form == "WEBP":
        content = bytearray(b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00")
        content += struct.pack("<I", width & 0xFFFFFF)[:3] + struct.pack("<I", height & 0xFFFFFF)[:3]
        content[4:8] = struct.pack("<I", len(content) - 8)
    elif form == "BMP":
        content[18:26] = struct.pack("<II", width, height)
    elif form in ("AVIF", "HEIF"):
        place = content.find(b"ispe") + 8
        content[place : place + 8] = struct.pack(">II", width, height)
    elif form == "JPEG2000":
        place = content.find(random.choice((b"ihdr", b"\xff\x51"))) + 4
        content[place : place + 8] = struct.pack(">II", height, width)
    elif form == "PPM":
        content = bytearray(b"P6 %d %d 255\n" % (width, height) + bytes(40))
    elif form == "PSD":
        content[14:22] = struct.pack(">II", height, width)
    elif form == "TIFF":
        tag = random.choice(
            (b"\x00\x01", b"\x01\x01", b"\x16\x01", b"\x17\x01")
        )  # sizes, and those of strips
        place = content.find(tag + b"\x04\x00") + 8
        content[place : place + 4] = struct.pack("<I", width)
    return bytes(content)


def _bomb(random: Random) -> bytes:
    """Few bytes that decode to many pixels, up to and above what is allowed."""
    return _black(random.choice((2000, 6000, 7000, 12_000)))


@functools.cache
def _black(side: int) -> bytes:
    return _png(side, side, _packed(b"\x00", side * (1 + 3 * side)))


@functools.cache
def _packed(byte: bytes, size: int) -> bytes:
    """Compress so many of a byte: one megabyte of them, whose block is repeated, and the rest."""
    megabyte = byte * (1 << 20)
    count, rest = divmod(size, len(megabyte))
    packer, check = zlib.compressobj(9, wbits=-15), 1
    block = packer.compress(megabyte) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(count):
        check = zlib.adler32(megabyte, check)
    check = zlib.adler32(megabyte[:rest], check)
    last = packer.compress(megabyte[:rest]) + packer.flush()
    return b"\x78\xda" + block * count + last + struct.pack(">I", check)


def _metadata(random: Random) -> bytes:
    """Compressed text, profiles and EXIF that grow or lie."""
    large = _packed(b"a", random.choice((1000, 70 << 20)))
    more = random.choice(
        (
            _chunk(b"zTXt", b"Comment\x00\x00" + large),
            _chunk(b"iTXt", b"Comment\x00\x01\x00\x00\x00" + large),
            _chunk(b"iCCP", b"profile\x00\x00" + large),
            _chunk(b"eXIf", b"MM\x00*" + random.randbytes(60)),
            _chunk(b"acTL", struct.pack(">II", 0xFFFFFFFF, 0)),
            _chunk(b"tRNS", random.randbytes(7)),
            struct.pack(">I", 0x7FFFFFFF) + b"tEXt" + b"short",
        )
    )
    return _png(4, 4, zlib.compress(b"\x00" * 13 * 4), more)


def _frames(random: Random) -> bytes:
    stored = io.BytesIO()
    first, *rest = [Image.new("P", (9, 9), number) for number in range(random.choice((2, 30)))]
    form = random.choice(("GIF", "WEBP", "PNG", "TIFF"))
    first.save(stored, form, save_all=True, append_images=rest)
    content = bytearray(stored.getvalue())
    content[random.randrange(13, len(content))] ^= 0xFF
    return bytes(content)


def _other(random: Random) -> bytes:
    return random.choice(
        (
            b"<svg xmlns='http://www.w3.org/2000/svg' width='99999' height='99999'><image href='file:///etc/passwd'/></svg>",
            b"%PDF-1.7\n" + random.randbytes(100),
            b"PK\x03\x04" + random.randbytes(100),
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nquit",
            b"II*\x00" + struct.pack("<I", 8) + struct.pack("<H", 0xFFFF) + random.randbytes(200),
            b"MM\x00*" + struct.pack(">I", 0xFFFFFFFF),
            b"P6 99999 99999 255\n" + b"\x00" * 10,
            b"8BPS\x00\x01" + random.randbytes(40),
            b"\x00\x00\x01\x00\x01\x00" + random.randbytes(40),
            b"\xff\xd8\xff" + random.randbytes(300),
            b"GIF89a",
            b"BM",
            b"\x00" * 1000,
            b"",
        )
    )


_FILES: dict[str, Callable[[Random], bytes]] = {
    "picture damaged": damaged_picture,
    "picture size declared": _declared,
    "picture bomb": _bomb,
    "picture metadata": _metadata,
    "picture frames": _frames,
    "no picture": _other,
}


def has_picture(good: Good) -> bool:
    """Return whether a request carries a picture."""
    return good.kind == "form" or any("image_base64" in entry for entry in _entries(good))


def _entries(good: Good) -> list[dict[str, Any]]:
    if good.kind == "form":
        return []
    if good.kind == "ndjson":
        return list(good.value)
    found: list[dict[str, Any]] = good.value.get("items", [good.value])
    return found


def _with_picture(good: Good, content: bytes) -> Wire:
    if good.kind == "form":
        parts = [replace(part, content=content) if part.name == "picture" else part for part in good.value]
        return rendered(good.with_value(parts))
    encoded = base64.b64encode(content).decode()
    entries = [
        {**entry, "image_base64": encoded} if "image_base64" in entry else entry for entry in _entries(good)
    ]
    if good.kind == "ndjson":
        return rendered(good.with_value(entries))
    return rendered(
        good.with_value({**good.value, "items": entries} if "items" in good.value else entries[0])
    )


def _mutation(make: Callable[[Random], bytes]) -> Callable[[Random, Good], Wire]:
    return lambda random, good: _with_picture(good, make(random))


IMAGES: dict[str, Callable[[Random, Good], Wire]] = {name: _mutation(make) for name, make in _FILES.items()}
"""Of requests with a picture only."""
