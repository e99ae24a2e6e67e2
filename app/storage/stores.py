"""The stores of a service, their copies, and the mark of the database that all of it belongs to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.entities import CopiedFiles, Mark
from app.domain.errors import UnavailableError
from app.storage.folders import TRASH, LocalCache, LocalFolder, Way, durable_file
from app.storage.pictures_and_bundles import MANIFEST, Blobs, Bundles, Folder, is_inside, parse_sums
from app.storage.remote_folder import RemoteFolder, open_remote

_logger = logging.getLogger(__name__)
_PICTURES, _BUNDLES, _GALLERIES = "pictures", "models", "galleries"
_CACHE = "cache"
_SHARES = {_PICTURES: 0.5, _BUNDLES: 0.25, _GALLERIES: 0.25}  # of the bound on all copies


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a service."""

    pictures: Blobs  # originals of items and of queries
    bundles: Bundles  # model versions
    galleries: Bundles  # saved ones
    mark: FolderMark  # names the database that all of it belongs to
    # copies what the second folder lacks of the first, but for damaged files; one is the data folder
    copy_files: Callable[[Path, Path], CopiedFiles]
    # returns why the stores could not be used when they were last; None if they could
    find_fault: Callable[[], str | None]


def local_stores(data_folder: Path, trash_seconds: float, mark: FolderMark) -> Stores:
    """Return stores in the data folder, where what was discarded can be restored for a while."""
    folders: dict[str, Folder] = {kind: LocalFolder(data_folder / kind) for kind in _SHARES}
    return _stores(data_folder, folders, {}, trash_seconds, mark, lambda: None)


def remote_stores(url: str, data_folder: Path, trash_seconds: float, cache_bytes: int) -> Stores:
    """Return stores in an object store (`open_remote`), with bounded copies in the data folder, half of them
    for pictures."""
    root = open_remote(url)
    folders: dict[str, Folder] = {kind: root.child(kind) for kind in _SHARES}
    caches = {
        kind: LocalCache(data_folder / _CACHE / kind, int(share * cache_bytes))
        for kind, share in _SHARES.items()
    }
    return _stores(data_folder, folders, caches, trash_seconds, RemoteFolderMark(root), root.find_fault)


def _stores(
    data_folder: Path,
    folders: dict[str, Folder],
    caches: dict[str, LocalCache],
    trash_seconds: float,
    mark: FolderMark,
    find_fault: Callable[[], str | None],
) -> Stores:
    def place_of(folder: Path, kind: str) -> Folder:
        return folders[kind] if folder == data_folder else LocalFolder(folder / kind)

    def copy_files(source: Path, target: Path) -> CopiedFiles:
        count = 0
        damaged: list[str] = []
        for kind in (_PICTURES, _BUNDLES):
            way = caches[kind] if caches and target == data_folder else LocalFolder(target / kind)
            copied = copy_store(place_of(source, kind), place_of(target, kind), way, kind == _BUNDLES)
            count += copied.count
            damaged += [f"{kind}/{name}" for name in copied.damaged]
        return CopiedFiles(count, tuple(damaged))

    return Stores(
        Blobs(folders[_PICTURES], caches.get(_PICTURES), trash_seconds),
        Bundles(folders[_BUNDLES], caches.get(_BUNDLES), trash_seconds),
        Bundles(folders[_GALLERIES], caches.get(_GALLERIES)),
        mark,
        copy_files,
        find_fault,
    )


# What is at its place is copied before what is in the trash: a file that moves there in the meantime is found
# there. A file appears in the copy whole or not at all, and the manifest of a bundle after its other files.


class _Copy:
    """One copy on its way, with a folder aside for its files."""

    def __init__(self, source: Folder, target: Folder, aside: Path) -> None:
        self._source = source
        self._target = target
        self._aside = aside
        self._present = set(target.keys())
        self.n_files = 0
        self.damaged: list[str] = []

    def copy_picture(self, name: str) -> None:
        """Copy a file that is named by its sum."""
        with suppress(FileNotFoundError):  # moved or removed in the meantime
            self._copy(name, name.rpartition("/")[2])

    def copy_bundle(self, name: str) -> None:
        """Copy the files that a manifest names, and the manifest after them."""
        manifest = f"{name}/{MANIFEST}"
        with suppress(FileNotFoundError), self._fetch(manifest) as path:
            try:
                sums = parse_sums(path.read_bytes())
            except (ValueError, KeyError, TypeError):
                self._note_damage(manifest)
                return
            for file, expected in sums.items():
                with suppress(FileNotFoundError):
                    self._copy_part(f"{name}/{file}", expected, manifest)
            if manifest not in self._present:
                self._take(path, manifest)

    def _copy_part(self, name: str, expected: str, manifest: str) -> None:
        try:
            self._copy(name, expected)
        except FileNotFoundError:
            with self._fetch(manifest):  # otherwise all of the bundle was moved in the meantime
                self._note_damage(name)

    def _copy(self, name: str, expected: str) -> None:
        if name in self._present:
            return
        with self._fetch(name) as path:
            with path.open("rb") as stream:
                is_whole = hashlib.file_digest(stream, "sha256").hexdigest() == expected
            if is_whole:
                self._take(path, name)
            else:
                self._note_damage(name)

    def _take(self, path: Path, name: str) -> None:
        self._target.take(path, name)
        self._present.add(name)
        self.n_files += 1

    @contextmanager
    def _fetch(self, name: str) -> Iterator[Path]:
        path = self._aside / secrets.token_hex(8)
        try:
            self._source.download(name, path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _note_damage(self, name: str) -> None:
        """Note a file that is missing or not what its sum says."""
        if name.startswith(f"{TRASH}/"):
            _logger.warning("%s is damaged, and left out of the copy: nothing refers to it", name)
        else:
            self.damaged.append(name)


def copy_store(source: Folder, target: Folder, way: Way, is_of_bundles: bool) -> CopiedFiles:
    """Copy the pictures that the target lacks, or the files of bundles, unless they are damaged or of an
    unfinished bundle."""
    with way.make_temporary_folder() as aside:
        copy = _Copy(source, target, Path(aside))
        for folder in ("", TRASH):
            names = [name for name in source.keys(folder) if _is_stored_in(folder, name)]
            for name in _bundles_in(folder, names) if is_of_bundles else ():
                copy.copy_bundle(name)
            for name in () if is_of_bundles else names:
                copy.copy_picture(name)
        return CopiedFiles(copy.n_files, tuple(copy.damaged))


def _is_stored_in(folder: str, name: str) -> bool:
    """Return whether a file is stored in a folder, and neither unfinished nor in the trash of that folder."""
    below = name.removeprefix(f"{folder}/") if folder else name
    return is_inside(below) and not any(part.startswith(".") for part in below.split("/"))


def _bundles_in(folder: str, names: list[str]) -> list[str]:
    """Return the folders with a manifest; those of the trash lie in one for each hour."""
    depth = 3 if folder == TRASH else 1
    parts = (name.split("/") for name in names)
    return ["/".join(part[:depth]) for part in parts if part[depth:] == [MANIFEST]]


_MARKER = ".database"
_SQLITE = "sqlite://:/"
_INSIDE = "inside this folder"


@dataclass(eq=False)
class FileFolderMark:
    """A small file in the data folder, created when a mark is written."""

    # Earlier versions wrote the location of the database instead of its identity:
    # ``backend://host:port/name``, or that it lies inside this folder, in its usual file.

    _folder: Path
    _location: str
    _usual_file: str

    def read(self) -> Mark | None:
        """Return the mark; None if there is none, or if a crash of an earlier version left it empty."""
        text = self._text()
        return _mark_of(text) if text else None

    def names_this_database(self) -> bool:
        """Return whether an earlier version marked the folder with the location of the current database."""
        text = self._text()
        name = _portable_name(self._folder, self._location, self._usual_file)
        return bool(text) and name in (text, _portable_name(self._folder, text, self._usual_file))

    def write(self, mark: Mark, replace: bool) -> None:
        """Write a mark atomically, through a temporary file, in place of an existing one only with `replace`;
        raises OSError."""
        with durable_file(self._folder, f"{_MARKER}-", json.dumps(asdict(mark)).encode()) as aside:
            if replace or ((self._folder / _MARKER).exists() and not self._text()):
                os.replace(aside, self._folder / _MARKER)
            else:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.link(aside, self._folder / _MARKER)

    def _text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / _MARKER).read_text(encoding="utf-8")
        return ""


def _mark_of(text: str | bytes) -> Mark:
    """Return a mark as it was written; that of an earlier version names no database."""
    try:
        return Mark(**json.loads(text))
    except (ValueError, TypeError):
        return Mark("", "")


def _portable_name(folder: Path, database: str, usual_file: str) -> str:
    """Return the name of a database in the marker file: without the folder's path if it lies inside."""
    path = database.removeprefix(_SQLITE)
    if path == database or path.startswith((":", "file:")):
        return database
    file, root = Path(path).resolve(), folder.resolve()
    if not file.is_relative_to(root):
        return database
    inside = file.relative_to(root).as_posix()
    return _INSIDE if inside == usual_file else f"{_INSIDE}: {inside}"


_SECONDS = 10.0  # how long a mark is remembered: the store is not asked by every request
_PATIENCE_SECONDS = 2.0
"""How long a request waits for a mark to be read again; what is remembered serves until it comes."""


class RemoteFolderMark:
    """A small object beside the others of the store."""

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder
        self._remembered: tuple[float, Mark] | None = None
        self._guard = threading.Lock()
        self._inquiry: threading.Thread | None = None

    def read(self) -> Mark | None:
        """Return the mark; the one that was read last while the store is away. None if there is none."""
        remembered = self._remembered
        if remembered is None:
            return self._ask()
        if time.monotonic() - remembered[0] >= _SECONDS and self._ask_in_background():
            remembered = self._remembered
        return None if remembered is None else remembered[1]

    def _ask_in_background(self) -> bool:
        """Return whether the store answered, or refused, soon enough for the caller to wait."""
        with self._guard:
            if self._inquiry is not None and self._inquiry.is_alive():
                return False
            self._inquiry = threading.Thread(target=self._ask_again, name="ask-for-mark", daemon=True)
            self._inquiry.start()
            inquiry = self._inquiry
        inquiry.join(_PATIENCE_SECONDS)
        return not inquiry.is_alive()

    def _ask_again(self) -> None:
        with suppress(UnavailableError):  # its outage is known, and what is remembered stays
            self._ask()

    def _ask(self) -> Mark | None:
        try:
            mark = _mark_of(self._folder.read(_MARKER))
        except FileNotFoundError:
            self._remembered = None
            return None
        self._remembered = (time.monotonic(), mark)
        return mark

    def names_this_database(self) -> bool:
        """Return False: there were no such marks in earlier versions."""
        return False

    def write(self, mark: Mark, replace: bool) -> None:
        content = json.dumps(asdict(mark)).encode()
        self._remembered = None
        if replace:
            self._folder.write(_MARKER, content)
        else:
            self._folder.create(_MARKER, content)


FolderMark = FileFolderMark | RemoteFolderMark
"""What a data folder, or the store in its place, remembers of its database."""
