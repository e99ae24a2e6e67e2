"""Tar files as WebDataset writes them: members of the same name but for the ending are one sample."""

from __future__ import annotations

import itertools
import json
import lzma
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from app.cli.sources.contents import content_of, form_of
from app.cli.sources.rows import MAX_FILE_BYTES, MAX_FILE_MIB, Refusal, Row, decode_text, identifier_of
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

_LABEL, _METADATA = ".cls", ".json"
_ENDING = re.compile(r"\.(tar(\.[a-z0-9]+)?|t[bgx]z2?)$", re.IGNORECASE)
"""Of the name of an archive, compressed or not."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    key: str
    suffix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Archives:
    """The pictures, sounds and texts of tar files; nothing is unpacked on the disk.

    Parameters
    ----------
    files : sequence of Path
        Tar files, which gzip, bzip2 or xz may have compressed. In each, a sample's members follow each other.
    modality_names : mapping of str to str
        Of what is taken: pictures, sounds, or texts (`names_by_form`).
    """

    files: Sequence[Path]
    modality_names: Mapping[str, str]

    @property
    def total(self) -> int:
        """Zero, since only reading the files shows it."""
        return 0

    def rows(self) -> Iterator[Row]:
        """Yield the items of each sample."""
        for file in self.files:
            for key, group in itertools.groupby(self._members(file), key=lambda entry: entry.key):
                yield from self._sample(file, key, list(group))

    def _members(self, file: Path) -> Iterator[_Member | _Fault]:
        return _read_members(file, self.modality_names)

    def _sample(self, file: Path, key: str, members: Sequence[_Member | _Fault]) -> Iterator[Row]:
        for fault in members:
            if isinstance(fault, _Fault):
                yield Refusal(f"{file.name}/{fault.name}", fault.reason)
        parts = {entry.suffix: entry for entry in members if isinstance(entry, _Member)}
        # Without the ending: an archive that was compressed since has the same items.
        name = identifier_of(f"{_ENDING.sub('', file.name)}/{key}")
        try:
            labels = _read_labels(parts.get(_LABEL))
            metadata = _read_metadata(parts.get(_METADATA))
        except InvalidFieldError as error:
            yield Refusal(f"{file.name}/{error.field}", error.message)
            return
        for suffix, member in parts.items():
            if suffix in (_LABEL, _METADATA):
                continue
            place = f"{file.name}/{member.name}"
            form = str(form_of(suffix))
            modality = self.modality_names[form]
            try:
                content = content_of(form, member.content)
            except InvalidFieldError as error:
                yield Refusal(place, error.message)
                continue
            yield NewItem(
                modality=modality,
                content=content,
                id=f"{modality}-{name}",
                labels=labels,
                pair_id=name,
                metadata=metadata,
                place=place,
            )


@dataclass(frozen=True, slots=True)
class _Fault:
    name: str
    key: str
    reason: str


class _Header(tarfile.TarInfo):
    """The header of a member; `tarfile` takes one that is damaged, or cut off, for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header that a block holds; raises ReadError unless it is one, or marks the end."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise
            raise tarfile.ReadError(str(error) if buf else "the mark of its end is missing") from error


def _read_members(file: Path, forms: Collection[str]) -> Iterator[_Member | _Fault]:
    """Yield the members that are used; one that is no plain file or too large is a fault."""
    last_key, size = "", 0
    try:
        # As a stream, whatever its compression: one sample at a time is in memory.
        with tarfile.open(file, "r|*", tarinfo=_Header) as archive:
            for entry in archive:
                path = PurePosixPath(entry.name)
                suffix = "." + path.name.partition(".")[2].rpartition(".")[2].lower()
                if entry.isdir() or (suffix not in (_LABEL, _METADATA) and form_of(suffix) not in forms):
                    continue
                key = str(path.with_name(path.name.partition(".")[0] or path.name))
                size = entry.size + (size if key == last_key else 0)
                last_key = key
                stream = archive.extractfile(entry) if entry.isreg() else None
                if stream is None:
                    yield _Fault(entry.name, key, "is a link or a device, not a file")
                elif size > MAX_FILE_BYTES:
                    what = "is" if size == entry.size else "makes its sample"
                    yield _Fault(entry.name, key, f"{what} larger than {MAX_FILE_MIB} MiB")
                else:
                    yield _Member(entry.name, key, suffix, stream.read())
    except (tarfile.TarError, EOFError, lzma.LZMAError) as error:
        yield _Fault("", "", f"is damaged from here on, or no tar file: {error}")


def _decode(member: _Member) -> str:
    try:
        return decode_text(member.content)
    except UnicodeDecodeError as error:
        raise InvalidFieldError(member.name, "is a text in neither UTF-8, UTF-16 nor Windows-1252") from error


def _read_labels(member: _Member | None) -> tuple[str, ...]:
    """Return the labels of a sample, one on each line."""
    lines = "" if member is None else _decode(member)
    labels = (line.strip() for line in lines.splitlines())
    return tuple(dict.fromkeys(label for label in labels if label))


def _read_metadata(member: _Member | None) -> dict[str, Any]:
    if member is None:
        return {}
    try:
        metadata = json.loads(member.content)
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(member.name, f"is no JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise InvalidFieldError(member.name, "expected a JSON object")
    return metadata
