"""What clients write and read back: collections, their items, and feedback on search results."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from app import answers
from app.answers import Affected, Notice
from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Content, Counts, Feedback, Item, Modality, json_bytes
from app.domain.errors import (
    CollectionNotFoundError,
    InvalidFieldError,
    content_missing,
    item_exists,
    item_not_found,
    unknown_modality,
)
from app.domain.filters import NO_FILTER, ItemFilter
from app.domain.names import check_modality_name, check_name, check_storable, is_storable, join_path
from app.domain.searches import SAMPLE, WHOLE_ITEM, explain_filter
from app.services.catalogue.preparation import ItemChange, NewItem, Preparation
from app.services.storage.collection_lock import lock_collection, put_items, writing
from app.services.storage.pacing import BREATH_SECONDS
from app.services.storage.sweeping import GarbageCollector, Removal

_logger = logging.getLogger(__name__)
__all__ = ["CatalogueService", "ItemChange", "NewItem", "Page", "Written"]

_ITEMS_PER_FETCH = 250  # items of a page that are read before its size is checked again
_PASSED_AT_ONCE = 20
"""Items that SQL may leave out of a filtered page for one that is read, which takes as long."""
_ITEMS_PER_STEP = 500  # of a deletion or change of many: others wait for a transaction for a moment only
_MOST_NAMED = 10  # ids that are named of all that a filter is about
_MOST_READ = 10_000  # items that a filtered page looks at, which takes some tenths of a second


_LONGEST_WAIT_SECONDS = 0.5
"""Longest wait of a write for an import: while it waits, writes to other collections wait, too."""


@dataclass(slots=True)
class Written(answers.Written):
    """What a write did, also to each of its items."""

    counts: Counts


@dataclass(frozen=True, slots=True)
class Page:
    """Items with their positions, and the position after which the next page begins; None if none follow."""

    rows: tuple[tuple[int, Item], ...]
    end: int | None
    notices: tuple[Notice, ...] = ()


@dataclass(eq=False)
class CatalogueService:
    """Creates collections and writes items; each call is stored whole or not at all."""

    _database: Database
    _preparation: Preparation
    _garbage_collector: GarbageCollector
    _removal: Removal
    _max_answer_bytes: int
    _lock_wait_seconds: float

    def create(self, name: str, modalities: Sequence[Modality]) -> Collection:
        """Create a collection of two modalities; raises ConflictError, InvalidFieldError."""
        check_name("name", name)
        if len(modalities) != 2 or modalities[0].name == modalities[1].name:
            raise InvalidFieldError("modalities", f"expected two different names, got {len(modalities)}")
        first, second = (self._settle(modality) for modality in modalities)
        with self._database.write() as work:
            collection = work.collections.add(name, (first, second))
        _logger.info("collection %s was created", name)
        return collection

    def _settle(self, modality: Modality) -> Modality:
        check_modality_name("modalities", modality.name)
        try:
            return Modality(modality.name, self._preparation.encoders.settle(modality.encoder))
        except InvalidFieldError as error:
            place = join_path(f"modalities.{modality.name}", error.field)
            raise InvalidFieldError(place, error.message) from error

    def collections(self) -> list[Collection]:
        """Return all collections."""
        with self._database.read() as work:
            return work.collections.list()

    def collection(self, name: str) -> tuple[Collection, dict[str, int]]:
        """Return a collection and how many items each modality has."""
        with self._database.read_of(name) as (work, collection):
            return collection, work.items.counts(collection)

    def delete_collection(self, name: str) -> None:
        """Delete a collection with everything in it; of a large one rows are removed later."""
        self._removal.delete(name)

    def add_items(
        self, name: str, new_items: Sequence[NewItem], replace: bool = False, key_id: str | None = None
    ) -> Written:
        """Check and encode all items, then store them; raises ConflictError unless they may be replaced.
        `key_id` is as of `writing`."""
        collection = self._database.get_collection(name)
        places = [f"items.{n}" if new.place is None else new.place for n, new in enumerate(new_items)]
        expected, items = self._preparation.items(collection, places, new_items)
        numbers: dict[str, int] = {}
        for number, item in enumerate(items):
            if numbers.setdefault(item.id, number) != number:
                raise item_exists(join_path(places[number], "id"), item.id)
        if not replace:
            with self._database.read() as work:
                _check_free(work, collection, places, items)
        first_places = {item.modality: places[n] for n, item in reversed(list(enumerate(items)))}
        stored: list[str] = []
        try:
            # Nothing is left to refuse but what another writer does right now: the files come last.
            items = self._preparation.with_pictures(items, new_items, stored)
            with self._writing(collection, key_id) as (work, current):
                if not replace:
                    _check_free(work, current, places, items)
                self._preparation.settle(work, current, expected, first_places)
                counts, revision = put_items(work, current, items)
        except Exception:
            self._garbage_collector.sweep_after_delete(stored)
            raise
        return Written([item.id for item in items], revision, counts)

    def find_unchanged(self, name: str, new_items: Sequence[NewItem]) -> set[int]:
        """Return the numbers of those that are stored already, the same: they need no encoding.
        Items with vectors are left out, since comparing them takes no less than storing them."""
        with self._database.read_of(name) as (work, collection):
            ids = [new.id for new in new_items if new.id is not None and is_storable(new.id)]
            stored = work.items.get_many(collection, ids)
        return {
            number
            for number, new in enumerate(new_items)
            if new.id in stored and self._is_stored(stored[new.id], new)
        }

    def _is_stored(self, item: Item, new: NewItem) -> bool:
        content = new.content
        before = (item.modality, item.text, item.pair_id, item.train, tuple(item.labels))
        now = (new.modality, content.text, new.pair_id, new.train, tuple(new.labels))
        if content.vector is not None or before != now:
            return False
        # As text: 1, 1.0 and true are equal to Python, but not the same to a reader.
        if json.dumps(item.metadata) != json.dumps(dict(new.metadata)):
            return False
        if content.file is None:
            return item.content_hash is None
        if item.content_hash != hashlib.sha256(content.file).hexdigest():
            return False
        try:
            self._preparation.blobs.touch(item.content_hash)
        except FileNotFoundError:
            return False  # its file was lost, and is given back by storing it again
        return True

    def change_labels(
        self, name: str, item_id: str, labels: Sequence[str], key_id: str | None = None
    ) -> Written:
        """Give an item other labels in place of all that it has; everything else stays.
        `key_id` is as of `writing`. Raises NotFoundError and InvalidFieldError."""
        written, missing = self.change_items(name, [ItemChange((item_id,), tuple(labels))], key_id)
        if missing:
            raise item_not_found(name, item_id)
        return written

    def change_items(
        self,
        name: str,
        changes: Sequence[ItemChange],
        key_id: str | None = None,
        item_filter: ItemFilter = NO_FILTER,
    ) -> tuple[Written, list[ItemChange]]:
        """Change labels and metadata of stored items that pass a filter, all or none; return changes without
        an item, too. Raises InvalidFieldError for what cannot be stored. `key_id` is as of `writing`."""
        ids = list(dict.fromkeys(name for change in changes for name in change.ids if is_storable(name)))
        collection = self._database.get_collection(name)
        with self._writing(collection, key_id) as (work, current):
            stored = _passing(ids, work.items.get_many(current, ids, WHOLE_ITEM), item_filter)
            missing = [change for change in changes if stored.keys().isdisjoint(change.ids)]
            for change in changes:
                stored |= {name: change.apply(stored[name]) for name in change.ids if name in stored}
            counts, revision = put_items(work, current, list(stored.values()))
        return Written(list(stored), revision, counts), missing

    def _writing(
        self, collection: Collection, key_id: str | None
    ) -> AbstractContextManager[tuple[UnitOfWork, Collection]]:
        wait_seconds = min(self._lock_wait_seconds, _LONGEST_WAIT_SECONDS)
        return writing(self._database, collection, wait_seconds, key_id=key_id)

    def last_position(self, name: str) -> int:
        """Return the position after which items stand that are created from now on."""
        with self._database.read() as work:
            return work.items.last_position(work.collections.get(name))

    def count_copies(self, name: str, after: int) -> int:
        """Return how many items beyond a position have the content of one of another id that was there."""
        with self._database.read() as work:
            return work.items.count_copies(work.collections.get(name), after)

    def item(self, name: str, item_id: str) -> Item:
        """Return one item."""
        with self._database.read() as work:
            return work.items.get(work.collections.get(name), item_id)

    def content(
        self, name: str, item_id: str, is_shown: Callable[[str], bool] = lambda media_type: True
    ) -> tuple[bytes, str]:
        """Return the picture, sound or text of an item and its media type.
        A picture of a type that is not shown, by the client or by all browsers, is returned as a JPEG."""
        item = self.item(name, item_id)
        if item.content_hash is not None:
            try:
                content = self._preparation.blobs.get(item.content_hash)
            except FileNotFoundError as error:
                raise content_missing(name, item_id) from error
            media_type = item.content_type or "application/octet-stream"
            shown = (
                None if is_shown(media_type) else self._preparation.encoders.rendition(content, media_type)
            )
            return (content, media_type) if shown is None else (shown, "image/jpeg")
        if item.text is not None:
            return item.text.encode(), "text/plain; charset=utf-8"
        raise item_not_found(name, f"{item_id}/content")

    def delete_item(self, name: str, item_id: str, key_id: str | None = None) -> Written:
        """Delete an item, and the feedback that names it. `key_id` is as of `writing`.
        Raises NotFoundError."""
        written = self.delete_items(name, [item_id], key_id)
        if not written.ids:
            raise item_not_found(name, item_id)
        return written

    def delete_items(
        self,
        name: str,
        item_ids: Sequence[str],
        key_id: str | None = None,
        item_filter: ItemFilter = NO_FILTER,
    ) -> Written:
        """Delete those of some items that are there and pass a filter, and the feedback that names them, all
        or none. `key_id` is as of `writing`."""
        storable = [item_id for item_id in item_ids if is_storable(item_id)]
        collection = self._database.get_collection(name)
        with self._writing(collection, key_id) as (work, collection):
            ids = list(_passing(storable, work.items.get_many(collection, storable), item_filter))
            if not ids:
                return Written([], collection.revision, Counts())
            revision = work.collections.next_revision(collection)
            files = work.items.delete(collection, ids, revision)
            files |= work.feedback.delete_of_items(collection, ids)
        _logger.info(
            "%s: %s deleted", name, f"item {ids[0]} was" if len(ids) == 1 else f"{len(ids)} items were"
        )
        if files:
            self._garbage_collector.sweep_after_delete(sorted(files))
        return Written(ids, revision, Counts(updated=len(ids)))

    def delete_passing(
        self,
        name: str,
        item_filter: ItemFilter,
        is_dry: bool = False,
        key_id: str | None = None,
        is_kept: Callable[[str], bool] = lambda _: False,
        last: int | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Affected:
        """Delete the items that pass a filter and are not kept, by their ids, up to a position (None: all of
        now); or only look which. What is done, some hundred at a time, stays if it fails or `is_stopped`."""
        delete = partial(self.delete_items, name, key_id=key_id, item_filter=item_filter)
        write = None if is_dry else delete
        return self._affect(name, item_filter, write, lambda _: True, is_stopped, is_kept, last)

    def change_passing(
        self,
        name: str,
        item_filter: ItemFilter,
        change: ItemChange,
        is_dry: bool = False,
        key_id: str | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Affected:
        """Change the items that pass a filter in the same way until it `is_stopped`; raises InvalidFieldError
        before anything is done where one of them cannot be stored so."""

        def differs(item: Item) -> bool:
            try:
                changed = change.apply(item)
            except InvalidFieldError as error:
                raise InvalidFieldError(error.field, f"{error.message} (item {item.id!r})") from error
            before, after = (
                json.dumps([one.labels, one.metadata], sort_keys=True) for one in (item, changed)
            )
            return before != after

        def write(ids: Sequence[str]) -> Written:
            return self.change_items(name, [replace(change, ids=tuple(ids))], key_id, item_filter)[0]

        affected = self._affect(name, item_filter, None, differs, is_stopped)
        return affected if is_dry else self._affect(name, item_filter, write, differs, is_stopped)

    def _affect(
        self,
        name: str,
        item_filter: ItemFilter,
        write: Callable[[Sequence[str]], Written] | None,
        differs: Callable[[Item], bool],
        is_stopped: Callable[[], bool],
        is_kept: Callable[[str], bool] = lambda _: False,
        last: int | None = None,
    ) -> Affected:
        """Write what passes a filter step by step, or count what would be changed."""
        collection = self._database.get_collection(name)
        matched = changed = 0
        revision = collection.revision
        named: list[str] = []
        for passing in self._passing_items(collection, item_filter, last):
            if is_stopped():
                break
            items = [item for item in passing if not is_kept(item.id)]
            ids = [item.id for item in items]
            if write is None:
                matched, changed = matched + len(ids), changed + sum(map(differs, items))
            elif ids:
                written = write(ids)
                ids, revision = written.ids, written.revision
                matched, changed = matched + len(ids), changed + written.counts.changed
                time.sleep(BREATH_SECONDS)
            named += ids[: _MOST_NAMED - len(named)]
        return Affected(matched, changed, named, revision)

    def originals(
        self, name: str, item_filter: ItemFilter = NO_FILTER
    ) -> Iterator[tuple[Item, Content | None] | None]:
        """Return the items that pass a filter, in order of creation, with their text, file or own features if
        these are not lost; None where none passed for a while. Raises CollectionNotFoundError at once."""
        collection = self._database.get_collection(name)
        return self._originals(collection, item_filter)

    def _originals(
        self, collection: Collection, item_filter: ItemFilter
    ) -> Iterator[tuple[Item, Content | None] | None]:
        for items in self._passing_items(collection, item_filter):
            if not items:
                yield None
            own = [item.id for item in items if item.text is None and item.content_hash is None]
            with self._database.read() as work:
                stored = {item.id: item for item in items}
                stored |= work.items.get_many(collection, own, WHOLE_ITEM)
            for item in stored.values():
                current: Item | None = item
                content = self._original_of(item)
                if content is None:  # its file is lost, or it was deleted or replaced meanwhile
                    with self._database.read() as work:
                        current = work.items.get_many(collection, [item.id], WHOLE_ITEM).get(item.id)
                    content = None if current is None else self._original_of(current)
                if current is not None:
                    yield current, content

    def _original_of(self, item: Item) -> Content | None:
        if item.text is not None:
            return Content(text=item.text)
        if item.content_hash is None:
            return None if item.features is None else Content(vector=item.features.tolist())
        try:
            file = self._preparation.blobs.get(item.content_hash)
        except FileNotFoundError:
            return None
        is_sound = (item.content_type or "").startswith("audio/")
        return Content(sound=file) if is_sound else Content(picture=file)

    def _passing_items(
        self, collection: Collection, item_filter: ItemFilter, last: int | None = None
    ) -> Iterator[list[Item]]:
        """Yield the items that pass a filter, some or none at a time, in order of creation: each once, as it
        is when it is read, but none beyond a position, by default none that is created from now on."""
        if last is None:
            with self._database.read() as work:
                last = work.items.last_position(collection)
        after: int | None = 0
        while after is not None:
            page = self.page(collection.name, None, after, _ITEMS_PER_STEP, item_filter=item_filter)
            with self._database.read() as work:
                if work.collections.get(collection.name).id != collection.id:
                    raise CollectionNotFoundError(collection.name)
            yield [item for position, item in page.rows if position <= last]
            after = page.end if page.end is not None and page.end < last else None

    def page(
        self,
        name: str,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
        item_filter: ItemFilter = NO_FILTER,
        ids: Sequence[str] = (),
    ) -> Page:
        """Return items with their positions, in order of creation. The page ends before `limit` where its
        items would be larger than an answer may be, or where many did not pass the filter."""
        rows: list[tuple[int, Item]] = []
        size = n_read = 0
        is_first = not after
        with self._database.read_of(name) as (work, collection):
            if modality is not None and modality not in collection.modality_names:
                raise unknown_modality("modality", modality, collection.modality_names)
            if ids:
                items = work.items.get_many(collection, ids, WHOLE_ITEM).values()
                named = (
                    (0, item)
                    for item in items
                    if modality in (None, item.modality)
                    and pair_id in (None, item.pair_id)
                    and item_filter.accepts(item)
                )
                return Page(tuple(named), None)
            most_read = _MOST_READ // max(1, len(item_filter.conditions) // 4)
            while len(rows) <= limit and n_read < most_read:
                n_rows, until = min(limit + 1 - len(rows), _ITEMS_PER_FETCH), None
                if not item_filter.is_empty and pair_id is None:
                    n_rows, until = _ITEMS_PER_FETCH, after + _ITEMS_PER_FETCH * _PASSED_AT_ONCE
                batch = work.items.page(collection, modality, after, n_rows, pair_id, item_filter, until)
                for position, item in batch:
                    if not item_filter.accepts(item):
                        continue
                    size += json_bytes(item)
                    if rows and size > self._max_answer_bytes:
                        return Page(tuple(rows), rows[-1][0])
                    rows.append((position, item))
                n_read += len(batch) if until is None else len(batch) + _ITEMS_PER_FETCH
                if len(batch) == n_rows or len(rows) > limit:
                    after = batch[-1][0]
                    continue
                rest = [] if until is None else work.items.page(collection, modality, until, 1, pair_id)
                if not rest:
                    after = 0
                    break
                after = rest[0][0] - 1
            end = rows[limit - 1][0] if len(rows) > limit else after or None
            if not is_first or item_filter.is_empty or rows[limit:] or (rows and not item_filter.excluded):
                return Page(tuple(rows[:limit]), end)
            sample = [item for _, item in work.items.page(collection, modality, 0, SAMPLE, pair_id)]
        return Page(tuple(rows[:limit]), end, _explain(item_filter, sample, bool(rows)))

    def partners(self, name: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return the first item of the other modality with the same `pair_id`, by the ids of given items."""
        partners = {}
        with self._database.read_of(name) as (work, collection):
            first, second = collection.modality_names
            for item in work.items.get_many(collection, item_ids).values():
                if item.pair_id is not None:
                    other = second if item.modality == first else first
                    for _, partner in work.items.page(collection, other, 0, 1, item.pair_id):
                        partners[item.id] = partner
        return partners


def _passing(ids: Sequence[str], items: Mapping[str, Item], item_filter: ItemFilter) -> dict[str, Item]:
    return {name: items[name] for name in ids if name in items and item_filter.accepts(items[name])}


def _explain(item_filter: ItemFilter, sample: Sequence[Item], passes: bool) -> tuple[Notice, ...]:
    """Return why the first page has nothing, or all that it should not, from the first items."""

    def count(condition: ItemFilter) -> int:
        return sum(map(condition.accepts, sample))

    notices = explain_filter(item_filter, sample, count, passes)
    place = "" if len(sample) < SAMPLE else f"of the first {SAMPLE} items, "
    return tuple(replace(notice, message=place + notice.message) for notice in notices)


def _check_free(
    work: UnitOfWork, collection: Collection, places: Sequence[str], items: Sequence[Item]
) -> None:
    taken = work.items.existing(collection, [item.id for item in items])
    for place, item in zip(places, items, strict=True):
        if item.id in taken:
            raise item_exists(join_path(place, "id"), item.id)


# A query by content is stored like an item, since an encoder that is fitted with the model has to encode it
# again: a text, a vector, or a picture under the hash of its content. Feedback changes no gallery, so the
# collection's revision stays. It goes with an item that it names, and with the collection; beyond a bound the
# oldest goes.


_ROWS_PER_FETCH = 250  # feedback of a page that is read before its size is checked again


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """Feedback as a client sends it; the query is either content or the id of an item."""

    source: str
    target: str
    item_id: str
    is_relevant: bool
    content: Content | None = None
    query_item_id: str | None = None
    place: str = ""  # where it stands in what the client sent, such as ``feedback.3``


@dataclass(eq=False)
class FeedbackService:
    """Stores feedback, each call whole or not at all, and lists and deletes it; beyond `max_entries` of a
    collection the oldest goes."""

    _database: Database
    _preparation: Preparation
    _garbage_collector: GarbageCollector
    _max_entries: int
    _max_answer_bytes: int

    def add(self, name: str, new: Sequence[NewFeedback]) -> tuple[int, ...]:
        """Check and encode feedback, then store all of it; return its ids, in its order.
        Raises InvalidFieldError, NotFoundError and ContentTooLargeError."""
        collection = self._database.get_collection(name)
        for entry, field in itertools.product(new, ("source", "target")):
            if (modality := getattr(entry, field)) not in collection.modality_names:
                raise unknown_modality(join_path(entry.place, field), modality, collection.modality_names)
        queries = [NewItem(entry.source, entry.content) for entry in new if entry.content is not None]
        places = [join_path(entry.place, "query") for entry in new if entry.content is not None]
        expected, items = self._preparation.items(collection, places, queries, lambda _: "")
        with self._database.read() as work:
            _check_items(work, collection, new)
        first_places = {query.modality: places[n] for n, query in reversed(list(enumerate(queries)))}
        stored: list[str] = []
        try:
            # Nothing is left to refuse but what another writer does right now: the files come last.
            items = self._preparation.with_pictures(items, queries, stored)
            with self._database.write() as work:
                current = lock_collection(work, collection)
                _check_items(work, current, new)
                self._preparation.settle(work, current, expected, first_places)
                ids = tuple(work.feedback.add(current, _entries(new, items)))
                dropped = work.feedback.keep_newest(current, self._max_entries)
        except Exception:
            self._garbage_collector.sweep_after_delete(stored)
            raise
        if dropped:
            self._garbage_collector.sweep_after_delete(sorted(dropped))
        return ids

    def page(self, name: str, after: int, limit: int) -> tuple[list[Feedback], bool]:
        """Return feedback with an id above `after`, in order of ids, without features, and whether none
        follows; it ends before `limit` where its texts would be larger than an answer may be."""
        rows: list[Feedback] = []
        size = 0
        with self._database.read_of(name) as (work, collection):
            while len(rows) <= limit:
                n_rows = min(limit + 1 - len(rows), _ROWS_PER_FETCH)
                batch = work.feedback.page(collection, after, n_rows)
                for row in batch:
                    size += 0 if row.query is None else json_bytes(row.query)
                    if rows and size > self._max_answer_bytes:
                        return rows, False
                    rows.append(row)
                if len(batch) < n_rows:
                    return rows, True
                after = rows[-1].id
        return rows[:limit], False

    def delete(self, name: str, feedback_id: int) -> None:
        """Delete one; raises NotFoundError."""
        collection = self._database.get_collection(name)
        with self._database.write() as work:
            pictures = work.feedback.delete(lock_collection(work, collection), feedback_id)
        if pictures:
            self._garbage_collector.sweep_after_delete(sorted(pictures))


def _entries(new: Sequence[NewFeedback], items: Sequence[Item]) -> list[Feedback]:
    """Return what is stored; `items` are the queries that have content, in order."""
    queries = iter(items)
    return [
        Feedback(
            entry.source,
            entry.target,
            entry.item_id,
            entry.is_relevant,
            entry.query_item_id,
            None if entry.content is None else next(queries),
        )
        for entry in new
    ]


def _check_items(work: UnitOfWork, collection: Collection, new: Sequence[NewFeedback]) -> None:
    """Check that every item that is named exists in the modality that it is named for."""
    named = [use for entry in new for use in _uses(entry)]
    for place, item_id, _ in named:
        check_storable(place, item_id)
    items = work.items.get_many(collection, sorted({item_id for _, item_id, _ in named}), ())
    for place, item_id, modality in named:
        if item_id not in items:
            raise item_not_found(collection.name, item_id, place)
        if items[item_id].modality != modality:
            actual = items[item_id].modality
            raise InvalidFieldError(place, f"item {item_id!r} is of modality {actual!r}, not {modality!r}")


def _uses(entry: NewFeedback) -> list[tuple[str, str, str]]:
    """Return place, id and modality of every item that feedback names."""
    uses = [(join_path(entry.place, "item_id"), entry.item_id, entry.target)]
    if entry.query_item_id is not None:
        uses.append((join_path(entry.place, "query.item_id"), entry.query_item_id, entry.source))
    return uses
