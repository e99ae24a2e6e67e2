"""Changes of what is served: reloads in the background, and replays of a few writes by a search."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace as replace_fields
from weakref import WeakValueDictionary

from app.domain.entities import Collection
from app.domain.errors import (
    CollectionNotFoundError,
    DatabaseUnavailableError,
    OverloadedError,
    ServiceError,
)
from app.domain.ports import Database, GalleryIndex, UnitOfWork
from app.services.serving.gallery_saver import GallerySaver
from app.services.serving.garbage import freeze_garbage_collection, suspended_garbage_collection
from app.services.serving.pacing import Pacer
from app.services.serving.reload_scheduler import Reload, RequeuedError
from app.services.serving.replay import has_many_changes, is_large_size, replay
from app.services.serving.serving_state import ServingState
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.serving.waiting_room import ReleaseSlot

_SHORT_WAIT_SECONDS = 0.05
"""A request waits this long for a replay of a few writes before it gives its concurrency slot to others."""
_MOST_MERGED_BY_SEARCH = 4096
"""Rows of a merge that a search does itself: some milliseconds; larger ones are left to the background."""
_logger = logging.getLogger(__name__)


class SnapshotUpdater:
    """Brings the snapshots in the cache up to date; one thread at a time changes that of a collection.

    Parameters
    ----------
    database : Database
        The source of truth.
    state : ServingState
        What is served.
    loader : SnapshotLoader
        Loads snapshots.
    saver : GallerySaver
        Saves galleries in the background.
    """

    def __init__(
        self, database: Database, state: ServingState, loader: SnapshotLoader, saver: GallerySaver
    ) -> None:
        self._database = database
        self._state = state
        self._loader = loader
        self._saver = saver
        self._lock = threading.Lock()
        # A collection's lock lives as long as a thread holds it or waits for it.
        self._locks: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()

    @property
    def n_damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._loader.n_damaged

    def reload(self, reload: Reload, end_step: Callable[[], None]) -> None:
        """Load or replay in steps, in the background, and put the result into the cache.

        Parameters
        ----------
        reload : Reload
            Which collection.
        end_step : callable
            Called after each step.
        """
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
        """Replay a few writes on the cached snapshot; None if the caller has to decide again.

        One thread does it while others wait for it.

        Parameters
        ----------
        collection : Collection
            As the caller saw it.
        release_slot : callable or None
            Of a request, whose wait is bounded.
        until_answered : ExitStack
            Keeps the transaction open that is returned.
        """
        with self._exclusive(collection, release_slot), ExitStack() as attempt:
            # Begun under the lock, it sees at least what the cached snapshot saw.
            work = attempt.enter_context(self._database.read())
            current = work.collections.get(collection.name)
            snapshot = self._state.cache.peek(collection.id)
            if snapshot is None or current.id != collection.id:
                return None
            since = snapshot.collection.revision
            if since < current.revision:
                if has_many_changes(work, current, since):
                    return None
                # It keeps its model, and so remains unsettled where another version is to serve.
                current = replace_fields(current, active_version=snapshot.collection.active_version)
                snapshot = self._publish(replay(snapshot, current, work, most_merged=_MOST_MERGED_BY_SEARCH))
            until_answered.push(attempt.pop_all())
            return snapshot, work

    def search_exactly(self, snapshot: Snapshot, modality: str, reason: str) -> None:
        """Search a gallery exactly from now on, as long as the snapshot's model serves in this process.

        Parameters
        ----------
        snapshot : Snapshot
            Of the model.
        modality : str
            Of the gallery.
        reason : str
            Why.
        """
        collection = snapshot.collection
        self._state.history.record_given_up(collection.id, snapshot.model_bundle, modality, reason)
        _logger.warning("%s: %s is searched exactly from now on: %s", collection.name, modality, reason)
        made: dict[GalleryIndex, GalleryIndex] = {}
        while (current := self._state.cache.peek(collection.id)) is not None:
            exact = self._without_given_up(current, made)
            if exact is current:
                return
            with self._exclusive(collection, None):
                # A search may have replayed a write meanwhile.
                if self._state.cache.peek(collection.id) is current:
                    self._state.cache.put(exact)
                    return

    def _without_given_up(
        self, snapshot: Snapshot, made: MutableMapping[GalleryIndex, GalleryIndex]
    ) -> Snapshot:
        """Return a snapshot without the indexes that were given up; itself if it has none of these.

        `made` as of `Gallery.exactly`.
        """
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

    def evict_name(self, name: str, older_than: int | None = None) -> None:
        """Drop the collections of a name; only those created before the given one, if there is one."""
        collection_ids = [
            collection_id
            for collection_id, snapshot in self._state.cache.snapshots().items()
            if snapshot.collection.name == name
        ]
        self.evict(key for key in collection_ids if older_than is None or key < older_than)

    def _reload(self, reload: Reload, end_step: Callable[[], None]) -> Snapshot | None:
        """Return the collection's first snapshot in this process; None when it had one before, or is gone."""
        with self._database.read() as work:
            collection = work.collections.get(reload.name)
            if collection.id != reload.collection_id or collection.active_version is None:
                return None
            snapshot = self._state.cache.peek(collection.id)
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

            snapshot = _merge_due(self._loader.load(snapshot, collection, work, pause), pause)
        while not self._publish_if_newer(snapshot):
            with self._database.read() as work:
                current = work.collections.get(reload.name)
                if current.id != collection.id:
                    return None
                current = replace_fields(current, active_version=snapshot.collection.active_version)
                snapshot = replay(snapshot, current, work, pause)
        _prepare_writes(snapshot, pause)
        return snapshot if is_first else None

    def _publish_if_newer(self, snapshot: Snapshot) -> bool:
        """Put a snapshot into the cache; return False where a search has replayed more on what serves.

        That of a collection which is gone is dropped.
        """
        collection = snapshot.collection
        snapshot = self._without_given_up(snapshot, {})
        with self._exclusive(collection, None):
            cached = self._state.cache.peek(collection.id)
            if cached is not None and cached.collection.revision > collection.revision:
                return False
            with self._database.read() as work:
                exists = work.collections.get(collection.name).id == collection.id
            if exists:
                # Again, as an index may have been given up meanwhile.
                self._publish(self._without_given_up(snapshot, {}))
            return True

    def _publish(self, snapshot: Snapshot) -> Snapshot:
        snapshot = self._saver.save_if_worthwhile(snapshot)
        self.evict_name(snapshot.collection.name, older_than=snapshot.collection.id)
        self._state.cache.put(snapshot)
        self._state.history.record_load(snapshot.collection.id)
        return snapshot

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
                        raise OverloadedError(f"collection {collection.name!r} is being brought up to date")
                    # Released even if no slot can be had again.
                    until_changed.callback(lock.release)
            else:
                until_changed.callback(lock.release)
            yield


def _merge_due(snapshot: Snapshot, pause: Callable[[], None]) -> Snapshot:
    """Return a snapshot after the merges that searches left to the background."""
    galleries = {}
    for name, gallery in snapshot.galleries.items():
        galleries[name] = gallery.merge_due()
        pause()
    return replace_fields(snapshot, galleries=galleries)


def _prepare_writes(snapshot: Snapshot, pause: Callable[[], None]) -> None:
    """Prepare what the first write to a segment needs, so that no search waits for it."""
    for gallery in snapshot.galleries.values():
        for view in gallery.segments:
            _ = view.segment.rows
            pause()
