"""The consistent state that a query is answered from, a searcher in Lucene's words, and those in memory."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import Change, Collection, IndexedItem, Item, Matrix
from app.domain.filters import Condition, ItemFilter
from app.domain.names import some_of
from app.services.models.model_bundles import LoadedModel
from app.services.models.placement import connects, place_changed
from app.services.serving.galleries import Gallery
from app.services.storage.pacing import in_batches, no_pause

RECHECK_SECONDS = 60.0
"""A damaged bundle is checked again after this time: reading all of it more often would disturb searches."""
RETRY_SECONDS = 5.0
"""A failed load is tried again after this time, rather than by every search."""
_BYTES_PER_MODEL = 16 << 20
"""Allowance for projector and encoders, whose size is not known; typical ones take a few MiB."""
_ALL_REPLACED = "the items of its index have all been replaced"
_LONGEST_WAIT = 3600.0  # between two tries to encode names
_MAX_INLINE_CHANGES = 300
"""A search replays up to this many changes itself, rather than wait for a background thread."""
_LARGE_COLLECTION_ITEMS = 2000
"""Collections of at most this many items load so fast that searches wait for their newest version."""
_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds
_CHARACTERS_PER_BATCH = 200_000  # the same for texts, which are encoded here
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A load that failed."""

    reason: str
    failed_at: float = field(default_factory=time.monotonic)

    @property
    def may_retry(self) -> bool:
        """Whether to load again."""
        return time.monotonic() - self.failed_at >= RETRY_SECONDS

    @property
    def may_recheck(self) -> bool:
        """Whether to check a damaged bundle again for which an earlier version stands in."""
        return time.monotonic() - self.failed_at >= RECHECK_SECONDS


@dataclass(frozen=True, slots=True)
class MissedNames:
    """Items that stand without the names they carry, as a file of the encoder was away."""

    since: int  # revision of the collection: those that changed later
    wait: float = RECHECK_SECONDS  # from one try to the next
    tried_at: float = field(default_factory=time.monotonic)

    @property
    def may_retry(self) -> bool:
        """Whether to place them again."""
        return time.monotonic() - self.tried_at >= self.wait

    def try_again(self) -> MissedNames:
        """Return what is to be held of them if they are missed again: the next try waits twice as long."""
        return MissedNames(self.since, min(2.0 * self.wait, _LONGEST_WAIT))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A model and its galleries at one revision of a collection; immutable."""

    collection: Collection  # as it was when the snapshot was made
    model: LoadedModel  # of the active version, or of the one that stands in for it
    galleries: Mapping[str, Gallery]  # by modality
    model_bundle: str  # its folder name
    n_unsaved: int = 0  # items that a start would read from the database rather than from a saved gallery
    # why galleries were read without the version's index, by modality
    missing_indexes: Mapping[str, str] = field(default_factory=dict)
    load_failure: LoadFailure | None = None  # why `model` is not the active version but an earlier one
    is_connected: bool = True  # whether content of one modality finds items of the other
    missed: MissedNames | None = None
    # rows of hits that were read, by id and fields, with their bytes; another revision begins without any
    shown: dict[tuple[str, frozenset[str]], tuple[Item, int]] = field(
        default_factory=dict, init=False, repr=False
    )
    # whether some item has a word, by the modalities of a search and the word; or an id, without a source
    carried: dict[tuple[str, str, str], bool] = field(default_factory=dict, init=False, repr=False)
    # conditions such as ``Size=42``, by the modality of items that meet them, and the value, folded
    filters_by_value: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False, repr=False)

    @property
    def is_gone(self) -> bool:
        """Whether one of its galleries is no longer there, so that all have to be opened again."""
        return any(gallery.is_gone for gallery in self.galleries.values())

    @property
    def may_place_names(self) -> bool:
        """Whether to place items again by names that were missed: it is time, and the encoder is back."""
        is_time = self.missed is not None and self.missed.may_retry
        return is_time and not any(encoder.fault() for encoder in self.model.encoders.values())

    @property
    def size(self) -> int:
        """Number of items in its galleries, as far as it is known."""
        return sum(gallery.known_size or 0 for gallery in self.galleries.values())

    @property
    def is_large(self) -> bool:
        """Whether its galleries have many items, as far as that is known, so that a load takes long."""
        return self.size > _LARGE_COLLECTION_ITEMS

    @property
    def estimated_bytes(self) -> int:
        """About how much memory it takes."""
        return _BYTES_PER_MODEL + sum(gallery.estimated_bytes for gallery in self.galleries.values())

    def read_filter(self, item_filter: ItemFilter, modality: str, work: UnitOfWork | None) -> ItemFilter:
        """Return a filter of what the gallery of a modality knows; of pairs the transaction knows the ids."""

        def read(condition: Condition) -> Condition | ItemFilter:
            if condition.subject == "modality":
                return ItemFilter() if modality in condition.values else ItemFilter(kind="any")
            if condition.subject != "pair_id":
                return condition
            assert work is not None
            ids = work.items.ids_of_pairs(self.collection, modality, condition.values)
            return Condition("id", "in", tuple(ids))

        return item_filter.replace(read)

    def is_settled(self, collection: Collection) -> bool:
        """Return whether its model is the one to serve: that of the active version, or of one that stands in
        for it and whose time to check the active one again has not come."""
        failure = self.load_failure
        is_active = self.collection.active_version == collection.active_version
        return is_active and (failure is None or not failure.may_recheck)

    @property
    def without_index(self) -> list[str]:
        """Modalities whose gallery is searched exactly, though the version has an index for it."""
        return [
            name
            for name, gallery in self.galleries.items()
            if name in self.model.published_recall and gallery.is_exact and gallery.known_size != 0
        ]

    def find_problems(self, collection: Collection, given_up: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with what is served of a collection; `given_up` are the reasons why approximate
        indexes went, by modality."""
        for modality, encoder in self.model.encoders.items():
            if (fault := encoder.fault()) is not None:
                yield f"the encoder of {modality!r}: {fault}"
        if self.load_failure is not None:
            active, served = collection.active_version, self.model.version
            yield f"version {served} serves instead of {active}: {self.load_failure.reason}"
        if (damage := self.model.held_out_damage) is not None:
            yield f"later versions cannot be compared with the served one: {damage}"
        for modality in self.without_index:
            reason = given_up.get(modality) or self.missing_indexes.get(modality, _ALL_REPLACED)
            yield f"{modality!r} is searched exactly: {reason}"


def has_many_changes(work: UnitOfWork, collection: Collection, since: int) -> bool:
    """Return whether more changed since a revision than a search replays itself."""
    return work.items.count_changes(collection, since, _MAX_INLINE_CHANGES + 1) > _MAX_INLINE_CHANGES


def is_large(work: UnitOfWork, collection: Collection) -> bool:
    """Return whether a collection takes so long to load that no search should wait for another version."""
    return work.items.count_changes(collection, 0, _LARGE_COLLECTION_ITEMS + 1) > _LARGE_COLLECTION_ITEMS


def replay(
    base: Snapshot, collection: Collection, work: UnitOfWork, pause: Callable[[], None] = no_pause
) -> Snapshot:
    """Return a snapshot after all writes up to `collection.revision`, from an earlier one, or the same."""
    advanced = {name: gallery.advance(collection.revision) for name, gallery in base.galleries.items()}
    if (written := {name: gallery for name, gallery in advanced.items() if gallery is not None}) == advanced:
        return replace_fields(base, collection=collection, galleries=written)
    base = _as_held(base)
    changed_ids = _find_purged(base, collection, work, pause)
    empty = np.zeros((0, base.model.projector.rank), np.float32)
    ranked: dict[str, list[IndexedItem]] = {name: [] for name in base.galleries}
    vectors: dict[str, list[Matrix]] = {name: [empty] for name in base.galleries}
    unranked: dict[str, set[str]] = {name: set() for name in base.galleries}
    done: set[str] = set()  # of pairs that were placed with an item of an earlier batch
    n_missed = base.model.names.n_missed
    changes = work.items.changes_since(collection, base.collection.revision)
    for batch in in_batches(changes, _ITEMS_PER_BATCH, _count_characters, _CHARACTERS_PER_BATCH):
        changed_ids.update(change.item_id for change in batch)
        items = [change.item for change in batch if change.item is not None and change.item_id not in done]
        placed = place_changed(base.model, work, collection, items)
        for name in base.galleries:  # a rebuild may be of one modality
            batch_ranked, batch_vectors, others = placed[name]
            ranked[name] += (IndexedItem(item.id, item.labels, item.metadata) for item in batch_ranked)
            vectors[name].append(batch_vectors)
            unranked[name].update(item.id for item in others)
            done.update(item.id for item in (*batch_ranked, *others))
        pause()
    galleries = {}
    for name, gallery in base.galleries.items():
        if new := sorted(unranked[name] - gallery.unranked):
            message = "%s: outside the range of version %d, stored but not ranked: %s"
            _logger.warning(message, base.collection.name, base.model.version, some_of(new))
        galleries[name] = gallery.apply_write(
            changed_ids | done,
            ranked[name],
            np.concatenate(vectors[name]),
            unranked[name],
            pause,
            revision=collection.revision,
            since=base.collection.revision,
        )
        pause()
    missed, since = base.missed, base.collection.revision
    if base.model.names.n_missed > n_missed:
        missed = missed or MissedNames(since)
    elif missed and since <= missed.since:  # all of them were placed again
        missed = None
    rows = (np.concatenate(parts) for parts in vectors.values())
    is_connected = base.is_connected or connects(base.model.projector, rows)
    counted = replace_fields(base, n_unsaved=base.n_unsaved + len(changed_ids | done), missed=missed)
    return replace_fields(counted, collection=collection, galleries=galleries, is_connected=is_connected)


def _as_held(base: Snapshot) -> Snapshot:
    """Return a snapshot as of the revision that all its galleries still hold."""
    before = base.collection
    revision = min(gallery.held_revision(before.revision) for gallery in base.galleries.values())
    if revision == before.revision:
        return base
    return replace_fields(base, collection=replace_fields(before, revision=revision, purged_through=0))


def _count_characters(change: Change) -> int:
    """Return the length of the text that has to be encoded."""
    return len(change.item.text or "") if change.item is not None else 0


def _find_purged(
    base: Snapshot, collection: Collection, work: UnitOfWork, pause: Callable[[], None]
) -> set[str]:
    """Return the ids that changed or went since, where the tombstones that would say so may be purged."""
    before = base.collection
    if before.revision >= collection.purged_through or before.purged_through == collection.purged_through:
        return set()
    purged: set[str] = set()
    item_ids = itertools.chain.from_iterable(gallery.item_ids() for gallery in base.galleries.values())
    for id_batch in in_batches(item_ids, _ITEMS_PER_BATCH):
        purged.update(id_batch)
        pause()
    for batch in in_batches(work.items.unchanged_since(collection, before.revision), _ITEMS_PER_BATCH):
        purged.difference_update(item.id for item in batch)
        pause()
    return purged


class SnapshotCache:
    """The newest snapshot of each collection, by the collection's identity, within estimated bytes, and what
    has happened to each in this process, whether its snapshot is in memory or not."""

    # Least recently used go first; the one put in last stays in any case.

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._snapshots: dict[int, Snapshot] = {}  # least recently used first
        self._bytes: dict[int, int] = {}
        self._failures: dict[int, LoadFailure] = {}
        self._loaded: set[int] = set()
        self._given_up: dict[int, dict[tuple[str, str], str]] = {}  # reasons by bundle and modality
        self._on_evict: list[Callable[[int], None]] = []
        self.n_dropped = 0
        """How often `evict` was called."""

    def peek(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot without counting as a use."""
        with self._lock:
            return self._snapshots.get(collection_id)

    def get(self, collection_id: int) -> Snapshot | None:
        """Return a collection's snapshot for a search, and mark it as the most recently used."""
        with self._lock:
            snapshot = self._snapshots.pop(collection_id, None)
            if snapshot is not None:
                self._snapshots[collection_id] = snapshot
            return snapshot

    def snapshots(self) -> dict[int, Snapshot]:
        """Return all of them, by the collections' identity."""
        with self._lock:
            return dict(self._snapshots)

    def put(self, snapshot: Snapshot, n_dropped: int | None = None) -> bool:
        """Replace the collection's snapshot, and evict others for which there is no room; return False, and
        do nothing, if `evict` was called since `n_dropped` was read."""
        return self._put_if(snapshot, lambda: n_dropped in (None, self.n_dropped))

    def replace(self, before: Snapshot, snapshot: Snapshot) -> bool:
        """Put a snapshot of the same collection in the place of another one; return False if that is gone."""
        return self._put_if(snapshot, lambda: self._snapshots.get(before.collection.id) is before)

    def _put_if(self, snapshot: Snapshot, may_put: Callable[[], bool]) -> bool:
        collection_id, n_bytes = snapshot.collection.id, snapshot.estimated_bytes
        evicted = []
        with self._lock:
            if not may_put():
                return False
            # A replacement is no use: a collection that is only written to does not keep others out.
            self._snapshots[collection_id] = snapshot
            self._bytes[collection_id] = n_bytes
            candidates = [key for key in self._snapshots if key != collection_id]
            while candidates and sum(self._bytes.values()) > self._max_bytes:
                evicted.append(self._snapshots.pop(candidates[0]))
                del self._bytes[candidates.pop(0)]
        for other in evicted:
            _logger.info("%s: evicted from memory as least recently searched", other.collection.name)
        return True

    def on_evict(self, take_note: Callable[[int], None]) -> None:
        """Call a function with the identity of each collection that `evict` drops, from then on."""
        self._on_evict.append(take_note)

    def evict(self, collection_id: int) -> None:
        """Drop a collection's snapshot, if there is one."""
        with self._lock:
            self.n_dropped += 1
            self._snapshots.pop(collection_id, None)
            self._bytes.pop(collection_id, None)
        for take_note in self._on_evict:
            take_note(collection_id)

    def forget(self, collection_id: int) -> None:
        """Drop everything about a deleted collection."""
        self.evict(collection_id)
        with self._lock:
            self._failures.pop(collection_id, None)
            self._loaded.discard(collection_id)
            self._given_up.pop(collection_id, None)

    def known_ids(self) -> set[int]:
        """Return the collections of which anything is known."""
        with self._lock:
            return {*self._snapshots, *self._failures, *self._loaded, *self._given_up}

    def record_load(self, collection_id: int) -> None:
        """Record that a collection was brought up to date."""
        with self._lock:
            self._loaded.add(collection_id)
            self._failures.pop(collection_id, None)

    def was_loaded(self, collection_id: int) -> bool:
        """Return whether a collection was loaded once, even if it is no longer in memory."""
        return collection_id in self._loaded

    def record_failure(self, collection_id: int, failure: LoadFailure) -> None:
        """Record that it could not be."""
        with self._lock:
            self._failures[collection_id] = failure

    def last_failure(self, collection_id: int) -> LoadFailure | None:
        """Return why the last load failed; None when it succeeded."""
        return self._failures.get(collection_id)

    def record_given_up(self, snapshot: Snapshot, modality: str, reason: str) -> None:
        """Record that this process searches a gallery of a model exactly from now on, and why."""
        collection_id = snapshot.collection.id
        with self._lock:
            before = self._given_up.get(collection_id, {})
            self._given_up[collection_id] = {**before, (snapshot.model_bundle, modality): reason}

    def given_up(self, snapshot: Snapshot) -> dict[str, str]:
        """Return why galleries of a snapshot's model are searched exactly, by modality."""
        reasons = self._given_up.get(snapshot.collection.id, {})
        return {name: reason for (bundle, name), reason in reasons.items() if bundle == snapshot.model_bundle}
