"""Folders of pictures or sounds, with texts of the same names, in folders named by classes and splits; files
by the names that tables give them; and tar files as WebDataset writes them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import posixpath
import re
import shutil
import tarfile
import tempfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

import msgspec

from app.cli.sources.rows import (
    MAX_FILE_BYTES,
    MAX_FILE_MIB,
    SUFFIXES,
    Refusal,
    Row,
    Source,
    decode_text,
    form_of,
    identifier_of,
    read_item,
    readable_name,
    with_source,
)
from app.cli.sources.samples import EXPORTED
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words, some_of
from solver.datasets import is_training_split

_BY_SYSTEMS = frozenset({"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin"})
"""What operating systems put beside the files of people, besides names that begin with a dot."""
_ROOT = PurePosixPath()
_TAKEN = {True: "learned from", False: "held out"}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:|www\.", re.IGNORECASE)
_UNSEEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)  # what is copied with a name, as from Windows
_ABSOLUTE = re.compile(r"[a-z]:|[/\\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the folders mean in which files lie: splits, and labels."""

    # A folder is a split if its name is that of one, and either all folders beside it have such names as well
    # or both kinds are there, what is learned from and what is held out: "test" beside "shoe" is a label.

    # folders that are splits, and whether a retrain may learn from what is in them
    splits: Mapping[PurePosixPath, bool]
    label_level: int  # which of the other folders around a file is its label, counted from outside
    notes: tuple[str, ...]  # what was taken as what, for people

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        are_splits: bool | None = None,
        root: str = "",
        is_root_beside_others: bool = False,
    ) -> Layout:
        """Return what the folders around files (`readable_name`) mean; the root is a split only if all or it
        and others are. `are_splits`: all folders named so, or none; None: as described above."""
        n_files = Counter(PurePosixPath(name).parent for name in names)
        siblings: dict[PurePosixPath, dict[PurePosixPath, bool | None]] = {}
        for folder in sorted({folder for inner in n_files for folder in (inner, *inner.parents)} - {_ROOT}):
            siblings.setdefault(folder.parent, {})[folder] = is_training_split(folder.name)
        splits: dict[PurePosixPath, bool] = {}
        notes: dict[str, None] = {}
        for named in siblings.values():
            is_level = {True, False} <= set(named.values()) or None not in named.values()
            for folder, is_training in named.items():
                if is_training is None:
                    continue
                if is_level if are_splits is None else are_splits:
                    splits[folder] = is_training
                elif are_splits is None:
                    others = some_of([other.name for other in named if named[other] is None])
                    no_split = f"{folder.name!r} is no split, as there is {others} beside it"
                    notes[f"{no_split}; --splits takes it as one"] = None
        is_training = is_training_split(root)
        if is_training is not None and (is_root_beside_others if are_splits is None else are_splits):
            splits[_ROOT] = is_training
        elif is_training is False and are_splits is None and not splits:
            notes[
                f"{root!r} has the name of what is held out, and is learned from; --splits holds it out"
            ] = None
        for is_training, taken in _TAKEN.items():
            used = [folder for folder in splits if splits[folder] is is_training]
            if used:
                inside = [folder for folder in n_files if not {folder, *folder.parents}.isdisjoint(used)]
                names_of = some_of(sorted({folder.name or root for folder in used}))
                notes[f"{taken}: {sum(map(n_files.__getitem__, inside))} files in {names_of}"] = None
        if splits and are_splits is None:
            notes["--no-splits takes splits as any other folders"] = None
        return cls(splits, _label_level(splits, n_files), tuple(notes))

    def is_train(self, path: PurePosixPath) -> bool:
        """Return whether a retrain may learn from a file: no split around it is held out."""
        return all(self.splits.get(folder, True) for folder in path.parents)

    def labels(self, path: PurePosixPath) -> tuple[str, ...]:
        """Return the label of a file; none outside of folders."""
        names = _without(self.splits, path.parent)
        return names[self.label_level : self.label_level + 1]


def _without(splits: Mapping[PurePosixPath, bool], folder: PurePosixPath) -> tuple[str, ...]:
    """Return the names on the way to a folder that are those of no split."""
    way = (*reversed(folder.parents), folder)
    return tuple(step.name for step in way if step.name and step not in splits)


def _label_level(splits: Mapping[PurePosixPath, bool], folders: Iterable[PurePosixPath]) -> int:
    """Return which folders are labels: the outermost, unless all files with their splits lie in that one."""
    ways = {_without(splits, folder) for folder in folders}
    for level in range(min(map(len, ways), default=0) if splits else 0):
        if len({way[level] for way in ways}) > 1:
            return level
    return 0


def open_folder(
    root: Path, modality_names: Mapping[str, str], has_class_folders: bool, are_splits: bool | None = None
) -> Source:
    """Open the pictures, sounds and texts of a folder, or which of them have a modality (`names_by_form`).
    `has_class_folders`: folders are classes; `are_splits` as of `Layout.of`."""
    # Two of the same name but for the ending are partners, in whatever form their accents are composed, and
    # in whatever case where that leaves no doubt. Raises InvalidFieldError without any file.
    files, refusals, left_out = find_files(root, modality_names)
    names = list(map(readable_name, files))
    layout = Layout.of(names, are_splits, root.resolve().name)

    def rows() -> Iterator[Row]:
        yield from refusals
        pairs = _pair_names(names)
        for file, name in zip(files, names, strict=True):
            stem, form = _stem_and_form(name)
            modality, path = modality_names[form], PurePosixPath(name)
            is_train = layout.is_train(path)
            split = {"split": "train" if is_train else "test"} if layout.splits else {}
            yield read_item(
                modality,
                form,
                root / file,
                name,
                id=f"{modality}-{identifier_of(file)}",
                labels=layout.labels(path) if has_class_folders else (),
                pair_id=identifier_of(pairs[stem]),
                metadata=with_source(split, name),
                train=is_train,
            )

    labels = {label for name in names for label in layout.labels(PurePosixPath(name))}
    listed = _describe_labels(sorted(labels)) if has_class_folders else ()
    notes = [*left_out, *layout.notes, *listed, *_without_partners(names)]
    return Source(rows, len(files) + len(refusals), notes)


def _describe_labels(labels: Sequence[str]) -> Iterator[str]:
    if labels:
        yield f"labels: {some_of(labels)}"
    spellings: dict[str, list[str]] = {}
    for label in labels:
        spellings.setdefault(label.casefold().strip(), []).append(label)
    for alike in spellings.values():
        if len(alike) > 1:
            yield f"labels that differ in case or blanks alone are different ones: {some_of(alike)}"


def _pair_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name of the pair of each name without ending: the same where only case differs, unless of
    one kind."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name in names:
        stem, form = _stem_and_form(name)
        folded = unicodedata.normalize("NFC", stem.casefold()).strip()
        groups.setdefault(folded, {}).setdefault(stem, []).append(form)
    pairs: dict[str, str] = {}
    for spellings in groups.values():
        forms = [form for of_stem in spellings.values() for form in of_stem]
        first = next(iter(spellings))
        are_same = len(set(forms)) == len(forms)
        pairs |= {stem: first if are_same else stem for stem in spellings}
    return pairs


def _stem_and_form(name: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    return str(path.with_suffix("")), str(form_of(path.suffix))


def _without_partners(names: Sequence[str]) -> Iterator[str]:
    """Yield how many files have no partner, where there are two kinds of files at least."""
    pairs = _pair_names(names)
    forms_by_pair: dict[str, set[str]] = {}
    for stem, form in map(_stem_and_form, names):
        forms_by_pair.setdefault(pairs[stem], set()).add(form)
    forms = sorted(set().union(*forms_by_pair.values()))
    for form in forms if len(forms) > 1 else ():
        alone = [pair for pair, of_pair in forms_by_pair.items() if of_pair == {form}]
        if alone:
            others = join_words(other for other in forms if other != form)
            yield f"{len(alone)} {form}s have no {others} of the same name beside them: {some_of(alone)}"


def find_files(root: Path, forms: Collection[str]) -> tuple[list[str], list[Refusal], list[str]]:
    """Return the "picture", "sound" and "text" files below a folder, in order; folders that could not be
    read; and what was left out, and why. Raises InvalidFieldError without any file."""
    # Links are followed, but for those that lead back to a folder around them. Hidden files and folders are
    # left out, and so is what operating systems put beside files.
    if not root.is_dir():
        raise InvalidFieldError(str(root), "is no folder")
    names: list[str] = []
    hidden: list[str] = []
    loops: list[str] = []
    refusals: list[Refusal] = []
    others: Counter[str] = Counter()

    def refuse(error: OSError) -> None:
        place = Path(error.filename or root)
        refusals.append(Refusal(readable_name(str(place)), error.strerror or str(error)))

    for place, folders, files in os.walk(root, onerror=refuse, followlinks=True):
        below = Path(place).relative_to(root)
        followed: list[str] = []
        for folder in sorted(folders):
            if is_hidden(folder):
                hidden.append(folder)
            elif os.path.islink(Path(place, folder)) and _leads_back(root, below / folder):
                loops.append((below / folder).as_posix())
            else:
                followed.append(folder)
        folders[:] = followed
        for file in sorted(files):
            path = below / file
            if is_hidden(file):
                hidden.append(file)
            elif form_of(path.suffix) in forms:
                names.append(path.as_posix())
            else:
                others[path.suffix.lower() or "without ending"] += 1
    notes = describe_left_out(others, hidden, forms)
    if loops:
        shown = some_of(list(map(readable_name, loops)))
        notes.append(f"left out: links that lead back to a folder around them: {shown}")
    if not names:
        missing = [f"no {form}s ({', '.join(sorted(SUFFIXES[form]))})" for form in forms]
        reason = f"has {join_words(missing, 'and') or 'nothing that is taken'}"
        raise InvalidFieldError(str(root), "; ".join([reason, *notes]))
    return names, refusals, notes


def describe_left_out(others: Counter[str], hidden: Collection[str], forms: Iterable[str]) -> list[str]:
    """Return how many files of which endings, and how many hidden ones, are left out."""
    notes = []
    if others:
        kinds = join_words([f"{form}s" for form in forms], "nor")
        listed = ", ".join(f"{count} {readable_name(ending)}" for ending, count in others.most_common())
        notes.append(f"left out: {others.total()} files that are no {kinds} ({listed})")
    if hidden:
        shown = some_of(sorted(set(map(readable_name, hidden))))
        notes.append(f"left out: {len(hidden)} hidden files and folders ({shown})")
    return notes


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, or was put there by an operating system."""
    return name.startswith(".") or name.casefold() in _BY_SYSTEMS


def _leads_back(root: Path, link: Path) -> bool:
    """Return whether a link below a folder leads to one around it, on the way that was taken to it."""
    target = (root / link).resolve()
    way = [(root / step).resolve() for step in link.parents]
    return any(target == step or target in step.parents for step in way)


def name_files(folder: Path) -> Callable[[str], Path]:
    """Return what finds the file of a name relative to a folder: as it is written, or else the one in it or
    below that is meant; it raises InvalidFieldError without a field."""
    # Blanks around, backslashes, capitals, accents and folders make no difference, as long as one file fits.
    list_once = cache(partial(_steps_by_name, folder))

    def find(name: str) -> Path:
        if _ADDRESS.match(name.strip()):
            raise InvalidFieldError(
                "", "is an address, and nothing is fetched: download the files, and name them in the table"
            )
        path = folder / name
        try:
            if path.is_file():
                return path
            paths = _fitting(_UNSEEN.sub("", name), list_once())
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            raise InvalidFieldError("", "can be no name of a file") from error
        if not paths:
            raise InvalidFieldError(
                "", f"is not found in {folder}; --pictures names the folder in which the files are"
            )
        if len(paths) > 1:
            raise InvalidFieldError("", f"may be one of several files below {folder}: name its folder, too")
        return folder.joinpath(*paths[0])

    return find


def _steps_by_name(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return the steps to each file by its last one, for names that are none as they are written."""
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [inner for inner in folders if not inner.startswith(".")]
        steps = Path(place).relative_to(folder).parts
        for file in files:
            by_name.setdefault(_normal(file), []).append((*steps, file))
    return by_name


def _fitting(name: str, by_name: Mapping[str, Sequence[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return the files that a path of another machine may mean: those of which it says most steps."""
    steps = [_normal(step) for step in re.split(r"[/\\]", name) if step.strip() not in ("", ".")]
    candidates = by_name.get(steps[-1], []) if steps else []
    paths = {candidate: [*map(_normal, candidate)] for candidate in candidates}

    def n_common(candidate: tuple[str, ...]) -> int:
        n_steps = min(len(candidate), len(steps))
        return n_steps if paths[candidate][-n_steps:] == steps[-n_steps:] else 0

    # Of a path from the root of another machine the folders may have other names here.
    fitting = [candidate for candidate in paths if n_common(candidate) or _ABSOLUTE.match(name.strip())]
    nearest = [candidate for candidate in fitting if n_common(candidate) == max(map(n_common, fitting))]
    whole = [candidate for candidate in nearest if paths[candidate] == steps]
    return whole or nearest


def _normal(name: str) -> str:
    """Return a form in which names are compared: blanks, capitals and forms of accents make no difference."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().casefold())


_LABEL, _METADATA = ".cls", ".json"
_MAX_ANNOTATION_BYTES = 1 << 20
"""Of labels or metadata, which are in memory for a whole archive; an item may have far fewer."""
_ENDING = re.compile(r"\.(tar(\.[a-z0-9]+)?|t[bgx]z2?)$", re.IGNORECASE)
"""Of the name of an archive, compressed or not."""
_FAULTS = (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error)
"""What is raised by archives that are damaged or cut off."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class _Exported(msgspec.Struct, forbid_unknown_fields=True):
    """What an item has that `lrbs export` wrote, beyond what its sample says."""

    id: str
    pair_id: str | None
    train: bool
    labels: tuple[str, ...] | None = None  # in place of those of the sample
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _Sample:
    """What all items of a sample share, and by endings what those have that were exported."""

    name: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]
    exported: Mapping[str, _Exported]


@dataclass(slots=True)
class _Listing:
    """What is in an archive, but for contents: these are read when it is known what belongs together."""

    members: dict[str, str] = field(default_factory=dict)
    """What each file holds, by its name."""
    links: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The same of links, and the names that they lead to."""
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
        if len(folders) > 1 and _LABEL not in self.members.values():
            notes.append("no file ends in .cls, so there are no labels: folders in a tar file are none")
        return [*notes, *self.notes]


def open_archives(
    files: Sequence[Path],
    modality_names: Mapping[str, str],
    report: Callable[[str], None],
    are_splits: bool | None = None,
) -> Source:
    """Open the pictures, sounds and texts of tar files, or which of them have a modality (`names_by_form`);
    gzip, bzip2 or xz may have compressed them. Nothing is unpacked on the disk."""
    # Members may be in any order: each archive is read twice, first for names, labels and metadata. `report`
    # gets what was left out of an archive, and what was taken as what, for people. `are_splits` as of
    # `Layout.of`; names of archives count as those of folders, if both kinds are there.
    has_both_kinds = {True, False} <= {is_training_split(_stem_of(file)) for file in files}

    def rows() -> Iterator[Row]:
        for file in files:
            try:
                with _open_plain(file) as stream:
                    yield from _archive_rows(file, stream, modality_names, report, are_splits, has_both_kinds)
            except InvalidFieldError as error:
                yield Refusal(file.name, error.message)
            except _FAULTS as error:
                yield Refusal(file.name, f"cannot be read: {error}")

    return Source(rows)


def _archive_rows(
    file: Path,
    stream: IO[bytes],
    modality_names: Mapping[str, str],
    report: Callable[[str], None],
    are_splits: bool | None,
    is_beside_others: bool,
) -> Iterator[Row]:
    listing = _list_members(file, stream, modality_names)
    samples = _read_samples(file, listing)
    names = [name for name, sample in samples.items() if not sample.exported]
    layout = Layout.of(names, are_splits, _stem_of(file) if names else "", is_beside_others)
    for note in (*listing.describe(modality_names), *layout.notes):
        report(f"{file.name}: {note}")
    yield from listing.refusals
    modalities = {name: modality_names[listing.members[name]] for name in samples}
    ids = _identifiers(samples, modalities)
    names_of: dict[str, list[str]] = {}
    for name in samples:
        names_of.setdefault(listing.targets.get(name, name), []).append(name)
    try:
        for archive, entry in _entries(stream):
            # Of members of the same name the first is taken.
            names = names_of.pop(_name_of(entry), []) if entry.isreg() else []
            content = _content_of(archive, entry) if names else b""
            for name in names:
                sample, path = samples[name], PurePosixPath(name)
                is_train = layout.is_train(path)
                split = {"split": "train" if is_train else "test"} if layout.splits else {}
                metadata = with_source(split, f"{_stem_of(file)}/{name}")
                usual = _Exported(ids[name], sample.name, is_train, metadata=metadata)
                own = sample.exported.get(path.suffix[1:], usual)
                yield read_item(
                    modalities[name],
                    listing.members[name],
                    content,
                    f"{file.name}/{name}",
                    is_exact=own is not usual,
                    id=own.id,
                    labels=sample.labels if own.labels is None else own.labels,
                    pair_id=own.pair_id,
                    metadata={**own.metadata, **sample.metadata},
                    train=own.train,
                )
    except _FAULTS:
        if not listing.is_damaged:  # else it is among the refusals
            raise


def _identifiers(samples: Mapping[str, _Sample], modalities: Mapping[str, str]) -> dict[str, str]:
    """Return the id of each item: that of its sample, but for further items of a kind."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for name, sample in sorted(samples.items()):
        identifier = f"{modalities[name]}-{sample.name}"
        if identifier in taken:
            identifier = f"{modalities[name]}-{identifier_of(f'{sample.name}/{name}')}"
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
        listing.links[name] = (kind, target)
    elif not entry.isreg():
        listing.refusals.append(Refusal(place, "is a pipe or a device, not a file"))
    elif entry.size > (MAX_FILE_BYTES if kind == form else _MAX_ANNOTATION_BYTES):
        most = MAX_FILE_MIB if kind == form else _MAX_ANNOTATION_BYTES >> 20
        listing.refusals.append(Refusal(place, f"is larger than {most} MiB"))
    else:
        listing.members[name] = kind
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
    file: Path, members: Mapping[str, str], refusals: list[Refusal]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the members of each sample; those whose names leave it open are refused."""
    # By the rule of WebDataset the name of a sample ends at the first dot, so that it may have ``1.left.jpg``
    # and ``1.right.jpg``. Where that puts together what is more than one, dots are parts of the names.
    groups: dict[str, list[str]] = {}
    for path in map(PurePosixPath, members):
        key = str(path.with_name(path.name.partition(".")[0] or path.name))
        groups.setdefault(key, []).append(str(path))
    for key, group in groups.items():
        parts: dict[str, list[str]] = {}
        for name in group:
            parts.setdefault(str(PurePosixPath(name).with_suffix("")), []).append(name)
        kinds = {part: {members[name] for name in inside} for part, inside in parts.items()}
        are_whole = [part for part in parts if part != key and len(kinds[part]) > 1]
        counts = Counter(members[name] for name in group)
        is_one = max(counts.values()) == 1 or len(parts) == 1
        are_alike = len(set(map(frozenset, kinds.values()))) == 1
        if is_one or not (are_alike or are_whole or counts[_LABEL] > 1 or counts[_METADATA] > 1):
            yield key, group
        elif are_alike or (are_whole and key not in parts):
            yield from parts.items()
        else:
            names = some_of(sorted(group))
            reason = f"may be one sample or {len(parts)}, as names have dots: {names}; rename them"
            refusals.append(Refusal(f"{file.name}/{key}", reason))


def _read_samples(file: Path, listing: _Listing) -> dict[str, _Sample]:
    """Return the sample of each content; samples without one, or with faults, are refused."""
    samples: dict[str, _Sample] = {}
    groups = list(_cut_into_samples(file, listing.members, listing.refusals))
    usual = {listing.members[name] for _, group in groups for name in group}
    lacking: dict[str, list[str]] = {}
    for key, group in groups:
        by_kind = {listing.members[name]: name for name in group}
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
            metadata, exported = _read_metadata(by_kind.get(_METADATA), listing.annotations)
        except InvalidFieldError as error:
            listing.refusals.append(Refusal(f"{file.name}/{error.field}", error.message))
            continue
        sample = _Sample(identifier_of(f"{_stem_of(file)}/{key}"), labels, metadata, exported)
        samples |= {name: sample for name in group if name not in listing.annotations}
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


def _read_metadata(
    name: str | None, annotations: Mapping[str, bytes]
) -> tuple[dict[str, Any], dict[str, _Exported]]:
    if name is None:
        return {}, {}
    try:
        metadata = json.loads(annotations[name])
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(name, f"is no JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise InvalidFieldError(name, "expected a JSON object")
    try:
        return metadata, msgspec.convert(metadata.pop(EXPORTED, {}), dict[str, _Exported])
    except msgspec.ValidationError as error:
        raise InvalidFieldError(name, f"{EXPORTED}: {error}") from error
