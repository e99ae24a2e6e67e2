"""Validated items of an import, spooled to disk until the transactions that store them."""

from __future__ import annotations

import errno
import io
import json
import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.domain.entities import Item, vector_bytes, vector_of

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
        self._size = 0

    @property
    def size(self) -> int:
        """Number of items."""
        return self._size

    def add(self, entries: Sequence[tuple[int, Item]]) -> tuple[int, int] | None:
        """Append items, each with its line number; the index of the first whose id was added before and that
        item's line, or None. Raises OSError when the disk is full; only `close` may be called after that."""
        pairs = [(item.id, line) for line, item in entries]
        added = self._add_ids(pairs)
        if added != len(pairs):
            return self._first_repeated(pairs)
        for line, item in entries:
            item_id, facts, features = (
                item.id.encode(),
                json.dumps([getattr(item, name) for name in _FACTS]).encode(),
                b"",
            )
            if item.features is not None:
                features = vector_bytes(item.features)
            length = _NO_FEATURES if item.features is None else len(features)
            self._items.write(_HEAD.pack(line, len(item_id), len(facts), length) + item_id + facts + features)
        self._size += len(entries)
        return None

    def batches(self, size: int, max_bytes: int | None = None) -> Iterator[list[tuple[int, Item]]]:
        """Yield everything added, in order, at most `size` items at a time. A batch ends with the item that
        brings it to `max_bytes`, when these are given."""
        self._items.seek(0)
        left, place = self._size, 0
        while left:
            batch: list[tuple[int, Item]] = []
            began = place
            while len(batch) < min(size, left) and (max_bytes is None or place - began < max_bytes):
                entry, length = self._next()
                batch.append(entry)
                place += length
            left -= len(batch)
            yield batch

    def ids(self) -> Iterator[str]:
        """Yield the id of everything added, in order."""
        self._items.seek(0)
        for _ in range(self._size):
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
