"""Immutable snapshots of what a collection serves, and their replay of later writes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import Collection, Item, ItemFilter, JobState, Matrix
from app.domain.errors import CollectionNotFoundError, ModelNotTrainedError
from app.domain.ports import Database, Encoder, GalleryIndex
from app.services.bundles import LoadedModel, ModelBundles, can_be_ranked
from app.services.features import item_features

IndexMaker = Callable[[Matrix], GalleryIndex]
_REMEMBERED_FILTERS = 64
_ITEMS_PER_PROJECTION = 2000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Gallery:
    """Projected items of one modality.

    Parameters
    ----------
    ids : tuple of str
        Item of each row.
    labels : tuple of tuple of str
        Labels of each row.
    metadata : tuple of mapping
        Metadata of each row.
    index : GalleryIndex
        The rows.
    """

    ids: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    metadata: tuple[Mapping[str, Any], ...]
    index: GalleryIndex
    _masks: dict[str, npt.NDArray[np.bool]] = field(default_factory=dict)
    _labels: list[frozenset[str]] = field(default_factory=list)

    @property
    def known_labels(self) -> frozenset[str]:
        """Every label that an item carries."""
        if not self._labels:
            self._labels.append(frozenset(label for labels in self.labels for label in labels))
        return self._labels[0]

    def allowed(self, item_filter: ItemFilter) -> npt.NDArray[np.bool] | None:
        """Return which rows pass a filter; None when all do."""
        if item_filter.is_empty:
            return None
        key = repr((sorted(item_filter.labels), sorted(item_filter.metadata.items())))
        mask = self._masks.get(key)
        if mask is None:
            rows = zip(self.labels, self.metadata, strict=True)
            mask = np.fromiter((item_filter.accepts(*row) for row in rows), dtype=bool, count=len(self.ids))
            if len(self._masks) >= _REMEMBERED_FILTERS:
                self._masks.clear()
            self._masks[key] = mask
        return mask


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
    """

    collection: Collection
    model: LoadedModel
    galleries: Mapping[str, Gallery]


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
    """

    def __init__(self, database: Database, bundles: ModelBundles, make_index: IndexMaker) -> None:
        self._database = database
        self._bundles = bundles
        self._make_index = make_index
        self._held: dict[int, Snapshot] = {}
        self._locks: dict[int, threading.Lock] = {}
        self._guard = threading.Lock()

    def current(self, name: str) -> Snapshot:
        """Return a snapshot that holds every write committed before this call.

        Raises
        ------
        CollectionNotFoundError
            If there is no such collection.
        ModelNotTrainedError
            If it has no active model.
        DamagedBundleError
            If the active bundle cannot be trusted.
        """
        try:
            with self._database.read() as work:
                collection = work.collections.get(name)
        except CollectionNotFoundError:
            self._forget(name)
            raise
        held = self._held.get(collection.id)
        if held is not None and _is_fresh(held, collection):
            return held
        with self._guard:
            lock = self._locks.setdefault(collection.id, threading.Lock())
        with lock:
            held = self._held.get(collection.id)
            if held is None or not _is_fresh(held, collection):
                held = self._renew(held, name)
                self._forget(name)
                self._held[held.collection.id] = held
            return held

    def held(self) -> dict[int, Snapshot]:
        """Return the snapshots as they are, by the collections' identity, without bringing any up to date."""
        with self._guard:
            return dict(self._held)

    def _forget(self, name: str) -> None:
        """Let go of whatever was held under a name; a deleted collection frees its memory."""
        with self._guard:
            gone = [key for key, held in self._held.items() if held.collection.name == name]
            for key in gone:
                del self._held[key]

    def _renew(self, held: Snapshot | None, name: str) -> Snapshot:
        with self._database.read() as work:
            collection = work.collections.get(name)
            if collection.active_version is None:
                last = work.jobs.last(collection)
                failed = last is not None and last.state is JobState.FAILED
                raise ModelNotTrainedError(name, last.error if last and failed else None)
            if held is not None and _is_same_model(held, collection):
                base, since = held, held.collection.revision
            else:
                version = work.models.get(collection, collection.active_version)
                base, since = self._from_bundle(collection, self._bundles.load(collection, version)), 0
            changes = work.items.changes_since(collection, since)
            changed = {change.item_id: change.item for change in changes}
        trusted = base.model.index_revision if since == 0 else since
        galleries = {
            modality.name: self._replay(base, modality.name, changed, trusted)
            for modality in collection.modalities
        }
        return replace(base, collection=collection, galleries=galleries)

    def _from_bundle(self, collection: Collection, model: LoadedModel) -> Snapshot:
        """Return the bundle's galleries, whose labels and metadata the replay fills in."""
        galleries = {
            name: Gallery(ids, ((),) * len(ids), ({},) * len(ids), self._make_index(vectors))
            for name, (ids, vectors) in model.galleries.items()
        }
        return Snapshot(collection, model, galleries)

    def _replay(
        self, base: Snapshot, modality: str, changed: Mapping[str, Item | None], trusted: int
    ) -> Gallery:
        """Return the gallery after `changed`; rows of items unchanged since `trusted` are kept."""
        old = base.galleries[modality]
        present = {item_id: item for item_id, item in changed.items() if item and item.modality == modality}
        if not changed.keys() & set(old.ids) and not present:
            return old
        row_of = {item_id: row for row, item_id in enumerate(old.ids)}
        new = [item for item in present.values() if item.revision > trusted or item.id not in row_of]
        new_vectors, ranked = self._project(base, modality, new)
        new_ids = {item.id for item in new}
        kept = [
            row
            for row, item_id in enumerate(old.ids)
            if item_id not in new_ids and changed.get(item_id, True)
        ]
        kept = [row for row in kept if old.ids[row] not in changed or old.ids[row] in present]
        described = [present.get(old.ids[row]) for row in kept]
        labels = [item.labels if item else old.labels[row] for row, item in zip(kept, described, strict=True)]
        metadata = [
            item.metadata if item else old.metadata[row] for row, item in zip(kept, described, strict=True)
        ]
        new = [item for item, is_ranked in zip(new, ranked, strict=True) if is_ranked]
        vectors = [old.index.vectors[kept], *new_vectors]
        return Gallery(
            tuple(old.ids[row] for row in kept) + tuple(item.id for item in new),
            (*labels, *(item.labels for item in new)),
            (*metadata, *(item.metadata for item in new)),
            self._make_index(np.concatenate(vectors)),
        )

    def _project(
        self, base: Snapshot, modality: str, items: Sequence[Item]
    ) -> tuple[list[Matrix], list[bool]]:
        """Return the projections that can be ranked, in blocks, and which items they are."""
        encoder: Encoder = base.model.encoders[modality]
        blocks: list[Matrix] = []
        ranked: list[bool] = []
        for start in range(0, len(items), _ITEMS_PER_PROJECTION):
            features = item_features(items[start : start + _ITEMS_PER_PROJECTION], encoder)
            projected = base.model.project(modality, features)
            accepted = can_be_ranked(projected)
            blocks.append(projected[accepted])
            ranked += accepted.tolist()
        if not all(ranked):
            left_out = [item.id for item, is_ranked in zip(items, ranked, strict=True) if not is_ranked]
            _logger.warning("%s: out of the model's range, not ranked: %s", base.collection.name, left_out)
        return blocks, ranked


def _is_fresh(held: Snapshot, collection: Collection) -> bool:
    return _is_same_model(held, collection) and held.collection.revision >= collection.revision


def _is_same_model(held: Snapshot, collection: Collection) -> bool:
    # The name may have passed to another collection between two reads.
    return (held.collection.id, held.collection.active_version) == (collection.id, collection.active_version)
