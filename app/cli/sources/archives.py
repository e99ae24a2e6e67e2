"""Tar files as WebDataset writes them: members of the same name but for the ending are one sample."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import posixpath
import re
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from app.cli.sources.folders import Layout, describe_left_out, is_hidden
from app.cli.sources.rows import (
    MAX_FILE_BYTES,
    MAX_FILE_MIB,
    Refusal,
    Row,
    decode_text,
    form_of,
    identifier_of,
    read_item,
    readable_name,
    with_source,
)
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words, some_of
from solver.datasets import is_training_split

_LABEL, _METADATA = ".cls", ".json"
_MAX_ANNOTATION_BYTES = 1 << 20
"""Of labels or metadata, which are in memory for a whole archive; an item may have far fewer."""
_ENDING = re.compile(r"\.(tar(\.[a-z0-9]+)?|t[bgx]z2?)$", re.IGNORECASE)
"""Of the name of an archive, compressed or not."""
_FAULTS = (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error)
"""What is raised by archives that are damaged or cut off."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class _Member:
    """A file of an archive: what it holds, and the sample that its name says by itself."""

    name: str
    kind: str

    @property
    def key(self) -> str:
        return str(PurePosixPath(self.name).with_suffix(""))

    @property
    def short_key(self) -> str:
        """The sample by the rule of WebDataset: the name up to its first dot."""
        path = PurePosixPath(self.name)
        return str(path.with_name(path.name.partition(".")[0] or path.name))


@dataclass(frozen=True, slots=True)
class _Sample:
    """What all items of a sample share."""

    name: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(slots=True)
class _Listing:
    """What is in an archive, but for contents: these are read when it is known what belongs together."""

    members: dict[str, _Member] = field(default_factory=dict)
    links: dict[str, tuple[_Member, str]] = field(default_factory=dict)
    annotations: dict[str, bytes] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    targets: dict[str, str] = field(default_factory=dict)
    """Names of the members that links lead to."""
    notes: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    hidden: list[str] = field(default_factory=list)
    is_damaged: bool = False

    def describe(self, forms: Iterable[str]) -> list[str]:
        """Return what was left out, and what may be missing, for people."""
        notes = describe_left_out(self.others, self.hidden, forms)
        folders = {PurePosixPath(name).parent for name in self.members}
        if len(folders) > 1 and not any(member.kind == _LABEL for member in self.members.values()):
            notes.append("no file ends in .cls, so there are no labels: folders in a tar file are none")
        return [*notes, *self.notes]


@dataclass(frozen=True, slots=True)
class Archives:
    """The pictures, sounds and texts of tar files; nothing is unpacked on the disk."""

    # Members may be in any order: each archive is read twice, first for names, labels and metadata.

    files: Sequence[Path]  # which gzip, bzip2 or xz may have compressed
    modality_names: Mapping[str, str]  # of what is taken: pictures, sounds, or texts (`names_by_form`)
    # gets what was left out of an archive, and what was taken as what, for people
    report: Callable[[str], None]
    # as of `Layout.of`; names of archives count as those of folders, if both kinds are there
    are_splits: bool | None = None

    def rows(self) -> Iterator[Row]:
        answers = {is_training_split(_stem_of(file)) for file in self.files}
        for file in self.files:
            try:
                with _open_plain(file) as stream:
                    yield from self._rows(file, stream, {True, False} <= answers)
            except InvalidFieldError as error:
                yield Refusal(file.name, error.message)
            except _FAULTS as error:
                yield Refusal(file.name, f"cannot be read: {error}")

    def _rows(self, file: Path, stream: IO[bytes], are_archives_splits: bool) -> Iterator[Row]:
        listing = _list_members(file, stream, self.modality_names)
        samples = _read_samples(file, listing)
        layout = Layout.of(samples, self.are_splits, _stem_of(file), are_archives_splits)
        for note in (*listing.describe(self.modality_names), *layout.notes):
            self.report(f"{file.name}: {note}")
        yield from listing.refusals
        ids = self._identifiers(samples, listing)
        names_of: dict[str, list[str]] = {}
        for name in samples:
            names_of.setdefault(listing.targets.get(name, name), []).append(name)
        try:
            for archive, entry in _entries(stream):
                # Of members of the same name the first is taken.
                names = names_of.pop(_name_of(entry), []) if entry.isreg() else []
                content = _content_of(archive, entry) if names else b""
                for name in names:
                    kind, sample = listing.members[name].kind, samples[name]
                    is_train, place = layout.is_train(PurePosixPath(name)), f"{file.name}/{name}"
                    split = {"split": "train" if is_train else "test"} if layout.splits else {}
                    yield read_item(
                        self.modality_names[kind],
                        kind,
                        content,
                        place,
                        id=ids[name],
                        labels=sample.labels,
                        pair_id=sample.name,
                        metadata=with_source({**split, **sample.metadata}, f"{_stem_of(file)}/{name}"),
                        train=is_train,
                    )
        except _FAULTS:
            if not listing.is_damaged:  # else it is among the refusals
                raise

    def _identifiers(self, samples: Mapping[str, _Sample], listing: _Listing) -> dict[str, str]:
        """Return the id of each item: that of its sample, but for further items of a kind."""
        ids: dict[str, str] = {}
        taken: set[str] = set()
        for name, sample in sorted(samples.items()):
            modality = self.modality_names[listing.members[name].kind]
            identifier = f"{modality}-{sample.name}"
            if identifier in taken:
                identifier = f"{modality}-{identifier_of(f'{sample.name}/{name}')}"
            taken.add(identifier)
            ids[name] = identifier
        return ids


class _Header(tarfile.TarInfo):
    """The header of a member; `tarfile` takes one that is damaged, or cut off, for the end of the archive."""

    has_ended = False
    """Whether the mark of the end came last: what follows it is another archive, or nothing."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header that a block holds; raises ReadError unless it is one, or marks the end."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            is_mark = len(buf) == tarfile.BLOCKSIZE and not any(buf)
            if is_mark or (not buf and cls.has_ended):
                cls.has_ended = True
                raise
            raise tarfile.ReadError(str(error) if buf else "the mark of its end is missing") from error
        cls.has_ended = False
        return header


@contextmanager
def _open_plain(file: Path) -> Iterator[IO[bytes]]:
    """Open an archive as if nothing had compressed it; a pipe is copied first, since it is read twice."""
    with ExitStack() as opened:
        stored: Any = opened.enter_context(file.open("rb"))
        if not file.is_file():
            copy = opened.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stored, copy)
            copy.seek(0)
            stored = copy
        magic = stored.read(6)
        stored.seek(0)
        if magic.startswith(_ZSTANDARD):
            raise InvalidFieldError(str(file), "is compressed by zstd, which is not read: unpack it (unzstd)")
        if magic.startswith(b"\x1f\x8b"):
            stored = opened.enter_context(gzip.GzipFile(fileobj=stored))
        elif magic.startswith(b"BZh"):
            stored = opened.enter_context(bz2.BZ2File(stored))
        elif magic.startswith((b"\xfd7zXZ", b"\x5d\x00\x00")):
            stored = opened.enter_context(lzma.LZMAFile(stored))
        yield stored


def _entries(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the members of an archive, and of others that follow it in the same file."""
    stream.seek(0)
    header = type("_HeaderOfThis", (_Header,), {})
    with tarfile.open(
        fileobj=stream,
        mode="r:",
        tarinfo=header,
        ignore_zeros=True,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        while (entry := archive.next()) is not None:
            yield archive, entry


def _name_of(entry: tarfile.TarInfo) -> str:
    return readable_name(str(PurePosixPath(entry.name)))


def _content_of(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry)
    assert stream is not None
    content = stream.read()
    if len(content) < entry.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


def _list_members(file: Path, stream: IO[bytes], forms: Collection[str]) -> _Listing:
    """Return what is in an archive that is used, and what is not."""
    listing = _Listing()
    last: tarfile.TarInfo | None = None
    try:
        for archive, last in _entries(stream):
            _list_member(file, archive, last, forms, listing)
    except _FAULTS as error:
        listing.is_damaged = True
        place, where = (
            (file.name, "") if last is None else (f"{file.name}/{_name_of(last)}", " in or after this member")
        )
        listing.refusals.append(Refusal(place, f"is damaged{where}, or no tar file: {error}"))
        if last is not None and _is_cut(stream, last):
            listing.members.pop(_name_of(last), None)
    _follow_links(file, listing)
    return listing


def _is_cut(stream: IO[bytes], entry: tarfile.TarInfo) -> bool:
    try:
        stream.seek(entry.offset_data)
        return entry.isreg() and len(stream.read(entry.size)) < entry.size
    except _FAULTS:
        return True


def _list_member(
    file: Path, archive: tarfile.TarFile, entry: tarfile.TarInfo, forms: Collection[str], listing: _Listing
) -> None:
    name = _name_of(entry)
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    form = form_of(suffix)
    kind = suffix if suffix in (_LABEL, _METADATA) else form if form in forms else None
    place = f"{file.name}/{name}"
    if entry.isdir():
        return
    if any(is_hidden(step) for step in path.parts if step != ".."):
        listing.hidden.append(path.name)
    elif kind is None:
        listing.others[suffix or "without ending"] += 1
    elif name in listing.members or name in listing.links:
        listing.refusals.append(Refusal(place, "is there twice: the first one is taken"))
    elif entry.issym() or entry.islnk():
        around = str(path.parent) if entry.issym() else ""
        target = readable_name(posixpath.normpath(posixpath.join(around, entry.linkname)))
        listing.links[name] = (_Member(name, kind), target)
    elif not entry.isreg():
        listing.refusals.append(Refusal(place, "is a pipe or a device, not a file"))
    elif entry.size > (MAX_FILE_BYTES if kind == form else _MAX_ANNOTATION_BYTES):
        most = MAX_FILE_MIB if kind == form else _MAX_ANNOTATION_BYTES >> 20
        listing.refusals.append(Refusal(place, f"is larger than {most} MiB"))
    else:
        listing.members[name] = _Member(name, kind)
        if kind != form:
            listing.annotations[name] = _content_of(archive, entry)


def _follow_links(file: Path, listing: _Listing) -> None:
    """Let links stand for the members that they lead to; those that lead to no member are refused."""
    for name, (_, target) in listing.links.items():
        steps = {name}
        while target in listing.links and target not in steps:
            steps.add(target)
            target = listing.links[target][1]
        if target not in listing.members or target in steps:
            reason = f"is a link to {target!r}, which is no file of the archive that is taken"
            listing.refusals.append(Refusal(f"{file.name}/{name}", reason))
            continue
        listing.targets[name] = target
        if target in listing.annotations:
            listing.annotations[name] = listing.annotations[target]
    listing.members |= {name: listing.links[name][0] for name in listing.targets}


def _cut_into_samples(
    file: Path, members: Iterable[_Member], refusals: list[Refusal]
) -> Iterator[tuple[str, list[_Member]]]:
    """Yield the name and the members of each sample; those whose names leave it open are refused."""
    # By the rule of WebDataset the name of a sample ends at the first dot, so that it may have ``1.left.jpg``
    # and ``1.right.jpg``. Where that puts together what is more than one, dots are parts of the names.
    groups: dict[str, list[_Member]] = {}
    for member in members:
        groups.setdefault(member.short_key, []).append(member)
    for key, group in groups.items():
        parts: dict[str, list[_Member]] = {}
        for member in group:
            parts.setdefault(member.key, []).append(member)
        kinds = {name: {member.kind for member in part} for name, part in parts.items()}
        are_whole = [name for name in parts if name != key and len(kinds[name]) > 1]
        counts = Counter(member.kind for member in group)
        is_one = max(counts.values()) == 1 or len(parts) == 1
        are_alike = len(set(map(frozenset, kinds.values()))) == 1
        if is_one or not (are_alike or are_whole or counts[_LABEL] > 1 or counts[_METADATA] > 1):
            yield key, group
        elif are_alike or (are_whole and key not in parts):
            yield from parts.items()
        else:
            names = some_of(sorted(member.name for member in group))
            reason = f"may be one sample or {len(parts)}, as names have dots: {names}; rename them"
            refusals.append(Refusal(f"{file.name}/{key}", reason))


def _read_samples(file: Path, listing: _Listing) -> dict[str, _Sample]:
    """Return the sample of each content; samples without one, or with faults, are refused."""
    samples: dict[str, _Sample] = {}
    groups = list(_cut_into_samples(file, listing.members.values(), listing.refusals))
    usual = set().union(*({member.kind for member in group} for _, group in groups))
    lacking: dict[str, list[str]] = {}
    for key, group in groups:
        by_kind = {member.kind: member.name for member in group}
        place = f"{file.name}/{key}"
        missing = sorted(usual - by_kind.keys())
        if not by_kind.keys() - {_LABEL, _METADATA}:
            listing.refusals.append(Refusal(place, "has neither picture, sound nor text"))
            continue
        if missing and listing.is_damaged:
            reason = f"is left out, as its {join_words(missing, 'and')} may be behind the damage"
            listing.refusals.append(Refusal(place, reason))
            continue
        for kind in missing:
            lacking.setdefault(kind, []).append(key)
        try:
            labels = _read_labels(by_kind.get(_LABEL), listing.annotations)
            metadata = _read_metadata(by_kind.get(_METADATA), listing.annotations)
        except InvalidFieldError as error:
            listing.refusals.append(Refusal(f"{file.name}/{error.field}", error.message))
            continue
        sample = _Sample(identifier_of(f"{_stem_of(file)}/{key}"), labels, metadata)
        samples |= {member.name: sample for member in group if member.name not in listing.annotations}
    for kind, keys in lacking.items():
        listing.notes.append(f"{len(keys)} samples have no {kind}, unlike others: {some_of(keys)}")
    return samples


def _stem_of(file: Path) -> str:
    return _ENDING.sub("", file.name)


def _read_labels(name: str | None, annotations: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the labels of a sample, one on each line."""
    lines = "" if name is None else decode_text(annotations[name], name)
    labels = (line.strip() for line in lines.splitlines())
    return tuple(dict.fromkeys(label for label in labels if label))


def _read_metadata(name: str | None, annotations: Mapping[str, bytes]) -> dict[str, Any]:
    if name is None:
        return {}
    try:
        metadata = json.loads(annotations[name])
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(name, f"is no JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise InvalidFieldError(name, "expected a JSON object")
    return metadata
