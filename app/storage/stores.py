"""All that is stored beside the database, in the data folder or in an object store for several hosts:
pictures, bundles, a trash that keeps what is unused for a while, copies, and the mark of the database."""
# Each folder of the trash is named by the hour in which its files were put there: its start, in seconds since
# the epoch. On this machine a file moves there, and back, by a single rename: a process killed in between
# leaves it whole in one place or the other.
#
# An object store knows no rename: what moves is copied first, and then removed. What is moved is named by its
# content or by a random word, so that two copies of a name are the same, and a process killed in between
# leaves at least one of them whole. A writer that stores something again does so by writing it, which a
# removal of the earlier copy may overtake: then the copy in the trash is the last one. Therefore nothing goes
# for good but from the trash, after the database was asked once more, and what is restored stays in the trash
# until nothing refers to it.

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from app.domain.entities import CopiedFiles, Mark
from app.domain.errors import DamagedBundleError, UnavailableError
from app.storage.folders import TRASH, LocalCache, LocalFolder, Way, delete, durable_file, translate_errors
from app.storage.remote_folder import RemoteFolder, open_remote, run_together

Folder = LocalFolder | RemoteFolder
Used = Callable[[Sequence[str]], set[str]]
"""Returns the names that are in use."""

_BATCH = 500
"""Names looked up in one query: far below the limits of both databases on bound parameters."""
_HOUR_SECONDS = 3600


_Result = TypeVar("_Result")
_logger = logging.getLogger(__name__)


class _Store(ABC):
    """What is in one folder, of which a cache has copies where that is far away. What was discarded is kept
    to the hour (0 seconds: not at all) in a folder inside it, the trash, and can be restored."""

    _last: str | None = None
    """The file of a folder that was written last, and stands for it; None where single files are stored."""

    def __init__(self, folder: Folder, cache: LocalCache | None = None, trash_seconds: float = 0.0) -> None:
        self._folder = folder
        self._cache = cache
        self._trash_seconds = trash_seconds

    def _place(self, name: str) -> str:
        return name

    def names(self) -> Iterator[str]:
        """Yield the name of everything that is stored."""
        return (name for name, _ in self.times())

    @abstractmethod
    def times(self) -> Iterator[tuple[str, float]]:
        """Yield each name, and when it was last written or touched, in seconds since the epoch."""

    def discard(self, names: Sequence[str], before: float) -> int:
        """Move what no row refers to, to the trash; return how much existed. If the trash keeps nothing, what
        was put before this time (seconds since the epoch) goes for good, at once or when it is tidied."""
        batch = f"{TRASH}/{int(time.time()) // _HOUR_SECONDS * _HOUR_SECONDS}"
        moved = self._folder.move_all([(self._place(name), f"{batch}/{name}") for name in names], self._last)
        if not self._trash_seconds and self._folder.is_moved_at_once:
            self._folder.remove_all(moved, before)
        return len(moved)

    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Restore what is in use, remove from the trash what is over, then what interrupted writes left, both
        of before this time (seconds since the epoch); yield 0, then how much each of its steps removed."""
        for batch in self._batches():
            ends_at = int(batch.rpartition("/")[2]) + _HOUR_SECONDS + self._trash_seconds
            is_over = not self._trash_seconds or ends_at < time.time()
            newest = self._folder.newest(batch)
            for start in range(0, len(newest), _BATCH):
                names = list(newest)[start : start + _BATCH]
                in_use = used(names)
                places = [(f"{batch}/{name}", self._place(name)) for name in names if name in in_use]
                run_together(lambda pair: self._folder.bring_back(*pair, self._last), places)
                old = [
                    f"{batch}/{name}"
                    for name in names
                    if newest[name] < before and (self._folder.is_moved_at_once or name not in in_use)
                ]
                if is_over:
                    self._folder.remove_all(old, before)
                yield 0
            self._folder.remove_if_empty(batch)
        yield from self._folder.sweep_leftovers(before, self._last)

    def _give_back(self, name: str) -> bool:
        """Restore what is missing at its place if it is in the trash; return whether it is at its place."""
        place = self._place(name)
        for batch in reversed(self._batches()):
            if self._folder.bring_back(f"{batch}/{name}", place, self._last):
                break
        return self._folder.has(place, self._last)

    def _batches(self) -> list[str]:
        """Return the folders of the trash, oldest first."""
        hours = [entry.name for entry in self._folder.entries(TRASH) if entry.name.isdecimal()]
        return [f"{TRASH}/{hour}" for hour in sorted(hours, key=int)]


class Blobs(_Store):
    """Stores each content once, under its SHA-256; the cache has what was read or written here."""

    def _place(self, name: str) -> str:
        return f"{name[:2]}/{name}"

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256; what is there already becomes young."""
        content_hash = hashlib.sha256(content).hexdigest()
        place = self._place(content_hash)
        is_there = self._folder.renew(place, content)
        if not is_there and self._folder.is_moved_at_once and self._give_back(content_hash):
            is_there = self._folder.renew(place, content)
        if not is_there:
            self._folder.write(place, content)
        if self._cache is not None:
            self._cache.write(content_hash, content)
        return content_hash

    def get(self, content_hash: str) -> bytes:
        """Return content, restored from the trash if need be.
        Raises FileNotFoundError where it is lost or damaged; storing it again gives it back."""
        copy = None if self._cache is None else self._cache.read(content_hash)
        if copy is not None and hashlib.sha256(copy).hexdigest() == content_hash:
            return copy
        content = self._or_restored(content_hash, self._folder.read)
        _require_sum(content_hash, content)
        if self._cache is not None:
            self._cache.write(content_hash, content)
        return content

    def touch(self, content_hash: str) -> None:
        """Make content as young as if it were put now, so that no sweep removes it before its row is written.
        Raises FileNotFoundError where it is not there."""
        check = partial(_require_sum, content_hash)
        self._or_restored(content_hash, lambda place: self._folder.touch(place, check))

    def times(self) -> Iterator[tuple[str, float]]:
        # A folder is listed once those before it were seen, since all may be many.
        for folder in self._folder.entries():
            if folder.is_folder and not folder.name.startswith("."):
                for entry in self._folder.entries(folder.name):
                    # A sweep could not remove what lies elsewhere than its name says.
                    if not entry.is_folder and entry.name[:2] == folder.name:
                        yield entry.name, entry.modified

    def _or_restored(self, content_hash: str, use: Callable[[str], _Result]) -> _Result:
        """Return what a use of the file at its place returns, restored from the trash if need be."""
        try:
            return use(self._place(content_hash))
        except FileNotFoundError:
            if not self._give_back(content_hash):
                raise
            return use(self._place(content_hash))


def _require_sum(content_hash: str, content: bytes) -> None:
    """Raise FileNotFoundError, and log it, for content that is not what its name says."""
    if hashlib.sha256(content).hexdigest() != content_hash:
        _logger.error("content %s is damaged: its sum is another one", content_hash)
        raise FileNotFoundError(errno.ENOENT, "the content is damaged", content_hash)


MANIFEST = "manifest.json"
"""The last file of a bundle, which stands for the whole."""


class Bundles(_Store):
    """Bundles, each a folder that is filled aside, stored under its name, and never changed. Without a cache
    they are read where they lie."""

    _last = MANIFEST

    @translate_errors()
    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; return its folder, with a random part after `name` so that writers never collide,
        and the SHA-256 of its manifest, which has the facts and the sum of every file."""
        # Raises DatabaseUnavailableError where the disk does not take it; nothing is left behind then but, in
        # an object store, a folder that nothing refers to.
        folder = f"{name}-{secrets.token_hex(4)}"
        way = self._folder if self._cache is None else self._cache
        assert not isinstance(way, RemoteFolder)
        aside = way.make_aside(folder)
        try:
            fill(aside)
            files = sorted(file.relative_to(aside).as_posix() for file in aside.rglob("*") if file.is_file())
            sums = {file: _sum(LocalFolder(aside).read_parts(file)) for file in files}
            described = json.dumps({"files": sums, "facts": facts}, indent=2, sort_keys=True, allow_nan=False)
            manifest = described.encode()
            (aside / MANIFEST).write_bytes(manifest)
            self._folder.publish(aside, folder, [*files, MANIFEST])
            if self._cache is not None:
                self._cache.place(aside, folder)
        finally:
            delete(aside)
        return folder, hashlib.sha256(manifest).hexdigest()

    @contextmanager
    def open(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> Iterator[Path]:
        """Yield a bundle's folder on this machine, which stays until the end of the block, its files checked;
        raises DamagedBundleError. Subfolders that the caller does not read (`without`) are not checked."""
        if isinstance(self._folder, LocalFolder):
            self.check(folder, manifest_hash, without)
            yield self._folder.path / folder
            return
        assert self._cache is not None
        for is_last in (False, True):
            with self._cache.hold(folder, lambda path: self._download(folder, manifest_hash, path)) as path:
                try:
                    _check_files(LocalFolder(path.parent), folder, manifest_hash, without)
                except DamagedBundleError:
                    if is_last:
                        raise
                else:
                    yield path
                    return
            self._cache.remove(folder)  # the copy may be damaged, and not the bundle

    def check(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> None:
        """Check the sum of every file of a bundle as it is stored, but for subfolders `without`, whatever
        copies of it there are; raises DamagedBundleError."""
        self._require(folder)
        _check_files(self._folder, folder, manifest_hash, without)

    def times(self) -> Iterator[tuple[str, float]]:
        return ((name, at) for name, at in self._folder.newest().items() if not name.startswith("."))

    def discard(self, names: Sequence[str], before: float) -> int:
        for name in names:
            if self._cache is not None:
                self._cache.drop(name)
        return super().discard(names, before)

    def _require(self, folder: str) -> None:
        """Bring a bundle back that is missing; raises DamagedBundleError where that fails."""
        try:
            if not self._folder.has(f"{folder}/{MANIFEST}", None):
                self._give_back(folder)
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _download(self, folder: str, manifest_hash: str, path: Path) -> None:
        """Copy the files that the manifest names; those that are missing are noticed by their sums."""
        self._require(folder)
        sums, manifest = _expected_sums(self._folder, folder, manifest_hash)
        (path / MANIFEST).write_bytes(manifest)
        for file in sums:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._folder.download(f"{folder}/{file}", path / file)


def parse_sums(manifest: bytes) -> dict[str, str]:
    """Return the sums of a manifest by the names of their files, none of which leads out of their folder.
    Raises ValueError, KeyError or TypeError for what is not such a manifest."""
    sums: dict[str, str] = dict(json.loads(manifest)["files"])
    for name in sums:
        if not is_inside(name):
            raise ValueError(f"{name!r} is not a file in the folder of the manifest")
    return sums


def is_inside(name: str) -> bool:
    """Return whether a name with slashes stays in the folder that it is relative to."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _expected_sums(folder: Folder, bundle: str, manifest_hash: str) -> tuple[dict[str, str], bytes]:
    """Return the sum of every file of a bundle by its name, and its manifest; raises DamagedBundleError for
    another one than was published."""
    # It lies where others may write: it is not parsed before its hash was checked.
    try:
        manifest = folder.read(f"{bundle}/{MANIFEST}")
    except OSError as error:
        raise _unreadable(bundle, error) from error
    if hashlib.sha256(manifest).hexdigest() != manifest_hash:
        raise DamagedBundleError(f"bundle {bundle}: the manifest is not the one that was published")
    try:
        return parse_sums(manifest), manifest
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedBundleError(f"bundle {bundle}: its manifest cannot be read") from error


def _check_files(folder: Folder, bundle: str, manifest_hash: str, without: Sequence[str]) -> None:
    """Check the sum of every file of a bundle, not of subfolders `without`; raises DamagedBundleError."""
    sums, _ = _expected_sums(folder, bundle, manifest_hash)
    try:
        for file, expected in sums.items():
            if file.startswith(tuple(f"{part}/" for part in without)):
                continue
            if _sum(folder.read_parts(f"{bundle}/{file}")) != expected:
                raise DamagedBundleError(f"bundle {bundle}: {file} does not match its sum")
    except OSError as error:
        raise _unreadable(bundle, error) from error


def _unreadable(folder: str, error: OSError) -> DamagedBundleError:
    """Return the error of a bundle of which a file cannot be read."""
    # The error's own text contains a path of this machine; it stays in the exception chain.
    return DamagedBundleError(f"bundle {folder}: {error.strerror or 'unreadable'}")


def _sum(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


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
