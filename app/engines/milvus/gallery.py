"""A gallery in a collection of Milvus."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.errors import VectorEngineUnavailableError
from app.domain.filters import ItemFilter, comparable
from app.domain.ports import EngineHit
from app.engines.common import (
    BEHIND,
    REVISIONS_BETWEEN_COUNTS,
    ROWS_COMPARED,
    WriteLocks,
    unpack_balance,
)
from app.engines.milvus.rows import (
    ITEM_FIELDS,
    GalleryRows,
    Writing,
    alive_at,
    can_search_graph,
    condition_of,
    digest_of,
    item_of,
)
from app.engines.milvus.server import (
    MAPS,
    SECONDS,
    call_loaded,
    find_text,
    get_entry,
    is_missing,
    store_entry,
    translate_errors,
)
from app.index.inverted_lists import Balance

_Answer = TypeVar("_Answer")
_LEAST_SHARE = 0.15
"""Of the rows that have to match a filter, so that the graph is asked: of a tenth it found .91."""
_MOST_COUNTS = 1000  # filters of whose rows the number is known
_LOOK_SECONDS = 10.0
"""How long an entry that was read is good enough. Rows of earlier revisions are removed only once everybody
has looked again since the entry said so."""


class MilvusGallery:
    """A gallery in a collection, which the entry of its name names; a writer holds its lock. `announced`, by
    gallery: the earliest revision that its entry has, and since when at least, for `purge`."""

    def __init__(
        self, client: MilvusClient, name: str, locks: WriteLocks, announced: dict[str, tuple[int, float]]
    ) -> None:
        self._client = client
        self._name = name
        self._locks = locks
        self._announced = announced
        self._seen: GalleryRows | None = None  # as of the last look at the entry
        self._seen_at = 0.0  # when that was, on the monotonic clock
        self._maps: tuple[str, Balance] | None = None
        """Into the space of the graph, with the collection that they are for."""
        self.is_gone = False
        self._counted: dict[str, tuple[int, int]] = {}
        """Number of rows that match a condition, and of which revision."""

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the service's errors, and remember that there is nothing to ask any more."""
        try:
            with translate_errors():
                yield
        except VectorEngineUnavailableError as error:
            self.is_gone = self.is_gone or error.code == "galleries-gone"
            raise

    def write(
        self,
        revision: int,
        since: int,
        item_ids: Collection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: Collection[str],
    ) -> int:
        """Write the changes of a revision; see `EngineGallery.write`."""
        with self._locks.hold(self._name) as check_lock, self._translate_errors():
            entry = get_entry(self._client, self._name)
            if entry["revision"] >= revision:
                return int(entry["revision"])
            if entry["revision"] < since:
                raise VectorEngineUnavailableError(BEHIND)
            collection = entry["collection"]
            writing = Writing(self._client, collection, revision, check_lock)
            writing.end(item_ids)
            if items:
                writing.insert(self._read_maps(collection), items, vectors)
            writing.insert_unranked(unranked, vectors.shape[1])
            check_lock()
            written_at = max(int(entry["written_at"]), writing.written_at)
            entry = {**entry, "revision": revision, "written_at": written_at}
            store_entry(self._client, entry)
            self._see(entry)
        return revision

    def _read_maps(self, collection: str) -> Balance | None:
        """Return the maps of a collection; None where its rows are too long for a graph."""
        maps = self._maps
        if maps is None or maps[0] != collection:
            packed = find_text(self._client, MAPS + collection)
            if packed is None:
                return None
            maps = self._maps = collection, unpack_balance(base64.b64decode(packed))
        return maps[1]

    def _look(self) -> GalleryRows:
        """Return the rows that stand there now."""
        return self._see(get_entry(self._client, self._name))

    def _see(self, entry: dict[str, Any]) -> GalleryRows:
        self._seen, self._seen_at = GalleryRows.of(self._client, entry), time.monotonic()
        return self._seen

    def _rows_at(self, revision: int) -> GalleryRows:
        """Return rows among which those of a revision are."""
        seen = self._seen
        is_old = time.monotonic() - self._seen_at > _LOOK_SECONDS
        return self._look() if seen is None or is_old or seen.revision < revision else seen

    def _ask(self, revision: int, ask: Callable[[GalleryRows], _Answer]) -> _Answer:
        """Return what is answered of the rows, or of those that take their place meanwhile."""
        with self._translate_errors():
            rows = self._rows_at(revision)
            try:
                return ask(rows)
            except MilvusException as error:
                if not is_missing(error) or (now := self._look()).collection == rows.collection:
                    raise
                return ask(now)

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""
        with self._translate_errors():
            return self._look().revision

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""
        return self._ask(revision, lambda rows: rows.count(rows.condition(revision, item_filter)))

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""

        def find(rows: GalleryRows) -> frozenset[str]:
            condition = f"{alive_at(rows.at(revision))} and is_ranked == false"
            return frozenset(str(row["item_id"]) for row in rows.scan(condition, ["item_id"]))

        return self._ask(revision, find)

    def search(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> tuple[list[EngineHit], bool]:
        """Return a page of results; see `EngineGallery.search`."""

        def find(rows: GalleryRows) -> tuple[list[EngineHit], bool]:
            condition, depth = rows.condition(revision, item_filter), offset + k
            if can_search_graph(depth) and not self._has_few(rows, rows.at(revision), item_filter):
                maps = self._read_maps(rows.collection)
                if maps is not None:
                    hits = rows.search_graph(maps, condition, query, depth)
                    if len(hits) >= depth:
                        return hits[offset:depth], False
            return rows.compare("raw", condition, query, k, offset), True

        return self._ask(revision, find)

    def _has_few(self, rows: GalleryRows, revision: int, item_filter: ItemFilter) -> bool:
        """Return whether few rows are there or match, so that they are compared one by one."""
        n_rows = self._estimate(rows, revision, ItemFilter())
        return n_rows < ROWS_COMPARED or (
            not item_filter.is_empty and self._estimate(rows, revision, item_filter) < _LEAST_SHARE * n_rows
        )

    def _estimate(self, rows: GalleryRows, revision: int, item_filter: ItemFilter) -> int:
        """Return how many rows match a filter; where they are many, as of some revisions before."""
        condition = condition_of(0, item_filter)
        counted, count = self._counted.get(condition, (revision + 1, 0))
        window = REVISIONS_BETWEEN_COUNTS if count >= ROWS_COMPARED else 1
        if not 0 <= revision - counted < window:
            count = rows.count(condition_of(revision, item_filter))
            if len(self._counted) >= _MOST_COUNTS:
                self._counted.clear()
            self._counted[condition] = revision, count
        return count

    def search_exactly(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> list[EngineHit]:
        """Return the same page of results by comparing every row."""
        return self._ask(
            revision,
            lambda rows: rows.compare("raw", rows.condition(revision, item_filter), query, k, offset),
        )

    def search_similar(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None
    ) -> list[EngineHit]:
        """Return a page of results by cosine; see `EngineGallery.search_similar`."""

        def find(rows: GalleryRows) -> list[EngineHit]:
            condition = rows.condition(revision, item_filter)
            if left_out is not None:
                condition += f" and item != {json.dumps(digest_of(left_out))}"
            length = float(np.linalg.norm(query))
            unit = query / length if length else query
            return rows.compare("unit", condition, unit, k, offset)

        return self._ask(revision, find)

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""
        carrying = ItemFilter.of((label,))
        return self._ask(revision, lambda rows: bool(rows.read(rows.condition(revision, carrying), "row", 1)))

    def count_labels(self, revision: int, item_filter: ItemFilter) -> dict[str, int]:
        """Return how many items that match a filter carry each label."""
        return Counter(label for item in self._items(revision, item_filter) for label in item.labels)

    def count_values(self, revision: int, key: str, item_filter: ItemFilter) -> dict[Hashable, int]:
        """Return how many items that match a filter have each value under a metadata key."""
        values = (item.metadata.get(key) for item in self._items(revision, item_filter))
        return Counter(comparable(one) for one in values if isinstance(one, str | int | float | bool))

    def _items(self, revision: int, item_filter: ItemFilter) -> Iterator[IndexedItem]:
        with self._translate_errors():
            rows = self._look()
            for row in rows.scan(rows.condition(revision, item_filter), ITEM_FIELDS):
                yield item_of(row)

    def sample(self, revision: int, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield some items with their projections: those whose keys, which are digests, come first."""
        with self._translate_errors():
            rows = self._look()
            fields = [*ITEM_FIELDS, "row", "raw"]
            for row in islice(rows.scan(rows.condition(revision), fields), count):
                yield item_of(row), np.asarray(row["raw"], np.float32)[: rows.rank]

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        with self._translate_errors():
            rows = self._look()
            for row in rows.scan(alive_at(rows.at(revision)), ["item_id"]):
                yield str(row["item_id"])

    def purge(self, before: int) -> int:
        """Remove rows that ended; see `EngineGallery.purge`.
        Those of which an earlier call said so: others may still be looking for them."""
        with self._translate_errors():
            with self._locks.hold(self._name):
                entry, now = get_entry(self._client, self._name), time.monotonic()
                earliest = int(entry["earliest"])
                announced, standing_since = self._announced.get(self._name, (None, now))
                if announced != earliest:
                    self._announced[self._name] = earliest, now
                    return 0
                if now - standing_since < 2 * _LOOK_SECONDS:
                    return 0
                if earliest < before:
                    store_entry(self._client, {**entry, "earliest": before})
                    self._announced[self._name] = before, now
            # Without the lock: no writer touches these rows.
            condition = f"until <= {earliest}"
            n_ended = GalleryRows.of(self._client, entry).count(condition)
            if n_ended:
                delete = partial(self._client.delete, entry["collection"], filter=condition, timeout=SECONDS)
                call_loaded(self._client, entry["collection"], delete)
            return n_ended
