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

import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Counts, Item, RunningImport
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
from app.services.storage.pacing import BREATH_SECONDS, Pacer, Round
from app.services.storage.writing import clean_up, lock_collection, put_items, writing
from app.storage.spool import ItemSpool

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


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, and the collection's revision after it."""

    counts: Counts
    revision: int
    copies: int = 0
    """New items whose picture or sound an item of another id had already."""


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
        with self.database.read() as work:
            collection = work.collections.get(name)
        return Import(self, self.make_spool(), collection, key_id)


@dataclass(eq=False)
class Import:
    """One import: `add` as lines come in, then `store`; `close`, which closes the spool, in any case."""

    _service: ImportService
    _spool: ItemSpool
    _collection: Collection
    _key_id: str | None
    _first_lines: dict[str, int] = field(default_factory=dict, init=False)
    _has_pictures: bool = field(default=False, init=False)
    # pictures of items that are not in the spool yet
    _unspooled: list[str] = field(default_factory=list, init=False)
    _is_stored: bool = field(default=False, init=False)
    _last_position: int = field(default=0, init=False)

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
        """Store everything; others see all of it from one moment on."""
        # Raises InvalidFieldError if that is nothing, UnavailableError, and ServiceError if what was checked
        # no longer fits: a dimension or a picture, changed by others meanwhile.
        with self._service.database.read() as work:
            self._last_position = work.items.last_position(self._collection)
        if not self._spool.size:
            raise InvalidFieldError("body", "expected at least one line with an item")
        if self._has_pictures:
            for line, item in itertools.chain.from_iterable(self._spool.batches(_ITEMS_PER_BATCH)):
                if item.content_hash is None:
                    continue
                try:  # it may have waited for longer than unused files are kept
                    self._service.preparation.blobs.touch(item.content_hash)
                except FileNotFoundError as error:
                    raise content_missing(self._collection.name, item.id).at_line(line) from error
        batches = self._spool.batches(_ITEMS_PER_PART, _BYTES_PER_PART)
        first = [item for _, item in next(batches)]
        if len(first) == self._spool.size:
            imported = self._store_at_once(first)
        else:
            rest = ([item for _, item in batch] for batch in batches)
            imported = self._store_in_parts(itertools.chain([first], rest))
        self._is_stored = True
        if self._has_pictures and imported.counts.created and self._last_position:
            with self._service.database.read() as work:
                copies = work.items.count_copies(self._collection, self._last_position, ("content_hash",))
            imported = replace(imported, copies=copies)
        return imported

    def ids(self) -> Iterator[str]:
        """Yield the id of each item, in order."""
        return self._spool.ids()

    def close(self) -> None:
        """Remove the spool, and the pictures of an import that was not stored; what fails is only logged: an
        import that is refused is refused for another reason."""
        try:
            if self._has_pictures and not self._is_stored:
                self._discard_pictures()
        except OSError as error:
            _logger.warning("%s: pictures stay until the next sweep: %s", self._collection.name, error)
        try:
            self._spool.close()
        except OSError as error:
            _logger.warning("%s: what an import put aside was not removed: %s", self._collection.name, error)

    def _discard_pictures(self) -> None:
        """Take pictures away for a few seconds, or until that is not possible."""
        time_left = Round(_LONGEST_DISCARD_SECONDS)
        spooled = (
            [item.content_hash for _, item in batch if item.content_hash is not None]
            for batch in self._spool.batches(_ITEMS_PER_BATCH)
        )
        for content_hashes in itertools.chain([self._unspooled], spooled):
            if time_left.is_over or not self._service.discard(content_hashes):
                _logger.warning("%s: pictures stay until the next sweep", self._collection.name)
                return

    def _store_at_once(self, items: Sequence[Item]) -> Imported:
        service = self._service
        seconds, key_id = service.lock_wait_seconds, self._key_id
        with writing(service.database, self._collection, seconds, key_id=key_id) as (work, current):
            self._settle(work, current)
            return Imported(*put_items(work, current, _resolve(work, current, items)))

    def _store_in_parts(self, batches: Iterable[Sequence[Item]]) -> Imported:
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
            return Imported(counts, current.revision)
        self._clean_up(running)
        return Imported(counts, running.revision)

    def _begin(self, import_id: str) -> tuple[Collection, RunningImport]:
        service, seconds = self._service, self._service.lock_wait_seconds
        with writing(service.database, self._collection, seconds, import_id) as (work, current):
            self._settle(None, current)
            return current, work.imports.begin(current, import_id, self._spool.size, service.lease_seconds)

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
            if work is None:
                preparation.pending_options(current, self._collection, places)
            else:
                preparation.settle(work, current, self._collection, places)
        except InvalidFieldError as error:
            error.line = min(self._first_lines.values(), default=1)
            raise

    def _pacer(self) -> Pacer:
        return Pacer(lambda: True, lambda: not self._service.is_searched())

    def _add(self, entries: Sequence[tuple[int, NewItem | ItemChange]]) -> None:
        new_entries = [(line, entry) for line, entry in entries if isinstance(entry, NewItem)]
        new_items = [new for _, new in new_entries]
        self._collection = self._service.preparation.with_first_items(self._collection, new_items)
        for line, new in new_entries:
            self._first_lines.setdefault(new.modality, line)
        items = self._prepare(new_entries, new_items) if new_entries else []
        self._has_pictures = self._has_pictures or any(new.content.file is not None for new in new_items)
        items = self._service.preparation.with_pictures(items, new_items, self._unspooled)
        spooled = [(line, item) for (line, _), item in zip(new_entries, items, strict=True)]
        spooled += self._changed_items([entry for entry in entries if isinstance(entry[1], ItemChange)])
        spooled.sort(key=lambda entry: entry[0])
        repeated = self._spool.add(spooled)
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

    def _prepare(self, entries: Sequence[tuple[int, NewItem]], new_items: Sequence[NewItem]) -> list[Item]:
        prepare = partial(self._service.preparation.items, self._collection)
        try:
            return prepare([""] * len(entries), new_items, content_id)
        except ServiceError as fault:
            # Which line it was, and the first of several, is found out one by one.
            for line, new in entries:
                try:
                    prepare([""], [new], content_id)
                except ServiceError as error:
                    error.line = line
                    raise
            fault.line = entries[0][0]
            raise
