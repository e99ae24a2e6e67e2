"""The snapshots that this process serves: held in memory, and brought up to date with what is written.

Nobody waits for another collection. A search replays a few changes itself. More of them, and the load of a
model, are work of the background (`app.services.serving.renewals`), and until that is done the snapshot
before serves, as long as it holds what whoever asks has written; otherwise the search waits, and lets go of
what others need meanwhile.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from app.domain.entities import Collection, JobState
from app.domain.errors import (
    CollectionNotFoundError,
    DatabaseUnavailableError,
    ModelNotTrainedError,
    OverloadedError,
    ServiceError,
)
from app.domain.ports import Database, UnitOfWork
from app.services.serving.holding import HeldSnapshots
from app.services.serving.loading import Loader, Snapshot
from app.services.serving.outlooks import Outlook, outlook_of
from app.services.serving.renewals import Aside, Pace, PutBackError, Renewal, Renewals
from app.services.serving.saved_galleries import SavedGalleries

__all__ = ["Outlook", "Snapshot", "Snapshots"]

_FEW_CHANGES = 300
"""As many are replayed by the search that finds them."""
_FEW_ITEMS = 2000
"""A collection of so many items is loaded so fast that searches wait for its newest version."""
MOST_WAITING = 32
"""Requests that wait aside at once."""
_WAITING_OF_ONE, _PATIENCE_SECONDS = 8, 30.0
_SWAP_SECONDS = 2.0
"""As long a search waits for another version, while the one before could answer."""
_BRIEFLY_SECONDS = 0.05
_TRY_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a renewal failed, and when by the monotonic clock."""

    reason: str
    found_at: float


class Snapshots:
    """Holds the newest snapshot of each collection.

    Parameters
    ----------
    database : Database
        The truth.
    loader : Loader
        Makes snapshots.
    saved : SavedGalleries
        Where galleries are saved now and then.
    max_bytes : int
        How much memory snapshots may take together, by estimate; what nobody searches makes room first.
    """

    def __init__(self, database: Database, loader: Loader, saved: SavedGalleries, max_bytes: int) -> None:
        self._database = database
        self._loader = loader
        self._saved = saved
        self._held = HeldSnapshots(max_bytes)
        self._own: dict[int, int] = {}
        """Revision of the last write that this process took."""
        self._failed: dict[int, _Failure] = {}
        self._loaded: set[int] = set()
        """Collections that were loaded once, whether they are still in memory or not."""
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()
        self._renewals = Renewals(self._renew, MOST_WAITING, _WAITING_OF_ONE, _PATIENCE_SECONDS)

    @property
    def damaged(self) -> int:
        """How often a version could not be loaded because its bundle is damaged."""
        return self._loader.damaged

    @contextmanager
    def reading(
        self, name: str, aside: Aside | None = None, least_revision: int | None = None
    ) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open a reading transaction and the snapshot to answer from.

        The snapshot is that of the state that the transaction sees, except while much is replayed or a
        version of a large collection is loaded in the background. Then it is an earlier one, and an item
        that the transaction shows with a later revision is not as the snapshot has it.

        Parameters
        ----------
        name : str
            Of a collection.
        aside : callable, optional
            Opened where a request has to wait, which then has limits; without it a caller waits as long
            as it takes.
        least_revision : int, optional
            What whoever asks has written; the last write that this process took, by whomever, when None.

        Raises
        ------
        CollectionNotFoundError
            If there is no such collection.
        ModelNotTrainedError
            If it has no active model.
        DamagedBundleError
            If neither the active bundle nor that of any version that served before can be trusted.
        OverloadedError
            If too many wait for this collection already, or it takes too long.
        """
        begin = time.monotonic()
        is_patient = True
        while True:
            with ExitStack() as open_until_the_end:
                work = open_until_the_end.enter_context(self._database.read())
                collection = self._collection(work, name)
                found, is_needed = self._servable(collection, work, is_patient, least_revision)
                if isinstance(found, Snapshot):
                    yield found, work
                    return
            waited = time.monotonic() - begin
            if found is None:
                with ExitStack() as open_until_the_end:
                    replayed = self._replay_a_little(collection, aside, open_until_the_end)
                    if replayed is not None:
                        yield replayed
                        return
            elif is_needed:
                self._renewals.wait(found, aside)
            else:
                is_patient = self._renewals.ends_well(found, aside, _SWAP_SECONDS - waited)
            if aside is not None and waited > _PATIENCE_SECONDS:
                raise OverloadedError(f"collection {name!r} is being written to faster than it is replayed")

    def wrote(self, collection_id: int, revision: int) -> None:
        """Be told of a write of this process: searches that name no least revision find it."""
        with self._guard:
            self._own[collection_id] = max(self._own.get(collection_id, 0), revision)

    def keep_up(self, patience_seconds: float) -> list[tuple[Collection, Outlook]]:
        """Have what is behind brought up to date in the background, and return how it stands.

        Nothing is waited for but the database.

        Parameters
        ----------
        patience_seconds : float
            How long the database may take.

        Returns
        -------
        list of tuple
            Each collection that has an active version, and what can be said of it.
        """
        found = []
        for collection in self.collections(patience_seconds):
            if collection.active_version is not None:
                self._ask_if_behind(collection, patience_seconds)
                found.append((collection, self._outlook(collection)))
        return found

    def collections(self, patience_seconds: float) -> list[Collection]:
        """Return all collections, after letting go of what is held of those that are gone.

        Parameters
        ----------
        patience_seconds : float
            How long the database may take.
        """
        with self._guard:
            held = {*self._held.all(), *self._own, *self._failed, *self._loaded}
        with self._database.read(patience_seconds) as work:
            found = work.collections.list()
        # What was made since the list was read stays: it was not held before.
        self.forget(held - {collection.id for collection in found})
        return found

    def forget(self, collection_ids: Iterable[int]) -> None:
        """Let go of deleted collections, which frees their memory."""
        with self._guard:
            for collection_id in collection_ids:
                self._held.drop(collection_id)
                self._own.pop(collection_id, None)
                self._failed.pop(collection_id, None)
                self._loaded.discard(collection_id)
                self._loader.forget(collection_id)

    def held(self) -> dict[int, Snapshot]:
        """Return the snapshots as they are, by the collections' identity, without bringing any up to date."""
        return self._held.all()

    def _collection(self, work: UnitOfWork, name: str) -> Collection:
        try:
            collection = work.collections.get(name)
        except CollectionNotFoundError:
            self._forget(name)
            raise
        if collection.active_version is None:
            errors = [job.error for job in work.jobs.recent(collection, 1) if job.state is JobState.FAILED]
            raise ModelNotTrainedError(name, errors[0] if errors else None)
        return collection

    def _servable(
        self, collection: Collection, work: UnitOfWork, is_patient: bool, least_revision: int | None
    ) -> tuple[Snapshot | Renewal | None, bool]:
        """Return what to answer from, or what to wait for and whether it is needed.

        It is None where a few changes are to be replayed. Who is not patient is given what serves, if that
        holds what it has to.
        """
        held = self._held.use(collection.id)
        if held is None or not held.is_settled(collection):
            is_large = work.items.count_changes(collection, 0, _FEW_ITEMS + 1) > _FEW_ITEMS
            if held is None:
                return self._renewals.ask(collection.id, collection.name, is_large), True
            if not self._has_just_failed(collection):
                renewal = self._renewals.ask(collection.id, collection.name, is_large)
                if is_patient and not is_large:
                    return renewal, False
        since = held.collection.revision
        least = self._own.get(collection.id, 0) if least_revision is None else least_revision
        may_serve = since >= least
        if since == collection.revision or (may_serve and not is_patient):
            return held, True
        if work.items.count_changes(collection, since, _FEW_CHANGES + 1) <= _FEW_CHANGES:
            return None, True
        renewal = self._renewals.ask(collection.id, collection.name)
        return (held if may_serve else renewal), True

    def _has_just_failed(self, collection: Collection) -> bool:
        failed = self._failed.get(collection.id)
        return failed is not None and time.monotonic() - failed.found_at < _TRY_AGAIN_SECONDS

    def _replay_a_little(
        self, collection: Collection, aside: Aside | None, open_until_the_end: ExitStack
    ) -> tuple[Snapshot, UnitOfWork] | None:
        """Replay what is new on what is held, in a transaction that is left open; None to look again.

        One thread does; the others wait for it.
        """
        with self._changing(collection, aside), ExitStack() as attempt:
            # Begun under the lock, it sees at least what the held snapshot saw.
            work = attempt.enter_context(self._database.read())
            found = work.collections.get(collection.name)
            held = self._held.get(collection.id)
            if held is None or found.id != collection.id:
                return None
            since = held.collection.revision
            if since < found.revision:
                if work.items.count_changes(found, since, _FEW_CHANGES + 1) > _FEW_CHANGES:
                    return None
                # It stays with its model, and so unsettled where another version is to serve.
                current = replace(found, active_version=held.collection.active_version)
                held = self._hold(self._loader.replayed(held, current, work))
            open_until_the_end.push(attempt.pop_all())
            return held, work

    @contextmanager
    def _changing(self, collection: Collection, aside: Aside | None) -> Iterator[None]:
        """Be the only one to change what is held of a collection."""
        with self._guard:
            lock = self._locks.setdefault(collection.id, threading.Lock())
        with ExitStack() as until_changed:
            if not lock.acquire(timeout=_BRIEFLY_SECONDS if aside else -1):
                assert aside is not None
                with ExitStack() as until_acquired:
                    # Else it waits where it is: of its lane no collection gets all, and this is short.
                    if self._renewals.has_place(collection.id, until_acquired):
                        until_acquired.enter_context(aside())
                    if not lock.acquire(timeout=_PATIENCE_SECONDS):
                        raise OverloadedError(f"collection {collection.name!r} is being brought up to date")
                    # Even if there is no room to come back to.
                    until_changed.callback(lock.release)
            else:
                until_changed.callback(lock.release)
            yield

    def _renew(self, renewal: Renewal, end_step: Callable[[], None]) -> None:
        """Load or replay in steps, in the background, and hold what comes of it."""
        collection_id = renewal.collection_id
        try:
            with self._database.read() as work:
                collection = work.collections.get(renewal.name)
                if collection.id != collection_id or collection.active_version is None:
                    return
                held, is_first = self._held.get(collection_id), collection_id not in self._loaded
                is_swap = held is not None and not held.is_settled(collection)
                pace = Pace(lambda: not is_swap or self._renewals.are_awaited)

                def pause() -> None:
                    pace()
                    end_step()

                snapshot = self._loader.settled(held, collection, work, pause)
            while not self._hold_if_newer(snapshot):
                with self._database.read() as work:
                    current = work.collections.get(renewal.name)
                    if current.id != collection_id:
                        return
                    current = replace(current, active_version=snapshot.collection.active_version)
                    snapshot = self._loader.replayed(snapshot, current, work, pause)
            if is_first and snapshot.size > _FEW_ITEMS:
                _freeze_rows()
        except CollectionNotFoundError:
            self.forget([collection_id])
            raise
        except (DatabaseUnavailableError, PutBackError):
            raise  # says nothing about the collection
        except Exception as error:
            reason = str(error) if isinstance(error, ServiceError) else type(error).__name__
            with self._guard:
                self._failed[collection_id] = _Failure(reason, time.monotonic())
            raise

    def _hold_if_newer(self, snapshot: Snapshot) -> bool:
        """Hold a snapshot unless its collection is gone, or a search has replayed more on what serves."""
        collection = snapshot.collection
        with self._changing(collection, None):
            held = self._held.get(collection.id)
            if held is not None and held.collection.revision > collection.revision:
                return False
            with self._database.read() as work:
                is_there = work.collections.get(collection.name).id == collection.id
            if is_there:
                self._hold(snapshot)
            return True

    def _hold(self, snapshot: Snapshot) -> Snapshot:
        snapshot = self._save_now_and_then(snapshot)
        self._forget(snapshot.collection.name, before=snapshot.collection.id)
        self._held.put(snapshot)
        with self._guard:
            self._loaded.add(snapshot.collection.id)
            self._failed.pop(snapshot.collection.id, None)
        return snapshot

    def _forget(self, name: str, before: int | None = None) -> None:
        """Let go of what was held under a name; only of collections made before the given one, if any is."""
        held = [key for key, one in self._held.all().items() if one.collection.name == name]
        self.forget(key for key in held if before is None or key < before)

    def _ask_if_behind(self, collection: Collection, patience_seconds: float) -> None:
        """Have a collection renewed unless a search would do that at once."""
        held, failed = self._held.get(collection.id), self._failed.get(collection.id)
        if held is None:
            is_due = not self._has_just_failed(collection) and (
                failed is not None or collection.id not in self._loaded
            )
        else:
            is_due = not held.is_settled(collection) and not self._has_just_failed(collection)
        since = 0 if held is None or is_due else held.collection.revision
        if not is_due and (held is None or since >= collection.revision):
            return
        with self._database.read(patience_seconds) as work:
            few = _FEW_ITEMS if is_due else _FEW_CHANGES
            are_many = work.items.count_changes(collection, since, few + 1) > few
        if is_due or are_many:
            self._renewals.ask(collection.id, collection.name, is_long=is_due and are_many)

    def _outlook(self, collection: Collection) -> Outlook:
        failed = self._failed.get(collection.id)
        failure = None if failed is None else failed.reason
        held, was_loaded = self._held.get(collection.id), collection.id in self._loaded
        return outlook_of(collection, held, failure, was_loaded)

    def _save_now_and_then(self, snapshot: Snapshot) -> Snapshot:
        """Save galleries in the background once replaying what is new would take long."""
        # What is saved belongs to the version that other processes, and the next start, hope for.
        if snapshot.damage is None and self._saved.is_worth_it(snapshot.size, snapshot.unsaved):
            is_begun = self._saved.save_beside(
                snapshot.collection, snapshot.model_bundle, snapshot.galleries, Pace(lambda: False)
            )
            return replace(snapshot, unsaved=0) if is_begun else snapshot
        return snapshot


def _freeze_rows() -> None:
    """Let collections of garbage, which stop all threads, pass over the rows of a large collection.

    What is garbage goes before: frozen, it would stay for good.
    """
    gc.collect()
    gc.freeze()
