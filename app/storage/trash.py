"""A trash, in which unused files are kept for a while before they are removed for good."""
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

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.storage.folders import TRASH, LocalFolder
from app.storage.remote_folder import RemoteFolder

Folder = LocalFolder | RemoteFolder
Used = Callable[[Sequence[str]], set[str]]
"""Returns the names that are in use."""

_BATCH = 500
"""Names looked up in one query: far below the limits of both databases on bound parameters."""
_HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Trash:
    """The unused files of one store, kept to the hour (0: not at all) in a folder inside it.
    What is stored by a name lies at a place; of a folder, one file was written `last`, and stands for it."""

    folder: Folder
    keep_seconds: float
    place: Callable[[str], str]
    last: str | None  # None where what is stored are single files

    def put(self, names: Sequence[str], before: float) -> int:
        """Move what has these names to the trash, where a writer finds it; return how much was there."""
        # With `keep_seconds` 0, what was last touched before this time (seconds since the epoch), as far as
        # that is known, is removed immediately; the rest when the trash is tidied.
        batch = f"{TRASH}/{int(time.time()) // _HOUR_SECONDS * _HOUR_SECONDS}"
        moved = self.folder.move_all([(self.place(name), f"{batch}/{name}") for name in names], self.last)
        if not self.keep_seconds and self.folder.is_moved_at_once:
            self.folder.remove_all(moved, before)
        return len(moved)

    def give_back(self, name: str) -> bool:
        """Restore what is missing at its place if it is in the trash; return whether it is at its place."""
        place = self.place(name)
        for batch in reversed(self._batches()):
            if self.folder.bring_back(f"{batch}/{name}", place, self.last):
                break
        return self.folder.has(place, self.last)

    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Restore what is in use after all, and remove that whose time is over; yield 0 after each step.
        Nothing that was touched after this time (seconds since the epoch) is removed."""
        for batch in self._batches():
            ends_at = int(batch.rpartition("/")[2]) + _HOUR_SECONDS + self.keep_seconds
            is_over = not self.keep_seconds or ends_at < time.time()
            newest = self.folder.newest(batch)
            for start in range(0, len(newest), _BATCH):
                names = list(newest)[start : start + _BATCH]
                in_use = used(names)
                places = [(f"{batch}/{name}", self.place(name)) for name in names if name in in_use]
                self.folder.bring_back_all(places, self.last)
                old = [
                    f"{batch}/{name}"
                    for name in names
                    if newest[name] < before and (self.folder.is_moved_at_once or name not in in_use)
                ]
                if is_over:
                    self.folder.remove_all(old, before)
                yield 0
            self.folder.remove_if_empty(batch)

    def _batches(self) -> list[str]:
        """Return the folders of the trash, oldest first."""
        hours = [entry.name for entry in self.folder.entries(TRASH) if entry.name.isdecimal()]
        return [f"{TRASH}/{hour}" for hour in sorted(hours, key=int)]
