"""Making snapshots: from a model's bundle and saved galleries, and by replay of later writes.

Where the active version's bundle is damaged, an earlier version stands in: the one this process served
until then, or, in a process that starts, the one that served last and is whole. It takes part in later
writes like any other, and the bundle is looked at again now and then. The database still names the active
version: only people, or a retrain, change that.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.domain.entities import Change, Collection, Item, Matrix, ModelVersion
from app.domain.errors import DamagedBundleError
from app.domain.names import some_of
from app.domain.ports import Encoder, UnitOfWork
from app.services.models.bundles import LoadedModel, ModelBundles
from app.services.models.features import item_features
from app.services.serving.galleries import Gallery, IndexMaker, Row
from app.services.serving.renewals import in_steps, no_pause
from app.services.serving.saved_galleries import SavedGalleries
from solver import can_be_ranked

_ITEMS_PER_STEP, _CHARACTERS_PER_STEP = 250, 200_000
_LOOK_AGAIN_SECONDS = 60.0
_TRY_AGAIN_SECONDS = 5.0
_HISTORY = 1000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadFailure:
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
    damage : LoadFailure or None
        Why `model` is not the collection's active version but an earlier one that stands in for it.
    """

    collection: Collection
    model: LoadedModel
    galleries: Mapping[str, Gallery]
    model_bundle: str
    unsaved: int = 0
    damage: LoadFailure | None = None

    @property
    def size(self) -> int:
        """How many items are in its galleries."""
        return sum(gallery.size for gallery in self.galleries.values())

    def is_settled(self, collection: Collection) -> bool:
        """Return whether its model is the one to serve: the active one, or what stands in for it."""
        return self.collection.active_version == collection.active_version and not (
            self.damage is not None and self.damage.is_older(_LOOK_AGAIN_SECONDS)
        )


class Loader:
    """Makes snapshots of collections.

    Parameters
    ----------
    bundles : ModelBundles
        Model versions on disk.
    make_index : callable
        Builds an index over projected rows.
    saved : SavedGalleries
        Galleries on disk.
    """

    def __init__(self, bundles: ModelBundles, make_index: IndexMaker, saved: SavedGalleries) -> None:
        self._bundles = bundles
        self._make_index = make_index
        self._saved = saved
        self._hopeless: dict[int, tuple[str, LoadFailure]] = {}
        """Active bundle of a collection that nothing can serve, and why."""
        self._guard = threading.Lock()
        self.damaged = 0
        """How often a version could not be loaded because its bundle is damaged."""

    def forget(self, collection_id: int) -> None:
        """Let go of a deleted collection."""
        self._hopeless.pop(collection_id, None)

    def settled(
        self,
        held: Snapshot | None,
        collection: Collection,
        work: UnitOfWork,
        pause: Callable[[], None] = no_pause,
    ) -> Snapshot:
        """Return a snapshot of the version to serve, as it stands at `collection.revision`.

        Parameters
        ----------
        held : Snapshot or None
            What serves now.
        collection : Collection
            As `work` sees it, with an active version.
        work : UnitOfWork
            Reads one consistent state.
        pause : callable
            Called between steps.

        Raises
        ------
        DamagedBundleError
            If neither the active bundle nor that of any version that served before can be trusted.
        """
        if held is None or not held.is_settled(collection):
            assert collection.active_version is not None
            version = work.models.get(collection, collection.active_version)
            held = self._loaded_or_earlier(held, work, collection, version, pause)
        return self.replayed(held, collection, work, pause)

    def replayed(
        self,
        base: Snapshot,
        collection: Collection,
        work: UnitOfWork,
        pause: Callable[[], None] = no_pause,
    ) -> Snapshot:
        """Return a snapshot after all writes up to `collection.revision`; parameters as of `settled`."""
        changed = _gone(base, collection, work, pause)
        empty = np.zeros((0, base.model.projector.rank), np.float32)
        rows: dict[str, list[Row]] = {name: [] for name in base.galleries}
        vectors: dict[str, list[Matrix]] = {name: [empty] for name in base.galleries}
        unranked: dict[str, set[str]] = {name: set() for name in base.galleries}
        changes = work.items.changes_since(collection, base.collection.revision)
        for step in in_steps(changes, _ITEMS_PER_STEP, _characters, _CHARACTERS_PER_STEP):
            changed.update(change.item_id for change in step)
            items = [change.item for change in step if change.item is not None]
            for name in rows:
                present = [item for item in items if item.modality == name]
                found, projected, left_out = self._project(base, name, present)
                rows[name] += found
                vectors[name].append(projected)
                unranked[name] |= left_out
            pause()
        galleries = {}
        for name, gallery in base.galleries.items():
            _note_unranked(base, gallery, unranked[name])
            projected = np.concatenate(vectors[name])
            galleries[name] = gallery.changed(changed, rows[name], projected, unranked[name])
            pause()
        unsaved = base.unsaved + len(changed)
        return replace(base, collection=collection, galleries=galleries, unsaved=unsaved)

    def _loaded_or_earlier(
        self,
        held: Snapshot | None,
        work: UnitOfWork,
        collection: Collection,
        version: ModelVersion,
        pause: Callable[[], None],
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
            found = self._loaded(work, collection, version, pause)
            self._hopeless.pop(collection.id, None)
            return found
        except DamagedBundleError as error:
            is_new = known is None or known.reason != str(error)
            if is_new:
                self._note_damage(collection, version, error)
            damage = LoadFailure(str(error), time.monotonic())
            earlier = held or self._earlier(work, collection, version, is_new, pause)
            if earlier is None:
                self._hopeless[collection.id] = (version.bundle, damage)
                raise
            return replace(earlier, damage=damage)

    def _earlier(
        self,
        work: UnitOfWork,
        collection: Collection,
        active: ModelVersion,
        is_new: bool,
        pause: Callable[[], None],
    ) -> Snapshot | None:
        """Return a snapshot of the version that served last before the active one and is whole."""
        versions = {model.version: model for model in work.models.list(collection)}
        history = work.models.activations(collection, _HISTORY)
        for number in dict.fromkeys(entry.version for entry in history):
            if number == active.version or number not in versions:
                continue
            try:
                return self._loaded(work, collection, versions[number], pause)
            except DamagedBundleError as error:
                if is_new:
                    self._note_damage(collection, versions[number], error)
        return None

    def _note_damage(self, collection: Collection, version: ModelVersion, error: DamagedBundleError) -> None:
        _logger.error("%s: version %d is not loaded: %s", collection.name, version.version, error)
        with self._guard:
            self.damaged += 1

    def _loaded(
        self, work: UnitOfWork, collection: Collection, version: ModelVersion, pause: Callable[[], None]
    ) -> Snapshot:
        model = self._bundles.load(collection, version)
        pause()
        saved = self._saved.load(work, collection, version, pause)
        if saved is None:
            return self._from_bundle(work, collection, model, version.bundle, pause)
        revision, galleries = saved
        current = replace(collection, revision=revision, purged_through=0)
        return Snapshot(current, replace(model, galleries={}), galleries, version.bundle)

    def _from_bundle(
        self,
        work: UnitOfWork,
        collection: Collection,
        model: LoadedModel,
        bundle: str,
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return what of the bundle's galleries has not changed since, as it was at their revision."""
        revision = min(model.index_revision, collection.revision)
        rows: dict[str, list[Row]] = {name: [] for name in collection.modality_names}
        for step in in_steps(work.items.unchanged_since(collection, revision), _ITEMS_PER_STEP):
            for item in step:
                rows[item.modality].append(Row(item.id, item.labels, item.metadata))
            pause()
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
            pause()
        # The bundle's own arrays have served their purpose.
        current = replace(collection, revision=revision)
        return Snapshot(current, replace(model, galleries={}), galleries, bundle, read)

    def _project(
        self, base: Snapshot, modality: str, items: Sequence[Item]
    ) -> tuple[list[Row], Matrix, set[str]]:
        """Return the items that can be ranked, their projections, and the ids of the others."""
        if not items:
            return [], np.zeros((0, base.model.projector.rank), np.float32), set()
        encoder: Encoder = base.model.encoders[modality]
        projected = base.model.project(modality, item_features(items, encoder))
        accepted = can_be_ranked(projected)
        ranked: list[Row] = []
        unranked: set[str] = set()
        for item, is_ranked in zip(items, accepted.tolist(), strict=True):
            if is_ranked:
                ranked.append(Row(item.id, item.labels, item.metadata))
            else:
                unranked.add(item.id)
        return ranked, projected[accepted], unranked


def _characters(change: Change) -> int:
    """Return how long the text is that is to be encoded."""
    return len(change.item.text or "") if change.item is not None else 0


def _gone(base: Snapshot, collection: Collection, work: UnitOfWork, pause: Callable[[], None]) -> set[str]:
    """Return what is no longer as it was, where the tombstones that would say so may be purged."""
    before = base.collection
    if before.revision >= collection.purged_through or before.purged_through == collection.purged_through:
        return set()
    gone: set[str] = set()
    held = itertools.chain.from_iterable(gallery.ids() for gallery in base.galleries.values())
    for ids in in_steps(held, _ITEMS_PER_STEP):
        gone.update(ids)
        pause()
    for step in in_steps(work.items.unchanged_since(collection, before.revision), _ITEMS_PER_STEP):
        gone.difference_update(item.id for item in step)
        pause()
    return gone


def _note_unranked(base: Snapshot, gallery: Gallery, unranked: set[str]) -> None:
    if fresh := sorted(unranked - gallery.unranked):
        _logger.warning(
            "%s: out of the range of version %d, stored but not ranked: %s",
            base.collection.name,
            base.model.version,
            some_of(fresh),
        )
