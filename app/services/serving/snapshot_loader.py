"""Loading of snapshots: from a model bundle and saved galleries, brought up to date by replay."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import partial

import numpy as np

from app.answers import Activation
from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, IndexedItem, JobState, Matrix, ModelVersion
from app.domain.errors import (
    CollectionNotFoundError,
    ConflictError,
    DamagedBundleError,
    damaged_version,
    model_not_trained,
    overload,
)
from app.domain.ports import GalleryIndex, GalleryKey, VectorEngine
from app.index import ExactIndex
from app.services.catalogue.preparation import describe_material
from app.services.models.model_bundles import LoadedModel, ModelBundles
from app.services.models.placement import check_size, connects, make_untrained
from app.services.serving.engine_galleries import EngineGalleries
from app.services.serving.galleries import Gallery
from app.services.serving.reloads import MAX_WAIT_SECONDS, outside_turns
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.segments import Segment
from app.services.serving.snapshot import LoadFailure, MissedNames, Snapshot, SnapshotCache, replay
from app.services.serving.stored_items import StoredItems, encode_item
from app.services.storage.pacing import Pacer, in_batches, no_pause

_ITEMS_PER_BATCH = 250
"""Bounds how long a batch of database rows holds the interpreter, to some ten milliseconds."""
_NO_ITEM = encode_item(IndexedItem("", (), {}))
"""Stands in a segment for an item that is gone; no item has an empty id."""
_MAX_HISTORY = 1000  # activations that are searched for a version to stand in
_DAMAGED = "its index is damaged"
_SAVED_WITHOUT = "it was saved without an index, which was given up, or whose items had all been replaced"
"""Why a gallery that was just read has no index, though its version has one for it."""
_MOST_KEPT = 2  # a comparison is of two versions
_MOST_BYTES = 256 << 20
"""Estimated memory of those that are kept, beside the budget of what serves: some 100,000 items each side."""
_MOST_FITTED_AT_ONCE = 600  # items whose words a search learns again, with `tfidf` in a fifth of a second
_LEAST_NEW = 0.1  # share of so few items whose words are learned again where that takes seconds
_BESIDE = " (rebuilt)"
"""Added to a modality, for the key of its gallery until that takes the place of the one that serves."""
_logger = logging.getLogger(__name__)
# A full garbage collection visits every object that may be part of a cycle, and stops all threads meanwhile.
# The items of a gallery are such objects, by the million, and in no cycle.
_collections_lock = threading.Lock()
_n_suspending = 0
_was_enabled = True  # before the first that suspends them


@dataclass(slots=True, eq=False)
class SnapshotLoader:
    """Loads the snapshot to be served; without an engine each process has the galleries in its memory."""

    bundles: ModelBundles
    saved_galleries: SavedGalleries
    engine: EngineGalleries | None = None
    n_damaged: int = field(default=0, init=False)
    """How often a version could not be loaded because its bundle is damaged."""
    _unservable: dict[int, tuple[str, LoadFailure]] = field(default_factory=dict, init=False)
    """By collection that nothing can serve: its active bundle, and why. Not the last failure of the
    history, which may be of any kind: once another bundle is active, it is read without a pause."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def known_ids(self) -> set[int]:
        """Return the collections of which anything is known."""
        return set(self._unservable)

    def forget(self, collection_id: int) -> None:
        """Drop what is known of a deleted collection."""
        self._unservable.pop(collection_id, None)

    def load(
        self, current: Snapshot | None, collection: Collection, work: UnitOfWork, pause: Callable[[], None]
    ) -> Snapshot:
        """Return a snapshot of the version to serve, as of `collection.revision`: `current` if it is that
        model's, brought up to date."""
        # Raises DamagedBundleError if neither the active bundle nor any that served before can be trusted.
        if collection.active_version is None:
            return self.bring_up_to_date(current, collection, work, pause)
        if current is None or not current.is_settled(collection):
            version = work.models.get(collection, collection.active_version)
            current = self._load_or_fall_back(current, work, collection, version, pause)
        return self.bring_up_to_date(current, collection, work, pause)

    def bring_up_to_date(
        self,
        base: Snapshot | None,
        collection: Collection,
        work: UnitOfWork,
        pause: Callable[[], None] = no_pause,
    ) -> Snapshot:
        """Return a snapshot after all writes up to `collection.revision`; without an earlier one, of what is
        searched untrained. Raises ConflictError where that is nothing."""
        # The thread of a search has no pauses, and fits again only what takes a moment.
        if base is None or not base.model.is_trained:
            self.check_untrained(work, collection)
        if base is not None:
            is_slow = base.model.is_slow or base.model.is_trained
            is_quick = base.size <= _MOST_FITTED_AT_ONCE and not is_slow
            is_quick = is_quick or bool(base.model.empty)  # it cannot take the first of the others
            if not self.is_due(base, collection, work) or (pause is no_pause and not is_quick):
                return replay(base, collection, work, pause)
            if base.model.is_trained and base.missed is not None:
                as_before = replace_fields(base.collection, revision=base.missed.since)
                base = replace_fields(base, collection=as_before, missed=base.missed.try_again())
                return replay(base, collection, work, pause)
        originals = self.bundles.originals
        try:
            with nullcontext() if originals.learns_quickly(collection) else outside_turns():
                model = make_untrained(originals, work, collection, pause)
        except ConflictError as error:
            self._unservable[collection.id] = (str(collection.revision), LoadFailure(str(error)))
            raise not_trained(work, collection, str(error)) from error
        is_connected = connects(model.projector, [rows for _, rows in model.galleries.values()])
        snapshot = self._load_bundle_galleries(work, collection, model, "", pause)
        if base is not None:
            missed = base.missed.try_again() if snapshot.missed and base.missed else snapshot.missed
            snapshot = replace_fields(snapshot, load_failure=base.load_failure, missed=missed)
        return replace_fields(snapshot, n_unsaved=0, is_connected=is_connected)

    @staticmethod
    def is_due(base: Snapshot, collection: Collection, work: UnitOfWork) -> bool:
        """Return whether items are to be placed again, as names were missed, or an untrained model is to be
        made again: as often as half of the items are new, and of few with words to learn at each write."""
        model, since, encoders = base.model, base.collection.revision, base.model.encoders.values()
        if base.may_place_names:
            return True
        if model.is_trained:
            return False
        is_changed = since < collection.revision
        if is_changed and model.empty and work.items.counts(collection).get(model.empty):
            return True
        learns = any(encoder.is_fitted_with_model or encoder.learns_from_stored for encoder in encoders)
        n_changes = work.items.count_changes(collection, since, base.size + 1) if is_changed else 0
        n_new, n_items = base.n_unsaved + n_changes, base.size + n_changes
        share = 0.5 if not learns or n_items > _MOST_FITTED_AT_ONCE else _LEAST_NEW if model.is_slow else 0.0
        return n_new > 0 and n_new >= share * n_items

    def check_untrained(self, work: UnitOfWork, collection: Collection) -> None:
        """Raise ConflictError where it is plain that a collection cannot be searched untrained."""
        revision, failure = self._unservable.get(collection.id, ("", None))
        if failure is not None and revision == str(collection.revision):
            reason: str | None = failure.reason
        else:
            reason = check_size(work.items.counts(collection), collection)
        if reason is not None:
            raise not_trained(work, collection, reason)

    def load_version(
        self,
        work: UnitOfWork,
        collection: Collection,
        version: ModelVersion,
        pause: Callable[[], None],
        engine: EngineGalleries | None = None,
    ) -> Snapshot:
        """Return a snapshot of a version, as of some revision that is not later than the collection's.
        Raises DamagedBundleError if the version's bundle cannot be trusted."""
        # An engine's galleries are made there if they are missing.
        model = self.bundles.load(collection, version)
        pause()
        load_local = partial(self._load_bundle_galleries, work, collection, model, version.bundle, pause)
        engine = engine or self.engine
        if engine is not None:
            return engine.open(collection, model, version.bundle, load_local, pause)
        saved = self.saved_galleries.load(work, collection, version, pause)
        if saved is None:
            return load_local()
        revision, galleries, has_indexes = saved
        as_saved = replace_fields(collection, revision=revision, purged_through=0)
        model = replace_fields(model, galleries={}, indexes={})
        reasons = _missing_indexes(model, galleries, _SAVED_WITHOUT if has_indexes else _DAMAGED)
        return Snapshot(as_saved, model, galleries, version.bundle, missing_indexes=reasons)

    def _load_or_fall_back(
        self,
        current: Snapshot | None,
        work: UnitOfWork,
        collection: Collection,
        version: ModelVersion,
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return the active version's snapshot, or that of an earlier one while its bundle is damaged."""
        if current is not None and current.model_bundle == version.bundle:
            return replace_fields(current, load_failure=None)
        bundle, known_failure = self._unservable.get(collection.id, ("", None))
        if current is not None:
            known_failure = current.load_failure
        elif known_failure is not None and bundle == version.bundle and not known_failure.may_retry:
            raise DamagedBundleError(known_failure.reason)  # not every search reads all bundles again
        try:
            snapshot = self.load_version(work, collection, version, pause)
            self._unservable.pop(collection.id, None)
            return snapshot
        except DamagedBundleError as error:
            is_new = known_failure is None or known_failure.reason != str(error)
            if is_new:
                self._record_damage(collection, version, error)
            failure = LoadFailure(str(error))
            stand_in = current or self._load_stand_in(work, collection, version, is_new, pause)
            if stand_in is None:
                self._unservable[collection.id] = (version.bundle, failure)
                raise
            return replace_fields(stand_in, load_failure=failure)

    def _load_stand_in(
        self,
        work: UnitOfWork,
        collection: Collection,
        active: ModelVersion,
        is_new: bool,
        pause: Callable[[], None],
    ) -> Snapshot | None:
        """Return a snapshot of the version that served last before the active one and is whole."""
        history = work.models.activations(collection, _MAX_HISTORY)
        for version in stand_ins(active, work.models.list(collection), history):
            try:
                return self.load_version(work, collection, version, pause)
            except DamagedBundleError as error:
                if is_new:
                    self._record_damage(collection, version, error)
        return None

    def _record_damage(
        self, collection: Collection, version: ModelVersion, error: DamagedBundleError
    ) -> None:
        _logger.error("%s: version %d cannot be loaded: %s", collection.name, version.version, error)
        with self._lock:
            self.n_damaged += 1

    def _load_bundle_galleries(
        self,
        work: UnitOfWork,
        collection: Collection,
        model: LoadedModel,
        bundle: str,
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return a snapshot of the bundle's revision, with those of its items that are unchanged since."""
        revision = min(model.index_revision, collection.revision)
        n_items = 0
        rows = {
            name: {item_id: row for row, item_id in enumerate(ids)}
            for name, (ids, _) in model.galleries.items()
        }
        lines: dict[str, list[bytes | None]] = {name: [None] * len(of) for name, of in rows.items()}
        unranked: dict[str, set[str]] = {name: set() for name in rows}  # items without a row
        for batch in in_batches(work.items.unchanged_since(collection, revision), _ITEMS_PER_BATCH):
            n_items += len(batch)
            for item in batch:
                row = rows[item.modality].get(item.id)
                if row is None:
                    unranked[item.modality].add(item.id)
                else:
                    indexed = IndexedItem(item.id, item.labels, item.metadata)
                    lines[item.modality][row] = encode_item(indexed)
            pause()
        galleries = {}
        for name, (_, vectors) in model.galleries.items():
            index, outside = model.indexes.get(name), frozenset(unranked[name])
            galleries[name] = _make_gallery(lines.pop(name), outside, vectors, index)
            pause()
        as_bundled = replace_fields(collection, revision=revision)
        # The galleries hold copies: the bundle's own arrays can be freed.
        model = replace_fields(model, galleries={}, indexes={})
        reasons = _missing_indexes(model, galleries, _DAMAGED)
        missed = MissedNames(0) if model.names.n_missed else None
        return Snapshot(as_bundled, model, galleries, bundle, n_items, reasons, missed=missed)


def not_trained(work: UnitOfWork, collection: Collection, reason: str) -> ConflictError:
    """Return why a collection cannot be searched so before a training, and what there is to train on."""
    errors = [job.error for job in work.jobs.recent(collection, 1) if job.state is JobState.FAILED]
    material = f"{reason}; {describe_material(work, collection)}"
    return model_not_trained(collection.name, material, errors[0] if errors else None)


def _make_gallery(
    lines: Sequence[bytes | None], unranked: frozenset[str], vectors: Matrix, index: GalleryIndex | None
) -> Gallery:
    """Return the gallery of a bundle, of whose rows the items as text are given, None of one that is gone."""
    alive = np.asarray([line is not None for line in lines], np.bool)
    if not alive.any():
        return Gallery((), unranked)
    if index is None:
        present = [line for line in lines if line is not None]
        segment = Segment(StoredItems.of_lines(present), ExactIndex(vectors[alive]))
        return Gallery.of_segment(segment, unranked)
    segment = Segment(StoredItems.of_lines(line or _NO_ITEM for line in lines), index)
    return Gallery.of_segment(segment, unranked, alive)


def stand_ins(
    active: ModelVersion, versions: Iterable[ModelVersion], history: Sequence[Activation]
) -> Iterator[ModelVersion]:
    """Yield the versions that may stand in for the active one: those that served before, latest first (as
    the history is). The database still names the active one: only people, or a retrain, change that."""
    by_number = {version.version: version for version in versions if version.version != active.version}
    for number in dict.fromkeys(entry.version for entry in history):
        if number in by_number:
            yield by_number[number]


def _missing_indexes(model: LoadedModel, galleries: Mapping[str, Gallery], reason: str) -> dict[str, str]:
    """Return a reason for each gallery that was read without the index that the version has for it."""
    names = [name for name in model.published_recall if galleries[name].size and galleries[name].is_exact]
    return dict.fromkeys(names, reason)


class VersionSnapshots:
    """Opens the snapshot of any version, with the items of now; none of a collection that the served cache
    dropped. The last ones stay in memory unless they are large: people try one query after another."""

    def __init__(self, database: Database, loader: SnapshotLoader, served: SnapshotCache) -> None:
        self._database = database
        self._loader = loader
        self._lock = threading.Lock()
        """Held while a version is loaded: one at a time, since each takes memory and time from searches."""
        self._guard = threading.Lock()  # held to change what is kept
        self._kept: dict[tuple[int, str], Snapshot] = {}
        """By collection and bundle, the least recently used first."""
        self._incarnation: Hashable = None
        served.on_evict(self._forget)

    @contextmanager
    def open(self, name: str, version: int) -> Iterator[tuple[Snapshot, UnitOfWork]]:
        """Open the snapshot of a version, and a read transaction of the same state."""
        # Raises CollectionNotFoundError, NotFoundError, ConflictError, and UnavailableError where
        # others are loaded for too long.
        with ExitStack() as until_answered:
            if not self._lock.acquire(timeout=MAX_WAIT_SECONDS):
                raise overload("other versions are being loaded")
            try:
                # Begun under the lock, it sees at least what a kept snapshot saw.
                work = until_answered.enter_context(self._database.read())
                collection = work.collections.get(name)
                snapshot = self._load(work, collection, work.models.get(collection, version))
            finally:
                self._lock.release()
            yield snapshot, work

    def _load(self, work: UnitOfWork, collection: Collection, version: ModelVersion) -> Snapshot:
        pause = Pacer(is_urgent=lambda: True)
        place, incarnation = (collection.id, version.bundle), self._database.incarnation()
        with self._guard:
            if incarnation != self._incarnation:  # the database was replaced
                self._kept, self._incarnation = {}, incarnation
            snapshot = self._kept.pop(place, None)
        if snapshot is None or snapshot.is_gone or snapshot.collection.revision > collection.revision:
            try:
                snapshot = self._loader.load_version(work, collection, version, pause)
            except DamagedBundleError as error:
                raise damaged_version(collection.name, version.version, str(error)) from error
        snapshot = replay(snapshot, collection, work, pause)
        with self._guard:
            if incarnation != self._database.incarnation():
                return snapshot
            self._kept[place] = snapshot
            n_bytes = sum(one.estimated_bytes for one in self._kept.values())
            while len(self._kept) > _MOST_KEPT or n_bytes > _MOST_BYTES:
                n_bytes -= self._kept.pop(next(iter(self._kept))).estimated_bytes
        return snapshot

    def _forget(self, collection_id: int) -> None:
        """Drop what is kept of a collection; what is being loaded goes with the next ones."""
        with self._guard:
            self._kept = {
                place: snapshot for place, snapshot in self._kept.items() if place[0] != collection_id
            }


def rebuild_galleries(
    database: Database, loader: SnapshotLoader, engine: VectorEngine, name: str
) -> dict[str, int]:
    """Build the galleries of an active version again, whatever became of those that the engine has; return
    the number of items of each, by modality. Services go on with the old ones meanwhile."""
    # Raises CollectionNotFoundError, ConflictError, and DamagedBundleError if the version's bundle
    # cannot be trusted. Services find the new galleries under the same keys afterwards.
    serving, beside = EngineGalleries(engine), EngineGalleries(engine, _BESIDE)
    with database.read_of(name) as (work, collection):
        if collection.active_version is None:
            raise model_not_trained(name, describe_material(work, collection))
        version = work.models.get(collection, collection.active_version)
        for of_killed in collection.modalities:  # whose rebuild was not finished
            engine.drop(beside.key(collection, version.bundle, of_killed.name))
        snapshot = loader.load_version(work, collection, version, no_pause, beside)
    sizes: dict[str, int] = {}
    while snapshot.galleries:
        with database.read_of(name) as (work, current):
            if current.id != collection.id:  # it was deleted, and another one has its name
                raise CollectionNotFoundError(name)
            snapshot = replay(
                snapshot, replace_fields(current, active_version=collection.active_version), work
            )
        for modality, gallery in snapshot.galleries.items():
            size = gallery.size
            key, rebuilt = (of.key(collection, version.bundle, modality) for of in (serving, beside))
            if engine.replace(key, rebuilt):
                sizes[modality] = size
            else:
                _drop_if_ahead(database, engine, name, key)
        pending = {name: of for name, of in snapshot.galleries.items() if name not in sizes}
        snapshot = replace_fields(snapshot, galleries=pending)
    return sizes


def _drop_if_ahead(database: Database, engine: VectorEngine, name: str, key: GalleryKey) -> None:
    """Remove a gallery of revisions that the database, restored from a copy, does not have."""
    gallery = engine.open(key)
    latest = 0 if gallery is None else gallery.latest_revision()
    with database.read() as work:
        is_ahead = latest > work.collections.get(name).revision
    if is_ahead:
        engine.drop(key)


@contextmanager
def suspended_garbage_collection() -> Iterator[None]:
    """Suspend automatic collections while items are made (a quarter more of them cause a full collection).
    Several threads may suspend them at a time; they go on after the last one."""
    global _n_suspending, _was_enabled
    with _collections_lock:
        if not _n_suspending:
            _was_enabled = gc.isenabled()
        _n_suspending += 1
        gc.disable()
    try:
        yield
    finally:
        with _collections_lock:
            _n_suspending -= 1
            if not _n_suspending and _was_enabled:
                gc.enable()


def freeze_garbage_collection() -> None:
    """Exempt everything in memory from later collections.
    Existing garbage is collected first: frozen, it would stay for good."""
    gc.collect()
    gc.freeze()
