"""A trash, in which unused files are kept for a while before they are removed for good."""
# A file moves to the trash, and back, by a single rename: a process killed in between leaves it whole in one
# place or the other. Each folder of the trash is named by the hour in which its files were put there: its
# start, in seconds since the epoch.

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from app.storage.folders import make_folder, sync_folder

TRASH = ".trash"
_REMOVED = ".removed-"
Used = Callable[[Sequence[str]], set[str]]
"""Returns the names that are in use."""

BATCH = 500
"""Names looked up in one query: far below the limits of both databases on bound parameters."""
HOUR_SECONDS = 3600
_logger = logging.getLogger(__name__)


class Trash:
    """The unused files of one store, kept to the hour (0: not at all).
    The trash lies inside its folder, on the same file system, so that a rename suffices."""

    def __init__(self, root: Path, keep_seconds: float) -> None:
        self._folder = root / TRASH
        self._keep_seconds = keep_seconds

    def put(self, paths: Iterable[Path], before: float) -> int:
        """Move files or folders to the trash, where a writer finds them again; return how many existed."""
        # With `keep_seconds` 0, those last touched before this time (seconds since the epoch) are removed
        # immediately; the others when the trash is tidied.
        batch = self._folder / str(int(time.time()) // HOUR_SECONDS * HOUR_SECONDS)
        moved = [path for path in paths if self._take(path, batch)]
        if moved:
            sync_folder(batch)
        if not self._keep_seconds:
            for path in moved:
                if is_older(batch / path.name, before):
                    self._remove(batch / path.name)
        return len(moved)

    def give_back(self, path: Path) -> bool:
        """Restore a missing path if it is in the trash; return whether the path exists."""
        for batch in reversed(self._batches()):
            if not (batch / path.name).exists():
                continue
            make_folder(path.parent)
            try:
                (batch / path.name).rename(path)
            except FileNotFoundError:
                continue
            except OSError:
                if not path.exists():
                    raise
                break  # another process restored it at the same time: the path is a folder, and not empty
            sync_folder(path.parent)
            break
        return path.exists()

    def tidy(self, place: Callable[[str], Path], before: float, used: Used) -> Iterator[None]:
        """Restore files that are in use after all, and remove those whose time is over, in steps.
        Nothing that was touched after this time (seconds since the epoch) is removed."""
        for leftover in self._folder.glob(f"{_REMOVED}*"):
            delete(leftover)
        for batch in self._batches():
            is_over = (
                not self._keep_seconds or int(batch.name) + HOUR_SECONDS + self._keep_seconds < time.time()
            )
            for names in _split((path.name for path in batch.iterdir()), BATCH):
                in_use = used(names)
                for name in names:
                    if name in in_use and not place(name).exists():
                        self.give_back(place(name))
                    elif is_over and is_older(batch / name, before):
                        self._remove(batch / name)
                yield
            with contextlib.suppress(OSError):  # not empty
                batch.rmdir()

    def _take(self, path: Path, batch: Path) -> bool:
        """Move a path to the trash; return False if it no longer exists, or if it cannot be moved."""
        make_folder(batch)
        try:
            if (batch / path.name).is_dir():
                self._remove(batch / path.name)  # put here earlier, and since written again
            path.rename(batch / path.name)
        except FileNotFoundError:
            return False
        except OSError as error:
            # One that another user owns, for example, keeps none of the others.
            _logger.warning("unused, but it cannot be removed: %s: %s", path, error.strerror)
            return False
        return True

    def _remove(self, path: Path) -> None:
        """Remove a path of the trash for good, renamed first, so that it cannot be restored in part."""
        aside = self._folder / f"{_REMOVED}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            delete(aside)

    def _batches(self) -> list[Path]:
        """Return the folders of the trash, oldest first."""
        if not self._folder.is_dir():
            return []
        folders = [path for path in self._folder.iterdir() if path.name.isdecimal()]
        return sorted(folders, key=lambda path: int(path.name))


def is_older(path: Path, before: float) -> bool:
    """Return whether a path exists and was last touched before a time, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_mtime < before
    return False


def _split(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` names."""
    rest = iter(names)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def delete(path: Path) -> bool:
    """Remove a file or folder for good; return whether it no longer exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)
