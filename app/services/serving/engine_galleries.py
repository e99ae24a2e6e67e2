"""Galleries whose rows an engine keeps; this process holds their name and a revision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, MutableMapping, Sequence
from functools import cached_property, partial

import numpy as np
from typing_extensions import override

from app.domain.entities import Matrix, Vector
from app.domain.ports import EngineGallery, EngineHit, EngineItem, GalleryIndex
from app.domain.searches import ItemFilter
from app.services.serving.engine_state import ItemCount
from app.services.serving.gallery import Gallery, Page
from app.services.serving.item_columns import ColumnNames
from app.services.serving.reload_scheduler import outside_turns
from app.services.serving.segments import IndexedItem
from app.services.storage.pacing import no_pause

_NO_FILTER = ItemFilter()


class RemoteGallery(Gallery):
    """A gallery of an engine at one revision; the count is shared by those of all revisions, exact compares
    every row."""

    def __init__(
        self,
        rows: EngineGallery,
        revision: int,
        is_exact: bool = False,
        known_count: ItemCount | None = None,
    ) -> None:
        super().__init__()
        self._rows = rows
        self._revision = revision
        self._is_exact = is_exact
        self._known_count = known_count or ItemCount(partial(_count_latest, rows))

    @cached_property
    def _unranked(self) -> frozenset[str]:
        return self._rows.find_unranked(self._revision)

    @cached_property
    def _size(self) -> int:
        return self._rows.count(self._revision, _NO_FILTER)

    @property
    @override
    def unranked(self) -> frozenset[str]:
        return self._unranked

    @property
    @override
    def size(self) -> int:
        return self._size

    @property
    @override
    def known_size(self) -> int | None:
        return self._known_count.read()

    @property
    @override
    def is_gone(self) -> bool:
        return self._rows.is_gone

    @property
    @override
    def estimated_bytes(self) -> int:
        return 0

    @property
    @override
    def bytes_per_item(self) -> float:
        return 0.0

    @override
    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        return np.inf

    @property
    @override
    def is_exact(self) -> bool:
        return self._is_exact

    @property
    @override
    def index_kind(self) -> str:
        return "exact" if self._is_exact else "hnsw"

    @property
    @override
    def columns(self) -> ColumnNames:
        return ColumnNames()

    @override
    def rows_to_read(self, names: ColumnNames) -> int:
        return 0

    @override
    def read_columns(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        pass

    @override
    def prepare(self, pause: Callable[[], None]) -> None:
        pass

    @override
    def item_ids(self) -> Iterator[str]:
        return self._rows.item_ids(self._revision)

    @override
    def first_items(self, count: int) -> Iterator[IndexedItem]:
        return (item for item, _ in self.sample(count))

    @override
    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        for item, vector in self._rows.sample(self._revision, count):
            yield IndexedItem(*item), vector

    @override
    def has_label(self, label: str) -> bool:
        return self._rows.has_label(self._revision, label)

    @override
    def count_matching(self, item_filter: ItemFilter) -> int:
        return self._rows.count(self._revision, item_filter)

    @override
    def count_labels(self) -> Counter[str]:
        return Counter(self._rows.count_labels(self._revision))

    @override
    def count_values(self, key: str) -> Counter[Hashable]:
        return Counter(self._rows.count_values(self._revision, key))

    @override
    def advance(self, revision: int) -> RemoteGallery | None:
        latest = self._rows.latest_revision()
        # Of revisions that were written in one step, only the last is there.
        return self._at(latest) if latest >= revision else None

    @override
    def held_revision(self, revision: int) -> int:
        return min(self._rows.latest_revision(), revision)

    @override
    def exactly(self, made: MutableMapping[GalleryIndex, GalleryIndex]) -> RemoteGallery:
        return RemoteGallery(self._rows, self._revision, True, self._known_count)

    @override
    def apply_write(
        self,
        item_ids: Collection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: Collection[str] = (),
        pause: Callable[[], None] = no_pause,
        *,
        revision: int = 0,
        since: int = 0,
    ) -> RemoteGallery:
        items_of_engine = [_engine_item(item) for item in items]
        with outside_turns():
            written = self._rows.write(
                revision, since, item_ids, items_of_engine, with_a_column(vectors), unranked
            )
        return self._at(written)

    def _at(self, revision: int) -> RemoteGallery:
        return RemoteGallery(self._rows, revision, self._is_exact, self._known_count)

    @override
    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
        return [self._search(query, k, offset, item_filter) for query in queries]

    def _search(self, query: Vector, k: int, offset: int, item_filter: ItemFilter) -> Page:
        query = with_a_column(query)
        if self._is_exact:
            return _page(self._rows.search_exactly(self._revision, query, k, offset, item_filter), True)
        return _page(*self._rows.search(self._revision, query, k, offset, item_filter))

    @override
    def search_similar(
        self, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None = None
    ) -> Page:
        query = with_a_column(query)
        return _page(self._rows.search_similar(self._revision, query, k, offset, item_filter, left_out), True)

    @override
    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = _NO_FILTER
    ) -> list[Page]:
        return [
            self._search(query, k, offset, item_filter)
            for query, (k, offset) in zip(queries, pages, strict=True)
        ]

    @override
    def pages(self, rows: list[Page], pages: Sequence[tuple[int, int]]) -> list[Page]:
        return rows


def with_a_column(numbers: Matrix) -> Matrix:
    """Return vectors of one number at least, as engines take them: those of a model of rank 0 have none."""
    return numbers if numbers.shape[-1] else np.zeros((*numbers.shape[:-1], 1), np.float32)


def _count_latest(rows: EngineGallery) -> int:
    return rows.count(rows.latest_revision(), _NO_FILTER)


def _engine_item(item: IndexedItem) -> EngineItem:
    return EngineItem(item.id, item.labels, dict(item.metadata))


def _page(hits: Sequence[EngineHit], is_exact: bool) -> Page:
    return Page(((IndexedItem(*hit.item), hit.score) for hit in hits), is_exact)
