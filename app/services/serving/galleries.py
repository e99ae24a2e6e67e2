"""Galleries: the projected items of one modality, in immutable segments.

A write adds one small segment and marks the rows that it replaces or deletes as dead; everything else is
shared with the gallery before it. Merges keep the segments few: those of a few rows are part of a write, and
others are due (`Gallery.due_merge`) for the background, during which the gallery takes further writes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace as replace_fields
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from app.domain.entities import ItemFilter, Matrix, Vector
from app.domain.entities.index_choice import IndexSpec
from app.domain.ports import BestRows, GalleryIndex, RowSearch
from app.services.serving.item_columns import ColumnNames
from app.services.serving.item_rows import ItemIds
from app.services.serving.merge_policy import SegmentSize, find_tail, runs_to_merge
from app.services.serving.segments import IndexedItem, IndexFactory, Mask, Segment, SegmentView
from app.services.storage.pacing import no_pause

_NO_FILTER = ItemFilter()
FoundRows = list[list[BestRows]]
"""Of each query in each segment."""
_SCORE_AND_ID = itemgetter(0, 1)
_Candidate = tuple[float, str, IndexedItem]
"""Negative score, id and item: candidates in ascending order are results, the best first."""


class Page(list[tuple[IndexedItem, float]]):
    """Results of one query with scores, best first.

    Parameters
    ----------
    results : iterable of tuple
        Items and scores.
    is_exact : bool
        Whether no better result can have been missed, whatever the index.
    """

    def __init__(self, results: Iterable[tuple[IndexedItem, float]] = (), is_exact: bool = True) -> None:
        super().__init__(results)
        self.is_exact = is_exact


class Gallery:
    """Projected items of one modality at one revision; immutable.

    Parameters
    ----------
    segments : iterable of SegmentView
        Each id is alive in at most one of them.
    make_index : callable
        Builds the index of a new segment.
    unranked : frozenset of str
        Stored items that are not in the gallery, because the model cannot place them.
    """

    def __init__(
        self,
        segments: Iterable[SegmentView],
        make_index: IndexFactory,
        unranked: frozenset[str] = frozenset(),
    ) -> None:
        self.segments = tuple(segments)
        self.unranked = unranked
        self._make_index = make_index

    @classmethod
    def from_items(
        cls,
        items: Sequence[IndexedItem],
        vectors: Matrix,
        make_index: IndexFactory,
        unranked: frozenset[str] = frozenset(),
    ) -> Gallery:
        """Return a gallery of one segment; `vectors` are the (n_items, rank) projections."""
        segments = [SegmentView.of_all(Segment(items, make_index(vectors)))] if len(items) else []
        return cls(segments, make_index, unranked)

    @classmethod
    def of_segment(
        cls,
        segment: Segment,
        make_index: IndexFactory,
        unranked: frozenset[str] = frozenset(),
        alive: Mask | None = None,
    ) -> Gallery:
        """Return a gallery of one segment; `alive` as of `SegmentView`."""
        if alive is None or alive.all():
            return cls([SegmentView.of_all(segment)], make_index, unranked)
        return cls([SegmentView(segment, alive, int(np.count_nonzero(alive)))], make_index, unranked)

    @property
    def size(self) -> int:
        """Number of items."""
        return sum(view.n_live for view in self.segments)

    @property
    def estimated_bytes(self) -> int:
        """Estimated memory."""
        return sum(view.segment.estimated_bytes for view in self.segments)

    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        """Return about how many numbers a search compares; infinity where a filter has not been used yet."""
        if item_filter.is_empty:
            return sum(view.segment.index.numbers_per_search for view in self.segments)
        return sum(view.numbers_per_search(item_filter) for view in self.segments)

    @property
    def bytes_per_item(self) -> float:
        """Estimated memory of an item, of the segment where that is largest."""
        return max((view.segment.bytes_per_item for view in self.segments), default=0.0)

    @property
    def columns(self) -> ColumnNames:
        """Columns of its items that were read, in whatever segment."""
        return ColumnNames.union(view.segment.columns for view in self.segments)

    def rows_to_read(self, names: ColumnNames) -> int:
        """Return of how many rows columns have yet to be read."""
        return sum(len(segment.items) for segment in self.unread_segments(names))

    def unread_segments(self, names: ColumnNames) -> Iterator[Segment]:
        """Yield the segments whose columns have yet to be read."""
        return (view.segment for view in self.segments if view.segment.missing_columns(names))

    def read_columns(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        """Read columns unless they are there; `pause` is called between steps."""
        for view in self.segments:
            view.segment.read_columns(names, pause)

    @property
    def is_exact(self) -> bool:
        """Whether every search returns the true best items."""
        return all(view.segment.index.is_exact for view in self.segments)

    @property
    def index_kind(self) -> str:
        """Kind of the approximate index, ``exact`` where there is none; see `IndexSpec`."""
        specs = (view.segment.index.spec for view in self.segments if not view.segment.index.is_exact)
        return next(specs, IndexSpec()).kind

    def exactly(self, made: MutableMapping[GalleryIndex, GalleryIndex]) -> Gallery:
        """Return a gallery of the same items that is searched exactly.

        Parameters
        ----------
        made : mapping of GalleryIndex to GalleryIndex
            Exact indexes by what they stand for. Missing ones are added, for a gallery that differs a little.
        """
        views = []
        for view in self.segments:
            index = view.segment.index
            if not index.is_exact:
                if index not in made:
                    made[index] = self._make_index(index.vectors)
                view = replace_fields(view, segment=view.segment.with_index(made[index]))
            views.append(view)
        return self._with(views, self.unranked)

    def item_ids(self) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        yield from self.unranked
        for view in self.segments:
            for row, item_id in enumerate(view.segment.item_ids()):
                if view.alive is None or view.alive[row]:
                    yield item_id

    def items(self) -> Iterator[IndexedItem]:
        """Yield the items that can be ranked."""
        return itertools.chain.from_iterable(view.live_items() for view in self.segments)

    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield evenly spaced items with their projections, `count` at most."""
        places = np.unique(np.linspace(0, self.size - 1, min(count, self.size)).astype(np.intp))
        start = 0
        for view in self.segments:
            live = view.live_rows()
            chosen = live[places[(places >= start) & (places < start + len(live))] - start]
            vectors = view.segment.index.vectors[chosen]
            yield from zip((view.segment.items[row] for row in chosen.tolist()), vectors, strict=True)
            start += len(live)

    def has_label(self, label: str) -> bool:
        """Return whether an item carries a label."""
        return any(view.has_label(label) for view in self.segments)

    def count_labels(self) -> Counter[str]:
        """Return how many items carry each label."""
        counts: Counter[str] = Counter()
        for view in self.segments:
            counts.update(view.count_labels())
        return counts

    def count_values(self, key: str) -> Counter[Hashable]:
        """Return how many items have each value under a metadata key, as of `ItemColumns`."""
        counts: Counter[Hashable] = Counter()
        for view in self.segments:
            counts.update(view.count_values(key))
        return counts

    def apply_write(
        self,
        item_ids: Collection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: Collection[str] = (),
        pause: Callable[[], None] = no_pause,
    ) -> Gallery:
        """Return the gallery after a write; itself when the write changes nothing.

        Parameters
        ----------
        item_ids : collection of str
            What was written or deleted; ids that were never in the gallery are ignored.
        items : sequence of IndexedItem
            Those of the written items that can be ranked.
        vectors : ndarray of shape (n_items, rank)
            Their projections.
        unranked : collection of str
            The written items that the model cannot place.
        pause : callable
            Called between steps.
        """
        now_unranked = self.unranked.difference(item_ids).union(unranked)
        hashed_ids = ItemIds(item_ids)
        views = [view.without(hashed_ids, pause) for view in self.segments]
        if not items and all(new is old for new, old in zip(views, self.segments, strict=True)):
            return self if now_unranked == self.unranked else self._with(views, now_unranked)
        if items:
            views.append(SegmentView.of_all(Segment(items, self._make_index(vectors))))
        return self._with(_merge_tail([view for view in views if view.n_live]), now_unranked)

    def prepare(self, pause: Callable[[], None]) -> None:
        """Build what writes need, so that none has to wait for it; `pause` is called between steps."""
        for view in self.segments:
            view.segment.prepare(pause)

    def due_merge(self) -> tuple[SegmentView, ...]:
        """Return the first adjacent segments that are to be merged; none if no merge is due."""
        for run in runs_to_merge([_size(view) for view in self.segments]):
            return self.segments[run.start : run.stop]
        return ()

    def with_merged(self, sources: Sequence[SegmentView], merged: SegmentView) -> Gallery:
        """Return the gallery with a merged segment; itself if it has none of its sources.

        Parameters
        ----------
        sources : sequence of SegmentView
            Of this gallery, or of one before it.
        merged : SegmentView
            Their merge. What was deleted since is dead in it, and so is what is in another segment by now.
        """
        current = {view.segment: view for view in self.segments}
        first = next((view.segment for view in sources if view.segment in current), None)
        if first is None:
            return self
        alive = np.concatenate([_still_alive(view, current.get(view.segment)) for view in sources])
        n_live = int(np.count_nonzero(alive))
        replaced = {view.segment for view in sources}
        view = SegmentView(merged.segment, None if n_live == len(alive) else alive, n_live)
        views = [view if old.segment is first else old for old in self.segments]
        return self._with(
            (view for view in views if view.n_live and view.segment not in replaced), self.unranked
        )

    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
        """Return each query's results offset + 1 to offset + k with scores, best first, equal scores by id.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, rank)
            Projected queries. Each is searched for alone: a product of many rows may round otherwise, and
            scores would depend on the batch.
        k, offset : int
            Which results of the ranking.
        item_filter : ItemFilter
            Only items that match it are ranked.
        """
        restricted = [view.restrict(item_filter) for view in self.segments]
        sizes = [
            view.n_live if rows is None else rows.size
            for view, rows in zip(self.segments, restricted, strict=True)
        ]
        depth = min(offset + k, sum(sizes))
        if offset >= depth:
            return [Page() for _ in queries]
        depths = [min(depth, size) for size in sizes]
        return [self._rank(query, depths, restricted, slice(offset, offset + k)) for query in queries]

    def search_many(self, queries: Matrix, pages: Sequence[tuple[int, int]]) -> list[Page]:
        """Return what `search` would return for each query with its own page, to the bit, and no filter.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, rank)
            Projected queries.
        pages : sequence of (int, int)
            `k` and `offset` of each.
        """
        return self.pages(self.find_rows(queries, pages), pages)

    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = _NO_FILTER
    ) -> FoundRows:
        """Return the best rows of each segment; parameters as of `search_many` and `search`."""
        depths = [offset + k for k, offset in pages]
        rows: FoundRows = []
        for view in self.segments:
            ks = [min(depth, view.n_live) for depth in depths]
            restricted = None if item_filter.is_empty else view.restrict(item_filter)
            if restricted is None:
                rows.append(view.segment.index.search_many(queries, ks, view.alive))
            else:
                rows.append([restricted.search(query, k) for query, k in zip(queries, ks, strict=True)])
        return rows

    def pages(self, rows: FoundRows, pages: Sequence[tuple[int, int]]) -> list[Page]:
        """Return the items of rows as of `find_rows`, as of `search_many`."""
        candidates: list[list[_Candidate]] = [[] for _ in pages]
        for view, best in zip(self.segments, rows, strict=True):
            for of_query, of_segment in zip(candidates, best, strict=True):
                of_query += _candidates(view.segment, *of_segment)
        are_exact = [all(best.is_exact for best in of_query) for of_query in zip(*rows, strict=True)]
        return [
            Page(_in_order(of_query)[offset : offset + k], is_exact)
            for of_query, (k, offset), is_exact in zip(
                candidates, pages, are_exact or [True] * len(pages), strict=True
            )
        ]

    def _rank(
        self, query: Vector, depths: Sequence[int], restricted: Sequence[RowSearch | None], page: slice
    ) -> Page:
        """Return a page of the best items of each segment, ranked together."""
        candidates: list[_Candidate] = []
        is_exact = True
        for view, depth, search in zip(self.segments, depths, restricted, strict=True):
            if search is None:
                best = view.segment.index.search(query, depth, None)
            else:
                best = search.search(query, depth)
            is_exact = is_exact and best.is_exact
            candidates += _candidates(view.segment, *best)
        return Page(_in_order(candidates)[page], is_exact)

    def _with(self, views: Iterable[SegmentView], unranked: frozenset[str]) -> Gallery:
        return Gallery(views, self._make_index, unranked)


def _size(view: SegmentView) -> SegmentSize:
    return SegmentSize(view.n_live, len(view.segment.items), not view.segment.index.is_exact)


def _merge_tail(views: Sequence[SegmentView]) -> Iterator[SegmentView]:
    """Yield the views after the merges of the last few rows that are due."""
    sizes = [_size(view) for view in views]
    tail = next_view = find_tail(sizes)
    yield from views[:tail]
    for run in runs_to_merge(sizes[tail:]):
        yield from views[next_view : tail + run.start]
        yield SegmentView.merge(views[tail + run.start : tail + run.stop])
        next_view = tail + run.stop
    yield from views[next_view:]


def _still_alive(before: SegmentView, now: SegmentView | None) -> npt.NDArray[np.bool]:
    """Return which of the rows that were alive are so now; none where the segment is gone."""
    if now is None:
        return np.zeros(before.n_live, np.bool)
    if now.alive is None:
        return np.ones(before.n_live, np.bool)
    return now.alive if before.alive is None else now.alive[before.alive]


def _candidates(segment: Segment, rows: npt.NDArray[np.intp], scores: Vector) -> Iterator[_Candidate]:
    items = segment.items
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        item = items[row]
        yield -score, item.id, item


def _in_order(candidates: list[_Candidate]) -> list[tuple[IndexedItem, float]]:
    candidates.sort(key=_SCORE_AND_ID)
    return [(item, -negative) for negative, _, item in candidates]
