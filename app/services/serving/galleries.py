"""Galleries: the projected items of one modality, in immutable segments."""
# A write adds one small segment and marks the rows that it replaces or deletes as dead; everything else is
# shared with the gallery before it. Merges keep the segments few: those of a few rows are part of a write,
# and others are due (`due_merge`) for the background, during which the gallery takes further writes.

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace as replace_fields
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from app.answers import Notice
from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.filters import NO_FILTER, ItemFilter
from app.domain.ports import BestRows, GalleryIndex
from app.domain.reports import IndexSpec
from app.index import ExactIndex
from app.services.serving.item_columns import ColumnNames
from app.services.serving.segments import Segment, SegmentView, merge_tail, runs_to_merge
from app.services.serving.stored_items import ItemIds, Mask
from app.services.storage.pacing import no_pause

_SCORE_AND_ID = itemgetter(0, 1)
_Candidate = tuple[float, str, IndexedItem]
"""Negative score, id and item: candidates in ascending order are results, the best first."""
_ROWS_PER_STEP = 1 << 16
"""Rows whose cosines are computed at once: bounds memory at some megabytes beside the result."""


class Page(list[tuple[IndexedItem, float]]):
    """Results of one query with scores, best first; `is_exact` if no better one can have been missed."""

    notices: tuple[Notice, ...] = ()

    def __init__(self, results: Iterable[tuple[IndexedItem, float]] = (), is_exact: bool = True) -> None:
        super().__init__(results)
        self.is_exact = is_exact


class Gallery:
    """Projected items of one modality at one revision, in memory; immutable. Each id is alive in at most one
    segment; `unranked` are stored items that are in none, because the model cannot place them."""

    def __init__(self, segments: Iterable[SegmentView], unranked: frozenset[str] = frozenset()) -> None:
        self.segments = tuple(segments)
        self._unranked = unranked

    @classmethod
    def of_segment(
        cls, segment: Segment, unranked: frozenset[str] = frozenset(), alive: Mask | None = None
    ) -> Gallery:
        """Return a gallery of one segment, or of none where nothing is alive; `alive` as of `SegmentView`."""
        n_live = len(segment.items) if alive is None else int(np.count_nonzero(alive))
        view = SegmentView(segment, None if n_live == len(segment.items) else alive, n_live)
        return cls([view] if n_live else [], unranked)

    @cached_property
    def unranked(self) -> frozenset[str]:
        """Stored items that cannot be ranked."""
        return self._unranked

    @property
    def size(self) -> int:
        """Number of items."""
        return sum(view.n_live for view in self.segments)

    @property
    def known_size(self) -> int | None:
        """The same, without waiting: of an engine what it last counted, None if it has not counted yet."""
        return self.size

    @property
    def is_gone(self) -> bool:
        """Whether a call found that the engine does not have its rows any more."""
        return False

    @property
    def estimated_bytes(self) -> int:
        """Estimated memory in this process."""
        return sum(view.segment.estimated_bytes for view in self.segments)

    @cached_property
    def bytes_per_item(self) -> float:
        """Estimated memory of an item, of the part where that is largest."""
        return max((view.segment.bytes_per_item for view in self.segments), default=0.0)

    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        """Return about how many numbers a search compares; infinity where it may take long."""
        if item_filter.is_empty:
            return sum(view.segment.index.numbers_per_search for view in self.segments)
        return sum(view.numbers_per_search(item_filter) for view in self.segments)

    @cached_property
    def is_exact(self) -> bool:
        """Whether every search returns the true best items."""
        return all(view.segment.index.is_exact for view in self.segments)

    @cached_property
    def index_kind(self) -> str:
        """Kind of the approximate index, ``exact`` where there is none; see `IndexSpec`."""
        specs = (view.segment.index.spec for view in self.segments if not view.segment.index.is_exact)
        return next(specs, IndexSpec()).kind

    @property
    def columns(self) -> ColumnNames:
        """Columns of its items that were read."""
        return ColumnNames.union(view.segment.columns.names for view in self.segments)

    def unread_segments(self, names: ColumnNames) -> Iterator[Segment]:
        """Yield the segments whose columns have yet to be read."""
        return (view.segment for view in self.segments if view.segment.columns.missing(names))

    def rows_to_read(self, names: ColumnNames) -> int:
        """Return of how many rows columns have yet to be read."""
        return sum(len(segment.items) for segment in self.unread_segments(names))

    def prepare(self, columns: ColumnNames, pause: Callable[[], None]) -> None:
        """Build what writes need, and read columns unless they are there, so that none has to wait for it;
        `pause` is called between steps."""
        for view in self.segments:
            view.segment.prepare(pause)
            view.segment.columns.read(columns, pause)

    def exactly(self, made: MutableMapping[GalleryIndex, GalleryIndex]) -> Gallery:
        """Return a gallery of the same items whose segments are searched exactly. Exact indexes are taken
        from, and added to, `made`, by what they stand for: for a gallery that differs a little."""
        views = []
        for view in self.segments:
            index = view.segment.index
            if not index.is_exact:
                if index not in made:
                    made[index] = ExactIndex(index.vectors)
                view = replace_fields(view, segment=view.segment.with_index(made[index]))
            views.append(view)
        return Gallery(views, self.unranked)

    def due_merge(self) -> tuple[SegmentView, ...]:
        """Return the first adjacent segments that are to be merged; none if no merge is due."""
        for run in runs_to_merge([view.size for view in self.segments]):
            return self.segments[run.start : run.stop]
        return ()

    def with_merged(self, sources: Sequence[SegmentView], merged: SegmentView) -> Gallery:
        """Return the gallery with a merged segment; itself if it has none of its sources, which may be of a
        gallery before. What was deleted since is dead in it, and so is what is in another segment by now."""
        current = {view.segment: view for view in self.segments}
        first = next((view.segment for view in sources if view.segment in current), None)
        if first is None:
            return self
        alive = np.concatenate([_still_alive(view, current.get(view.segment)) for view in sources])
        n_live = int(np.count_nonzero(alive))
        replaced = {view.segment for view in sources}
        view = SegmentView(merged.segment, None if n_live == len(alive) else alive, n_live)
        views = [view if old.segment is first else old for old in self.segments]
        return Gallery(
            (view for view in views if view.n_live and view.segment not in replaced), self.unranked
        )

    def item_ids(self) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        yield from self.unranked
        for view in self.segments:
            for row, item_id in enumerate(view.segment.item_ids()):
                if view.alive is None or view.alive[row]:
                    yield item_id

    def first_items(self, count: int) -> Iterator[IndexedItem]:
        """Yield some items that can be ranked, `count` at most."""
        items = itertools.chain.from_iterable(view.live_items() for view in self.segments)
        return itertools.islice(items, count)

    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield items with their projections, `count` at most, the same ones each time."""
        places = np.unique(np.linspace(0, self.size - 1, min(count, self.size)).astype(np.intp))
        start = 0
        for view in self.segments:
            live = view.live_rows()
            chosen = live[places[(places >= start) & (places < start + len(live))] - start]
            vectors = view.segment.index.vectors[chosen]
            yield from zip((view.segment.items[row] for row in chosen.tolist()), vectors, strict=True)
            start += len(live)

    def vectors_of(self, item_ids: Sequence[str]) -> dict[str, Vector]:
        """Return the projections of some items, by id."""
        hashed_ids = ItemIds(item_ids)
        return {
            view.segment.items[row].id: view.segment.index.vectors[row]
            for view in self.segments
            for row in view.segment.rows_of(hashed_ids)
            if view.alive is None or view.alive[row]
        }

    def has_label(self, label: str) -> bool:
        """Return whether an item carries a label."""
        return any(view.has_label(label) for view in self.segments)

    def count_matching(self, item_filter: ItemFilter) -> int:
        """Return how many items that can be ranked pass a filter."""
        masks = ((view, view.matches(item_filter)) for view in self.segments)
        return sum(view.n_live if mask is None else int(np.count_nonzero(mask)) for view, mask in masks)

    def count_labels(self, item_filter: ItemFilter = NO_FILTER) -> Counter[str]:
        """Return how many items that pass a filter carry each label."""
        counts: Counter[str] = Counter()
        for view in self.segments:
            counts.update(view.count_labels(item_filter))
        return counts

    def count_values(self, key: str, item_filter: ItemFilter = NO_FILTER) -> Counter[Hashable]:
        """Return how many of them have each value under a metadata key, as of `ItemColumns`."""
        counts: Counter[Hashable] = Counter()
        for view in self.segments:
            counts.update(view.segment.columns.count(key, view.matches(item_filter)))
        return counts

    def advance(self, revision: int) -> Gallery | None:
        """Return the gallery of a revision, or of one after it, if somebody has written that already."""
        return None

    def held_revision(self, revision: int) -> int:
        """Return since which revision changes have to be applied: an earlier one if an engine lost some."""
        return revision

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
        now_unranked = self.unranked.difference(item_ids).union(unranked)
        hashed_ids = ItemIds(item_ids)
        views = [view.without(hashed_ids, pause) for view in self.segments]
        if not items and all(new is old for new, old in zip(views, self.segments, strict=True)):
            return self if now_unranked == self.unranked else Gallery(views, now_unranked)
        if items:
            views.append(SegmentView.of_all(Segment(items, ExactIndex(vectors))))
        return Gallery(merge_tail([view for view in views if view.n_live]), now_unranked)

    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
        """Return each query's results offset + 1 to offset + k with scores, best first, equal ones by id."""
        # Queries (n_queries, rank) are searched one by one: a product of many rows rounds otherwise, and
        # scores would depend on the batch.
        return [
            page for query in queries for page in self.search_many(query[None], [(k, offset)], item_filter)
        ]

    def search_many(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = NO_FILTER
    ) -> list[Page]:
        """Return what `search` would return for each query (n_queries, rank) and page (`k`, `offset`), to the
        bit, in less time where that is possible."""
        return self.pages(self.find_rows(queries, pages, item_filter), pages)

    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = NO_FILTER
    ) -> Any:
        """Return what `pages` makes results of; parameters as of `search_many`."""
        rows: list[list[BestRows]] = []  # of each query in each segment
        is_one = len(queries) == 1
        for view in self.segments:
            restricted = view.restrict(item_filter) if is_one or not item_filter.is_empty else None
            size = view.n_live if restricted is None else restricted.size
            ks = [min(offset + k, size) for k, offset in pages]
            if restricted is not None:
                rows.append([restricted.search(query, k) for query, k in zip(queries, ks, strict=True)])
            elif is_one:
                rows.append([view.segment.index.search(queries[0], ks[0], None)])
            else:
                rows.append(view.segment.index.search_many(queries, ks, view.alive))
        return rows

    def pages(self, rows: Any, pages: Sequence[tuple[int, int]]) -> list[Page]:
        """Return the items of rows as of `find_rows`, as of `search_many`."""
        by_query = zip(*rows, strict=True) if rows else [()] * len(pages)
        return [self._page(best, *page) for best, page in zip(by_query, pages, strict=True)]

    def _page(self, of_segments: Sequence[BestRows], k: int, offset: int) -> Page:
        """Return a page of the best items of each segment, ranked together."""
        candidates: list[_Candidate] = []
        for view, best in zip(self.segments, of_segments, strict=True):
            items = view.segment.items
            for row, score in zip(best.rows.tolist(), best.scores.tolist(), strict=True):
                item = items[row]
                candidates.append((-score, item.id, item))
        # An approximate index may find fewer items than there are: beyond the last one nothing is missed.
        is_beyond = offset >= sum(view.n_live for view in self.segments)
        return _in_order(candidates, k, offset, is_beyond or all(best.is_exact for best in of_segments))

    def search_similar(
        self, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None = None
    ) -> Page:
        """Return results by the cosine of the projections, of every item that matches the filter.
        The query (rank,) is of the gallery's own modality; the item `left_out` is the query itself."""
        # What is learned compares the two modalities. Within one of them it says which differences between
        # items matter for the other. An inner product would also put the items with the longest projections
        # first, which are hubs rather than similar ones. So scores are cosines, and no probability belongs to
        # them. Every row is compared, since the approximate indexes are made for inner products.
        depth = offset + k + (left_out is not None)
        candidates = [
            (-cosine, item.id, item)
            for view in self.segments
            for item, cosine in _most_similar(view, query, depth, item_filter)
            if item.id != left_out
        ]
        return _in_order(candidates, k, offset, True)


def _still_alive(before: SegmentView, now: SegmentView | None) -> npt.NDArray[np.bool]:
    """Return which of the rows that were alive are so now; none where the segment is gone."""
    if now is None:
        return np.zeros(before.n_live, np.bool)
    if now.alive is None:
        return np.ones(before.n_live, np.bool)
    return now.alive if before.alive is None else now.alive[before.alive]


def _in_order(candidates: list[_Candidate], k: int, offset: int, is_exact: bool) -> Page:
    candidates.sort(key=_SCORE_AND_ID)
    return Page([(item, -negative) for negative, _, item in candidates[offset : offset + k]], is_exact)


def _most_similar(
    view: SegmentView, query: Vector, depth: int, item_filter: ItemFilter
) -> Iterator[tuple[IndexedItem, float]]:
    """Yield the `depth` best live items of a segment, in no order; more if some tie with the last one."""
    mask = view.matches(item_filter)
    rows = None if mask is None else np.flatnonzero(mask)
    scores = _cosines(view.segment.index.vectors, query, rows)
    if depth < len(scores):
        last = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        best = np.flatnonzero(scores >= last)
    else:
        best = np.arange(len(scores))
    numbers = best if rows is None else rows[best]
    for number, score in zip(numbers.tolist(), scores[best].tolist(), strict=True):
        yield view.segment.items[number], score


def _cosines(vectors: Matrix, query: Vector, rows: npt.NDArray[np.intp] | None) -> npt.NDArray[np.float64]:
    """Return the cosine of a query and each of the rows; 0 where either has no length."""
    direction = query.astype(np.float64)
    length = np.linalg.norm(direction)
    cosines = np.zeros(len(vectors) if rows is None else len(rows))
    for start in range(0, len(cosines), _ROWS_PER_STEP):
        step = slice(start, start + _ROWS_PER_STEP)
        # In double precision, in which no product of single-precision numbers overflows.
        part = vectors[step if rows is None else rows[step]].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", part, part)) * length
        np.divide(part @ direction, lengths, out=cosines[step], where=lengths > 0)
    return np.clip(cosines, -1.0, 1.0, out=cosines)
