"""Folders on this machine: what is written survives a power cut, and appears whole or not at all; a bounded
cache of remote files; and full and read-only disks, as the service's errors."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from app.domain.errors import storage_error

_MIB = 1 << 20  # bytes
_LOW_SPACE_BYTES = 64 * _MIB
"""A disk with less free space counts as full, so that readiness fails before writes do."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn an OSError of a full or read-only disk into a DatabaseUnavailableError."""
    try:
        yield
    except OSError as error:
        fault = storage_error(error)
        if fault is None:
            raise
        raise fault from error


def fault_of_disk(path: Path) -> str | None:
    """Return why writes to a file or folder fail or soon will; None if no fault is known, or nothing exists
    yet. It queries the file system and writes nothing, so it does not see a quota."""
    try:
        disk = os.statvfs(path)
    except FileNotFoundError:
        return None
    if disk.f_flag & os.ST_RDONLY or not os.access(path, os.W_OK):
        return "read-only"
    is_superuser = os.geteuid() == 0
    free_bytes = disk.f_frsize * (disk.f_bfree if is_superuser else disk.f_bavail)
    free_files = disk.f_ffree if is_superuser else disk.f_favail
    # Some file systems count neither blocks nor files, and report 0 of 0.
    if disk.f_blocks and free_bytes < _LOW_SPACE_BYTES:
        return f"full: only {free_bytes // _MIB} MiB free"
    if disk.f_files and not free_files:
        return "full: no more files can be made"
    return None


TRASH = ".trash"
NEW, PARTIAL, COPYING = ".new-", ".partial-", ".copying-"
"""Name prefixes of files and folders that are being written, and of those on their way to or from a copy."""
_REMOVED = ".removed-"
"""Name prefix of what is being removed; versions without a trash gave it to what lies outside, too."""
PART_BYTES = 8 << 20  # of a file that is read in parts: what is in memory at a time, and yet few requests
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands in a folder."""

    name: str  # relative to the folder that was listed
    modified: float  # seconds since the epoch by the store's clock; 0 for a folder of an object store
    size: int  # bytes
    is_folder: bool


class LocalFolder:
    """A folder, which is made when something is written. What is named by a key lies below it; what is stored
    is a file, or a folder with a file that was written `last`."""

    is_moved_at_once = True
    """Whether what is moved is at one place at any moment, and as old as before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, key: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError."""
        return (self.path / key).read_bytes()

    def read_parts(self, key: str) -> Iterator[bytes]:
        """Yield the content of a file of any size; raises FileNotFoundError."""
        with (self.path / key).open("rb") as stream:
            yield from iter(partial(stream.read, PART_BYTES), b"")

    def renew(self, key: str, content: bytes) -> bool:
        """Make a file young that is the same already; return whether it is."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path / key)
            return (self.path / key).read_bytes() == content
        return False

    def write(self, key: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        path = self.path / key
        with durable_file(path.parent, NEW, content) as aside:
            os.replace(aside, path)

    def touch(self, key: str, check: Callable[[bytes], None]) -> None:
        """Make a file as young as if it were written now, without reading it; raises FileNotFoundError."""
        os.utime(self.path / key)

    def entries(self, key: str = "") -> list[Entry]:
        """Return what stands in a folder, by name; nothing if there is none."""
        if not (self.path / key).is_dir():
            return []
        entries = []
        with os.scandir(self.path / key) as listed:
            for entry in listed:
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    entries.append(Entry(entry.name, facts.st_mtime, facts.st_size, is_folder))
        return sorted(entries, key=lambda entry: entry.name)

    def keys(self, key: str = "") -> list[str]:
        """Return the keys of all files, or of those below a folder; unfinished ones may be among them."""
        return sorted(
            (Path(inside) / file).relative_to(self.path).as_posix()
            for inside, _, files in os.walk(self.path / key)
            for file in files
        )

    def newest(self, key: str = "") -> dict[str, float]:
        """Return when what stands in a folder was last written or touched, by name."""
        return {entry.name: entry.modified for entry in self.entries(key)}

    def has(self, key: str, last: str | None) -> bool:
        """Return whether something is stored."""
        return (self.path / key).exists()

    def move_all(self, pairs: Sequence[tuple[str, str]], last: str | None) -> list[str]:
        """Move what is stored by renaming it; return the new keys of what was there."""
        moved = [target for source, target in pairs if self._move(self.path / source, self.path / target)]
        for folder in {(self.path / target).parent for target in moved}:
            sync_folder(folder)
        return moved

    def bring_back(self, source: str, target: str, last: str | None) -> bool:
        """Move what is missing at its place there; return whether it was."""
        path, aside = self.path / target, self.path / source
        if path.exists() or not aside.exists():
            return False
        make_folder(path.parent)
        try:
            aside.rename(path)
        except FileNotFoundError:
            return False
        except OSError:
            if not path.exists():
                raise
            # Another process restored it at the same time: the path is a folder, and not empty.
        sync_folder(path.parent)
        return True

    def remove_all(self, keys: Sequence[str], before: float) -> None:
        """Remove what was last touched before a time (seconds since the epoch) for good; it is renamed first,
        so that it cannot be restored in part."""
        for key in keys:
            if is_older(self.path / key, before):
                aside = self.path / TRASH / f"{_REMOVED}{secrets.token_hex(8)}"
                with contextlib.suppress(FileNotFoundError):
                    (self.path / key).rename(aside)
                    delete(aside)

    def remove_if_empty(self, key: str) -> None:
        """Remove a folder in which nothing is left."""
        with contextlib.suppress(OSError):
            (self.path / key).rmdir()

    def sweep_leftovers(self, before: float, last: str | None) -> Iterator[int]:
        """Remove what interrupted writes and removals left before a time; yield the number in each step."""
        for leftover in (self.path / TRASH).glob(f"{_REMOVED}*"):
            delete(leftover)
        folders = [self.path]
        if last is None:
            folders += [
                self.path / entry.name
                for entry in self.entries()
                if entry.is_folder and not entry.name.startswith(".")
            ]
        for folder in folders:
            yield sweep_leftovers(folder, [NEW, PARTIAL, COPYING], before)

    def make_aside(self, name: str) -> Path:
        """Return a new folder in which one that is to be stored is filled."""
        make_folder(self.path)
        aside = self.path / f"{PARTIAL}{name}"
        aside.mkdir()
        return aside

    def publish(self, aside: Path, key: str, files: Sequence[str]) -> None:
        """Store a filled folder under its name."""
        paths = [aside / file for file in files]
        for path in paths:
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        for folder in {path.parent for path in paths}:
            sync_folder(folder)
        os.replace(aside, self.path / key)
        sync_folder(self.path)

    def make_temporary_folder(self) -> TemporaryDirectory[str]:
        """Return a folder for what is on its way here."""
        self.path.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(dir=self.path, prefix=COPYING)

    def download(self, key: str, file: Path) -> None:
        """Write another file from a stored one; raises FileNotFoundError."""
        shutil.copy2(self.path / key, file)

    def take(self, file: Path, key: str) -> None:
        """Add a file that is complete in the temporary folder."""
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)

    def _move(self, path: Path, target: Path) -> bool:
        """Return False if the path no longer exists, or if it cannot be moved."""
        make_folder(target.parent)
        try:
            if target.is_dir():  # put here earlier, and since written again
                self.remove_all([target.relative_to(self.path).as_posix()], float("inf"))
            path.rename(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            # One that another user owns, for example, keeps none of the others.
            _logger.warning("unused, but it cannot be removed: %s: %s", path, error.strerror)
            return False
        return True


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably: each survives a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def durable_file(folder: Path, prefix: str, content: bytes) -> Iterator[Path]:
    """Write a file under a temporary name, which the block replaces by the final one with a rename or a link.
    The temporary name is gone afterwards, whether the block ends well or not. Raises OSError."""
    make_folder(folder)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        yield Path(name)
    finally:
        # On a full disk it would take up the space that is left.
        Path(name).unlink(missing_ok=True)
    sync_folder(folder)


def sweep_leftovers(folder: Path, prefixes: Iterable[str], before: float) -> int:
    """Remove leftovers of interrupted writes of these prefixes in a folder, which need not exist; return
    their number. Only what was last touched before this time (seconds since the epoch) is removed."""
    if not folder.is_dir():
        return 0
    for aside in folder.glob(f"{_REMOVED}*"):
        _put_back(aside)
    leftovers = [path for path in folder.iterdir() if path.name.startswith(tuple(prefixes))]
    n_removed = 0
    for path in leftovers:
        if is_older(path, before):
            if delete(path):
                n_removed += 1
            else:
                _logger.warning("left by an interrupted write, but it cannot be removed: %s", path)
    return n_removed


def _put_back(aside: Path) -> None:
    """Undo an interrupted removal of an early version; the next sweep decides again whether it is unused."""
    name = aside.name.removeprefix(_REMOVED).rpartition("-")[0]
    path = aside.with_name(name or aside.name)
    if path.exists():
        delete(aside)
    else:
        with contextlib.suppress(FileNotFoundError):
            aside.rename(path)


def is_older(path: Path, before: float) -> bool:
    """Return whether a path exists and was last touched before a time, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_mtime < before
    return False


def delete(path: Path) -> bool:
    """Remove a file or folder for good; return whether it no longer exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)


_LOCK = ".lock"
_SHARE_BETWEEN = 32  # of the bound, copies of this share are added before the whole is looked at
_LEFTOVER_SECONDS = 3600.0


class LocalCache:
    """Copies in one folder, bounded together and shared by processes; one that is read stays for as long."""

    # A copy is made under a temporary name and renamed, so that no reader sees a part of one. A reader of a
    # folder holds a shared lock on the cache once its copy is made. The oldest copies are removed under an
    # exclusive lock.

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._added_bytes = max_bytes  # what earlier processes have left is looked at with the first copy

    def read(self, name: str) -> bytes | None:
        """Return a copied file; None if there is none."""
        path = self._folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Copy a file, unless the disk does not take it: a cache is a help, not a need."""
        with contextlib.suppress(OSError):
            aside = self._new_path()
            try:
                aside.write_bytes(content)
                os.replace(aside, self._folder / name)
            finally:
                aside.unlink(missing_ok=True)
            self._added_bytes += len(content)
            self._shrink_if_due()

    def remove(self, name: str) -> None:
        """Remove a copied folder; wait for those who read one."""
        if (self._folder / name).exists():
            with self._lock(fcntl.LOCK_EX):
                delete(self._folder / name)

    def drop(self, name: str) -> None:
        """Remove a copied folder that is no longer needed; later, by its age, while others read one."""
        if (self._folder / name).exists():
            with contextlib.suppress(BlockingIOError), self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                delete(self._folder / name)

    def make_aside(self, name: str = "") -> Path:
        """Return a new folder in which a copy is made, whatever its name."""
        aside = self._new_path()
        aside.mkdir()
        return aside

    def _new_path(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{NEW}{secrets.token_hex(8)}"

    def make_temporary_folder(self) -> TemporaryDirectory[str]:
        """Return a folder for files that are on their way elsewhere."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(dir=self._folder, prefix=NEW)

    @contextmanager
    def hold(self, name: str, fetch: Callable[[Path], None]) -> Iterator[Path]:
        """Yield a copied folder, which stays until the end of the block; `fetch` fills one without a copy."""
        path = self._folder / name
        with ExitStack() as reading:
            reading.enter_context(self._lock(fcntl.LOCK_SH))
            if not path.is_dir():
                reading.close()  # who removes another copy does not wait for this one to be made
                aside = self.make_aside()
                try:
                    fetch(aside)
                    reading.enter_context(self._lock(fcntl.LOCK_SH))
                    self.place(aside, name)
                finally:
                    delete(aside)
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
            yield path
        self._shrink_if_due()

    def place(self, aside: Path, name: str) -> None:
        """Give a copied folder its name, unless there is one of that name."""
        size = _size_of(aside)
        with contextlib.suppress(OSError):  # another process was faster
            aside.rename(self._folder / name)
            self._added_bytes += size

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _LOCK).open("w") as file:
            fcntl.flock(file, kind)
            yield

    def _shrink_if_due(self) -> None:
        """Remove the oldest copies if much was added; later, if others read some at the moment.
        Who removes some looks again afterwards: those who added more meanwhile did not wait."""
        with contextlib.suppress(BlockingIOError):
            while self._added_bytes >= max(1, self._max_bytes // _SHARE_BETWEEN):
                with self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                    self._added_bytes = 0
                    self._shrink()

    def _shrink(self) -> None:
        paths = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        sizes = {path: _size_of(path) for path in paths}
        excess = sum(sizes.values()) - self._max_bytes * (_SHARE_BETWEEN - 1) // _SHARE_BETWEEN
        newest = max((_used_at(path) for path in paths), default=0.0)
        for path in sorted(paths, key=_used_at):
            if excess <= 0:
                break
            delete(path)
            excess -= sizes[path]
        sweep_leftovers(self._folder, [NEW], newest - _LEFTOVER_SECONDS)


Way = LocalFolder | LocalCache
"""Where what is to be stored is prepared, beside it or in its cache: it may be larger than the system's own
folder for temporary files."""


def _used_at(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder; of what is gone, 0."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size
