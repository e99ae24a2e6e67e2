"""Changes of what is served: reloads in the background, and replays of a few writes by a search."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from weakref import WeakValueDictionary

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection
from app.domain.errors import CollectionNotFoundError, DatabaseUnavailableError, ServiceError, overload
from app.domain.ports import GalleryIndex
from app.services.serving.fallback import FallbackPolicy
from app.services.serving.gallery_merger import GalleryMerger
from app.services.serving.gallery_saver import GallerySaver
from app.services.serving.garbage import freeze_garbage_collection, suspended_garbage_collection
from app.services.serving.reload_scheduler import Reload, RequeuedError
from app.services.serving.replay import has_many_changes, is_large_size, replay
from app.services.serving.segments import SegmentView
from app.services.serving.serving_history import ServingHistory
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_cache import SnapshotCache
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.serving.waiting_room import ReleaseSlot, WaitingRoom
from app.services.storage.pacing import Pacer

_SHORT_WAIT_SECONDS = 0.05
"""A request waits this long for a replay of a few writes before it gives its concurrency slot to others."""
_logger = logging.getLogger(__name__)
_Merge = tuple[str, Sequence[SegmentView], SegmentView]
"""Modality, the merged segments, and what they were merged to."""


@dataclass(frozen=True, slots=True)
class ServingState:
    """What is served by this process, and what has happened to it."""

    cache: SnapshotCache
    history: ServingHistory = field(default_factory=ServingHistory)
    fallback: FallbackPolicy = field(default_factory=FallbackPolicy)
    waiting_room: WaitingRoom = field(default_factory=WaitingRoom)


class SnapshotUpdater:
    """Brings the snapshots in the cache up to date; one thread at a time changes that of a collection."""

    def __init__(
        self, database: Database, state: ServingState, loader: SnapshotLoader, saver: GallerySaver
    ) -> None:
        self._database = database
        self._state = state
        self._loader = loader
        self._saver = saver
        self._merger = GalleryMerger(self.merge)
        self._merges: dict[int, list[_Merge]] = {}  # those that were made since a reload began, by collection
        self._lock = threading.Lock()
        # A collection's lock lives as long as a thread holds it or waits for it.
        self._locks: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()

    @property
    def n_damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._loader.n_damaged

    def reload(self, reload: Reload, end_step: Callable[[], None]) -> None:
        """Load or replay in steps, in the background, and put the result into the cache."""
        try:
            # Beside searches a load pauses often and may take long, and their garbage is to be collected.
            is_serving = bool(self._state.cache.snapshots())
            with contextlib.nullcontext() if is_serving else suspended_garbage_collection():
                snapshot = self._reload(reload, end_step)
        except CollectionNotFoundError:
            self.evict([reload.collection_id])
            raise
        except (DatabaseUnavailableError, RequeuedError):
            raise  # says nothing about the collection
        except Exception as error:
            reason = str(error) if isinstance(error, ServiceError) else type(error).__name__
            self._state.history.record_failure(reload.collection_id, self._state.fallback.record(reason))
            raise
        if snapshot is not None and is_large_size(snapshot.size):
            freeze_garbage_collection()

    def replay_few(
        self, collection: Collection, release_slot: ReleaseSlot | None, until_answered: ExitStack
    ) -> tuple[Snapshot, UnitOfWork] | None:
        """Replay a few writes on the cached snapshot; None if the caller has to decide again. One thread does
        it, others wait. The transaction that is returned stays open until `until_answered` is closed."""
        with self._exclusive(collection, release_slot), ExitStack() as attempt:
            # Begun under the lock, it sees at least what the cached snapshot saw.
            work = attempt.enter_context(self._database.read())
            current = work.collections.get(collection.name)
            snapshot = self._state.cache.peek(collection.id)
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
                before, snapshot = snapshot, self._save(replay(snapshot, current, work))
                if not self._state.cache.replace(before, snapshot):
                    return None  # it was evicted meanwhile
                self._record(snapshot)
            until_answered.push(attempt.pop_all())
            return snapshot, work

    def search_exactly(self, snapshot: Snapshot, modality: str, reason: str) -> None:
        """Search a gallery exactly from now on, as long as the snapshot's model serves in this process."""
        collection = snapshot.collection
        self._state.history.record_given_up(collection.id, snapshot.model_bundle, modality, reason)
        _logger.warning("%s: %s is searched exactly from now on: %s", collection.name, modality, reason)
        made: dict[GalleryIndex, GalleryIndex] = {}
        while (current := self._state.cache.peek(collection.id)) is not None:
            exact = self._without_given_up(current, made)
            if exact is current:
                return
            with self._exclusive(collection, None):
                # Not where a search has replayed a write meanwhile, or the collection is gone.
                if self._state.cache.replace(current, exact):
                    return

    def merge(self, collection_id: int, pause: Callable[[], None]) -> None:
        """Make the merges of segments that are due in a collection's snapshot."""
        while (snapshot := self._state.cache.peek(collection_id)) is not None:
            due = {name: gallery.due_merge() for name, gallery in snapshot.galleries.items()}
            name = next((name for name, views in due.items() if views), None)
            if name is None:
                return
            self._put_merge(snapshot.collection, (name, due[name], SegmentView.merge(due[name], pause)))
            pause()

    def _put_merge(self, collection: Collection, merge: _Merge) -> None:
        """Put a merge into what serves, whatever was written meanwhile."""
        with self._exclusive(collection, None):
            snapshot = self._state.cache.peek(collection.id)
            if snapshot is not None:
                self._state.cache.replace(snapshot, _with_merges(snapshot, [merge]))
            if collection.id in self._merges:
                self._merges[collection.id].append(merge)

    def _without_given_up(
        self, snapshot: Snapshot, made: MutableMapping[GalleryIndex, GalleryIndex]
    ) -> Snapshot:
        """Return a snapshot without the indexes that were given up; itself if it has none of these.
        `made` as of `Gallery.exactly`."""
        given_up = self._state.history.given_up(snapshot.collection.id, snapshot.model_bundle)
        exact = {
            name: gallery.exactly(made)
            for name, gallery in snapshot.galleries.items()
            if name in given_up and not gallery.is_exact
        }
        return replace_fields(snapshot, galleries={**snapshot.galleries, **exact}) if exact else snapshot

    def evict(self, collection_ids: Iterable[int]) -> None:
        """Drop deleted collections, which frees their memory."""
        with self._lock:
            for collection_id in collection_ids:
                self._state.cache.evict(collection_id)
                self._state.history.forget(collection_id)
                self._loader.forget(collection_id)

    def evict_all(self) -> None:
        """Drop all collections of a database that was replaced."""
        self.evict(self._state.cache.snapshots().keys() | self._state.history.collection_ids())

    def evict_name(self, name: str, older_than: int | None = None) -> None:
        """Drop the collections of a name; only those created before the given one, if there is one."""
        collection_ids = [
            collection_id
            for collection_id, snapshot in self._state.cache.snapshots().items()
            if snapshot.collection.name == name
        ]
        self.evict(key for key in collection_ids if older_than is None or key < older_than)

    def _reload(self, reload: Reload, end_step: Callable[[], None]) -> Snapshot | None:
        """As of `_load_and_publish`; the merges meanwhile are kept, as it may begin from what is merged."""
        self._merges[reload.collection_id] = []
        try:
            return self._load_and_publish(reload, end_step)
        finally:
            del self._merges[reload.collection_id]

    def _load_and_publish(self, reload: Reload, end_step: Callable[[], None]) -> Snapshot | None:
        """Return the collection's first snapshot in this process; None when it had one before, or is gone."""
        with self._database.read() as work:
            collection = work.collections.get(reload.name)
            if collection.id != reload.collection_id or collection.active_version is None:
                return None
            before = snapshot = self._state.cache.peek(collection.id)
            if snapshot is not None and snapshot.collection.revision > collection.revision:
                before = snapshot = None  # of a time that the database has not seen
            is_first = not self._state.history.was_loaded(collection.id)
            is_swap = snapshot is not None and not self._state.fallback.is_settled(snapshot, collection)
            pace = Pacer(
                lambda: not is_swap or not self._state.waiting_room.is_empty,
                # Where nothing serves, no search is delayed, and all wait for this.
                lambda: not self._state.cache.snapshots(),
            )

            def pause() -> None:
                pace()
                end_step()

            snapshot = self._loader.load(snapshot, collection, work, pause)
        for name, gallery in snapshot.galleries.items():
            gallery.prepare(pause)
            if before is not None and name in before.galleries:
                # So that no search has to wait for what the version before could filter by.
                gallery.read_columns(before.galleries[name].columns, pause)
        while not self._publish_if_newer(snapshot):
            with self._database.read() as work:
                current = work.collections.get(reload.name)
                if current.id != collection.id:
                    return None
                current = replace_fields(current, active_version=snapshot.collection.active_version)
                snapshot = replay(snapshot, current, work, pause)
        return snapshot if is_first else None

    def _publish_if_newer(self, snapshot: Snapshot) -> bool:
        """Put a snapshot into the cache; return False where a search has replayed more on what serves.
        That of a collection which is gone is dropped."""
        collection = snapshot.collection
        snapshot = self._without_given_up(snapshot, {})
        with self._exclusive(collection, None):
            while True:
                n_dropped = self._state.cache.n_dropped
                cached = self._state.cache.peek(collection.id)
                with self._database.read() as work:
                    current = work.collections.get(collection.name)
                if current.id != collection.id:
                    return True
                if collection.revision > current.revision:
                    raise DatabaseUnavailableError  # it was replaced meanwhile
                if (
                    cached is not None
                    and current.revision >= cached.collection.revision > collection.revision
                ):
                    return False
                # Again, as an index may have been given up meanwhile.
                snapshot = self._without_given_up(snapshot, {})
                snapshot = self._save(_with_merges(snapshot, self._merges.get(collection.id, ())))
                if self._state.cache.put_unless_dropped(snapshot, n_dropped):
                    self._record(snapshot)
                    return True

    def _save(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot to be put into the cache."""
        snapshot = self._saver.save_if_worthwhile(snapshot)
        self.evict_name(snapshot.collection.name, older_than=snapshot.collection.id)
        return snapshot

    def _record(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot that was put into the cache."""
        self._state.history.record_load(snapshot.collection.id)
        if any(gallery.due_merge() for gallery in snapshot.galleries.values()):
            self._merger.request(snapshot.collection.id)

    @contextmanager
    def _exclusive(self, collection: Collection, release_slot: ReleaseSlot | None) -> Iterator[None]:
        """Make this thread the only one to change a collection's snapshot."""
        with self._lock:
            lock = self._locks.setdefault(collection.id, threading.Lock())
        with ExitStack() as until_changed:
            if not lock.acquire(timeout=_SHORT_WAIT_SECONDS if release_slot else -1):
                assert release_slot is not None
                with ExitStack() as until_acquired:
                    # In a full room it keeps its slot: no collection holds all of them, and this is short.
                    if self._state.waiting_room.try_enter(collection.id, until_acquired):
                        until_acquired.enter_context(release_slot())
                    if not lock.acquire(timeout=self._state.waiting_room.max_wait_seconds):
                        raise overload(f"collection {collection.name!r} is being brought up to date")
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
