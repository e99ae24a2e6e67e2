"""Importing a stream of items of any length: checked as it comes in, stored whole or not at all.

What comes in is checked and encoded batch by batch and put aside on disk; nobody waits for it meanwhile.
When the last line is in, one transaction writes what is new or differs and leaves alone what is there
already, so that an import may be repeated after whatever went wrong. Items without an id get one that
follows from what they hold: they too are the same items when the import is repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.domain.entities import Collection, Counts, Item
from app.domain.errors import (
    ContentMissingError,
    InvalidFieldError,
    LineError,
    RepeatedItemError,
    ServiceError,
)
from app.domain.ports import BlobStore, Database, EncoderSource, Spool
from app.services.preparation import (
    NewItem,
    Preparation,
    content_id,
    locked,
    settle_dimensions,
    with_dimensions,
)

_ITEMS_PER_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, and the collection's revision after it."""

    counts: Counts
    revision: int


class ImportService:
    """Begins imports.

    Parameters
    ----------
    database : Database
        The truth.
    blobs : BlobStore
        Pictures.
    encoders : EncoderSource
        Check and encode what comes in.
    make_spool : callable
        Returns an empty spool.
    on_written : callable
        Gets the identity of a collection that items were written to, and its revision.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        encoders: EncoderSource,
        make_spool: Callable[[], Spool],
        on_written: Callable[[int, int], None],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._preparation = Preparation(blobs, encoders)
        self._make_spool = make_spool
        self._on_written = on_written

    def begin(self, name: str) -> Import:
        """Begin an import into a collection; raises CollectionNotFoundError."""
        with self._database.read() as work:
            collection = work.collections.get(name)
        return Import(
            self._database, self._blobs, self._preparation, self._make_spool(), collection, self._on_written
        )


class Import:
    """One import: `add` as lines come in, then `store`; `close` in any case.

    Parameters
    ----------
    database, blobs, preparation
        As of `ImportService`.
    spool : Spool
        Closed with the import.
    collection : Collection
        Where the items go.
    on_written : callable
        As of `ImportService`.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        preparation: Preparation,
        spool: Spool,
        collection: Collection,
        on_written: Callable[[int, int], None],
    ) -> None:
        self._on_written = on_written
        self._database = database
        self._blobs = blobs
        self._preparation = preparation
        self._spool = spool
        self._collection = collection
        self._first_lines: dict[str, int] = {}
        self._has_pictures = False

    def add(self, entries: Sequence[tuple[int, NewItem]]) -> None:
        """Check, encode and put aside items, each with its line; raises LineError for the first bad one."""
        for start in range(0, len(entries), _ITEMS_PER_BATCH):
            self._add(entries[start : start + _ITEMS_PER_BATCH])

    def store(self) -> Imported:
        """Store everything in one transaction.

        Raises
        ------
        InvalidFieldError
            If there is nothing to store.
        LineError
            If what was checked no longer fits: a dimension or a picture, changed by others meanwhile.
        CollectionNotFoundError
            If the collection is gone.
        """
        if not self._spool.size:
            raise InvalidFieldError("body", "expected at least one line with an item")
        if self._has_pictures:
            for line, item in itertools.chain.from_iterable(self._spool.batches(_ITEMS_PER_BATCH)):
                self._keep_picture(line, item)
        counts = Counts()
        with self._database.write() as work:
            current = locked(work, self._collection)
            try:
                settle_dimensions(work, current, self._collection, dict.fromkeys(self._first_lines, ""))
            except InvalidFieldError as error:
                raise LineError(min(self._first_lines.values()), error) from error
            for batch in self._spool.batches(_ITEMS_PER_BATCH):
                counts += work.items.put(current, [item for _, item in batch], current.revision + 1)
            if not counts.changed:
                return Imported(counts, current.revision)
            revision = work.collections.next_revision(current)
        self._on_written(current.id, revision)
        return Imported(counts, revision)

    def ids(self) -> Iterator[str]:
        """Yield the id of each item, in order."""
        return self._spool.ids()

    def close(self) -> None:
        """Let go of what was put aside."""
        self._spool.close()

    def _add(self, entries: Sequence[tuple[int, NewItem]]) -> None:
        new_items = [new for _, new in entries]
        self._collection = with_dimensions(self._collection, new_items)
        for line, new in entries:
            self._first_lines.setdefault(new.modality, line)
        items = self._preparation.with_pictures(self._prepared(entries, new_items), new_items)
        self._has_pictures = self._has_pictures or any(item.content_hash for item in items)
        repeated = self._spool.add([(line, item) for (line, _), item in zip(entries, items, strict=True)])
        if repeated is not None:
            place, earlier = repeated
            raise LineError(entries[place][0], RepeatedItemError("id", items[place].id, earlier))

    def _prepared(self, entries: Sequence[tuple[int, NewItem]], new_items: Sequence[NewItem]) -> list[Item]:
        try:
            return self._preparation.items(self._collection, [""] * len(entries), new_items, content_id)
        except ServiceError as fault:
            # Which line it was, and the first of several, is found out one by one.
            for line, new in entries:
                try:
                    self._preparation.items(self._collection, [""], [new], content_id)
                except ServiceError as error:
                    raise LineError(line, error) from error
            raise LineError(entries[0][0], fault) from fault

    def _keep_picture(self, line: int, item: Item) -> None:
        """Make a picture young again: it may have waited for longer than unused files are kept."""
        if item.content_hash is None:
            return
        try:
            self._blobs.touch(item.content_hash)
        except FileNotFoundError as error:
            raise LineError(line, ContentMissingError(self._collection.name, item.id)) from error
