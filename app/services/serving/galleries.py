"""Galleries: the projected items of one modality, in immutable segments."""
# A write adds one small segment and marks the rows that it replaces or deletes as dead; everything else is
# shared with the gallery before it. Merges keep the segments few: those of a few rows are part of a write,
# and others are due (`due_merge`) for the background, during which the gallery takes further writes.

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace as replace_fields
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from app.domain.entities import Matrix, Vector
from app.domain.ports import BestRows, GalleryIndex, RowSearch
from app.domain.reports import IndexSpec
from app.domain.searches import ItemFilter
from app.services.serving.gallery import Gallery, Page
from app.services.serving.item_columns import ColumnNames
from app.services.serving.item_rows import ItemIds
from app.services.serving.merge_policy import SegmentSize, find_tail, runs_to_merge
from app.services.serving.segments import IndexedItem, IndexFactory, Mask, Segment, SegmentView
from app.services.serving.similar import rank_similar
from app.services.storage.pacing import no_pause

_NO_FILTER = ItemFilter()
FoundRows = list[list[BestRows]]
"""Of each query in each segment."""
_SCORE_AND_ID = itemgetter(0, 1)
_Candidate = tuple[float, str, IndexedItem]
"""Negative score, id and item: candidates in ascending order are results, the best first."""


class SegmentGallery(Gallery):
    """Projected items of one modality at one revision; immutable.
    Each id is alive in at most one segment; `unranked` are stored items that the model cannot place."""

    def __init__(
        self,
        segments: Iterable[SegmentView],
        make_index: IndexFactory,
        unranked: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(segments)
        self._unranked = unranked
        self._make_index = make_index

    @classmethod
    def from_items(
        cls,
        items: Sequence[IndexedItem],
        vectors: Matrix,
        make_index: IndexFactory,
        unranked: frozenset[str] = frozenset(),
    ) -> SegmentGallery:
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
    ) -> SegmentGallery:
        """Return a gallery of one segment; `alive` as of `SegmentView`."""
        if alive is None or alive.all():
            return cls([SegmentView.of_all(segment)], make_index, unranked)
        return cls([SegmentView(segment, alive, int(np.count_nonzero(alive)))], make_index, unranked)

    @property
    @override
    def unranked(self) -> frozenset[str]:
        return self._unranked

    @property
    @override
    def size(self) -> int:
        return sum(view.n_live for view in self.segments)

    @property
    @override
    def estimated_bytes(self) -> int:
        return sum(view.segment.estimated_bytes for view in self.segments)

    @override
    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        if item_filter.is_empty:
            return sum(view.segment.index.numbers_per_search for view in self.segments)
        return sum(view.numbers_per_search(item_filter) for view in self.segments)

    @property
    @override
    def bytes_per_item(self) -> float:
        return max((view.segment.bytes_per_item for view in self.segments), default=0.0)

    @property
    @override
    def columns(self) -> ColumnNames:
        return ColumnNames.union(view.segment.columns.names for view in self.segments)

    @override
    def rows_to_read(self, names: ColumnNames) -> int:
        return sum(len(segment.items) for segment in self.unread_segments(names))

    @override
    def read_columns(self, names: ColumnNames, pause: Callable[[], None] = no_pause) -> None:
        for view in self.segments:
            view.segment.columns.read(names, pause)

    @property
    @override
    def is_exact(self) -> bool:
        return all(view.segment.index.is_exact for view in self.segments)

    @property
    @override
    def index_kind(self) -> str:
        specs = (view.segment.index.spec for view in self.segments if not view.segment.index.is_exact)
        return next(specs, IndexSpec()).kind

    @override
    def exactly(self, made: MutableMapping[GalleryIndex, GalleryIndex]) -> SegmentGallery:
        views = []
        for view in self.segments:
            index = view.segment.index
            if not index.is_exact:
                if index not in made:
                    made[index] = self._make_index(index.vectors)
                view = replace_fields(view, segment=view.segment.with_index(made[index]))
            views.append(view)
        return self._with(views, self.unranked)

    @override
    def item_ids(self) -> Iterator[str]:
        yield from self.unranked
        for view in self.segments:
            for row, item_id in enumerate(view.segment.item_ids()):
                if view.alive is None or view.alive[row]:
                    yield item_id

    @override
    def first_items(self, count: int) -> Iterator[IndexedItem]:
        items = itertools.chain.from_iterable(view.live_items() for view in self.segments)
        return itertools.islice(items, count)

    @override
    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        places = np.unique(np.linspace(0, self.size - 1, min(count, self.size)).astype(np.intp))
        start = 0
        for view in self.segments:
            live = view.live_rows()
            chosen = live[places[(places >= start) & (places < start + len(live))] - start]
            vectors = view.segment.index.vectors[chosen]
            yield from zip((view.segment.items[row] for row in chosen.tolist()), vectors, strict=True)
            start += len(live)

    @override
    def has_label(self, label: str) -> bool:
        return any(view.has_label(label) for view in self.segments)

    @override
    def count_matching(self, item_filter: ItemFilter) -> int:
        masks = ((view, view.matches(item_filter)) for view in self.segments)
        return sum(view.n_live if mask is None else int(np.count_nonzero(mask)) for view, mask in masks)

    @override
    def count_labels(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for view in self.segments:
            counts.update(view.count_labels())
        return counts

    @override
    def count_values(self, key: str) -> Counter[Hashable]:
        counts: Counter[Hashable] = Counter()
        for view in self.segments:
            counts.update(view.count_values(key))
        return counts

    @override
    def advance(self, revision: int) -> SegmentGallery | None:
        return None

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
    ) -> SegmentGallery:
        now_unranked = self.unranked.difference(item_ids).union(unranked)
        hashed_ids = ItemIds(item_ids)
        views = [view.without(hashed_ids, pause) for view in self.segments]
        if not items and all(new is old for new, old in zip(views, self.segments, strict=True)):
            return self if now_unranked == self.unranked else self._with(views, now_unranked)
        if items:
            views.append(SegmentView.of_all(Segment(items, self._make_index(vectors))))
        return self._with(_merge_tail([view for view in views if view.n_live]), now_unranked)

    @override
    def prepare(self, pause: Callable[[], None]) -> None:
        for view in self.segments:
            view.segment.prepare(pause)

    @override
    def due_merge(self) -> tuple[SegmentView, ...]:
        for run in runs_to_merge([_size(view) for view in self.segments]):
            return self.segments[run.start : run.stop]
        return ()

    @override
    def with_merged(self, sources: Sequence[SegmentView], merged: SegmentView) -> SegmentGallery:
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

    @override
    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
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

    @override
    def search_similar(
        self, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None = None
    ) -> Page:
        return Page(rank_similar(self.segments, query, k, offset, item_filter, left_out))

    @override
    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = _NO_FILTER
    ) -> FoundRows:
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

    @override
    def pages(self, rows: FoundRows, pages: Sequence[tuple[int, int]]) -> list[Page]:
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

    def _with(self, views: Iterable[SegmentView], unranked: frozenset[str]) -> SegmentGallery:
        return SegmentGallery(views, self._make_index, unranked)


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
