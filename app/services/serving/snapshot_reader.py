"""Snapshots to answer from: opened together with a transaction of the same state, and kept up to date.

No search waits for another collection. A search replays a few changes itself. More of them, and loading a
model, are work for the background (`app.services.serving.reload_scheduler`); until it is done the snapshot
before serves, as long as it contains what the caller has written. Otherwise the search waits, and gives the
resources that others need to them meanwhile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app.domain.entities import Collection, JobState
from app.domain.errors import CollectionNotFoundError, ModelNotTrainedError, OverloadedError
from app.domain.ports import Database, UnitOfWork
from app.services.serving.collection_health import CollectionHealth, assess
from app.services.serving.reload_scheduler import Reload, ReloadScheduler
from app.services.serving.replay import has_many_changes, is_large
from app.services.serving.serving_state import ServingState
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_updater import SnapshotUpdater
from app.services.serving.waiting_room import ReleaseSlot

_SWAP_WAIT_SECONDS = 2.0
"""How long a search waits for another version while the one before could answer; small ones load faster."""
_SEARCHED_SECONDS = 0.1
"""Since the last search, while more are expected."""


class MustWaitError(Exception):
    """A caller that waits for nothing would have to wait for a reload."""


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
    """Opens the newest snapshot of each collection.

    Parameters
    ----------
    database : Database
        The source of truth.
    state : ServingState
        What is served.
    updater : SnapshotUpdater
        Brings it up to date.
    """

    def __init__(self, database: Database, state: ServingState, updater: SnapshotUpdater) -> None:
        self._database = database
        self._state = state
        self._updater = updater
        self._scheduler = ReloadScheduler(updater.reload, state.waiting_room)
        self._current: dict[str, tuple[Hashable, Collection]] = {}
        """Collections whose snapshot held every write, by name, with the mark of the database from before."""
        self._searched_at = -math.inf

    @property
    def n_damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._updater.n_damaged

    def recall(self, name: str) -> Snapshot | None:
        """Return the snapshot to answer from; None if only a transaction can show which one that is.

        No transaction is needed where nothing was committed since a search found its snapshot to hold every
        write, of whatever process. While another version of a large collection is loaded, the one before
        answers, as of `open`.

        Parameters
        ----------
        name : str
            Name of a collection.
        """
        self._searched_at = time.monotonic()
        mark, collection = self._current.get(name, (None, None))
        if collection is None or mark != self._database.change_mark():
            return None
        snapshot = self._state.cache.get(collection.id)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision != collection.revision:
            return None
        is_settled = self._state.fallback.is_settled(snapshot, collection)
        return snapshot if is_settled or self._scheduler.is_long(collection.id) else None

    def recall_likely(self, name: str) -> Snapshot | None:
        """Return a snapshot that `recall` is likely to return, too; it may be out of date."""
        _, collection = self._current.get(name, (None, None))
        return None if collection is None else self._state.cache.peek(collection.id)

    def is_searched(self) -> bool:
        """Return whether something was searched a moment ago."""
        return time.monotonic() - self._searched_at < _SEARCHED_SECONDS

    @contextmanager
    def open(
        self,
        name: str,
        release_slot: ReleaseSlot | None = None,
        min_revision: int | None = None,
        may_wait: bool = True,
    ) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open a snapshot to answer from, and a read transaction.

        The snapshot is that of the state which the transaction sees, except while much is replayed or a
        version of a large collection is loaded in the background. Then it is an earlier one, and an item with
        a later revision in the transaction differs from what the snapshot contains.

        Parameters
        ----------
        name : str
            Name of a collection.
        release_slot : callable, optional
            Gives a request's concurrency slot to others where it has to wait, which is bounded for a request;
            without it the caller waits as long as it takes.
        min_revision : int, optional
            The last write of the caller, which the snapshot must contain; that of this process when None.
        may_wait : bool
            Whether to wait for a reload where that is needed; a few writes are replayed in any case.

        Raises
        ------
        MustWaitError
            If it may not wait and would have to.
        CollectionNotFoundError
            If there is no such collection.
        ModelNotTrainedError
            If it has no active model.
        DamagedBundleError
            If neither the active bundle nor that of any version that served before can be trusted.
        OverloadedError
            If too many requests wait for this collection already, or this one waited too long.
        """
        began = time.monotonic()
        awaits_swap = True
        while True:
            mark = self._database.change_mark()
            with ExitStack() as until_answered:
                work = until_answered.enter_context(self._database.read())
                collection = self._get_collection(work, name)
                action = self._decide(collection, work, awaits_swap, min_revision)
                if isinstance(action, _Serve):
                    self._remember(collection, action.snapshot, mark)
                    yield action.snapshot, work
                    return
            waited = time.monotonic() - began
            if isinstance(action, _Wait) and not may_wait:
                raise MustWaitError
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
                raise OverloadedError(f"collection {name!r} is being written to faster than it is replayed")

    def record_write(self, collection_id: int, revision: int) -> None:
        """Record a write of this process, which searches that name no revision are to find."""
        self._state.history.record_write(collection_id, revision)

    def reload_stale(self, timeout_seconds: float) -> list[tuple[Collection, CollectionHealth]]:
        """Start background reloads of what is behind, and return how each collection stands.

        Waits for nothing but the database.

        Parameters
        ----------
        timeout_seconds : float
            How long the database may take.

        Returns
        -------
        list of tuple
            Each collection with an active version, and how it stands.
        """
        health = []
        for collection in self.list_collections(timeout_seconds):
            if collection.active_version is not None:
                self._request_reload_if_stale(collection, timeout_seconds)
                health.append((collection, self._assess(collection)))
        return health

    def list_collections(self, timeout_seconds: float) -> list[Collection]:
        """Return all collections, after evicting those that are gone.

        Parameters
        ----------
        timeout_seconds : float
            How long the database may take.
        """
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
            raise ModelNotTrainedError(name, errors[0] if errors else None)
        return collection

    def _decide(
        self, collection: Collection, work: UnitOfWork, awaits_swap: bool, min_revision: int | None
    ) -> _Serve | _Wait | _ReplayFew:
        """Return what a search has to do next.

        Parameters
        ----------
        collection : Collection
            As `work` sees it.
        work : UnitOfWork
            The search's read transaction.
        awaits_swap : bool
            Whether the search would rather wait for the newest version than be answered by the one before.
        min_revision : int or None
            As of `open`.
        """
        snapshot = self._state.cache.get(collection.id)
        if snapshot is None or snapshot.is_gone:
            if snapshot is not None:
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
        required = self._state.history.last_write(collection.id) if min_revision is None else min_revision
        is_recent_enough = since >= required
        if since == collection.revision or (is_recent_enough and not awaits_swap):
            return _Serve(snapshot)
        if not has_many_changes(work, collection, since):
            return _ReplayFew()
        reload = self._scheduler.request(collection.id, collection.name)
        return _Serve(snapshot) if is_recent_enough else _Wait(reload)

    def _request_reload_if_stale(self, collection: Collection, timeout_seconds: float) -> None:
        """Request a reload unless the collection is up to date, or the next search would replay the rest."""
        snapshot = self._state.cache.peek(collection.id)
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
