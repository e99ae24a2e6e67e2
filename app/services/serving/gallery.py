"""What a search asks of a gallery, wherever its rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from app.domain.entities import Matrix, Vector
from app.domain.ports import GalleryIndex
from app.domain.searches import ItemFilter
from app.services.serving.item_columns import ColumnNames
from app.services.serving.segments import IndexedItem, Segment, SegmentView
from app.services.storage.pacing import no_pause

_NO_FILTER = ItemFilter()


class Page(list[tuple[IndexedItem, float]]):
    """Results of one query with scores, best first; `is_exact` if no better one can have been missed."""

    def __init__(self, results: Iterable[tuple[IndexedItem, float]] = (), is_exact: bool = True) -> None:
        super().__init__(results)
        self.is_exact = is_exact


class Gallery(ABC):
    """Projected items of one modality at one revision; immutable.
    Segments are what this process holds of it; each id is alive in at most one."""

    def __init__(self, segments: Iterable[SegmentView] = ()) -> None:
        self.segments = tuple(segments)

    @property
    @abstractmethod
    def unranked(self) -> frozenset[str]:
        """Stored items that are not in the gallery, because the model cannot place them."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of items."""

    @property
    def known_size(self) -> int | None:
        """The same, without waiting: of an engine what it last counted, None if it has not counted yet."""
        return self.size

    @property
    def is_gone(self) -> bool:
        """Whether a call found that the engine does not have its rows any more."""
        return False

    @property
    @abstractmethod
    def estimated_bytes(self) -> int:
        """Estimated memory in this process."""

    @property
    @abstractmethod
    def bytes_per_item(self) -> float:
        """Estimated memory of an item, of the part where that is largest."""

    @abstractmethod
    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        """Return about how many numbers a search compares; infinity where it may take long."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether every search returns the true best items."""

    @property
    @abstractmethod
    def index_kind(self) -> str:
        """Kind of the approximate index, ``exact`` where there is none; see `IndexSpec`."""

    @property
    @abstractmethod
    def columns(self) -> ColumnNames:
        """Columns of its items that were read."""

    @abstractmethod
    def rows_to_read(self, names: ColumnNames) -> int:
        """Return of how many rows columns have yet to be read."""

    @abstractmethod
    def read_columns(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        """Read columns unless they are there; `pause` is called between steps."""

    def unread_segments(self, names: ColumnNames) -> Iterator[Segment]:
        """Yield the segments whose columns have yet to be read."""
        return (view.segment for view in self.segments if view.segment.columns.missing(names))

    def exactly(self, made: MutableMapping[GalleryIndex, GalleryIndex]) -> Gallery:
        """Return a gallery of the same items whose segments are searched exactly. Exact indexes are taken
        from, and added to, `made`, by what they stand for: for a gallery that differs a little."""
        return self

    def due_merge(self) -> tuple[SegmentView, ...]:
        """Return the first adjacent segments that are to be merged; none if no merge is due."""
        return ()

    def with_merged(self, sources: Sequence[SegmentView], merged: SegmentView) -> Gallery:
        """Return the gallery with a merged segment; itself if it has none of its sources, which may be of a
        gallery before. What was deleted since is dead in it, and so is what is in another segment by now."""
        return self

    @abstractmethod
    def prepare(self, pause: Callable[[], None]) -> None:
        """Build what writes need, so that none has to wait for it; `pause` is called between steps."""

    @abstractmethod
    def item_ids(self) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""

    @abstractmethod
    def first_items(self, count: int) -> Iterator[IndexedItem]:
        """Yield some items that can be ranked, `count` at most."""

    @abstractmethod
    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield items with their projections, `count` at most, the same ones each time."""

    @abstractmethod
    def has_label(self, label: str) -> bool:
        """Return whether an item carries a label."""

    @abstractmethod
    def count_matching(self, item_filter: ItemFilter) -> int:
        """Return how many items that can be ranked pass a filter."""

    @abstractmethod
    def count_labels(self) -> Counter[str]:
        """Return how many items carry each label."""

    @abstractmethod
    def count_values(self, key: str) -> Counter[Hashable]:
        """Return how many items have each value under a metadata key, as of `ItemColumns`."""

    @abstractmethod
    def advance(self, revision: int) -> Gallery | None:
        """Return the gallery of a revision, or of one after it, if somebody has written that already."""

    def held_revision(self, revision: int) -> int:
        """Return since which revision changes have to be applied: an earlier one if an engine lost some."""
        return revision

    @abstractmethod
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
    ) -> Gallery:
        """Return the gallery after a write; itself when it changes nothing. `vectors` (n_items, rank) are of
        the items that can be ranked; ids that were never in the gallery are ignored."""
        # Revisions: after the write, and before.

    @abstractmethod
    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
        """Return each query's results offset + 1 to offset + k with scores, best first, equal ones by id."""
        # Queries (n_queries, rank) are searched one by one: a product of many rows rounds otherwise, and
        # scores would depend on the batch.

    @abstractmethod
    def search_similar(
        self, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None = None
    ) -> Page:
        """Return results by the cosine of the projections, of every item that matches the filter.
        The query (rank,) is of the gallery's own modality; the item `left_out` is the query itself."""

    def search_many(self, queries: Matrix, pages: Sequence[tuple[int, int]]) -> list[Page]:
        """Return what `search` would return for each query (n_queries, rank) and page (`k`, `offset`), to the
        bit; no filter."""
        return self.pages(self.find_rows(queries, pages), pages)

    @abstractmethod
    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = _NO_FILTER
    ) -> Any:
        """Return what `pages` makes results of; parameters as of `search_many` and `search`."""

    @abstractmethod
    def pages(self, rows: Any, pages: Sequence[tuple[int, int]]) -> list[Page]:
        """Return the items of rows as of `find_rows`, as of `search_many`."""
