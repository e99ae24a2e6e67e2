"""What a source yields: items, and what it could not make an item of. Contents of files have a kind by their
endings, or by the encoder that takes them."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.entities import Content, Modality
from app.domain.errors import InvalidFieldError
from app.domain.names import IDENTIFIER_PATTERN
from app.encoders.pictures import PICTURE_ENDINGS
from app.encoders.registry import content_form
from app.services.catalogue.preparation import ItemChange, NewItem

MAX_FILE_MIB = 256
MAX_FILE_BYTES = MAX_FILE_MIB << 20
"""Larger files are no single pictures or texts, and are not read into memory to find that out."""
_MAX_NAME = 46
"""Characters of a name within an id: the longest modality before it and a digest behind it make 128."""
_NAME = re.compile(IDENTIFIER_PATTERN)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-]+")
_BLANK_TO_ONE = re.compile("[\x1c-\x1f\x85\ufeff]")  # to `strip`, or to `trim` of browsers, alone
_DIGEST_CHARACTERS = 16  # 64 bits: no two of a few million names have the same by chance


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that is no item."""

    place: str  # as the user would look for it
    reason: str


Row = NewItem | ItemChange | Refusal


@dataclass(frozen=True, slots=True)
class Source:
    """Data that can be imported."""

    rows: Callable[[], Iterator[Row]]  # in the same order and with the same ids each time
    total: int = 0  # number of rows; 0 if it is known only at the end
    notes: Sequence[str] = ()  # what was taken as what, and what was left out


def read_item(
    modality: str, form: str, file: Path | bytes, place: str, is_exact: bool = False, **facts: Any
) -> Row:
    """Return the item of a file, or of its content, a ``"picture"``, ``"sound"`` or ``"text"``; or why there
    is none. The facts are other fields of `NewItem`; `is_exact` as of `decode_text`."""
    try:
        content = content_of(form, file if isinstance(file, bytes) else read_bounded(file), "", is_exact)
        return NewItem(modality=modality, content=content, place=place, **facts)
    except InvalidFieldError as error:
        return Refusal(place, error.message)


def identifier_of(name: str) -> str:
    """Return an id for the name of a file in a folder: the name itself, where that can be one."""
    # Steps of a path become colons; what cannot stand in an id is replaced, and a digest of the name follows.
    # Names that differ in how accents are composed have the same id.
    name = unicodedata.normalize("NFC", name)
    path = name.replace("/", ":")
    if len(path) <= _MAX_NAME and ":" not in name and _NAME.fullmatch(path):
        return path
    return f"{_NOT_IN_NAMES.sub('_', path)[-_MAX_NAME:]}:{_digest(name)}"


def row_name(contents: Iterable[Content | None], counts: Counter[str]) -> str:
    """Return an id for a row of a table by what it holds, whatever its number; `counts` is of the rows before
    that hold the same."""
    # The page makes the same ids (`rows.js`), where blanks are others.
    digest = _digest("\0".join(map(_held_by, contents)))
    counts[digest] += 1
    return digest if counts[digest] == 1 else _digest(f"{digest}\0{counts[digest]}")


def _held_by(content: Content | None) -> str:
    if content is None:
        return ""
    if content.text is not None:
        text = _BLANK_TO_ONE.sub("", content.text).strip()
        return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode()
    file = content.picture if content.picture is not None else content.sound
    return str(content.vector) if file is None else hashlib.sha256(file).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_CHARACTERS]


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


def decode_text(content: bytes, field: str = "", is_exact: bool = False) -> str:
    """Return a text in UTF-16 (with its mark), UTF-8 or Windows-1252; or raise InvalidFieldError. Blanks
    around it, and the mark of UTF-8, belong to it only if it `is_exact`."""
    is_marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if is_marked else ("utf-8" if is_exact else "utf-8-sig", "cp1252"):
        with suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            return text if is_exact else text.strip()
    raise InvalidFieldError(field, "is a text in neither UTF-8, UTF-16 nor Windows-1252")


SUFFIXES: Mapping[str, frozenset[str]] = {
    "picture": PICTURE_ENDINGS,
    "sound": frozenset({".wav", ".flac"}),
    "text": frozenset({".txt"}),
}
"""Endings of files, by what they hold."""


def form_of(suffix: str) -> str | None:
    """Return what files of an ending hold, ``"picture"``, ``"sound"`` or ``"text"``; None of others."""
    return next((form for form, suffixes in SUFFIXES.items() if suffix.lower() in suffixes), None)


def file_form(encoder: Mapping[str, Any]) -> str:
    """Return what the files hold that a column names for an encoder: sounds, or else pictures."""
    return "sound" if content_form(encoder) == "sound" else "picture"


def names_by_form(modalities: Sequence[Modality]) -> dict[str, str]:
    """Return the name of the modality that takes pictures, sounds, or texts; of two, that of the first."""
    names: dict[str, str] = {}
    for modality in modalities:
        form = content_form(modality.encoder)
        if form is not None and form in SUFFIXES:
            names.setdefault(form, modality.name)
    return names


def content_of(form: str, content: bytes, field: str = "", is_exact: bool = False) -> Content:
    """Return the content of a file that holds a ``"picture"``, ``"sound"`` or ``"text"``; messages call it
    `field`. Raises InvalidFieldError without a field if a text cannot be decoded."""
    if form == "picture":
        return Content(picture=content, picture_field=field)
    if form == "sound":
        return Content(sound=content, sound_field=field)
    return Content(text=decode_text(content, is_exact=is_exact))
