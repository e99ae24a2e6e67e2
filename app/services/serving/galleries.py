"""Galleries: the projected items of one modality, in immutable segments.

A write adds one small segment and marks the rows that it replaces or deletes as dead; everything else is
shared with the gallery before it. Merges keep the segments few.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace as replace_fields
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from app.domain.entities import ItemFilter, Matrix, Vector
from app.domain.entities.index_choice import IndexSpec
from app.domain.ports import GalleryIndex, RowSearch
from app.services.serving.merge_policy import SegmentSize, runs_to_merge
from app.services.serving.segments import IndexedItem, IndexFactory, Mask, Segment, SegmentView

_NO_FILTER = ItemFilter()
FoundRows = list[list[tuple[npt.NDArray[np.intp], Vector]]]
"""Rows and scores of each query in each segment."""
_SCORE_AND_ID = itemgetter(0, 1)
_Candidate = tuple[float, str, IndexedItem]
"""Negative score, id and item: candidates in ascending order are results, the best first."""


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

    def has_label(self, label: str) -> bool:
        """Return whether an item carries a label."""
        return any(view.has_label(label) for view in self.segments)

    def apply_write(
        self,
        item_ids: Collection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: Collection[str] = (),
        most_merged: float = math.inf,
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
        most_merged : float
            Live rows of a merge; larger ones stay due, see `merge_due`.
        """
        now_unranked = self.unranked.difference(item_ids).union(unranked)
        views = [view.without(item_ids) for view in self.segments]
        if not items and all(new is old for new, old in zip(views, self.segments, strict=True)):
            return self if now_unranked == self.unranked else self._with(views, now_unranked)
        if items:
            views.append(SegmentView.of_all(Segment(items, self._make_index(vectors))))
        return self._with(self._merge([view for view in views if view.n_live], most_merged), now_unranked)

    @property
    def has_due_merges(self) -> bool:
        """Whether there are merges that a write left to be done."""
        return bool(runs_to_merge(_sizes(self.segments)))

    def merge_due(self) -> Gallery:
        """Return the gallery after the merges that are due; itself when none are."""
        return (
            self._with(self._merge(self.segments, math.inf), self.unranked) if self.has_due_merges else self
        )

    def search(
        self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter
    ) -> list[list[tuple[IndexedItem, float]]]:
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
            return [[] for _ in queries]
        depths = [min(depth, size) for size in sizes]
        return [self._rank(query, depths, restricted)[offset : offset + k] for query in queries]

    def search_many(
        self, queries: Matrix, pages: Sequence[tuple[int, int]]
    ) -> list[list[tuple[IndexedItem, float]]]:
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

    def pages(
        self, rows: FoundRows, pages: Sequence[tuple[int, int]]
    ) -> list[list[tuple[IndexedItem, float]]]:
        """Return the items of rows as of `find_rows`, as of `search_many`."""
        candidates: list[list[_Candidate]] = [[] for _ in pages]
        for view, best in zip(self.segments, rows, strict=True):
            for of_query, of_segment in zip(candidates, best, strict=True):
                of_query += _candidates(view.segment, *of_segment)
        return [
            _in_order(of_query)[offset : offset + k]
            for of_query, (k, offset) in zip(candidates, pages, strict=True)
        ]

    def _rank(
        self, query: Vector, depths: Sequence[int], restricted: Sequence[RowSearch | None]
    ) -> list[tuple[IndexedItem, float]]:
        """Return the best items of each segment, ranked together."""
        candidates: list[_Candidate] = []
        for view, depth, search in zip(self.segments, depths, restricted, strict=True):
            if search is None:
                rows, scores = view.segment.index.search(query, depth, None)
            else:
                rows, scores = search.search(query, depth)
            candidates += _candidates(view.segment, rows, scores)
        return _in_order(candidates)

    def _merge(self, views: Sequence[SegmentView], most_merged: float) -> Iterator[SegmentView]:
        """Yield the views after the merges that are due and small enough."""
        next_view = 0
        for run in runs_to_merge(_sizes(views)):
            merged = views[run.start : run.stop]
            if sum(view.n_live for view in merged) <= most_merged:
                yield from views[next_view : run.start]
                yield SegmentView.merge(merged)
                next_view = run.stop
        yield from views[next_view:]

    def _with(self, views: Iterable[SegmentView], unranked: frozenset[str]) -> Gallery:
        return Gallery(views, self._make_index, unranked)


def _sizes(views: Sequence[SegmentView]) -> list[SegmentSize]:
    return [SegmentSize(view.n_live, len(view.segment.items)) for view in views]


def _candidates(segment: Segment, rows: npt.NDArray[np.intp], scores: Vector) -> Iterator[_Candidate]:
    items = segment.items
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        item = items[row]
        yield -score, item.id, item


def _in_order(candidates: list[_Candidate]) -> list[tuple[IndexedItem, float]]:
    candidates.sort(key=_SCORE_AND_ID)
    return [(item, -negative) for negative, _, item in candidates]
