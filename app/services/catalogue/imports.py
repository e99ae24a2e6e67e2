"""Importing a stream of items of any length: checked as it comes in, stored whole or not at all."""
# What comes in is checked and encoded batch by batch and put aside on disk, which blocks no other writer.
# When the last line is in, what is new or differs is written and what is there already is left alone, so that
# an import may be repeated after whatever went wrong. Items without an id get one that follows from what they
# hold: they too are the same items when the import is repeated.
#
# A short import is written in one transaction. A longer one would keep everybody from writing for as long as
# it takes, on SQLite to all collections; it is written in parts that no reader sees, each in a transaction of
# a bounded number of rows and bytes, with pauses that let others in, and one more transaction makes all of it
# visible (see `app.db.imports`). Meanwhile other writers to the same collection have to try again. Nothing of
# an import that is cut off is ever seen, and what it wrote is removed by the next writer, or by a worker.
# While searches are answered, an import sleeps between its steps for as long as it computed.

from __future__ import annotations

import errno
import io
import itertools
import json
import logging
import os
import secrets
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from app.answers import Imported
from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Counts, Item, RunningImport, vector_bytes, vector_of
from app.domain.errors import (
    ConflictError,
    DatabaseUnavailableError,
    InvalidFieldError,
    ServiceError,
    content_missing,
    item_not_found,
)
from app.domain.searches import WHOLE_ITEM
from app.services.catalogue.preparation import ItemChange, NewItem, Preparation, content_id
from app.services.storage.collection_lock import clean_up, lock_collection, put_items, writing
from app.services.storage.pacing import BREATH_SECONDS, Pacer, Round, in_batches

_ITEMS_PER_BATCH = 1000
"""Items that are encoded together: enough to use all cores, few enough to fit into memory."""
_LINES_PER_STEP = 50  # that are read without a pause: a few milliseconds' work
_ITEMS_PER_PART = 500
_BYTES_PER_PART = 2 << 20
"""Bounds of a transaction of a long import, in items and bytes: others wait for it for a moment only."""
_LONGEST_LEASE_SECONDS = 10.0
"""Bound on how long the leftovers of a process that died keep writers out of a collection."""
_BUSY_PAUSE_SECONDS = 0.1
"""Pause before a write is tried again while the database is busy: short beside the wait for a lock."""
_LONGEST_BUSY_SECONDS = 30.0
"""An import is given up after this time without the database; its client waits that long."""
_LONGEST_CLEANING_SECONDS = 30.0  # of an import, for what it replaced; the rest is left to a worker
_LONGEST_DISCARD_SECONDS = 5.0
"""For taking pictures away before a refusal is answered; the rest is left to the sweep."""
_IN_MEMORY = 4 << 20  # bytes of items kept in memory before a file is created: a small import needs none
_CACHE_KIB = 8 << 10  # memory for the table of ids, in KiB, before it spills to disk
_HEAD = struct.Struct("<QHIi")
"""Line number; sizes in bytes of the id, of the other fields, and of the features (or `_NO_FEATURES`)."""
_FACTS = (
    *("modality", "text", "content_hash", "content_type", "labels", "pair_id", "metadata", "train"),
    "encoding",
)
"""What is stored of an item beside its id and its features."""
_NO_FEATURES = -1  # in place of a size: the item has no features
_NO_MODALITY = ""
"""Of a change of a stored item that is put aside: what it changes is read again when it is stored."""
_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


def _resolve(work: UnitOfWork, collection: Collection, items: Sequence[Item]) -> Sequence[Item]:
    """Return items as they are to be stored: those of no modality are changes of what is stored."""
    changed = [item.id for item in items if item.modality == _NO_MODALITY]
    if not changed:
        return items
    stored = work.items.get_many(collection, changed, WHOLE_ITEM)
    gone = next((item_id for item_id in changed if item_id not in stored), None)
    if gone is not None:
        raise item_not_found(collection.name, gone)
    return [
        ItemChange((item.id,), **item.metadata).apply(stored[item.id])
        if item.modality == _NO_MODALITY
        else item
        for item in items
    ]


class ItemSpool:
    """Items in an unnamed file, and their ids in a temporary table: both disappear with the process. For one
    thread."""

    # Memory is bounded for any number of items; the file is created in the folder once they no longer fit.

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._items = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(folder))  # noqa: SIM115
        # SQLite's unnamed database is a temporary one, which spills to disk when its cache is full.
        self._ids = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE ids (id TEXT PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID",
        ):
            self._ids.execute(statement)
        self.size = 0  # number of items

    def add(self, entries: Sequence[tuple[int, Item]]) -> tuple[int, int] | None:
        """Append items, each with its line number; the index of the first whose id was added before and that
        item's line, or None. Raises OSError when the disk is full; only `close` may be called after that."""
        pairs = [(item.id, line) for line, item in entries]
        added = self._add_ids(pairs)
        if added != len(pairs):
            return self._first_repeated(pairs)
        for line, item in entries:
            item_id, facts = item.id.encode(), json.dumps([getattr(item, name) for name in _FACTS]).encode()
            features = b"" if item.features is None else vector_bytes(item.features)
            length = _NO_FEATURES if item.features is None else len(features)
            self._items.write(_HEAD.pack(line, len(item_id), len(facts), length) + item_id + facts + features)
        self.size += len(entries)
        return None

    def batches(self, size: int, max_bytes: int | None = None) -> Iterator[list[tuple[int, Item]]]:
        """Yield everything added, in order, at most `size` items at a time. A batch ends with the item that
        brings it to `max_bytes`, when these are given."""
        self._items.seek(0)
        entries = (self._next() for _ in range(self.size))
        weigh = None if max_bytes is None else itemgetter(1)
        for batch in in_batches(entries, size, weigh, max_bytes or 0):
            yield [entry for entry, _ in batch]

    def ids(self) -> Iterator[str]:
        """Yield the id of everything added, in order."""
        self._items.seek(0)
        for _ in range(self.size):
            _, id_length, facts_length, length = _HEAD.unpack(self._items.read(_HEAD.size))
            yield self._items.read(id_length).decode()
            self._items.seek(facts_length + max(length, 0), io.SEEK_CUR)

    def close(self) -> None:
        """Remove everything."""
        self._ids.close()
        try:
            self._items.close()
        except OSError as error:
            # The data that could not be flushed is discarded anyway.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _add_ids(self, pairs: Sequence[tuple[str, int]]) -> int:
        """Add ids with their lines; return how many are new."""
        try:
            self._ids.execute("BEGIN")
            added = self._ids.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?)", pairs).rowcount
            self._ids.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        return added

    def _first_repeated(self, pairs: Sequence[tuple[str, int]]) -> tuple[int, int]:
        for place, (item_id, line) in enumerate(pairs):
            (earlier,) = self._ids.execute("SELECT line FROM ids WHERE id = ?", (item_id,)).fetchone()
            if earlier != line:
                return place, earlier
        raise AssertionError("a row was ignored although no id is repeated")

    def _next(self) -> tuple[tuple[int, Item], int]:
        """Return the next entry and its size in the file, in bytes."""
        line, id_length, facts_length, length = _HEAD.unpack(self._items.read(_HEAD.size))
        item_id = self._items.read(id_length).decode()
        facts = dict(zip(_FACTS, json.loads(self._items.read(facts_length).decode()), strict=True))
        features = None if length == _NO_FEATURES else vector_of(self._items.read(length))
        item = Item(item_id, features=features, **facts | {"labels": tuple(facts["labels"])})
        return (line, item), _HEAD.size + id_length + facts_length + max(length, 0)


@dataclass(eq=False)
class ImportService:
    """Starts imports, and removes what interrupted ones left, whose process is silent for `lease_seconds`."""

    database: Database
    preparation: Preparation
    make_spool: Callable[[], ItemSpool]
    is_searched: Callable[[], bool]
    # removes pictures, by their hashes, that no item refers to; returns whether it could
    discard: Callable[[Sequence[str]], bool]
    lock_wait_seconds: float
    lease_seconds: float

    def __post_init__(self) -> None:
        self.lease_seconds = min(self.lease_seconds, _LONGEST_LEASE_SECONDS)

    def clean_up(self, time_left: Round) -> bool:
        """Remove what imports that were cut off have left; return whether nothing is left."""
        with self.database.read() as work:
            import_ids = work.imports.leftover_ids()
        for import_id in import_ids:
            if time_left.is_over or not clean_up(self.database, import_id, time_left):
                return False
        return True

    def begin(self, name: str, key_id: str | None = None) -> Import:
        """Begin an import into a collection; raises CollectionNotFoundError. `key_id` is as of `writing`."""
        collection = self.database.get_collection(name)
        return Import(self, self.make_spool(), collection, key_id)


@dataclass(eq=False)
class Import:
    """One import: `add` as lines come in, then `store`; `close`, which closes the spool, in any case."""

    _service: ImportService
    spool: ItemSpool
    _collection: Collection
    _key_id: str | None
    _first_lines: dict[str, int] = field(default_factory=dict, init=False)
    _has_pictures: bool = field(default=False, init=False)
    # pictures of items that are not in the spool yet
    _unspooled: list[str] = field(default_factory=list, init=False)
    _is_stored: bool = field(default=False, init=False)

    def add(self, entries: Iterable[tuple[int, NewItem | ItemChange]]) -> None:
        """Check, encode and put aside items, each with its line; raises ServiceError for the first bad one,
        also one of `entries` themselves. Pauses between its steps while searches are answered."""
        lines, pause = iter(entries), self._pacer()
        fault: ServiceError | None = None
        while fault is None:
            batch: list[tuple[int, NewItem | ItemChange]] = []
            try:
                for entry in itertools.islice(lines, _ITEMS_PER_BATCH):
                    batch.append(entry)
                    if len(batch) % _LINES_PER_STEP == 0:
                        pause()
            except ServiceError as error:
                fault = error  # an earlier line may have one that only shows when it is added
            if batch:
                self._add(batch)
                pause()
            elif fault is None:
                return
        raise fault

    def store(self) -> Imported:
        """Store everything; others see all of it from one moment on. The ids stay in the spool."""
        # Raises InvalidFieldError if that is nothing, UnavailableError, and ServiceError if what was checked
        # no longer fits: a dimension or a picture, changed by others meanwhile.
        with self._service.database.read() as work:
            last = work.items.last_position(self._collection)
        if not self.spool.size:
            raise InvalidFieldError("body", "expected at least one line with an item")
        if self._has_pictures:
            for line, item in itertools.chain.from_iterable(self.spool.batches(_ITEMS_PER_BATCH)):
                if item.content_hash is None:
                    continue
                try:  # it may have waited for longer than unused files are kept
                    self._service.preparation.blobs.touch(item.content_hash)
                except FileNotFoundError as error:
                    raise content_missing(self._collection.name, item.id).at_line(line) from error
        batches = self.spool.batches(_ITEMS_PER_PART, _BYTES_PER_PART)
        first = [item for _, item in next(batches)]
        if len(first) == self.spool.size:
            service = self._service
            seconds, key_id = service.lock_wait_seconds, self._key_id
            with writing(service.database, self._collection, seconds, key_id=key_id) as (work, current):
                self._settle(work, current)
                counts, revision = put_items(work, current, _resolve(work, current, first))
        else:
            rest = ([item for _, item in batch] for batch in batches)
            counts, revision = self._store_in_parts(itertools.chain([first], rest))
        self._is_stored = True
        copies = 0
        if self._has_pictures and counts.created and last:
            with self._service.database.read() as work:
                copies = work.items.count_copies(self._collection, last, ("content_hash",))
        return Imported(revision, counts.created, counts.updated, counts.unchanged, copies, [])

    def close(self) -> None:
        """Remove the spool, and the pictures of an import that was not stored; what fails is only logged: an
        import that is refused is refused for another reason."""
        try:
            if self._has_pictures and not self._is_stored:
                self._discard_pictures()
        except OSError as error:
            _logger.warning("%s: pictures stay until the next sweep: %s", self._collection.name, error)
        try:
            self.spool.close()
        except OSError as error:
            _logger.warning("%s: what an import put aside was not removed: %s", self._collection.name, error)

    def _discard_pictures(self) -> None:
        """Take pictures away for a few seconds, or until that is not possible."""
        time_left = Round(_LONGEST_DISCARD_SECONDS)
        spooled = (
            [item.content_hash for _, item in batch if item.content_hash is not None]
            for batch in self.spool.batches(_ITEMS_PER_BATCH)
        )
        for content_hashes in itertools.chain([self._unspooled], spooled):
            if time_left.is_over or not self._service.discard(content_hashes):
                _logger.warning("%s: pictures stay until the next sweep", self._collection.name)
                return

    def _store_in_parts(self, batches: Iterable[Sequence[Item]]) -> tuple[Counts, int]:
        import_id = secrets.token_hex(8)
        current, running = self._patiently(lambda: self._begin(import_id))
        try:
            counts = self._write_parts(current, running, batches)
            self._patiently(lambda: self._publish(running, counts))
        except BaseException:
            self._give_up(running)
            raise
        if not counts.changed:
            self._give_up(running)
            return counts, current.revision
        self._clean_up(running)
        return counts, running.revision

    def _begin(self, import_id: str) -> tuple[Collection, RunningImport]:
        service, seconds = self._service, self._service.lock_wait_seconds
        with writing(service.database, self._collection, seconds, import_id) as (work, current):
            self._settle(None, current)
            return current, work.imports.begin(current, import_id, self.spool.size, service.lease_seconds)

    def _write_parts(
        self, current: Collection, running: RunningImport, batches: Iterable[Sequence[Item]]
    ) -> Counts:
        counts = Counts()
        renewed_at, pause = time.monotonic(), self._pacer()
        for items in batches:
            is_due = time.monotonic() - renewed_at >= self._service.lease_seconds / 5.0
            part = self._write_part(current, running, items, is_due)
            counts += part
            if part.changed or is_due:
                renewed_at = time.monotonic()
                time.sleep(BREATH_SECONDS)
            pause()
        return counts

    def _write_part(
        self, current: Collection, running: RunningImport, items: Sequence[Item], is_due: bool
    ) -> Counts:
        """Write what differs; where nothing does, only renew the lease if that is due."""
        results: list[Counts] = []

        def write() -> None:
            # Compared outside of the transaction that writes: it takes longer than the writing.
            with self._service.database.read() as work:
                planned = work.items.plan(current, _resolve(work, current, items), running.revision)
            results.append(planned.counts)
            if planned.counts.changed or is_due:
                with self._service.database.write() as work:
                    work.imports.write(running, planned, self._service.lease_seconds)

        self._patiently(write)
        # A later attempt finds nothing to do if the first was written and only the answer was lost.
        return results[0]

    def _publish(self, running: RunningImport, counts: Counts) -> None:
        """Let readers see what changed; nothing is done if an attempt did so whose answer was lost."""
        with self._service.database.write() as work:
            if work.imports.renew(running, self._service.lease_seconds):
                return
        with self._service.database.write() as work:
            current = lock_collection(work, self._collection)
            if counts.changed:
                work.imports.publish(running)
                self._settle(work, current)
            if self._key_id is not None:
                work.collections.note_write(current, self._key_id)

    def _patiently(self, act: Callable[[], _Result]) -> _Result:
        """Return what `act` returns, which is tried again while the database is busy or does not answer."""
        began = time.monotonic()
        while True:
            try:
                return act()
            except DatabaseUnavailableError as error:
                # Other codes are of what does not pass in a moment, as a full disk.
                is_busy = error.code == "database-unavailable"
                if not is_busy or time.monotonic() - began > _LONGEST_BUSY_SECONDS:
                    raise
            _logger.info("%s: an import waits for the database", self._collection.name)
            time.sleep(_BUSY_PAUSE_SECONDS)

    def _give_up(self, running: RunningImport) -> None:
        """Remove what was written; what cannot be removed now is removed by the next writer."""
        try:
            with self._service.database.write() as work:
                work.imports.abandon(running)
        except ServiceError as error:
            _logger.warning("%s: an import is not removed yet: %s", self._collection.name, error)
            return
        self._clean_up(running)

    def _clean_up(self, running: RunningImport) -> None:
        try:
            clean_up(self._service.database, running.id, Round(_LONGEST_CLEANING_SECONDS))
        except ServiceError as error:
            _logger.warning("%s: leftovers of an import stay for now: %s", self._collection.name, error)

    def _settle(self, work: UnitOfWork | None, current: Collection) -> None:
        """Store the options that items were encoded with; without a transaction, see whether they fit."""
        preparation, places = self._service.preparation, dict.fromkeys(self._first_lines, "")
        try:
            preparation.settle(work, current, self._collection, places)
        except InvalidFieldError as error:
            error.line = min(self._first_lines.values(), default=1)
            raise

    def _pacer(self) -> Pacer:
        return Pacer(lambda: True, lambda: not self._service.is_searched())

    def _add(self, entries: Sequence[tuple[int, NewItem | ItemChange]]) -> None:
        new_entries = [(line, entry) for line, entry in entries if isinstance(entry, NewItem)]
        new_items = [new for _, new in new_entries]
        for line, new in new_entries:
            self._first_lines.setdefault(new.modality, line)
        self._collection, items = self._prepare(new_entries, new_items)
        self._has_pictures = self._has_pictures or any(new.content.file is not None for new in new_items)
        items = self._service.preparation.with_pictures(items, new_items, self._unspooled)
        spooled = [(line, item) for (line, _), item in zip(new_entries, items, strict=True)]
        spooled += self._changed_items([entry for entry in entries if isinstance(entry[1], ItemChange)])
        spooled.sort(key=lambda entry: entry[0])
        repeated = self.spool.add(spooled)
        if repeated is not None:
            place, earlier = repeated
            line, item = spooled[place]
            message = f"id: item {item.id!r} stands on line {earlier} already"
            raise ConflictError("item-repeated", message, "id").at_line(line)
        self._unspooled = []

    def _changed_items(self, entries: Sequence[tuple[int, Any]]) -> list[tuple[int, Item]]:
        """Check changes of stored items, and return each as an item of no modality, for `_resolve`."""
        with self._service.database.read() as work:
            stored = work.items.get_many(self._collection, [change.ids[0] for _, change in entries])
        spooled: list[tuple[int, Item]] = []
        for line, change in entries:
            item_id = change.ids[0]
            try:
                if item_id not in stored:
                    raise InvalidFieldError(
                        "id", f"has no content, and there is no item {item_id!r} to change"
                    )
                change.apply(stored[item_id])
            except InvalidFieldError as error:
                error.line = line
                raise
            facts = {"labels": change.labels, "metadata": change.metadata}
            spooled.append((line, Item(item_id, _NO_MODALITY, metadata=facts)))
        return spooled

    def _prepare(
        self, entries: Sequence[tuple[int, NewItem]], new_items: Sequence[NewItem]
    ) -> tuple[Collection, list[Item]]:
        prepare, collection = self._service.preparation.items, self._collection
        if not entries:  # and no encoder, which may be missing, is needed
            return collection, []
        try:
            return prepare(collection, [""] * len(entries), new_items, content_id)
        except ServiceError as fault:
            # Which line it was, and the first of several, is found out one by one.
            for line, new in entries:
                try:
                    collection, _ = prepare(collection, [""], [new], content_id)
                except ServiceError as error:
                    error.line = line
                    raise
            fault.line = entries[0][0]
            raise
