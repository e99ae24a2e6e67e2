"""Items as the service has them: files of one a line, as it imports them over HTTP, or collections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.api.bodies import parse_line
from app.api.schemas.items import ItemLineIn
from app.bootstrap import Services
from app.cli.sources.rows import MAX_FILE_BYTES, MAX_FILE_MIB, Refusal, Row, content_of
from app.domain.entities import Content, Item
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.services.catalogue.preparation import ItemChange, NewItem, content_id

_PAGE = 200  # items that are read at a time, as many as are stored at a time


@dataclass(frozen=True, slots=True)
class Lines:
    """The items of an NDJSON file, an object a line; one without an id gets one derived from its content."""

    file: Path

    @property
    def total(self) -> int:
        """Number of lines that are not blank."""
        with self.file.open("rb") as stream:
            return sum(bool(line.strip()) for _, line in _cut_lines(stream))

    def rows(self) -> Iterator[Row]:
        with self.file.open("rb") as stream:
            for number, line in _cut_lines(stream):
                if line.strip():
                    yield _read_item(f"{self.file.name}, line {number}", line)


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


@dataclass(frozen=True, slots=True)
class StoredItems:
    """The items of a collection as they were brought in: pictures, sounds, texts or own features."""

    services: Services
    collection: str

    @property
    def total(self) -> int:
        return sum(self.services.catalogue.collection(self.collection)[1].values())

    def rows(self) -> Iterator[Row]:
        """Yield all items with what they carry; one whose file is gone, or that just went, is a refusal."""
        position: int | None = 0
        while position is not None:
            page = self.services.catalogue.page(self.collection, None, position, _PAGE)
            for _, item in page.rows:
                try:
                    content = self._content(item)
                except ServiceError as error:
                    if error.code not in ("content-missing", "item-not-found"):
                        raise
                    yield Refusal(f"item {item.id!r}", str(error))
                else:
                    yield _as_new(item, content)
            position = page.end

    def _content(self, item: Item) -> Content:
        if item.content_hash is not None:
            stored, media_type = self.services.catalogue.content(self.collection, item.id)
            return content_of("sound" if media_type.startswith("audio/") else "picture", stored)
        if item.text is not None:
            return Content(text=item.text)
        features = self.services.catalogue.item(self.collection, item.id).features
        return Content(vector=None if features is None else features.tolist())


def _as_new(item: Item, content: Content) -> NewItem:
    return NewItem(
        modality=item.modality,
        content=content,
        id=item.id,
        labels=item.labels,
        pair_id=item.pair_id,
        metadata=item.metadata,
        train=item.train,
        place=f"item {item.id!r}",
    )
