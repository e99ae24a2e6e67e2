"""Whether the database and the data folder belong together, and whether they are of the same time.

An empty or an older database makes good files look unused. So the two are tied: the database has an identity
and points of its history, the folder a mark with that identity and the newest point it saw. A database that
does not know the point is older than the files, or went another way since.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.entities import Installation, Mark
from app.domain.errors import WrongDatabaseError
from app.domain.ports import Database, FolderMark, StoredFiles

_LOOK_AGAIN_SECONDS = 1.0
_SAMPLE = 1000
_ADOPT = "or run lrbs db adopt to tie them to each other all the same"
_NO_DATABASE = (
    "there is no database, or an empty one, beside the files of the data folder: "
    "bring back the database they belong to, or run lrbs db adopt to begin with an empty one"
)
_ANOTHER = (
    "the files of the data folder belong to another database: correct LRBS_DATABASE_URL or LRBS_DATA_DIR, "
    + _ADOPT
)
_NO_FOLDER = (
    "the data folder is not the one that the database was used with: mount it, or correct LRBS_DATA_DIR, "
    + _ADOPT
)
_OTHER_TIME = (
    "the database is older than the files of the data folder, or both went separate ways: no file is removed "
    "until the right one is brought back, or until lrbs db adopt says that they belong together as they are"
)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Files of one kind.

    Parameters
    ----------
    kind : str
        What they are called.
    files : StoredFiles
        Where they are.
    used : callable
        Asks the database which of some names are used.
    """

    kind: str
    files: StoredFiles
    used: Callable[[Sequence[str]], set[str]]


@dataclass(frozen=True, slots=True)
class Standing:
    """How database and data folder stand to each other.

    Parameters
    ----------
    belongs : bool
        Whether they belong together; nothing is written otherwise.
    is_current : bool
        Whether they are also of the same time; nothing is removed otherwise.
    reason : str or None
        What is wrong, and what to do.
    """

    belongs: bool
    is_current: bool
    reason: str | None = None


_TOGETHER = Standing(True, True)


class Ownership:
    """Ties the database to the data folder when both are new, and compares them from then on.

    Parameters
    ----------
    database : Database
        Written to whether or not the folder belongs to it.
    mark : FolderMark
        The folder's.
    kept : sequence of KeptFiles
        The files in the folder.
    """

    def __init__(self, database: Database, mark: FolderMark, kept: Sequence[KeptFiles]) -> None:
        self._database = database
        self._mark = mark
        self._kept = kept
        self._guard = threading.Lock()
        self._found: tuple[float, Standing] | None = None
        self._progress: tuple[int, ...] | None = None

    def look(self) -> Standing:
        """Return how it stands, or stood a second ago; raises DatabaseUnavailableError, OSError."""
        with self._guard:
            if self._found is None or time.monotonic() - self._found[0] >= _LOOK_AGAIN_SECONDS:
                self._found = (time.monotonic(), self._look())
            return self._found[1]

    def require(self) -> None:
        """Raise WrongDatabaseError unless they belong together."""
        standing = self.look()
        if not standing.belongs:
            raise WrongDatabaseError(standing.reason or "")

    def require_current(self) -> None:
        """Raise WrongDatabaseError unless files that look unused are."""
        standing = self.look()
        if not standing.is_current:
            raise WrongDatabaseError(standing.reason or "")

    def is_current(self) -> bool:
        """Return whether files that look unused are; says in the log why not."""
        standing = self.look()
        if not standing.is_current:
            _logger.error("no file is removed: %s", standing.reason)
        return standing.is_current

    def require_database(self, is_empty: Callable[[], bool]) -> None:
        """Raise WrongDatabaseError where an empty database stands beside the files of another one.

        Parameters
        ----------
        is_empty : callable
            Whether the database is missing or has no schema.
        """
        # In this order: who makes the first database of a folder marks the folder after that.
        is_in_use = self._mark.read() is not None or any(self._samples())
        if is_in_use and is_empty():
            raise WrongDatabaseError(_NO_DATABASE)

    def adopt(self) -> None:
        """Tie database and folder to each other as they are."""
        with self._guard:
            self._found = None
            self._move_on()

    def mark_copy(self) -> None:
        """Mark the new folder of a copied database, unless the original was never tied to one."""
        with self._database.read() as work:
            found = work.installation.get()
        if found.points:
            self._mark.write(Mark(found.identity, found.points[-1]), replace=False)

    def part_from_copy(self) -> None:
        """Go on to a point that a copy of the database, just made, does not know."""
        if self.look().is_current:
            self._move_on()

    def note_progress(self) -> None:
        """Give the history another point, which the folder remembers, if there was a write since the last."""
        if not self.look().is_current:
            return
        mark = self._mark.read()
        with self._database.read() as work:
            progress, found = work.installation.progress(), work.installation.get()
        if self._progress == progress or not found.points:
            return
        if mark is None or mark.point != found.points[-1]:
            # Somebody was cut off before the mark was written, or is about to write it.
            self._mark.write(Mark(found.identity, found.points[-1]), replace=True)
        self._move_on()
        self._progress = progress

    def _look(self) -> Standing:
        standing = self._compared()
        # What another process wrote between the two readings is no reason to stop anything.
        return standing if standing.is_current else self._compared()

    def _compared(self) -> Standing:
        # In this order: the database knows a point before the mark names it.
        mark = self._mark.read()
        with self._database.read() as work:
            found = work.installation.get()
        if mark is None or (not mark.identity and self._mark.names_this_database()):
            if found.points:
                return Standing(False, False, _NO_FOLDER)
            # A mark by name is trusted if the database knows anything, no mark at all if it knows most.
            if not self._knows_files(0.5 if mark is None else 0.0):
                return Standing(False, False, _ANOTHER)
            mark = self._claimed(found, replace=mark is not None)
        if mark.identity != found.identity:
            return Standing(False, False, _ANOTHER)
        if not found.points:
            self._add_point(mark.point)
        elif mark.point not in found.points:
            return Standing(True, False, _OTHER_TIME)
        return _TOGETHER

    def _claimed(self, found: Installation, replace: bool) -> Mark:
        """Mark the folder, unless another process was faster; return the mark that it has then."""
        self._mark.write(Mark(found.identity, secrets.token_hex(8)), replace)
        mark = self._mark.read()
        if mark is None:
            raise WrongDatabaseError(_NO_FOLDER)
        return mark

    def _move_on(self) -> None:
        point = secrets.token_hex(8)
        # In this order: a mark that the database does not know would stop all sweeps.
        self._add_point(point)
        with self._database.read() as work:
            identity = work.installation.get().identity
        self._mark.write(Mark(identity, point), replace=True)

    def _add_point(self, point: str) -> None:
        with self._database.write() as work:
            work.installation.add_point(point)

    def _knows_files(self, share: float) -> bool:
        """Return whether the database knows more than a share of the files, or there are none."""
        samples = self._samples()
        total = sum(map(len, samples))
        known = sum(len(kept.used(names)) for kept, names in zip(self._kept, samples, strict=True) if names)
        return known > share * total or not total

    def _samples(self) -> list[list[str]]:
        return [list(itertools.islice(kept.files.names(), _SAMPLE)) for kept in self._kept]
