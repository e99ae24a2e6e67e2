"""A trash in an object store, which knows no rename: what moves is copied first, and then removed."""
# What is moved is named by its content or by a random word, so that two copies of a name are the same, and a
# process killed in between leaves at least one of them whole. A writer that stores something again does so by
# writing it, which a removal of the earlier copy may overtake: then the copy in the trash is the last one.
# Therefore nothing goes for good but from the trash, after the database was asked once more, and what is
# restored stays in the trash until nothing refers to it.

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from app.storage.remote_folder import RemoteFolder, move, run_together
from app.storage.trash import BATCH, HOUR_SECONDS, TRASH, Used

Files = Callable[[str], Sequence[str]]
"""Returns the files at a place, relative to it, the one that stands for all last; [""] for a single file."""


class RemoteTrash:
    """The unused files of one store, kept to the hour in a folder inside it; `files` at a place are none
    where it is not whole."""

    def __init__(
        self, folder: RemoteFolder, keep_seconds: float, place: Callable[[str], str], files: Files
    ) -> None:
        self._folder = folder
        self._keep_seconds = keep_seconds
        self._place = place
        self._files = files

    def put(self, names: Sequence[str]) -> int:
        """Move what has these names to the trash; return how much of it was there."""
        batch = f"{TRASH}/{int(time.time()) // HOUR_SECONDS * HOUR_SECONDS}"
        files = run_together(lambda name: self._files(self._place(name)), names)
        moves = [
            self._keys(self._place(name), f"{batch}/{name}", parts)
            for name, parts in zip(names, files, strict=True)
        ]
        # Several files at a time of what has several, and several of those that are one.
        n_moved = sum(run_together(self._move, [keys for keys in moves if len(keys) == 1]))
        return n_moved + sum(self._move(keys) for keys in moves if len(keys) > 1)

    def give_back(self, name: str) -> bool:
        """Copy what is missing at its place back if it is in the trash; return whether it is at its place."""
        # The trash keeps its copy until its time is over: another host may be moving the same name here at
        # this moment, and of a copy removed here and one removed there nothing would be left.
        place = self._place(name)
        for batch in reversed(self._batches()):
            if self._copy(f"{batch}/{name}", place):
                break
        return bool(self._files(place))

    def tidy(self, before: float, used: Used) -> Iterator[None]:
        """Restore names in use after all, and remove what has been here for long enough, in steps; what was
        put here after this time (seconds since the epoch) stays."""
        for batch in self._batches():
            is_over = int(batch.rpartition("/")[2]) + HOUR_SECONDS + self._keep_seconds < time.time()
            listed = self._newest_by_name(batch)
            for names in split(listed, BATCH):
                in_use = used(names)
                places = [(f"{batch}/{name}", self._place(name)) for name in names if name in in_use]
                run_together(lambda place: self._copy_what_is_missing(*place), places)
                if is_over or not self._keep_seconds:
                    old = [name for name in names if name not in in_use and listed[name] < before]
                    run_together(self._remove, [f"{batch}/{name}" for name in old])
                yield

    def _newest_by_name(self, batch: str) -> dict[str, float]:
        newest: dict[str, float] = {}
        for entry in self._folder.walk(batch):
            name = entry.name.partition("/")[0]
            newest[name] = max(newest.get(name, 0.0), entry.modified)
        return newest

    @staticmethod
    def _keys(source: str, target: str, files: Sequence[str]) -> list[tuple[str, str]]:
        return [(_join(source, file), _join(target, file)) for file in files]

    def _move(self, keys: Sequence[tuple[str, str]]) -> bool:
        try:
            return move(self._folder, keys) > 0
        except FileNotFoundError:  # another process was faster
            return False

    def _copy_what_is_missing(self, source: str, target: str) -> None:
        files = self._files(source)
        if files and self._folder.find(_join(target, files[-1])) is None:
            self._copy(source, target)

    def _copy(self, source: str, target: str) -> bool:
        files = self._files(source)
        try:
            for file in files:
                self._folder.copy(_join(source, file), _join(target, file))
        except FileNotFoundError:  # its time was over
            return False
        return bool(files)

    def _remove(self, place: str) -> None:
        below = self._folder.walk(place)
        for key in [_join(place, entry.name) for entry in below] or [place]:
            self._folder.remove(key)

    def _batches(self) -> list[str]:
        """Return the folders of the trash, oldest first."""
        hours = [entry.name for entry in self._folder.entries(TRASH) if entry.name.isdecimal()]
        return [f"{TRASH}/{hour}" for hour in sorted(hours, key=int)]


def split(names: Sequence[str] | dict[str, float], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` names."""
    rest = iter(names)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _join(place: str, file: str) -> str:
    return f"{place}/{file}" if file else place
