"""Where unused files are kept for a while before they are removed for good.

A file leaves its place for the trash, and the trash for its place, by one rename each: whoever is killed in
between leaves it whole in one of the two. Folders of the trash are named by the hour that began before what
they hold was put there, in seconds since the epoch.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from app.storage.folders import make_folder, sync_folder

TRASH = ".trash"
_REMOVED = ".removed-"
Used = Callable[[Sequence[str]], set[str]]
"""Returns which of the names are used."""

_BATCH = 500
_HOUR = 3600


class Trash:
    """Keeps the unused files of one store.

    Parameters
    ----------
    root : Path
        Folder of the store; the trash lies in it, so that a rename is all it takes.
    keep_seconds : float
        How long files are kept, to the hour; with 0 they are not kept.
    """

    def __init__(self, root: Path, keep_seconds: float) -> None:
        self._folder = root / TRASH
        self._keep_seconds = keep_seconds

    def put(self, paths: Iterable[Path], before: float) -> int:
        """Take files or folders out of their places; return how many were there.

        Parameters
        ----------
        paths : iterable of Path
            Unused files. A writer that is about to use one again finds it here.
        before : float
            Where nothing is kept, what was last touched before this time is removed at once, in seconds
            since the epoch; the rest when the trash is tidied.
        """
        batch = self._folder / str(int(time.time()) // _HOUR * _HOUR)
        moved = [path for path in paths if self._take(path, batch)]
        if moved:
            sync_folder(batch)
        if not self._keep_seconds:
            for path in moved:
                if is_older(batch / path.name, before):
                    self._remove(batch / path.name)
        return len(moved)

    def give_back(self, path: Path) -> bool:
        """Put what is missing at a path back there, if it is here."""
        for batch in reversed(self._batches()):
            try:
                (batch / path.name).rename(path)
            except FileNotFoundError:
                continue
            except OSError:
                if not path.exists():
                    raise
                break  # another process gave it back at the same time: a folder is there, and not empty
            sync_folder(path.parent)
            break
        return path.exists()

    def tidy(self, place: Callable[[str], Path], before: float, used: Used) -> None:
        """Put back what is used after all, and remove for good what was kept for long enough.

        Parameters
        ----------
        place : callable
            Says where a name belongs.
        before : float
            Nothing that was touched after this time is removed, in seconds since the epoch.
        used : callable
            Says which names are used.
        """
        for left in self._folder.glob(f"{_REMOVED}*"):
            delete(left)
        for batch in self._batches():
            is_over = not self._keep_seconds or int(batch.name) + _HOUR + self._keep_seconds < time.time()
            for names in batched((path.name for path in batch.iterdir()), _BATCH):
                in_use = used(names)
                for name in names:
                    if name in in_use and not place(name).exists():
                        self.give_back(place(name))
                    elif is_over and is_older(batch / name, before):
                        self._remove(batch / name)
            with contextlib.suppress(OSError):  # something was put there, or is kept
                batch.rmdir()

    def _take(self, path: Path, batch: Path) -> bool:
        """Move something here; return False when it is not there any longer."""
        make_folder(batch)
        if (batch / path.name).is_dir():
            self._remove(batch / path.name)  # put here before, and then brought back as a copy
        with contextlib.suppress(FileNotFoundError):
            path.rename(batch / path.name)
            return True
        return False

    def _remove(self, path: Path) -> None:
        """Remove something from the trash for good; half of it is never restored."""
        aside = self._folder / f"{_REMOVED}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            delete(aside)

    def _batches(self) -> list[Path]:
        """Return the folders of the trash, oldest first."""
        if not self._folder.is_dir():
            return []
        found = [path for path in self._folder.iterdir() if path.name.isdecimal()]
        return sorted(found, key=lambda path: int(path.name))


def is_older(path: Path, before: float) -> bool:
    """Return whether something is there that was last touched before a time, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime < before
    return False


def batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` names."""
    found = iter(names)
    while batch := list(itertools.islice(found, size)):
        yield batch


def delete(path: Path) -> bool:
    """Remove a file or folder for good; return whether it is gone."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return not path.exists()
