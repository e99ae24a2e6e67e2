"""Sweeping: unreferenced files, rows of deleted collections, tombstones, and what a vector engine keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from app.db.session import Database
from app.domain.entities import Collection
from app.domain.errors import ServiceError, VectorEngineUnavailableError
from app.domain.ports import GalleryKey, VectorEngine
from app.services.storage.collection_lock import writing
from app.services.storage.ownership import ManagedFiles
from app.services.storage.pacing import BYTES_PER_STEP, ROWS_PER_STEP, Round, in_batches

_BATCH = 500  # names that the database is asked about in one query
_FEW = 10
_MOST_SHARE = 0.5  # a database that lost rows makes most files look unused; a few may well be
_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class GarbageCollector:
    """Moves unreferenced files to the trash once they are too old to be referenced by a running request."""

    # A file is written before the row that refers to it. Storing a picture again refreshes its timestamp, so
    # that a sweep skips what another request is about to commit; if a sweep wins that race, the file comes
    # back from the trash. Snapshots hold their model in memory and are not affected when a bundle is swept.
    # More than half of all files of a kind, and more than ten, are swept only on explicit request: a database
    # that lost rows makes good files look unused. `now` is in seconds since the epoch, by a clock that all
    # hosts share.

    _pictures: ManagedFiles
    _bundles: ManagedFiles
    _grace_seconds: float
    _may_remove: Callable[[], bool]
    _now: Callable[[], float]
    _unfinished: Iterator[int] | None = field(default=None, init=False)
    swept: int = field(default=0, init=False)  # files and folders, so far

    def sweep(self, any_share: bool = False) -> int:
        """Sweep unused files (`any_share`: even most) and leftovers of interrupted writes; return their
        number."""
        return sum(self._sweep(any_share)) if self._may_remove() else 0

    def go_on(self, time_left: Round) -> bool:
        """Sweep in steps, of some hundred names each; the next round goes on where this one ended.
        Returns whether it came to its end."""
        if not self._may_remove():
            self._unfinished = None
            return True
        steps = self._unfinished or self._sweep(any_share=False)
        self._unfinished = None  # one that fails begins again
        is_finished = time_left.finish(lambda: next(steps, None) is None)
        self._unfinished = None if is_finished else steps
        return is_finished

    def _sweep(self, any_share: bool) -> Iterator[int]:
        before = self._now() - self._grace_seconds
        for managed in (self._pictures, self._bundles):
            for n_swept in sweep_unused(managed, before, any_share):
                self.swept += n_swept
                if n_swept:
                    _logger.info("swept %d unused %s", n_swept, managed.kind)
                yield n_swept

    def sweep_after_delete(self, content_hashes: Sequence[str], bundles: Sequence[str] = ()) -> bool:
        """Sweep the files of a deletion regardless of their age; return whether that was possible.
        The deletion itself is done, so a failure is only logged, and the next sweep tries again."""
        try:
            if not self._may_remove():
                return False
            before = self._now() - self._grace_seconds
            candidates = ((self._pictures, content_hashes), (self._bundles, bundles))
            swept = sum(_discard(files, names, before) for files, names in candidates if names)
        except (OSError, ServiceError) as error:
            _logger.warning("files of deleted items are kept until the next sweep: %s", error)
            return False
        self.swept += swept
        if swept:
            _logger.info("swept %d unused files and folders", swept, extra={"cause": "swept"})
        return True


def sweep_unused(managed: ManagedFiles, before: float, any_share: bool) -> Iterator[int]:
    """Sweep unused files of one kind and leftovers of interrupted writes; yield their number in each step.
    Files touched after `before` (seconds since the epoch) are left alone."""
    yield from managed.files.tidy(before, managed.used)
    total = 0
    unused: list[str] = []
    for batch in in_batches(managed.files.times(), _BATCH):
        total += len(batch)
        names = [name for name, at in batch if at < before]
        in_use = managed.used(names) if names else set()
        unused += [name for name in names if name not in in_use]
        yield 0
    if not any_share and len(unused) > max(_FEW, int(_MOST_SHARE * total)):
        _logger.error(
            "no %s are removed: %d of %d look unused, which is more than half: "
            "is the database complete? If so, run lrbs db sweep",
            managed.kind,
            len(unused),
            total,
        )
        return
    for names in in_batches(unused, _BATCH):
        yield _discard(managed, names, before)  # which may have come into use since the last round


def _discard(managed: ManagedFiles, names: Sequence[str], before: float) -> int:
    in_use = managed.used(names)
    return managed.files.discard([name for name in names if name not in in_use], before)


_LONGEST_SECONDS = 1.0  # of a request; a worker removes the rest


@dataclass(eq=False)
class Removal:
    """Deletes collections and removes their rows and files; `on_deleted` gets the id of each."""

    _database: Database
    _garbage_collector: GarbageCollector
    _on_deleted: Callable[[int], None]

    def delete(self, name: str) -> None:
        """Delete a collection, hidden at once, its name free; raises CollectionNotFoundError.
        Rows that could not be removed within a second are left to `go_on`."""
        with self._database.write() as work:
            collection, bundles = work.collections.delete(name)
        _logger.info("collection %s was deleted", name)
        self._on_deleted(collection.id)
        self._garbage_collector.sweep_after_delete([], bundles)
        try:
            self._remove(collection.id, Round(_LONGEST_SECONDS))
        except ServiceError as error:
            _logger.warning("%s: rows of the deleted collection are removed later: %s", name, error)

    def go_on(self, time_left: Round) -> bool:
        """Remove the rest of deleted collections, a transaction each step; return whether none remain."""
        with self._database.read() as work:
            collection_ids = work.collections.deleted_ids()
        for collection_id in collection_ids:
            if time_left.is_over or not self._remove(collection_id, time_left):
                return False
        return True

    def _remove(self, collection_id: int, time_left: Round) -> bool:
        """Return whether no rows remain; takes at least one step."""

        def remove_some() -> bool:
            with self._database.write() as work:
                pictures = work.collections.remove_some(collection_id, ROWS_PER_STEP, BYTES_PER_STEP)
            if pictures is not None:
                self._garbage_collector.sweep_after_delete(sorted(pictures))
            return pictures is None

        return time_left.finish(remove_some)


@dataclass(eq=False)
class Tombstones:
    """Purges tombstones older than the grace, a bounded number of rows at a time.
    A process that was away for longer reads all ids of a collection instead."""

    _database: Database
    _grace_seconds: float
    _last_id: int = field(default=0, init=False)

    def purge(self, time_left: Round) -> bool:
        """Purge old tombstones in steps, starting after the collection where the last round ended; return
        whether all were."""
        with self._database.read() as work:
            collections = work.collections.list()
        for collection in sorted(collections, key=lambda entry: (entry.id <= self._last_id, entry.id)):
            if time_left.is_over:
                return False
            # Before the work: a collection that fails does not block the others.
            self._last_id = collection.id
            try:
                if not self._purge(collection, time_left):
                    return False
            except ServiceError as error:
                if error.code not in ("collection-not-found", "import-running"):
                    raise
                _logger.info("%s: tombstones are purged later: %s", collection.name, error)
        return True

    def _purge(self, collection: Collection, time_left: Round) -> bool:
        """Return whether nothing remains to be purged."""
        with self._database.read() as work:
            newest = work.items.newest_tombstone(collection)
        return newest is None or time_left.finish(lambda: self._purge_some(collection, newest))

    def _purge_some(self, collection: Collection, newest: int) -> bool:
        """Return whether nothing remains up to a tombstone."""
        # An import plans its writes by the rows that exist.
        with writing(self._database, collection, 0.0) as (work, current):
            return not work.items.purge_tombstones(current, newest, self._grace_seconds, ROWS_PER_STEP)


_REVISIONS_KEPT = 1000  # revisions before the latest whose rows stay, for processes that have not caught up


@dataclass(eq=False)
class EngineSweeper:
    """Removes it, but for galleries of other databases, which the same engine may hold."""

    _database: Database
    _engine: VectorEngine
    _identity: Callable[[], str]

    def sweep(self) -> int:
        """Remove the galleries of bundles that no version refers to, and unfinished ones; return how many.
        None where the engine was another installation's first, whose galleries they may be."""
        if not self._engine.belongs_to(self._identity()):
            _logger.error("unused galleries stay: the vector engine was that of another installation before")
            return 0
        keys = self._engine.keys()  # before what is used: a gallery is made after its version
        with self._database.read() as work:
            used = work.models.used_bundles(sorted({key.bundle for key in keys}))
        n_removed = 0
        for key in keys:
            if key.bundle not in used:
                try:
                    self._engine.drop(key)
                    n_removed += 1
                except VectorEngineUnavailableError as error:  # it may be busy, and the others not
                    _log_kept(key, error)
        return n_removed + self._engine.remove_unfinished()

    def purge(self) -> int:
        """Remove the rows that ended before the latest revisions; return how many."""
        n_removed = 0
        for key in self._engine.keys():  # noqa: SIM118
            try:
                if (gallery := self._engine.open(key)) is not None:
                    n_removed += gallery.purge(gallery.latest_revision() - _REVISIONS_KEPT)
            except VectorEngineUnavailableError as error:  # that gallery may be gone, or in another's place
                _log_kept(key, error)
        return n_removed


def _log_kept(key: GalleryKey, error: VectorEngineUnavailableError) -> None:
    _logger.warning("%s of collection %d is kept as it is: %s", key.modality, key.collection_id, error)
