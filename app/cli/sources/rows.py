"""What a source yields: items, and what it could not make an item of."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from app.domain.errors import InvalidFieldError
from app.domain.names import IDENTIFIER_PATTERN
from app.services.catalogue.service import ItemChange, NewItem

MAX_FILE_MIB = 256
MAX_FILE_BYTES = MAX_FILE_MIB << 20
"""Larger files are no single pictures or texts, and are not read into memory to find that out."""
_MAX_NAME = 46
"""Characters of a name within an id: the longest modality before it and a digest behind it make 128."""
_NAME = re.compile(IDENTIFIER_PATTERN)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-]+")
_DIGEST_CHARACTERS = 16  # 64 bits: no two of a few million names have the same by chance


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that is no item."""

    place: str  # as the user would look for it
    reason: str


Row = NewItem | ItemChange | Refusal


class Source(Protocol):
    """Data that can be imported."""

    @property
    def total(self) -> int:
        """Number of rows; 0 if it is known only at the end."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yield all rows, in the same order and with the same ids each time."""
        ...


def identifier_of(name: str) -> str:
    """Return an id for the name of a file in a folder: the name itself, where that can be one."""
    # Steps of a path become colons; what cannot stand in an id is replaced, and a digest of the name follows.
    # Names that differ in how accents are composed have the same id.
    name = unicodedata.normalize("NFC", name)
    path = name.replace("/", ":")
    if len(path) <= _MAX_NAME and ":" not in name and _NAME.fullmatch(path):
        return path
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_NOT_IN_NAMES.sub('_', path)[-_MAX_NAME:]}:{digest}"


def readable_name(name: str) -> str:
    """Return the name of a file in one normal form, without bytes that are no text."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))


def with_source(metadata: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return metadata that name the file that an item came from, unless they do already."""
    return {"source": file, **metadata}


def read_bounded(path: Path) -> bytes:
    """Return the content of a file; raises InvalidFieldError without a field, also above `MAX_FILE_BYTES`."""
    try:
        if path.exists() and not path.is_file():  # to open a pipe is to wait for who writes into it
            raise InvalidFieldError("", "is no file but a pipe, a device or a folder")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidFieldError("", error.strerror or str(error)) from error
    if len(content) > MAX_FILE_BYTES:
        raise InvalidFieldError("", f"is larger than {MAX_FILE_MIB} MiB")
    return content


def decode_text(content: bytes) -> str:
    """Return a text in UTF-16 (with its mark), UTF-8 or Windows-1252; raises UnicodeDecodeError."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16").strip()
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return content.decode("cp1252").strip()
