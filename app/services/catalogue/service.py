"""Collections and their items: what clients write and read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from app.domain.entities import Collection, Counts, Item, ItemFilter, Modality
from app.domain.errors import (
    ContentMissingError,
    InvalidFieldError,
    ItemExistsError,
    ItemNotFoundError,
    UnknownModalityError,
)
from app.domain.names import check_labels, check_modality_name, check_name, is_storable, join_path
from app.domain.ports import BlobStore, Database, EncoderSource, UnitOfWork
from app.domain.sizes import json_bytes
from app.services.catalogue.preparation import NewItem, Preparation
from app.services.storage.garbage_collector import GarbageCollector
from app.services.storage.removal import Removal
from app.services.storage.writing import writing

__all__ = ["CatalogueService", "NewItem", "Page", "Written"]

_ITEMS_PER_FETCH = 250
"""Items of a page that are read before its size is checked again."""
_MOST_READ = 10_000
"""Items that a filtered page looks at, which takes some tenths of a second."""
_NO_FILTER = ItemFilter()


_LONGEST_WAIT_SECONDS = 0.5
"""Longest wait of a write for an import: while it waits, writes to other collections wait, too."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    ids: tuple[str, ...]
    revision: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Page:
    """Items with their positions, and the position after which the next page begins; None if none follow."""

    rows: tuple[tuple[int, Item], ...]
    end: int | None


class CatalogueService:
    """Creates collections and writes items; each call is stored whole or not at all.

    Parameters
    ----------
    database : Database
        The truth.
    blobs : BlobStore
        Pictures.
    encoders : EncoderSource
        Check and encode what comes in.
    garbage_collector : GarbageCollector
        Removes the files of what is deleted.
    removal : Removal
        Deletes collections.
    on_written : callable
        Gets the identity of a collection that items were written to, and its revision.
    max_answer_bytes : int
        Largest page.
    lock_wait_seconds : float
        How long a write may wait for others.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        encoders: EncoderSource,
        garbage_collector: GarbageCollector,
        removal: Removal,
        on_written: Callable[[int, int], None],
        max_answer_bytes: int,
        lock_wait_seconds: float,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._on_written = on_written
        self._garbage_collector = garbage_collector
        self._removal = removal
        self._database = database
        self._wait_seconds = min(lock_wait_seconds, _LONGEST_WAIT_SECONDS)
        self._blobs = blobs
        self._encoders = encoders
        self._preparation = Preparation(blobs, encoders)

    def create(self, name: str, modalities: Sequence[Modality]) -> Collection:
        """Create a collection of two modalities; raises CollectionExistsError, InvalidFieldError."""
        check_name("name", name)
        if len(modalities) != 2 or modalities[0].name == modalities[1].name:
            raise InvalidFieldError("modalities", f"expected two different names, got {len(modalities)}")
        first, second = (self._settle(modality) for modality in modalities)
        with self._database.write() as work:
            return work.collections.add(name, (first, second))

    def _settle(self, modality: Modality) -> Modality:
        check_modality_name("modalities", modality.name)
        try:
            return Modality(modality.name, self._encoders.settle(modality.encoder))
        except InvalidFieldError as error:
            place = join_path(f"modalities.{modality.name}", error.field)
            raise InvalidFieldError(place, error.message) from error

    def collections(self) -> list[Collection]:
        """Return all collections."""
        with self._database.read() as work:
            return work.collections.list()

    def collection(self, name: str) -> tuple[Collection, dict[str, int]]:
        """Return a collection and how many items each modality has."""
        with self._database.read() as work:
            collection = work.collections.get(name)
            return collection, work.items.counts(collection)

    def delete_collection(self, name: str) -> None:
        """Delete a collection with everything in it; of a large one rows are removed later."""
        self._removal.delete(name)

    def add_items(self, name: str, new_items: Sequence[NewItem], replace: bool = False) -> Written:
        """Store items; raises ItemExistsError unless they may be replaced.

        Parameters
        ----------
        name : str
            Collection.
        new_items : sequence of NewItem
            All are checked and encoded before the first is stored.
        replace : bool
            Whether items of the same id are replaced.
        """
        with self._database.read() as work:
            collection = work.collections.get(name)
        places = [f"items.{n}" if new.place is None else new.place for n, new in enumerate(new_items)]
        expected = self._preparation.with_first_items(collection, new_items)
        items = self._preparation.items(expected, places, new_items)
        _check_unique(places, items)
        if not replace:
            with self._database.read() as work:
                _check_free(work, collection, places, items)
        first_places: dict[str, str] = {}
        for place, item in zip(places, items, strict=True):
            first_places.setdefault(item.modality, place)
        stored: list[str] = []
        try:
            # Nothing is left to refuse but what another writer does right now: the files come last.
            items = self._preparation.with_pictures(items, new_items, stored)
            with writing(self._database, collection, self._wait_seconds) as (work, current):
                if not replace:
                    _check_free(work, current, places, items)
                self._preparation.settle(work, current, expected, first_places)
                revision = current.revision + 1
                counts = work.items.put(current, items, revision)
                if not counts.changed:
                    return Written(tuple(item.id for item in items), current.revision, counts)
                work.collections.next_revision(current)
        except Exception:
            self._garbage_collector.sweep_after_delete(stored)
            raise
        self._on_written(current.id, revision)
        return Written(tuple(item.id for item in items), revision, counts)

    def find_unchanged(self, name: str, new_items: Sequence[NewItem]) -> set[int]:
        """Return the numbers of those that are stored already, the same: they need no encoding.

        Items with vectors are left out, since comparing them takes no less than storing them.
        """
        with self._database.read() as work:
            collection = work.collections.get(name)
            ids = [new.id for new in new_items if new.id is not None and is_storable(new.id)]
            stored = work.items.get_many(collection, ids)
        return {
            number
            for number, new in enumerate(new_items)
            if new.id in stored and self._is_stored(stored[new.id], new)
        }

    def _is_stored(self, item: Item, new: NewItem) -> bool:
        content = new.content
        facts = (item.modality, item.text, item.pair_id, item.train, tuple(item.labels))
        if content.vector is not None or facts != (
            new.modality,
            content.text,
            new.pair_id,
            new.train,
            tuple(new.labels),
        ):
            return False
        # As text: 1, 1.0 and true are equal to Python, but not the same to a reader.
        if json.dumps(item.metadata) != json.dumps(dict(new.metadata)):
            return False
        if content.file is None:
            return item.content_hash is None
        if item.content_hash != hashlib.sha256(content.file).hexdigest():
            return False
        try:
            self._blobs.touch(item.content_hash)
        except FileNotFoundError:
            return False  # its file was lost, and is given back by storing it again
        return True

    def change_labels(self, name: str, item_id: str, labels: Sequence[str]) -> Written:
        """Give an item other labels, and leave everything else of it as it is.

        Parameters
        ----------
        name : str
            Collection.
        item_id : str
            Item; raises ItemNotFoundError where there is none.
        labels : sequence of str
            In place of all that it has; raises InvalidFieldError.
        """
        check_labels("labels", labels)
        with self._database.read() as work:
            collection = work.collections.get(name)
        with writing(self._database, collection, self._wait_seconds) as (work, current):
            item = replace_fields(work.items.get(current, item_id), labels=tuple(labels))
            revision = current.revision + 1
            counts = work.items.put(current, [item], revision)
            if not counts.changed:
                return Written((item_id,), current.revision, counts)
            work.collections.next_revision(current)
        self._on_written(current.id, revision)
        return Written((item_id,), revision, counts)

    def item(self, name: str, item_id: str) -> Item:
        """Return one item."""
        with self._database.read() as work:
            return work.items.get(work.collections.get(name), item_id)

    def content(self, name: str, item_id: str) -> tuple[bytes, str]:
        """Return the picture or text of an item and its media type."""
        item = self.item(name, item_id)
        if item.content_hash is not None:
            try:
                return self._blobs.get(item.content_hash), item.content_type or "application/octet-stream"
            except FileNotFoundError as error:
                raise ContentMissingError(name, item_id) from error
        if item.text is not None:
            return item.text.encode(), "text/plain; charset=utf-8"
        raise ItemNotFoundError(name, f"{item_id}/content")

    def delete_item(self, name: str, item_id: str) -> int:
        """Delete an item, and the feedback that names it; return the revision from which on it is gone."""
        with self._database.read() as work:
            collection = work.collections.get(name)
        with writing(self._database, collection, self._wait_seconds) as (work, collection):
            revision = work.collections.next_revision(collection)
            content_hash = work.items.get(collection, item_id).content_hash
            work.items.delete(collection, item_id, revision)
            pictures = work.feedback.delete_of_item(collection, item_id)
        self._on_written(collection.id, revision)
        if content_hash is not None:
            pictures.add(content_hash)
        if pictures:
            self._garbage_collector.sweep_after_delete(sorted(pictures))
        return revision

    def page(
        self,
        name: str,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
        item_filter: ItemFilter = _NO_FILTER,
    ) -> Page:
        """Return items with their positions, in order of creation; of one pair when it is given.

        The page ends before `limit` where its items would be larger than an answer may be, or where many
        were looked at that the filter does not let through.
        """
        rows: list[tuple[int, Item]] = []
        size = n_read = 0
        with self._database.read() as work:
            collection = work.collections.get(name)
            if modality is not None and modality not in collection.modality_names:
                raise UnknownModalityError("modality", modality, collection.modality_names)
            while len(rows) <= limit:
                if n_read >= _MOST_READ:
                    return Page(tuple(rows), after)
                n_rows = (
                    min(limit + 1 - len(rows), _ITEMS_PER_FETCH) if item_filter.is_empty else _ITEMS_PER_FETCH
                )
                batch = work.items.page(collection, modality, after, n_rows, pair_id)
                for position, item in batch:
                    if not item_filter.accepts(item.labels, item.metadata):
                        continue
                    size += json_bytes(item)
                    if rows and size > self._max_answer_bytes:
                        return Page(tuple(rows), rows[-1][0])
                    rows.append((position, item))
                if len(batch) < n_rows:
                    break
                after = batch[-1][0]
                n_read += len(batch)
        return Page(tuple(rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)

    def partners(self, name: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return the first item of the other modality with the same `pair_id`, by the ids of given items."""
        partners = {}
        with self._database.read() as work:
            collection = work.collections.get(name)
            first, second = collection.modality_names
            for item in work.items.get_many(collection, item_ids).values():
                if item.pair_id is not None:
                    other = second if item.modality == first else first
                    for _, partner in work.items.page(collection, other, 0, 1, item.pair_id):
                        partners[item.id] = partner
        return partners


def _check_free(
    work: UnitOfWork, collection: Collection, places: Sequence[str], items: Sequence[Item]
) -> None:
    taken = work.items.existing(collection, [item.id for item in items])
    for place, item in zip(places, items, strict=True):
        if item.id in taken:
            raise ItemExistsError(join_path(place, "id"), item.id)


def _check_unique(places: Sequence[str], items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for place, item in zip(places, items, strict=True):
        if item.id in seen:
            raise ItemExistsError(join_path(place, "id"), item.id)
        seen.add(item.id)
