"""How large the pictures in an AVIF file are: its header may say less than what a decoder makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

_CONTAINERS = (b"meta", b"moov", b"trak", b"mdia", b"minf", b"stbl")
_SEQUENCE_HEADER = 1
_MOST_PARTS, _TIMES_READ = 100_000, 4
"""Parts of a file that are looked at, and how often its bytes are: parts may be empty, and may overlap."""


class _Bits:
    """Reads numbers from bytes, bit by bit."""

    def __init__(self, content: memoryview, start: int = 0) -> None:
        self._content, self._place = content, 8 * start

    def read(self, count: int) -> int:
        first, last = self._place // 8, (self._place + count + 7) // 8
        if last > len(self._content):
            raise EOFError("a part of the file is cut off")
        number = int.from_bytes(self._content[first:last])
        self._place += count
        return number >> (8 * last - self._place) & ((1 << count) - 1)


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
            bits = _Bits(stream, place)
            kind, has_extension, has_size, _ = (bits.read(count) for count in (5, 1, 1, 1))
            place += 1 + has_extension
            size = len(stream) - place
            if has_size:
                size = 0
                for byte in range(8):  # little-endian, seven bits each
                    part = _Bits(stream, place).read(8)
                    size, place = size | (part & 127) << 7 * byte, place + 1
                    if part < 128:
                        break
            if kind == _SEQUENCE_HEADER:
                totals[form] += _sequence_pixels(_Bits(stream, place))
            place += size
    return max(totals.values())


def _sequence_pixels(bits: _Bits) -> int:
    """Return the pixels of a frame; 5.5.1 of the specification of AV1."""
    bits.read(4)
    if bits.read(1):  # of a still picture
        bits.read(5)
    else:
        delay_bits = 0
        if bits.read(1):  # with times
            bits.read(64)
            if bits.read(1):
                zeros = 0
                while not bits.read(1):
                    zeros += 1
                bits.read(zeros)
            if bits.read(1):
                delay_bits = bits.read(5) + 1
                bits.read(42)
        has_delays = bits.read(1)
        for _ in range(bits.read(5) + 1):
            bits.read(12)
            if bits.read(5) > 7:
                bits.read(1)
            if delay_bits and bits.read(1):
                bits.read(2 * delay_bits + 1)
            if has_delays and bits.read(1):
                bits.read(4)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    return (bits.read(width_bits) + 1) * (bits.read(height_bits) + 1)


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
    bits = _Bits(content, start)
    version = bits.read(8)
    bits.read(24)
    offset_bits, length_bits, base_bits, index_bits = (8 * bits.read(4) for _ in range(4))
    number_bits, n_parts = 32 if version == 2 else 16, 0
    for _ in range(bits.read(number_bits)):
        bits.read(number_bits)
        method = bits.read(16) & 15 if version else 0
        bits.read(16)
        base = bits.read(base_bits) + (data_start if method == 1 else 0)
        parts: list[memoryview] = []
        for _ in range(bits.read(16)):
            n_parts += 1
            if n_parts > _MOST_PARTS:
                raise ValueError("it has too many parts")
            bits.read(index_bits if version else 0)
            first, length = base + bits.read(offset_bits), bits.read(length_bits)
            parts.append(content[first : first + length] if length else content[first:])
        if sum(map(len, parts)) > _TIMES_READ * len(content):
            raise ValueError("its parts overlap")
        yield parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
