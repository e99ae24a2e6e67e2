"""Files of one item a line, as the service imports them over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.api.bodies import parse_line
from app.api.schemas.items import ItemLineIn
from app.cli.sources.rows import MAX_FILE_BYTES, MAX_FILE_MIB, Refusal, Row
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.services.catalogue.preparation import ItemChange, content_id


@dataclass(frozen=True, slots=True)
class Lines:
    """The items of an NDJSON file, an object a line; one without an id gets one derived from its content."""

    file: Path

    @property
    def total(self) -> int:
        """Number of lines that are not blank."""
        with self.file.open("rb") as stream:
            return sum(bool(line.strip()) for _, line in _cut(stream))

    def rows(self) -> Iterator[Row]:
        """Yield the item of each line."""
        with self.file.open("rb") as stream:
            for number, line in _cut(stream):
                if line.strip():
                    yield _read_item(f"{self.file.name}, line {number}", line)


def _cut(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number; of one that is too long, a part that is still too long."""
    number = 0
    while line := stream.readline(MAX_FILE_BYTES + 1):
        number += 1
        yield number, line
        while len(line) > MAX_FILE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_FILE_BYTES + 1)


def _read_item(place: str, line: bytes) -> Row:
    if len(line) > MAX_FILE_BYTES:
        return Refusal(place, f"is longer than {MAX_FILE_MIB} MiB")
    try:
        item = parse_line(ItemLineIn, line).to_row(place)
    except (InvalidFieldError, ContentTooLargeError) as error:
        return Refusal(place, str(error).removeprefix(f"{place}.").removeprefix("body: "))
    if isinstance(item, ItemChange):
        return item
    return item if item.id is not None else dataclasses.replace(item, id=content_id(item))
