"""Items as the service has them: files of one a line, as it imports them over HTTP, or collections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.api.faults import parse_line
from app.api.schemas.items import ItemLineIn
from app.bootstrap import Services
from app.cli.sources.rows import MAX_FILE_BYTES, MAX_FILE_MIB, Refusal, Row, Source
from app.domain.entities import value_of
from app.domain.errors import ContentTooLargeError, InvalidFieldError, content_missing
from app.services.catalogue.preparation import ItemChange, NewItem, content_id


def open_lines(file: Path) -> Source:
    """Open an NDJSON file, an object a line; an item without an id gets one derived from its content."""

    def rows() -> Iterator[Row]:
        with file.open("rb") as stream:
            for number, line in _cut_lines(stream):
                if line.strip():
                    yield _read_item(f"{file.name}, line {number}", line)

    with file.open("rb") as stream:
        return Source(rows, sum(bool(line.strip()) for _, line in _cut_lines(stream)))


def _cut_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
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


def open_stored(services: Services, collection: str) -> Source:
    """Open the items of a collection as they were brought in: pictures, sounds, texts or own features."""
    catalogue = services.catalogue

    def rows() -> Iterator[Row]:
        for item, content in filter(None, catalogue.originals(collection)):
            place = f"item {item.id!r}"
            if content is None:
                yield Refusal(place, str(content_missing(collection, item.id)))
                continue
            yield value_of(NewItem, item, content=content, place=place)

    return Source(rows, sum(catalogue.collection(collection)[1].values()))
