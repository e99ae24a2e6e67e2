"""Pictures and bundles of models, in the data folder or an object store, and the trash of what is unused."""
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
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from app.domain.errors import DamagedBundleError
from app.storage.folders import TRASH, LocalCache, LocalFolder, delete, translate_errors
from app.storage.remote_folder import RemoteFolder, run_together

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
