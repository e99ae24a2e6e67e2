"""Loading of snapshots: from a model bundle and saved galleries, brought up to date by replay."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replace_fields
from functools import partial

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import Collection, Matrix, ModelVersion
from app.domain.errors import DamagedBundleError
from app.domain.ports import GalleryIndex
from app.services.models.model_bundles import LoadedModel, ModelBundles
from app.services.serving.engine_snapshots import EngineGalleries
from app.services.serving.fallback import FallbackPolicy
from app.services.serving.galleries import SegmentGallery
from app.services.serving.replay import replay
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.segments import IndexedItem, IndexFactory, Segment
from app.services.serving.snapshot import LoadFailure, Snapshot
from app.services.serving.stored_items import StoredItems, encode_item
from app.services.storage.pacing import in_batches

_ITEMS_PER_BATCH = 250
"""Bounds how long a batch of database rows holds the interpreter, to some ten milliseconds."""
_NO_ITEM = encode_item(IndexedItem("", (), {}))
"""Stands in a segment for an item that is gone; no item has an empty id."""
_MAX_HISTORY = 1000  # activations that are searched for a version to stand in
_DAMAGED = "its index is damaged"
_SAVED_WITHOUT = "it was saved without an index, which was given up, or whose items had all been replaced"
"""Why a gallery that was just read has no index, though its version has one for it."""
_logger = logging.getLogger(__name__)


class SnapshotLoader:
    """Loads the snapshot to be served; without an engine each process has the galleries in its memory."""

    def __init__(
        self,
        bundles: ModelBundles,
        make_index: IndexFactory,
        saved_galleries: SavedGalleries,
        fallback: FallbackPolicy,
        engine: EngineGalleries | None = None,
    ) -> None:
        self._bundles = bundles
        self._make_index = make_index
        self._saved_galleries = saved_galleries
        self._fallback = fallback
        self._engine = engine
        self._unservable: dict[int, tuple[str, LoadFailure]] = {}
        """By collection that nothing can serve: its active bundle, and why. Not the last failure of the
        history, which may be of any kind: once another bundle is active, it is read without a pause."""
        self._lock = threading.Lock()
        self.n_damaged = 0
        """How often a version could not be loaded because its bundle is damaged."""

    def forget(self, collection_id: int) -> None:
        """Drop what is known of a deleted collection."""
        self._unservable.pop(collection_id, None)

    def load(
        self,
        current: Snapshot | None,
        collection: Collection,
        work: UnitOfWork,
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return a snapshot of the version to serve, as of `collection.revision`: `current` if it is that
        model's, brought up to date."""
        # Raises DamagedBundleError if neither the active bundle nor any that served before can be trusted.
        if current is None or not self._fallback.is_settled(current, collection):
            assert collection.active_version is not None
            version = work.models.get(collection, collection.active_version)
            current = self._load_or_fall_back(current, work, collection, version, pause)
        return replay(current, collection, work, pause)

    def load_with_engine(
        self,
        work: UnitOfWork,
        collection: Collection,
        version: ModelVersion,
        engine: EngineGalleries,
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return a snapshot of a version whose galleries an engine has; what is missing is brought there.
        Raises DamagedBundleError as `load_version` does."""
        model = self._bundles.load(collection, version)
        pause()
        load_local = partial(self._load_bundle_galleries, work, collection, model, version.bundle, pause)
        return engine.open(collection, model, version.bundle, load_local, pause)

    def load_version(
        self, work: UnitOfWork, collection: Collection, version: ModelVersion, pause: Callable[[], None]
    ) -> Snapshot:
        """Return a snapshot of a version, as of some revision that is not later than the collection's.
        Raises DamagedBundleError if the version's bundle cannot be trusted."""
        if self._engine is not None:
            return self.load_with_engine(work, collection, version, self._engine, pause)
        model = self._bundles.load(collection, version)
        pause()
        saved = self._saved_galleries.load(work, collection, version, pause)
        if saved is None:
            return self._load_bundle_galleries(work, collection, model, version.bundle, pause)
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
        elif (
            known_failure is not None
            and bundle == version.bundle
            and not self._fallback.may_retry(known_failure)
        ):
            raise DamagedBundleError(known_failure.reason)  # not every search reads all bundles again
        try:
            snapshot = self.load_version(work, collection, version, pause)
            self._unservable.pop(collection.id, None)
            return snapshot
        except DamagedBundleError as error:
            is_new = known_failure is None or known_failure.reason != str(error)
            if is_new:
                self._record_damage(collection, version, error)
            failure = self._fallback.record(str(error))
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
        for version in self._fallback.stand_ins(active, work.models.list(collection), history):
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
        rows = {name: _BundleRows(ids) for name, (ids, _) in model.galleries.items()}
        for batch in in_batches(work.items.unchanged_since(collection, revision), _ITEMS_PER_BATCH):
            for item in batch:
                rows[item.modality].add(IndexedItem(item.id, item.labels, item.metadata))
            pause()
        galleries = {}
        n_items = sum(of_modality.n_added for of_modality in rows.values())
        for name, (_, vectors) in model.galleries.items():
            galleries[name] = self._make_gallery(rows.pop(name), vectors, model.indexes.get(name))
            pause()
        as_bundled = replace_fields(collection, revision=revision)
        # The galleries hold copies: the bundle's own arrays can be freed.
        model = replace_fields(model, galleries={}, indexes={})
        reasons = _missing_indexes(model, galleries, _DAMAGED)
        return Snapshot(as_bundled, model, galleries, bundle, n_unsaved=n_items, missing_indexes=reasons)

    def _make_gallery(self, rows: _BundleRows, vectors: Matrix, index: GalleryIndex | None) -> SegmentGallery:
        alive = np.asarray([line is not None for line in rows.lines], np.bool)
        if not alive.any():
            return SegmentGallery((), self._make_index, frozenset(rows.unranked))
        if index is None:
            index = self._make_index(vectors[alive])
            lines = [line for line in rows.lines if line is not None]
            segment = Segment(StoredItems.of_lines(lines), index)
            return SegmentGallery.of_segment(segment, self._make_index, frozenset(rows.unranked))
        segment = Segment(StoredItems.of_lines(line or _NO_ITEM for line in rows.lines), index)
        return SegmentGallery.of_segment(segment, self._make_index, frozenset(rows.unranked), alive)


def _missing_indexes(
    model: LoadedModel, galleries: Mapping[str, SegmentGallery], reason: str
) -> dict[str, str]:
    """Return a reason for each gallery that was read without the index that the version has for it."""
    names = [name for name in model.published_recall if galleries[name].size and galleries[name].is_exact]
    return dict.fromkeys(names, reason)


class _BundleRows:
    """The items of the rows of a bundle's gallery, as text."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._row_by_id = {item_id: row for row, item_id in enumerate(ids)}
        self.lines: list[bytes | None] = [None] * len(ids)
        """None for a row whose item is gone."""
        self.unranked: set[str] = set()
        """Items without a row."""
        self.n_added = 0

    def add(self, item: IndexedItem) -> None:
        """Take an item."""
        self.n_added += 1
        row = self._row_by_id.get(item.id)
        if row is None:
            self.unranked.add(item.id)
        else:
            self.lines[row] = encode_item(item)
