"""A folder on this machine: what is written here survives a power cut, and appears whole or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

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
