"""Immutable snapshots of what a collection serves, and their replay of later writes.

Where the active version's bundle is damaged, an earlier version stands in: the one this process served
until then, or, in a process that starts, the one that served last and is whole. It takes part in later
writes like any other, and the bundle is looked at again now and then. The database still names the active
version: only people, or a retrain, change that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import numpy as np

from app.domain.entities import Collection, Item, JobState, Matrix, ModelVersion
from app.domain.errors import (
    CollectionNotFoundError,
    DamagedBundleError,
    ModelNotTrainedError,
    ServiceError,
)
from app.domain.names import some_of
from app.domain.ports import Database, Encoder, UnitOfWork
from app.services.bundles import LoadedModel, ModelBundles
from app.services.features import item_features
from app.services.galleries import Gallery, IndexMaker, Row
from app.services.saved_galleries import SavedGalleries
from solver.ranking import can_be_ranked

_ITEMS_PER_PROJECTION = 2000
_LOOK_AGAIN_SECONDS = 60.0
_TRY_AGAIN_SECONDS = 5.0
_HISTORY = 1000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Why the active version does not serve.

    Parameters
    ----------
    reason : str
        What is damaged.
    found_at : float
        When, by the monotonic clock.
    """

    reason: str
    found_at: float

    def is_older(self, seconds: float) -> bool:
        """Whether it is time to look at the bundle again: it may have been brought back."""
        return time.monotonic() - self.found_at >= seconds


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One consistent state that a query is answered from.

    Parameters
    ----------
    collection : Collection
        As it was when the snapshot was made.
    model : LoadedModel
        Projections and encoders of the active version.
    galleries : mapping of str to Gallery
        By modality.
    model_bundle : str
        Folder name of the model.
    unsaved : int
        Items that a start would read from the database.
    damage : Damage or None
        Why `model` is not the collection's active version but an earlier one that stands in for it.
    """

    collection: Collection
    model: LoadedModel
    galleries: Mapping[str, Gallery]
    model_bundle: str
    unsaved: int = 0
    damage: Damage | None = None


class Snapshots:
    """Holds the newest snapshot of each collection, and brings it up to date when it is asked for.

    Parameters
    ----------
    database : Database
        The truth.
    bundles : ModelBundles
        Model versions on disk.
    make_index : callable
        Builds an index over projected rows.
    saved : SavedGalleries
        Galleries on disk.
    """

    def __init__(
        self, database: Database, bundles: ModelBundles, make_index: IndexMaker, saved: SavedGalleries
    ) -> None:
        self._database = database
        self._bundles = bundles
        self._make_index = make_index
        self._saved = saved
        self._saving = threading.Lock()
        self._held: dict[int, Snapshot] = {}
        self._hopeless: dict[int, tuple[str, Damage]] = {}
        """Active bundle of a collection that nothing can serve, and why."""
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()
        self.damaged = 0
        """How often a version could not be loaded because its bundle is damaged."""

    def current(self, name: str) -> Snapshot:
        """Return a snapshot that holds every write committed before this call.

        Raises
        ------
        CollectionNotFoundError
            If there is no such collection.
        ModelNotTrainedError
            If it has no active model.
        DamagedBundleError
            If neither the active bundle nor that of any version that served before can be trusted.
        """
        with self.reading(name) as (snapshot, _):
            return snapshot

    @contextmanager
    def reading(self, name: str) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open a reading transaction and the snapshot of exactly the state that it sees.

        What is read of the items beside the snapshot belongs to it, whatever is written meanwhile.
        Raises what `current` raises.
        """
        try:
            with self._database.read() as work:
                collection = work.collections.get(name)
                held = self._held.get(collection.id)
                if held is not None and _is_of(held, collection):
                    yield held, work
                    return
        except CollectionNotFoundError:
            self._forget(name)
            raise
        with ExitStack() as open_until_the_end:
            snapshot, work = self._renewed(collection, open_until_the_end)
            yield snapshot, work

    def collections(self, patience_seconds: float) -> list[Collection]:
        """Return all collections, after letting go of what is held of those that are gone.

        Parameters
        ----------
        patience_seconds : float
            How long the database may take.
        """
        with self._guard:
            held = set(self._held)  # before the list is read: what is made meanwhile stays
        with self._database.read(patience_seconds) as work:
            found = work.collections.list()
        self.forget(held - {collection.id for collection in found})
        return found

    def forget(self, collection_ids: Iterable[int]) -> None:
        """Let go of deleted collections, which frees their memory."""
        with self._guard:
            for collection_id in collection_ids:
                self._held.pop(collection_id, None)
                self._hopeless.pop(collection_id, None)

    def held(self) -> dict[int, Snapshot]:
        """Return the snapshots as they are, by the collections' identity, without bringing any up to date."""
        with self._guard:
            return dict(self._held)

    def _forget(self, name: str) -> None:
        """Let go of whatever was held under a name."""
        with self._guard:
            gone = [key for key, held in self._held.items() if held.collection.name == name]
        self.forget(gone)

    def _renewed(self, collection: Collection, open_until_the_end: ExitStack) -> tuple[Snapshot, UnitOfWork]:
        """Return what the name stands for now, as a transaction sees it that is left open, and hold it."""
        while True:
            with self._guard:
                lock = self._locks.setdefault(collection.id, threading.Lock())
            with lock, ExitStack() as attempt:
                # Begun under the lock, it sees at least what the held snapshot saw.
                work = attempt.enter_context(self._database.read())
                found = work.collections.get(collection.name)
                if found.id == collection.id:
                    snapshot = self._hold_renewed(found, work)
                    open_until_the_end.push(attempt.pop_all())
                    return snapshot, work
            # The name has passed to another collection meanwhile, which has a lock of its own.
            collection = found

    def _hold_renewed(self, collection: Collection, work: UnitOfWork) -> Snapshot:
        held = self._held.get(collection.id)
        if held is None or not _is_of(held, collection):
            held = self._renew(held, collection, work)
            self._forget(collection.name)
            with self._guard:
                self._held[collection.id] = held
        return held

    def _renew(self, held: Snapshot | None, collection: Collection, work: UnitOfWork) -> Snapshot:
        if collection.active_version is None:
            errors = [job.error for job in work.jobs.recent(collection, 1) if job.state is JobState.FAILED]
            raise ModelNotTrainedError(collection.name, errors[0] if errors else None)
        if held is None or not _is_settled(held, collection):
            version = work.models.get(collection, collection.active_version)
            held = self._loaded_or_earlier(held, work, collection, version)
        changes = work.items.changes_since(collection, held.collection.revision)
        changed = {change.item_id: change.item for change in changes}
        galleries = {
            modality.name: self._replay(held, modality.name, changed) for modality in collection.modalities
        }
        renewed = replace(held, collection=collection, galleries=galleries)
        return self._save_now_and_then(renewed, len(changed))

    def _loaded_or_earlier(
        self, held: Snapshot | None, work: UnitOfWork, collection: Collection, version: ModelVersion
    ) -> Snapshot:
        """Return the active version's snapshot, or that of an earlier one while its bundle is damaged."""
        if held is not None and held.model_bundle == version.bundle:
            return replace(held, damage=None)
        bundle, known = self._hopeless.get(collection.id, ("", None))
        if held is not None:
            known = held.damage
        elif known is not None and bundle == version.bundle and not known.is_older(_TRY_AGAIN_SECONDS):
            raise DamagedBundleError(known.reason)  # not every search reads all bundles anew
        try:
            return self._loaded(work, collection, version)
        except DamagedBundleError as error:
            is_new = known is None or known.reason != str(error)
            if is_new:
                self._note_damage(collection, version, error)
            damage = Damage(str(error), time.monotonic())
            earlier = held or self._earlier(work, collection, version, is_new)
            if earlier is None:
                self._hopeless[collection.id] = (version.bundle, damage)
                raise
            return replace(earlier, damage=damage)

    def _earlier(
        self, work: UnitOfWork, collection: Collection, active: ModelVersion, is_new: bool
    ) -> Snapshot | None:
        """Return a snapshot of the version that served last before the active one and is whole."""
        versions = {model.version: model for model in work.models.list(collection)}
        history = work.models.activations(collection, _HISTORY)
        for number in dict.fromkeys(entry.version for entry in history):
            if number == active.version or number not in versions:
                continue
            try:
                return self._loaded(work, collection, versions[number])
            except DamagedBundleError as error:
                if is_new:
                    self._note_damage(collection, versions[number], error)
        return None

    def _note_damage(self, collection: Collection, version: ModelVersion, error: DamagedBundleError) -> None:
        _logger.error("%s: version %d is not loaded: %s", collection.name, version.version, error)
        with self._guard:
            self.damaged += 1

    def _loaded(self, work: UnitOfWork, collection: Collection, version: ModelVersion) -> Snapshot:
        model = self._bundles.load(collection, version)
        saved = self._saved.load(work, collection, version)
        if saved is None:
            return self._from_bundle(work, collection, model, version.bundle)
        revision, galleries = saved
        current = replace(collection, revision=revision)
        return Snapshot(current, replace(model, galleries={}), galleries, version.bundle)

    def _save_now_and_then(self, snapshot: Snapshot, changes: int) -> Snapshot:
        """Save galleries in the background once replaying what is new would take long."""
        unsaved = snapshot.unsaved + changes
        if snapshot.damage is not None:
            # What is saved belongs to the version that other processes, and the next start, hope for.
            return replace(snapshot, unsaved=unsaved)
        size = sum(gallery.size for gallery in snapshot.galleries.values())
        if not self._saved.is_worth_it(size, unsaved) or not self._saving.acquire(blocking=False):
            return replace(snapshot, unsaved=unsaved)

        def save() -> None:
            try:
                self._saved.save(snapshot.collection, snapshot.model_bundle, snapshot.galleries)
            except (OSError, ServiceError) as error:
                _logger.warning("%s: galleries are not saved: %s", snapshot.collection.name, error)
            finally:
                self._saving.release()

        threading.Thread(target=save, name="save-galleries").start()
        return replace(snapshot, unsaved=0)

    def _from_bundle(
        self, work: UnitOfWork, collection: Collection, model: LoadedModel, bundle: str
    ) -> Snapshot:
        """Return what of the bundle's galleries has not changed since, as it was at their revision."""
        revision = min(model.index_revision, collection.revision)
        rows: dict[str, list[Row]] = {name: [] for name in collection.modality_names}
        for item in work.items.unchanged_since(collection, revision):
            rows[item.modality].append(Row(item.id, item.labels, item.metadata))
        read = sum(map(len, rows.values()))
        galleries = {}
        for name, (ids, vectors) in model.galleries.items():
            places = {item_id: place for place, item_id in enumerate(ids)}
            known = [row for row in rows[name] if row.id in places]
            galleries[name] = Gallery.of(
                known,
                vectors[[places[row.id] for row in known]],
                self._make_index,
                frozenset(row.id for row in rows[name] if row.id not in places),
            )
        # The bundle's own arrays have served their purpose.
        current = replace(collection, revision=revision)
        return Snapshot(current, replace(model, galleries={}), galleries, bundle, read)

    def _replay(self, base: Snapshot, modality: str, changed: Mapping[str, Item | None]) -> Gallery:
        """Return the gallery after `changed`, an item of which is None where it was deleted."""
        present = [item for item in changed.values() if item is not None and item.modality == modality]
        rows, vectors, unranked = self._project(base, modality, present)
        gallery = base.galleries[modality]
        if fresh := sorted(unranked - gallery.unranked):
            _logger.warning(
                "%s: out of the range of version %d, stored but not ranked: %s",
                base.collection.name,
                base.model.version,
                some_of(fresh),
            )
        return gallery.changed(changed.keys(), rows, vectors, unranked)

    def _project(
        self, base: Snapshot, modality: str, items: Sequence[Item]
    ) -> tuple[list[Row], Matrix, set[str]]:
        """Return the items that can be ranked, their projections, and the ids of the others."""
        encoder: Encoder = base.model.encoders[modality]
        blocks = [np.zeros((0, base.model.projector.rank), np.float32)]
        ranked: list[Row] = []
        unranked: set[str] = set()
        for start in range(0, len(items), _ITEMS_PER_PROJECTION):
            block = items[start : start + _ITEMS_PER_PROJECTION]
            projected = base.model.project(modality, item_features(block, encoder))
            accepted = can_be_ranked(projected)
            blocks.append(projected[accepted])
            for item, is_ranked in zip(block, accepted.tolist(), strict=True):
                if is_ranked:
                    ranked.append(Row(item.id, item.labels, item.metadata))
                else:
                    unranked.add(item.id)
        return ranked, np.concatenate(blocks), unranked


def _is_of(held: Snapshot, collection: Collection) -> bool:
    return _is_settled(held, collection) and held.collection.revision == collection.revision


def _is_settled(held: Snapshot, collection: Collection) -> bool:
    """Return whether a snapshot's model is the one to serve: the active one, or what stands in for it."""
    # The name may have passed to another collection between two reads.
    wanted = (collection.id, collection.active_version)
    return (held.collection.id, held.collection.active_version) == wanted and not (
        held.damage is not None and held.damage.is_older(_LOOK_AGAIN_SECONDS)
    )
