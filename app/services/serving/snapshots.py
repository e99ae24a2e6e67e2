"""Snapshots to answer from: opened together with a transaction of the same state, and kept up to date."""
# No search waits for another collection. A search replays a few changes itself. More of them, and loading a
# model, are work for the background (`app.services.serving.reloads`); until it is done the snapshot before
# serves, as long as it contains what the caller has written. Otherwise the search waits, and gives the
# resources that others need to them meanwhile.
#
# A collection without an active version is searched untrained: its version is 0, which is made of its items.
# How a collection stands in this process, and what leads to another state:
#
# | state                                      | a search                        | the background            |
# |--------------------------------------------|---------------------------------|---------------------------|
# | no snapshot: never loaded, gone, evicted   | requests a load, waits for it   | loads the active version, |
# | for want of memory, or of a later time     |                                 | or a stand-in             |
# | failed: no snapshot, a failure is recorded | as above                        | after `RETRY_SECONDS`     |
# | current: settled, holds every write        | answers; no transaction while   | merges segments that      |
# |                                            | nothing is committed (`recall`) | are due                   |
# | few changes behind                         | replays them, then answers      |                           |
# | many changes behind                        | answers if it holds what its    | replays them              |
# |                                            | readers wrote, else waits       |                           |
# | unsettled: another version is active, or   | a small collection: waits for   | loads the active version  |
# | the damaged one is to be checked again     | a moment; else as if settled    |                           |
# | with names missed, and due to be tried     | answers                         | places items again        |
# | untrained, and due to be made again        | a small collection that takes a | makes it again, beside    |
# | (`SnapshotLoader.is_due`)                  | moment: makes it; else as above | all reloads if it is slow |
# | untrained, with too many items or none,    | ConflictError                   | drops it, tries again     |
# | or no words                                |                                 | once something is written |
# | deleted, or of a replaced database         | CollectionNotFoundError         | everything is dropped     |
#
# One thread at a time changes the snapshot of a collection (`_exclusive`). What it puts back is put only in
# the place of what it began from, or where nothing was dropped meanwhile, so that nothing deleted comes back.

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from collections.abc import Collection as AbstractCollection
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from weakref import WeakValueDictionary

from app.db.session import Database, UnitOfWork
from app.domain import errors
from app.domain.entities import Collection
from app.domain.ports import GalleryIndex
from app.services.models.placement import NO_ITEMS, NOT_CONNECTED
from app.services.serving import reloads, snapshot_loader
from app.services.serving.item_columns import ColumnNames
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.segments import SegmentView
from app.services.serving.snapshot import LoadFailure, Snapshot, SnapshotCache, has_many_changes, is_large
from app.services.storage.pacing import Pacer

MERGE_THREAD_NAME = "merge-galleries"
_SWAP_WAIT_SECONDS = 2.0
"""How long a search waits for another version while the one before could answer; small ones load faster."""
_SEARCHED_SECONDS = 0.1  # since the last search, while more are expected
_SHORT_WAIT_SECONDS = 0.05
"""A request waits this long for a replay of a few writes before it gives its concurrency slot to others."""
_Merge = tuple[str, Sequence[SegmentView], SegmentView]
"""Modality, the merged segments, and what they were merged to."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CollectionHealth:
    """How a collection with an active version stands in this process."""

    has_started: bool  # its first load has ended, well or not
    is_searchable: bool
    problem: str | None = None  # why it cannot be searched, or what is wrong all the same


@dataclass(frozen=True, slots=True)
class _Wait:
    """Wait for this reload; one that is optional only for a moment."""

    reload: reloads.Reload
    is_optional: bool = False


class Snapshots:
    """Opens the newest snapshot of each collection, and brings those in memory up to date."""

    def __init__(
        self,
        database: Database,
        cache: SnapshotCache,
        loader: snapshot_loader.SnapshotLoader,
        saved_galleries: SavedGalleries,
    ) -> None:
        self._database = database
        self._cache = cache
        self._loader = loader
        self._saved_galleries = saved_galleries
        self.waiting_room = reloads.WaitingRoom()
        self._scheduler = reloads.ReloadScheduler(self._reload, self.waiting_room)
        self._merging = reloads.Background(self._merge_due, MERGE_THREAD_NAME, "segments could not be merged")
        self._merges: dict[int, list[_Merge]] = {}  # those that were made since a reload began, by collection
        self._lock = threading.Lock()
        # A collection's lock lives as long as a thread holds it or waits for it.
        self._locks: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
        self._current: dict[str, tuple[Hashable, Collection]] = {}
        """Collections whose snapshot held every write, by name, with the mark of the database from before."""
        self._incarnation: Hashable = None
        self._searched_at = -math.inf

    @property
    def n_damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._loader.n_damaged

    def recall(self, name: str) -> Snapshot | None:
        """Return the snapshot to answer from; None if only a transaction can show which one that is."""
        # No transaction is needed where nothing was committed since a search found its snapshot to hold every
        # write, of whatever process. While another version of a large collection is loaded, the one before
        # answers, as of `open`.
        self._searched_at = time.monotonic()
        mark, collection = self._current.get(name, (None, None))
        if collection is None or mark != self._database.change_mark():
            return None
        snapshot = self._cache.get(collection.id)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision != collection.revision:
            return None
        if not snapshot.is_connected or snapshot.may_place_names:
            return None
        return snapshot if snapshot.is_settled(collection) or self._scheduler.is_long(collection.id) else None

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Return a read transaction for what a snapshot does not hold."""
        return self._database.read()

    def may_read_at_once(self) -> bool:
        """Return whether `read` waits neither for a connection nor for another program."""
        return self._database.may_read_at_once()

    def is_searched(self) -> bool:
        """Return whether something was searched a moment ago."""
        return time.monotonic() - self._searched_at < _SEARCHED_SECONDS

    @contextmanager
    def open(
        self,
        name: str,
        release_slot: reloads.ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
        may_wait: bool = True,
        within: str = "",
    ) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open a snapshot to answer from, and a read transaction. Only for what is `within` one modality may
        nothing connect both, or the other have no items."""
        # Raises CollectionNotFoundError, ConflictError, DamagedBundleError, UnavailableError, and
        # BlockingIOError if it may not wait and would have to. The snapshot is that of the state which the
        # transaction sees, except while much is replayed or a version of a large collection is loaded in the
        # background. Then it is an earlier one, and an item with a later revision in the transaction differs
        # from what the snapshot contains.
        #
        # A request gives its slot away where it has to wait (`release_slot`), and waits a bounded time;
        # others wait as long as it takes. The snapshot has to contain what the keys of `readers` wrote, in
        # whatever process; what any key wrote, where none is named; and every write, when None. A few writes
        # are replayed in any case.
        began = time.monotonic()
        awaits_swap, is_again = True, False
        while True:
            self._forget_other_incarnations()
            mark = self._database.change_mark()
            with ExitStack() as until_answered:
                work = until_answered.enter_context(self._database.read())
                collection = self._get_collection(work, name)
                action = self._decide(collection, work, awaits_swap, readers)
                if isinstance(action, Snapshot):
                    if mark is not None and action.collection.revision == collection.revision:
                        self._current[name] = mark, collection
                    self._check_found(action, work, within)
                    yield action, work
                    return
            waited = time.monotonic() - began
            if action is None:
                with ExitStack() as until_answered:
                    opened = self._replay_few(collection, release_slot, until_answered)
                    if opened is not None:
                        self._check_found(*opened, within)
                        yield opened
                        return
            elif not may_wait:
                raise BlockingIOError
            elif action.is_optional:
                reload, seconds = action.reload, _SWAP_WAIT_SECONDS - waited
                is_over = self._scheduler.wait_for(reload, release_slot, seconds)
                awaits_swap = is_over and reload.error is None
            else:
                try:
                    self._scheduler.wait(action.reload, release_slot)
                except errors.ConflictError:  # it may have begun before a version was active
                    if collection.active_version is None or is_again:
                        raise
                    is_again = True
            if release_slot is not None and waited > self.waiting_room.max_wait_seconds:
                raise errors.overload(f"collection {name!r} is being written to faster than it is replayed")

    def _check_found(self, snapshot: Snapshot, work: UnitOfWork, within: str) -> None:
        """Have an untrained model fitted again in the background if it is due; raises ConflictError where
        nothing connects its modalities and something has to."""
        collection = snapshot.collection
        if self._loader.is_due(snapshot, collection, work) and self._may_retry(collection):
            self._scheduler.request(collection.id, collection.name, is_long=True)
        empty = snapshot.model.empty
        if not (snapshot.is_connected or within) or (empty and within == empty):
            reason = NO_ITEMS if empty else NOT_CONNECTED.format(*collection.modality_names)
            raise snapshot_loader.not_trained(work, collection, reason)

    def _get_collection(self, work: UnitOfWork, name: str) -> Collection:
        try:
            collection = work.collections.get(name)
        except errors.CollectionNotFoundError:
            self._evict_name(name)
            raise
        if collection.active_version is None and self._cache.peek(collection.id) is None:
            self._loader.check_untrained(work, collection)
        return collection

    def _decide(
        self,
        collection: Collection,
        work: UnitOfWork,
        awaits_swap: bool,
        readers: AbstractCollection[str] | None,
    ) -> Snapshot | _Wait | None:
        """Return what a search is to answer from or to wait for; None if it has to replay a few changes.
        It may rather wait for the newest version (`awaits_swap`) than have the one before."""
        snapshot = self._cache.get(collection.id)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision > collection.revision:
            if snapshot is not None:  # it may be of a time that the database has not seen
                self._cache.evict(collection.id)
            is_long = is_large(work, collection)
            return _Wait(self._scheduler.request(collection.id, collection.name, is_long))
        if not snapshot.is_settled(collection):
            is_long = is_large(work, collection)
            if self._may_retry(collection):
                reload = self._scheduler.request(collection.id, collection.name, is_long)
                if awaits_swap and not is_long:
                    return _Wait(reload, is_optional=True)
        since = snapshot.collection.revision
        if since == collection.revision:
            return snapshot
        has_few = not has_many_changes(work, collection, since)
        if has_few and awaits_swap:
            return None
        if readers is not None and since >= work.collections.last_write(collection, readers):
            if not has_few:
                self._scheduler.request(collection.id, collection.name)
            return snapshot
        return None if has_few else _Wait(self._scheduler.request(collection.id, collection.name))

    def reload_stale(self, timeout_seconds: float) -> list[tuple[Collection, CollectionHealth]]:
        """Start background reloads of what is behind, and return how each collection with an active version
        stands. Waits for nothing but the database, and for that a bounded time."""
        health = []
        for collection in self.list_collections(timeout_seconds):
            if collection.active_version is not None:
                self._request_reload_if_stale(collection, timeout_seconds)
                health.append((collection, self._assess(collection)))
        return health

    def list_collections(self, timeout_seconds: float) -> list[Collection]:
        """Return all collections, after evicting those that are gone; the database may take as long."""
        self._forget_other_incarnations()
        known_ids = self._known_ids()
        with self._database.read(timeout_seconds) as work:
            collections = work.collections.list()
        # One created since the list was read is not among the known ones, and stays.
        self.evict(known_ids - {collection.id for collection in collections})
        return collections

    def _known_ids(self) -> set[int]:
        return self._cache.known_ids() | self._loader.known_ids()

    def peek_all(self) -> dict[int, Snapshot]:
        """Return the snapshots in memory as they are, by the collections' identity."""
        return self._cache.snapshots()

    def evict(self, collection_ids: Iterable[int]) -> None:
        """Drop deleted collections, which frees their memory."""
        evicted = set(collection_ids)
        for name, (_, collection) in list(self._current.items()):
            if collection.id in evicted:
                self._current.pop(name, None)
        with self._lock:
            for collection_id in evicted:
                self._cache.forget(collection_id)
                self._loader.forget(collection_id)

    def _evict_name(self, name: str, older_than: float = math.inf) -> None:
        """Drop the collections of a name that were created before another one."""
        snapshots = self._cache.snapshots().items()
        self.evict(key for key, of in snapshots if of.collection.name == name and key < older_than)

    def _forget_other_incarnations(self) -> None:
        """Drop what is known of a database that was replaced: revisions and ids mean something else now."""
        incarnation = self._database.incarnation()
        before, self._incarnation = self._incarnation, incarnation
        if before not in (None, incarnation):
            _logger.warning("the database was replaced: everything is loaded again from what it holds")
            self._current.clear()
            self.evict(self._known_ids())

    def _request_reload_if_stale(self, collection: Collection, timeout_seconds: float) -> None:
        """Request a reload unless the collection is up to date, or the next search would replay the rest."""
        snapshot = self._cache.peek(collection.id)
        if snapshot is not None and snapshot.collection.revision > collection.revision:
            self.evict([collection.id])  # of a time that the database has not seen
            snapshot = None
        if snapshot is None:
            has_failed = self._cache.last_failure(collection.id) is not None
            needs_load = has_failed or not self._cache.was_loaded(collection.id)
        else:
            needs_load = not snapshot.is_settled(collection)
        needs_load = needs_load and self._may_retry(collection)
        since = 0 if snapshot is None or needs_load else snapshot.collection.revision
        if not needs_load and (snapshot is None or since >= collection.revision):
            return
        with self._database.read(timeout_seconds) as work:
            is_much = is_large(work, collection) if needs_load else has_many_changes(work, collection, since)
        if needs_load or is_much:
            self._scheduler.request(collection.id, collection.name, is_long=needs_load and is_much)

    def _may_retry(self, collection: Collection) -> bool:
        failure = self._cache.last_failure(collection.id)
        return failure is None or failure.may_retry

    def _assess(self, collection: Collection) -> CollectionHealth:
        snapshot, failure = self._cache.peek(collection.id), self._cache.last_failure(collection.id)
        if snapshot is not None:
            problems = snapshot.find_problems(collection, self._cache.given_up(snapshot))
            of_collection = "; ".join(f"{collection.name}: {problem}" for problem in problems)
            return CollectionHealth(True, True, of_collection or None)
        if failure is not None:
            return CollectionHealth(True, False, f"{collection.name}: {failure.reason}")
        if self._cache.was_loaded(collection.id):
            return CollectionHealth(True, True)
        return CollectionHealth(False, False, f"{collection.name}: loading")

    def _reload(self, reload: reloads.Reload, end_step: Callable[[], None]) -> None:
        """Load or replay in steps, in the background, and put the result into the cache."""
        self._merges[reload.collection_id] = []  # as it may begin from what is merged meanwhile
        try:
            # Beside searches a load pauses often and may take long, and their garbage is to be collected.
            with nullcontext() if self._cache.snapshots() else snapshot_loader.suspended_garbage_collection():
                snapshot = self._load_and_publish(reload, end_step)
        except errors.CollectionNotFoundError:
            self.evict([reload.collection_id])
            raise
        except errors.ConflictError:  # it is to be trained
            self._cache.evict(reload.collection_id)
            raise
        except (errors.DatabaseUnavailableError, reloads.RequeuedError):
            raise  # says nothing about the collection
        except Exception as error:
            reason = str(error) if isinstance(error, errors.ServiceError) else type(error).__name__
            self._cache.record_failure(reload.collection_id, LoadFailure(reason))
            raise
        finally:
            del self._merges[reload.collection_id]
        if snapshot is not None and snapshot.is_large:
            snapshot_loader.freeze_garbage_collection()

    def _load_and_publish(self, reload: reloads.Reload, end_step: Callable[[], None]) -> Snapshot | None:
        """Return the collection's first snapshot in this process; None when it had one before, or is gone."""
        with self._database.read_of(reload.name) as (work, collection):
            if collection.id != reload.collection_id:
                return None
            before = self._cache.peek(collection.id)
            if before is not None and before.collection.revision > collection.revision:
                before = None  # of a time that the database has not seen
            is_first = not self._cache.was_loaded(collection.id)
            is_swap = before is not None and not (before.is_settled(collection) and before.model.is_trained)
            pace = Pacer(
                lambda: not is_swap or not self.waiting_room.is_empty,
                # Where nothing serves, no search is delayed, and all wait for this.
                lambda: not self._cache.snapshots(),
            )

            def pause() -> None:
                pace()
                end_step()

            snapshot = self._loader.load(before, collection, work, pause)
        for name, gallery in snapshot.galleries.items():
            # No search has to wait for what the version before could filter by.
            earlier = None if before is None else before.galleries.get(name)
            gallery.prepare(ColumnNames() if earlier is None else earlier.columns, pause)
        while not self._publish_if_newer(snapshot):
            with self._database.read_of(reload.name) as (work, current):
                if current.id != collection.id:
                    return None
                current = replace_fields(current, active_version=snapshot.collection.active_version)
                snapshot = self._loader.bring_up_to_date(snapshot, current, work, pause)
        return snapshot if is_first else None

    def _publish_if_newer(self, snapshot: Snapshot) -> bool:
        """Put a snapshot into the cache; return False where a search has replayed more on what serves.
        That of a collection which is gone is dropped."""
        collection = snapshot.collection
        snapshot = self._without_given_up(snapshot, {})
        with self._exclusive(collection, None):
            while True:
                n_dropped = self._cache.n_dropped
                cached = self._cache.peek(collection.id)
                current = self._database.get_collection(collection.name)
                if current.id != collection.id:
                    return True
                if collection.revision > current.revision:
                    raise errors.DatabaseUnavailableError  # it was replaced meanwhile
                if (
                    cached is not None
                    and current.revision >= cached.collection.revision > collection.revision
                ):
                    return False
                # Again, as an index may have been given up meanwhile.
                snapshot = self._without_given_up(snapshot, {})
                snapshot = self._save(_with_merges(snapshot, self._merges.get(collection.id, ())))
                if self._cache.put(snapshot, n_dropped):
                    self._record(snapshot)
                    return True

    def _replay_few(
        self, collection: Collection, release_slot: reloads.ReleaseSlot | None, until_answered: ExitStack
    ) -> tuple[Snapshot, UnitOfWork] | None:
        """Replay a few writes on the cached snapshot; None if the caller has to decide again. One thread does
        it, others wait. The transaction that is returned stays open until `until_answered` is closed."""
        with self._exclusive(collection, release_slot), ExitStack() as attempt:
            # Begun under the lock, it sees at least what the cached snapshot saw.
            work = attempt.enter_context(self._database.read())
            current = work.collections.get(collection.name)
            snapshot = self._cache.peek(collection.id)
            if snapshot is None or current.id != collection.id:
                return None
            since = snapshot.collection.revision
            if since > current.revision:
                return None
            if since < current.revision:
                if has_many_changes(work, current, since):
                    return None
                # It keeps its model, and so remains unsettled where another version is to serve.
                current = replace_fields(current, active_version=snapshot.collection.active_version)
                before = snapshot
                snapshot = self._save(self._loader.bring_up_to_date(before, current, work))
                if not self._cache.replace(before, snapshot):
                    return None  # it was evicted meanwhile
                self._record(snapshot)
            until_answered.push(attempt.pop_all())
            return snapshot, work

    def _save(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot to be put into the cache."""
        snapshot = self._saved_galleries.save_if_worthwhile(snapshot)
        self._evict_name(snapshot.collection.name, older_than=snapshot.collection.id)
        return snapshot

    def _record(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot that was put into the cache."""
        self._cache.record_load(snapshot.collection.id)
        if any(gallery.due_merge() for gallery in snapshot.galleries.values()):
            self._merging.request(snapshot.collection.id)

    def search_exactly(self, snapshot: Snapshot, modality: str, reason: str) -> None:
        """Search a gallery exactly from now on, as long as the snapshot's model serves in this process."""
        collection = snapshot.collection
        self._cache.record_given_up(snapshot, modality, reason)
        _logger.warning("%s: %s is searched exactly from now on: %s", collection.name, modality, reason)
        made: dict[GalleryIndex, GalleryIndex] = {}
        while (current := self._cache.peek(collection.id)) is not None:
            exact = self._without_given_up(current, made)
            if exact is current:
                return
            with self._exclusive(collection, None):
                # Not where a search has replayed a write meanwhile, or the collection is gone.
                if self._cache.replace(current, exact):
                    return

    def _without_given_up(
        self, snapshot: Snapshot, made: MutableMapping[GalleryIndex, GalleryIndex]
    ) -> Snapshot:
        """Return a snapshot without the indexes that were given up; itself if it has none of these.
        `made` as of `Gallery.exactly`."""
        given_up = self._cache.given_up(snapshot)
        exact = {
            name: gallery.exactly(made)
            for name, gallery in snapshot.galleries.items()
            if name in given_up and not gallery.is_exact
        }
        return replace_fields(snapshot, galleries={**snapshot.galleries, **exact}) if exact else snapshot

    def _merge_due(self, collection_id: int) -> None:
        """Make the merges of segments that are due in a collection's snapshot, with pauses, and put each into
        what serves, whatever was written meanwhile."""
        pause = Pacer(lambda: False)
        while (snapshot := self._cache.peek(collection_id)) is not None:
            due = {name: gallery.due_merge() for name, gallery in snapshot.galleries.items()}
            name = next((name for name, views in due.items() if views), None)
            if name is None:
                return
            merge = name, due[name], SegmentView.merge(due[name], pause)
            with self._exclusive(snapshot.collection, None):
                current = self._cache.peek(collection_id)
                if current is not None:
                    self._cache.replace(current, _with_merges(current, [merge]))
                if collection_id in self._merges:
                    self._merges[collection_id].append(merge)
            pause()

    @contextmanager
    def _exclusive(self, collection: Collection, release_slot: reloads.ReleaseSlot | None) -> Iterator[None]:
        """Make this thread the only one to change a collection's snapshot."""
        with self._lock:
            lock = self._locks.setdefault(collection.id, threading.Lock())
        with ExitStack() as until_changed:
            if not lock.acquire(timeout=_SHORT_WAIT_SECONDS if release_slot else -1):
                assert release_slot is not None
                with ExitStack() as until_acquired:
                    # In a full room it keeps its slot: no collection holds all of them, and this is short.
                    if self.waiting_room.try_enter(collection.id, until_acquired):
                        until_acquired.enter_context(release_slot())
                    if not lock.acquire(timeout=self.waiting_room.max_wait_seconds):
                        raise errors.overload(f"collection {collection.name!r} is being brought up to date")
                    # Released even if no slot can be had again.
                    until_changed.callback(lock.release)
            else:
                until_changed.callback(lock.release)
            yield


def _with_merges(snapshot: Snapshot, merges: Iterable[_Merge]) -> Snapshot:
    """Return a snapshot with merged segments, where it has what was merged."""
    galleries = dict(snapshot.galleries)
    for name, sources, merged in merges:
        galleries[name] = galleries[name].with_merged(sources, merged)
    return replace_fields(snapshot, galleries=galleries)
