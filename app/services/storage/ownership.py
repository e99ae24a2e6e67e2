"""Whether the database and the data folder belong together, and whether the schema is of this release."""
# An empty or an older database makes good files look unused. Therefore the two are paired: the database has
# an identity and points of its history, the folder has a mark with that identity and the newest point it saw.
# A database that does not know the point is older than the files, or its history diverged.

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from app.db.schema import DatabaseSchema
from app.db.session import Database, UnitOfWork
from app.domain.entities import Installation, Mark
from app.domain.errors import DatabaseUnavailableError, UnavailableError
from app.storage.pictures_and_bundles import Blobs, Bundles
from app.storage.stores import FolderMark

_CACHE_SECONDS = 1.0  # every request asks; a database that was exchanged is noticed within this time
_SAMPLE = 1000  # files checked to find out whether the database knows those of an unmarked folder
_ADOPT = "or run lrbs db adopt to pair them nevertheless"
_NO_DATABASE = (
    "there is no database, or an empty one, beside the files of the data folder: "
    "restore the database that they belong to, or run lrbs db adopt to start with an empty one"
)
_ANOTHER = (
    "the files of the data folder belong to another database: correct LRBS_DATABASE_URL or LRBS_DATA_DIR, "
    + _ADOPT
)
_NO_FOLDER = (
    "the data folder is not the one that the database was used with (processes of several hosts need one "
    "that all of them see, or LRBS_STORAGE_URL): mount it, or correct LRBS_DATA_DIR, " + _ADOPT
)
_OTHER_TIME = (
    "the database is older than the files of the data folder, or their histories diverged: no file is "
    "removed until the right one is restored, or until lrbs db adopt declares that they belong together"
)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagedFiles:
    """Files of one kind and the rows that refer to them."""

    kind: str  # for messages
    files: Blobs | Bundles
    used: Callable[[Sequence[str]], set[str]]  # returns those of the given names that the database refers to

    @classmethod
    def of_rows(
        cls,
        kind: str,
        files: Blobs | Bundles,
        database: Database,
        find: Callable[[UnitOfWork, Sequence[str]], set[str]],
    ) -> ManagedFiles:
        """Return files to which the rows refer that `find` finds."""

        def find_used(names: Sequence[str]) -> set[str]:
            with database.read() as work:
                return find(work, names)

        return cls(kind, files, find_used)


@dataclass(frozen=True, slots=True)
class OwnershipStatus:
    """Whether database and data folder belong together."""

    belongs: bool  # nothing is written otherwise
    is_current: bool  # they are also from the same time; nothing is removed otherwise
    reason: str | None = None  # the fault, and what to do about it


_TOGETHER = OwnershipStatus(True, True)
_LATE = Mark("", "late")  # of a folder that was about to be paired when the database got another one


@dataclass(eq=False)
class Ownership:
    """Pairs the database with the data folder when both are new, and compares them afterwards.
    The database must permit writes even if the folder does not belong to it."""

    _database: Database
    _mark: FolderMark
    _managed: Sequence[ManagedFiles]
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cached: tuple[float, Hashable, OwnershipStatus] | None = field(default=None, init=False)
    _readable: tuple[Hashable, float] | None = field(default=None, init=False)
    _progress: tuple[int, ...] | None = field(default=None, init=False)

    def status(self) -> OwnershipStatus:
        """Return the status, at most a second old; raises DatabaseUnavailableError, OSError."""
        with self._guard:
            now, incarnation = time.monotonic(), self._database.incarnation()
            if (
                self._cached is None
                or now - self._cached[0] >= _CACHE_SECONDS
                or self._cached[1] != incarnation
            ):
                self._cached = (now, incarnation, self._check())
            return self._cached[2]

    def require(self) -> None:
        """Raise DatabaseUnavailableError unless they belong together."""
        status = self.status()
        if not status.belongs:
            raise DatabaseUnavailableError("wrong-database", status.reason or "")

    def require_readable(self) -> None:
        """Raise DatabaseUnavailableError if the folder says that it is another database's; pairs nothing."""
        now, incarnation = time.monotonic(), self._database.incarnation()
        if self._readable == (incarnation, now // _CACHE_SECONDS):
            return
        with contextlib.suppress(OSError):  # what cannot be read says nothing against the database
            mark = self._mark.read()
            if mark is not None and mark.identity and mark.identity != self.identity():
                raise DatabaseUnavailableError("wrong-database", _ANOTHER)
        self._readable = incarnation, now // _CACHE_SECONDS

    def require_current(self) -> None:
        """Raise DatabaseUnavailableError unless the database knows which files are used."""
        status = self.status()
        if not status.is_current:
            raise DatabaseUnavailableError("wrong-database", status.reason or "")

    def is_current(self) -> bool:
        """Return whether the database knows which files are used; logs why not."""
        status = self.status()
        if not status.is_current:
            _logger.error("no file is removed: %s", status.reason)
        return status.is_current

    def require_database(self, is_empty: Callable[[], bool]) -> None:
        """Raise DatabaseUnavailableError for an empty database (missing, or without a schema) beside files of
        another one."""
        # In this order: the process that creates the first database of a folder marks the folder afterwards.
        is_in_use = self._mark.read() is not None or any(self._samples())
        if is_in_use and is_empty():
            raise DatabaseUnavailableError("wrong-database", _NO_DATABASE)

    def identity(self) -> str:
        """Return the identity of the database, which has a schema."""
        with self._database.read() as work:
            return work.installation.get().identity

    def adopt(self) -> None:
        """Pair database and folder as they are."""
        with self._guard:
            self._cached = None
            self._advance()

    def diverge_from_copy(self) -> None:
        """Add a point to the history that a copy of the database, just made, does not have."""
        if self.status().is_current:
            self._advance()

    def note_progress(self) -> None:
        """Add a point to the history, and to the folder's mark, if there was a write since the last one."""
        if not self.status().is_current:
            return
        mark = self._mark.read()
        with self._database.read() as work:
            progress, installation = work.installation.progress(), work.installation.get()
        if self._progress == progress or not installation.points:
            return
        if mark is None or mark.point != installation.points[-1]:
            # A process was killed before it wrote the mark, or is about to write it.
            self._mark.write(Mark(installation.identity, installation.points[-1]), replace=True)
        self._advance()
        self._progress = progress

    def _check(self) -> OwnershipStatus:
        status = self._compare()
        # Another process may have written between the two reads: a mismatch counts only if it persists.
        return status if status.is_current else self._compare()

    def _compare(self) -> OwnershipStatus:
        # In this order: the database knows a point before the mark names it.
        mark = self._mark.read()
        with self._database.read() as work:
            installation = work.installation.get()
        if mark is None or (not mark.identity and (mark == _LATE or self._mark.names_this_database())):
            if installation.points:
                return OwnershipStatus(False, False, _NO_FOLDER)
            # With a mark by name the database must know any of the files, without a mark most of them.
            if not self._knows_files(0.5 if mark is None else 0.0):
                return OwnershipStatus(False, False, _ANOTHER)
            mark = self._claim(installation, replace=mark is not None)
        if mark.identity != installation.identity:
            return OwnershipStatus(False, False, _ANOTHER)
        if not installation.points:
            return self._pair_first(mark)
        if mark.point not in installation.points:
            return OwnershipStatus(True, False, _OTHER_TIME)
        return _TOGETHER

    def _pair_first(self, mark: Mark) -> OwnershipStatus:
        """Begin the history with the point of a mark, unless another host did so with a folder of its own."""
        with self._database.write() as work:
            is_first = work.installation.begin(mark.point)
        if is_first:
            return _TOGETHER
        self._mark.write(_LATE, replace=True)
        return OwnershipStatus(False, False, _NO_FOLDER)

    def _claim(self, installation: Installation, replace: bool) -> Mark:
        """Mark the folder unless another process did so first; return its mark."""
        self._mark.write(Mark(installation.identity, secrets.token_hex(8)), replace)
        mark = self._mark.read()
        if mark is None:
            raise DatabaseUnavailableError("wrong-database", _NO_FOLDER)
        return mark

    def _advance(self) -> None:
        point = secrets.token_hex(8)
        # In this order: a mark that the database does not know would stop all sweeps.
        with self._database.write() as work:
            work.installation.add_point(point)
        self._mark.write(Mark(self.identity(), point), replace=True)

    def _knows_files(self, share: float) -> bool:
        """Return whether the database knows more than a share of the files, or there are none."""
        samples = self._samples()
        total = sum(map(len, samples))
        n_known = sum(
            len(files.used(names)) for files, names in zip(self._managed, samples, strict=True) if names
        )
        return n_known > share * total or not total

    def _samples(self) -> list[list[str]]:
        return [list(itertools.islice(managed.files.names(), _SAMPLE)) for managed in self._managed]


_NEWER = "a newer release has changed the database: start that release"


@dataclass(eq=False)
class SchemaService:
    """Brings the schema up to date, and checks that it is."""

    _schema: DatabaseSchema
    _ownership: Ownership
    _was_current: bool = field(default=False, init=False)

    def set_up(self) -> None:
        """Create the schema in an empty database; raises UnavailableError if it has another one."""
        if self._schema.is_empty():
            self.upgrade()
        self.require_current()

    def upgrade(self) -> None:
        """Migrate to the current schema; raises DatabaseUnavailableError if the folder is of another."""
        self._ownership.require_database(self._schema.is_empty)
        self._schema.upgrade()

    def adopt(self) -> None:
        """Bind database and data folder to each other as they are; an empty database gets its schema."""
        if self._schema.is_empty():
            self._schema.upgrade()
        self.require_current()
        self._ownership.adopt()

    def require_current(self, patience_seconds: float | None = None) -> None:
        """Check that the database has the current schema, in bounded time where it can limit a statement."""
        # Raises UnavailableError, or DatabaseUnavailableError if it is empty beside the files of another one.
        self._ownership.require_database(lambda: self._schema.is_empty(patience_seconds))
        if not self._schema.is_current(patience_seconds):
            is_newer = self._schema.is_newer(patience_seconds)
            raise UnavailableError("schema-outdated", _NEWER if is_newer else None)
        self._was_current = True

    def find_fault(self, patience_seconds: float | None = None) -> str | None:
        """Return what is wrong with a schema that can be served; raises as `require_current` does."""
        # A process that started on its own schema goes on under a newer one: a migration leaves the release
        # before it working.
        try:
            self.require_current(patience_seconds)
        except UnavailableError as error:
            is_outdated = error.code == "schema-outdated"
            if is_outdated and self._was_current and self._schema.is_newer(patience_seconds):
                return f"{_NEWER} in the place of this process"
            raise
        return None
