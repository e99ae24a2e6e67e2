"""Snapshots to answer from: opened together with a transaction of the same state, and kept up to date."""
# No search waits for another collection. A search replays a few changes itself. More of them, and loading a
# model, are work for the background (`app.services.serving.reload_scheduler`); until it is done the snapshot
# before serves, as long as it contains what the caller has written. Otherwise the search waits, and gives the
# resources that others need to them meanwhile.

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection as AbstractCollection
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, JobState
from app.domain.errors import CollectionNotFoundError, model_not_trained, overload
from app.services.catalogue.preparation import describe_material
from app.services.serving.collection_health import CollectionHealth, assess
from app.services.serving.reload_scheduler import Reload, ReloadScheduler
from app.services.serving.replay import has_many_changes, is_large
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_updater import ServingState, SnapshotUpdater
from app.services.serving.waiting_room import ReleaseSlot

_SWAP_WAIT_SECONDS = 2.0
"""How long a search waits for another version while the one before could answer; small ones load faster."""
_SEARCHED_SECONDS = 0.1  # since the last search, while more are expected


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Serve:
    """Answer from this snapshot."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class _Wait:
    """Wait for this reload; one that is optional only for a moment."""

    reload: Reload
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class _ReplayFew:
    """Replay a few changes first."""


class SnapshotReader:
    """Opens the newest snapshot of each collection."""

    def __init__(self, database: Database, state: ServingState, updater: SnapshotUpdater) -> None:
        self._database = database
        self._state = state
        self._updater = updater
        self._scheduler = ReloadScheduler(updater.reload, state.waiting_room)
        self._current: dict[str, tuple[Hashable, Collection]] = {}
        """Collections whose snapshot held every write, by name, with the mark of the database from before."""
        self._incarnation: Hashable = None
        self._searched_at = -math.inf

    @property
    def n_damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._updater.n_damaged

    def recall(self, name: str) -> Snapshot | None:
        """Return the snapshot to answer from; None if only a transaction can show which one that is."""
        # No transaction is needed where nothing was committed since a search found its snapshot to hold every
        # write, of whatever process. While another version of a large collection is loaded, the one before
        # answers, as of `open`.
        self._searched_at = time.monotonic()
        mark, collection = self._current.get(name, (None, None))
        if collection is None or mark != self._database.change_mark():
            return None
        snapshot = self._state.cache.get(collection.id)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision != collection.revision:
            return None
        is_settled = self._state.fallback.is_settled(snapshot, collection)
        return snapshot if is_settled or self._scheduler.is_long(collection.id) else None

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
        release_slot: ReleaseSlot | None = None,
        readers: AbstractCollection[str] | None = None,
        may_wait: bool = True,
    ) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open a snapshot to answer from, and a read transaction."""
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
        awaits_swap = True
        while True:
            self._forget_other_incarnations()
            mark = self._database.change_mark()
            with ExitStack() as until_answered:
                work = until_answered.enter_context(self._database.read())
                collection = self._get_collection(work, name)
                action = self._decide(collection, work, awaits_swap, readers)
                if isinstance(action, _Serve):
                    self._remember(collection, action.snapshot, mark)
                    yield action.snapshot, work
                    return
            waited = time.monotonic() - began
            if isinstance(action, _Wait) and not may_wait:
                raise BlockingIOError
            if isinstance(action, _ReplayFew):
                with ExitStack() as until_answered:
                    opened = self._updater.replay_few(collection, release_slot, until_answered)
                    if opened is not None:
                        yield opened
                        return
            elif action.is_optional:
                awaits_swap = self._scheduler.wait_briefly(
                    action.reload, release_slot, _SWAP_WAIT_SECONDS - waited
                )
            else:
                self._scheduler.wait(action.reload, release_slot)
            if release_slot is not None and waited > self._state.waiting_room.max_wait_seconds:
                raise overload(f"collection {name!r} is being written to faster than it is replayed")

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
        known_ids = self._state.cache.snapshots().keys() | self._state.history.collection_ids()
        with self._database.read(timeout_seconds) as work:
            collections = work.collections.list()
        # One created since the list was read is not among the known ones, and stays.
        self.evict(known_ids - {collection.id for collection in collections})
        return collections

    def evict(self, collection_ids: Iterable[int]) -> None:
        """Drop deleted collections, which frees their memory."""
        evicted = set(collection_ids)
        for name, (_, collection) in list(self._current.items()):
            if collection.id in evicted:
                self._current.pop(name, None)
        self._updater.evict(evicted)

    def _forget_other_incarnations(self) -> None:
        """Drop what is known of a database that was replaced: revisions and ids mean something else now."""
        incarnation = self._database.incarnation()
        before, self._incarnation = self._incarnation, incarnation
        if before not in (None, incarnation):
            _logger.warning("the database was replaced: everything is loaded again from what it holds")
            self._current.clear()
            self._updater.evict_all()

    def peek_all(self) -> dict[int, Snapshot]:
        """Return the snapshots in memory as they are, by the collections' identity."""
        return self._state.cache.snapshots()

    def _remember(self, collection: Collection, snapshot: Snapshot, mark: Hashable | None) -> None:
        """Record that a snapshot holds every write, if so; `mark` is from before `collection` was read."""
        if mark is not None and snapshot.collection.revision == collection.revision:
            self._current[collection.name] = mark, collection

    def _get_collection(self, work: UnitOfWork, name: str) -> Collection:
        try:
            collection = work.collections.get(name)
        except CollectionNotFoundError:
            self._updater.evict_name(name)
            raise
        if collection.active_version is None:
            errors = [job.error for job in work.jobs.recent(collection, 1) if job.state is JobState.FAILED]
            raise model_not_trained(name, describe_material(work, collection), errors[0] if errors else None)
        return collection

    def _decide(
        self,
        collection: Collection,
        work: UnitOfWork,
        awaits_swap: bool,
        readers: AbstractCollection[str] | None,
    ) -> _Serve | _Wait | _ReplayFew:
        """Return what a search has to do next, which may rather wait for the newest version (`awaits_swap`)
        than have the one before."""
        snapshot = self._state.cache.get(collection.id)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision > collection.revision:
            if snapshot is not None:  # it may be of a time that the database has not seen
                self._state.cache.evict(collection.id)
            is_long = is_large(work, collection)
            return _Wait(self._scheduler.request(collection.id, collection.name, is_long))
        if not self._state.fallback.is_settled(snapshot, collection):
            is_long = is_large(work, collection)
            if self._may_retry(collection):
                reload = self._scheduler.request(collection.id, collection.name, is_long)
                if awaits_swap and not is_long:
                    return _Wait(reload, is_optional=True)
        since = snapshot.collection.revision
        if since == collection.revision:
            return _Serve(snapshot)
        has_few = not has_many_changes(work, collection, since)
        if has_few and awaits_swap:
            return _ReplayFew()
        is_recent_enough = readers is not None and since >= work.collections.last_write(collection, readers)
        if has_few:
            return _Serve(snapshot) if is_recent_enough else _ReplayFew()
        reload = self._scheduler.request(collection.id, collection.name)
        return _Serve(snapshot) if is_recent_enough else _Wait(reload)

    def _request_reload_if_stale(self, collection: Collection, timeout_seconds: float) -> None:
        """Request a reload unless the collection is up to date, or the next search would replay the rest."""
        snapshot = self._state.cache.peek(collection.id)
        if snapshot is not None and snapshot.collection.revision > collection.revision:
            self.evict([collection.id])  # of a time that the database has not seen
            snapshot = None
        if snapshot is None:
            has_failed = self._state.history.last_failure(collection.id) is not None
            needs_load = has_failed or not self._state.history.was_loaded(collection.id)
        else:
            needs_load = not self._state.fallback.is_settled(snapshot, collection)
        needs_load = needs_load and self._may_retry(collection)
        since = 0 if snapshot is None or needs_load else snapshot.collection.revision
        if not needs_load and (snapshot is None or since >= collection.revision):
            return
        with self._database.read(timeout_seconds) as work:
            is_much = is_large(work, collection) if needs_load else has_many_changes(work, collection, since)
        if needs_load or is_much:
            self._scheduler.request(collection.id, collection.name, is_long=needs_load and is_much)

    def _may_retry(self, collection: Collection) -> bool:
        return self._state.fallback.may_retry(self._state.history.last_failure(collection.id))

    def _assess(self, collection: Collection) -> CollectionHealth:
        history, snapshot = self._state.history, self._state.cache.peek(collection.id)
        failure = history.last_failure(collection.id)
        return assess(
            collection,
            snapshot,
            None if failure is None else failure.reason,
            history.was_loaded(collection.id),
            {} if snapshot is None else history.given_up(collection.id, snapshot.model_bundle),
        )
