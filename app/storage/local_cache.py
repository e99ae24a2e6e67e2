"""A cache of remote files on this machine, bounded in size and shared by its processes."""
# A copy is made under a temporary name and renamed, so that no reader sees a part of one. A reader of a
# folder holds a shared lock on the cache once its copy is made. The oldest copies are removed under an
# exclusive lock.

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.storage.folders import NEW, LocalFolder, delete, sweep_leftovers

_LOCK = ".lock"
_SHARE_BETWEEN = 32  # of the bound, copies of this share are added before the whole is looked at
_LEFTOVER_SECONDS = 3600.0


class LocalCache:
    """Copies in one folder, bounded together; a copy that is read stays for as long."""

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
