"""Segments of a gallery: immutable rows with their index, and views that know which rows are alive."""
# The words are those of Lucene and tantivy: a write adds a segment, a deletion clears bits of a segment's
# alive bitset, and a view is a segment together with one such bitset.
#
# A search visits every segment, so there should be few; a merge copies rows, so it should be rare. Merging
# segments of like size, as a log-structured merge tree does, leaves a number of segments logarithmic in the
# number of rows, and copies each row a logarithmic number of times in its life.

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.domain.entities import IndexedItem, Matrix
from app.domain.filters import Condition, ItemFilter
from app.domain.ports import GalleryIndex, RowSearch
from app.services.serving.item_columns import ROWS_READ_BY_A_SEARCH, ColumnNames, ItemColumns
from app.services.serving.stored_items import BYTES_PER_ROW, ItemIds, ItemRows, Mask, StoredItems
from app.services.storage.pacing import no_pause

_CACHED_FILTERS = 64
"""Filters whose rows a segment remembers: a bit per row each, so that pages of one search reuse them."""
_PREPARED_ONE_IN = 4  # bytes of the vectors for each one of the searches that are prepared for filters
_ROWS_AT_ONCE = 4096
"""Rows of a label that are looked at in one step: most labels have a live row among the first."""
_BYTES_PER_ITEM = 400
"""About what the Python objects of an item take: instance, id, tuple of labels, metadata dictionary."""
_BYTES_PER_LABEL = 60  # overhead of a label's string object and its reference
_BYTES_PER_METADATA_CHARACTER = 3  # memory of parsed JSON in relation to its text
_SAMPLED_ITEMS = 100
"""Items that are measured to estimate the size of a segment, so that it takes a moment at any size."""
_MAX_SIZE_RATIO = 4.0
"""A segment is merged into the one before it while that one has at most this many times as many live rows."""
# Larger values leave fewer segments and copy more rows. With 4, 1,000 single writes to a gallery of one
# segment of 5,000 items leave at most 7 segments and copy a new row at most 12 times on average.
_MAX_APPROXIMATE_SIZE_RATIO = 16.0
"""The same for a segment before it that has an approximate index: each row of the later one is compared with
every query, while of its own a sixteenth or less is visited."""
_ROWS_OF_A_WRITE = 1000
"""The last segments that together hold at most this many rows are merged by the write itself, in less time
than the rest of it takes: some .2 ms."""
_MAX_DEAD_FRACTION = 0.25
"""A segment is rewritten once more than this fraction of its rows is dead: dead rows cost a third of the live
ones at most, and a rewrite is paid for by the deletion of a third as many rows as it copies."""


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What decides whether a segment is merged."""

    n_live: int  # neither deleted nor replaced
    n_rows: int
    is_approximate: bool = False  # its index visits a part of the rows

    @property
    def has_many_dead(self) -> bool:
        """Whether it is to be rewritten even alone."""
        return self.n_rows - self.n_live > _MAX_DEAD_FRACTION * self.n_rows


class Segment:
    """Items that were put into a gallery together; immutable."""

    def __init__(self, items: Sequence[IndexedItem], index: GalleryIndex) -> None:
        self.items = items
        self.index = index
        self._bitsets: dict[bytes, npt.NDArray[np.uint8]] = {}
        self._item_rows: ItemRows | None = None
        self.columns = ItemColumns(items)  # those that were read

    @cached_property
    def estimated_bytes(self) -> int:
        """Estimated memory, from a sample of the items."""
        searched = self.index.n_bytes + self.prepared_bytes
        if isinstance(self.items, StoredItems):
            return searched + self.items.n_bytes + BYTES_PER_ROW * len(self.items)
        return searched + int(len(self.items) * self.bytes_per_item)

    @cached_property
    def bytes_per_item(self) -> float:
        """Estimated memory of an item, about three times its text unless it is kept as that."""
        if isinstance(self.items, StoredItems):
            return self.items.n_bytes / max(len(self.items), 1)
        sizes = [
            _estimate_item_bytes(item) for item in self.items[:: max(len(self.items) // _SAMPLED_ITEMS, 1)]
        ]
        return sum(sizes) / max(len(sizes), 1)

    @property
    def prepared_bytes(self) -> int:
        """Most memory of the searches that a view prepares for filters."""
        return self.index.vectors.nbytes // _PREPARED_ONE_IN

    def with_index(self, index: GalleryIndex) -> Segment:
        """Return a segment of the same items with another index over the same rows."""
        changed = copy.copy(self)
        changed.index = index
        changed.__dict__.pop("estimated_bytes", None)
        return changed

    def prepare(self, pause: Callable[[], None]) -> None:
        """Build what finds items by their ids, unless it is there, for the first write not to wait for it."""
        if self._item_rows is None:
            self._item_rows = ItemRows(self.item_ids(), len(self.items), pause)

    def rows_of(self, item_ids: ItemIds, pause: Callable[[], None] = no_pause) -> list[int]:
        """Return the rows of the items that have one of the ids; `pause` is called between steps."""
        self.prepare(pause)
        assert self._item_rows is not None
        items = self.items
        return self._item_rows.find(item_ids, lambda row: items[row].id, pause)

    def item_ids(self) -> Iterator[str]:
        """Yield the id of each row."""
        items = self.items
        return items.ids() if isinstance(items, StoredItems) else (item.id for item in items)

    def matches(self, item_filter: ItemFilter) -> Mask:
        """Return which rows match a filter, dead ones included."""
        key = item_filter.fingerprint
        bitset = self._bitsets.get(key)
        if bitset is not None:
            return np.unpackbits(bitset, count=len(self.items)).view(np.bool)
        self.columns.read(ColumnNames.of(item_filter))  # all of them in one pass
        mask = item_filter.fold(self._meets, self._join)
        if len(self._bitsets) >= _CACHED_FILTERS:
            self._bitsets.clear()
        self._bitsets[key] = np.packbits(mask)
        return mask

    def _meets(self, condition: Condition, negated: bool) -> Mask:
        """Return which rows meet a condition, or do not."""
        if condition.subject == "id":
            mask = np.zeros(len(self.items), np.bool)
            mask[self.rows_of(ItemIds(condition.values))] = True
        else:
            mask = self.columns.matches(condition)
        return ~mask if negated else mask

    def _join(self, is_all: bool, masks: Iterator[Mask]) -> Mask:
        first = next(masks, None)
        if first is None:
            return np.full(len(self.items), is_all)
        join = np.logical_and if is_all else np.logical_or
        return functools.reduce(lambda left, right: join(left, right, out=left), masks, first)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentView:
    """A segment and the rows of it that are alive at one revision."""

    segment: Segment  # shared by the views of many revisions
    alive: Mask | None  # bitset of shape (n_rows,); None when all rows are alive
    n_live: int
    _prepared: dict[bytes, RowSearch] = field(init=False, default_factory=dict)
    """Searches by filter, the oldest first."""

    @classmethod
    def of_all(cls, segment: Segment) -> SegmentView:
        """Return a view in which every row is alive."""
        return cls(segment, None, len(segment.items))

    @classmethod
    def merge(cls, views: Sequence[SegmentView], pause: Callable[[], None] = no_pause) -> SegmentView:
        """Return a view of one new segment that holds the live rows of some views, at least one, in order."""
        # Its index is of the kind of the largest approximate one, if any; where some items are text, all are.
        parts = [(view.segment.items, view.alive) for view in views]
        is_text = any(isinstance(items, StoredItems) for items, _ in parts)
        if is_text and any(view.n_live for view in views):
            merged: Sequence[IndexedItem] = StoredItems.merge(parts, pause)
        else:
            merged = list(itertools.chain.from_iterable(view.live_items() for view in views))
        segment = Segment(merged, merge_indexes(views))
        pause()
        segment.prepare(pause)
        if len(merged) > ROWS_READ_BY_A_SEARCH:
            segment.columns.read(ColumnNames.union(view.segment.columns.names for view in views), pause)
        return cls.of_all(segment)

    @property
    def size(self) -> SegmentSize:
        """What decides whether its segment is merged."""
        return SegmentSize(self.n_live, len(self.segment.items), not self.segment.index.is_exact)

    def without(self, item_ids: ItemIds, pause: Callable[[], None] = no_pause) -> SegmentView:
        """Return the view after a deletion; itself when none of the items is alive in it."""
        dead = self.segment.rows_of(item_ids, pause)
        if self.alive is not None:
            dead = [row for row in dead if self.alive[row]]
        if not dead:
            return self
        alive = np.ones(len(self.segment.items), np.bool) if self.alive is None else self.alive.copy()
        alive[dead] = False
        return SegmentView(self.segment, alive, self.n_live - len(dead))

    def restrict(self, item_filter: ItemFilter) -> RowSearch | None:
        """Return a search among the live rows that match a filter; None when all rows are and do."""
        if item_filter.is_empty and self.alive is None:
            return None
        key = item_filter.fingerprint
        prepared = self._prepared.get(key)
        if prepared is None:
            mask = self.matches(item_filter)
            assert mask is not None
            prepared = self.segment.index.restrict(mask)
            room = self.segment.prepared_bytes - prepared.n_bytes
            while searches := self.prepared_searches():  # the oldest go where there is no room
                if len(searches) < _CACHED_FILTERS and sum(search.n_bytes for search in searches) <= room:
                    break
                self._prepared.pop(next(iter(self._prepared), key), None)
            self._prepared[key] = prepared
        return prepared

    def matches(self, item_filter: ItemFilter) -> Mask | None:
        """Return which rows are alive and match a filter; None when all rows are and do."""
        if item_filter.is_empty:
            return self.alive
        mask = self.segment.matches(item_filter)
        return mask if self.alive is None else mask & self.alive

    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        """Return about how many numbers a search compares; infinity where the filter is not prepared."""
        if item_filter.is_empty and self.alive is None:
            return self.segment.index.numbers_per_search
        prepared = self._prepared.get(item_filter.fingerprint)
        return math.inf if prepared is None else prepared.numbers_per_search

    def prepared_searches(self) -> list[RowSearch]:
        """Return the searches that are prepared for filters, the latest last."""
        return list(self._prepared.values())

    def has_label(self, label: str) -> bool:
        """Return whether a live item carries a label."""
        rows = self.segment.columns.rows_by_label.get(label)
        if rows is None or self.alive is None:
            return rows is not None
        starts = range(0, len(rows), _ROWS_AT_ONCE)
        return any(self.alive[rows[start : start + _ROWS_AT_ONCE]].any() for start in starts)

    def count_labels(self, item_filter: ItemFilter) -> Mapping[str, int]:
        """Return how many live items that match a filter carry each label that one does."""
        rows_by_label, alive = self.segment.columns.rows_by_label.items(), self.matches(item_filter)
        if alive is None:
            return {label: len(rows) for label, rows in rows_by_label}
        counts = ((label, int(np.count_nonzero(alive[rows]))) for label, rows in rows_by_label)
        return {label: count for label, count in counts if count}

    def live_items(self) -> Iterable[IndexedItem]:
        """Return the live items, in row order; those that are text are decoded as they are taken."""
        items = self.segment.items
        return items if self.alive is None else itertools.compress(items, self.alive.tolist())

    def live_rows(self) -> npt.NDArray[np.intp]:
        """Return the row numbers of the live items."""
        return np.arange(self.n_live) if self.alive is None else np.flatnonzero(self.alive)

    def live_vectors(self) -> Matrix:
        """Return the (n_live, rank) projections of the live items."""
        vectors = self.segment.index.vectors
        return vectors if self.alive is None else vectors[self.alive]


def merge_indexes(views: Sequence[SegmentView]) -> GalleryIndex:
    """Return one index over the live rows of some views: those of the largest approximate one get the others'
    rows. Whether these still find what they should is seen by the recall of live searches."""
    largest = max(views, key=lambda view: (not view.segment.index.is_exact, view.n_live))
    rows_before = [
        view.live_rows() if view is largest else np.full(view.n_live, -1, np.intp) for view in views
    ]
    vectors = np.concatenate([view.live_vectors() for view in views])
    return largest.segment.index.rebuild(vectors, np.concatenate(rows_before))


def runs_to_merge(segments: Sequence[SegmentSize]) -> list[range]:
    """Return the runs of adjacent segments, oldest first, to be rewritten as one segment each; others stay as
    they are, as in Lucene and tantivy. A run of one segment only drops its dead rows."""
    runs: list[tuple[range, int, bool]] = []
    for position, segment in enumerate(segments):
        start, n_live, is_approximate = position, segment.n_live, segment.is_approximate
        while runs:
            run, n_before, was_approximate = runs[-1]
            is_coarse = was_approximate and not segment.is_approximate
            if n_before > (_MAX_APPROXIMATE_SIZE_RATIO if is_coarse else _MAX_SIZE_RATIO) * n_live:
                break
            runs.pop()
            start, n_live = run.start, n_before + n_live
            is_approximate = is_approximate or was_approximate
        runs.append((range(start, position + 1), n_live, is_approximate))
    return [run for run, _, _ in runs if len(run) > 1 or segments[run.start].has_many_dead]


def merge_tail(views: Sequence[SegmentView]) -> Iterator[SegmentView]:
    """Yield the views after the merges of the last few rows that are due."""
    sizes = [view.size for view in views]
    tail, n_rows = len(sizes), 0  # of those after it, a write may merge each
    while tail and (n_rows := n_rows + sizes[tail - 1].n_rows) <= _ROWS_OF_A_WRITE:
        tail -= 1
    next_view = tail
    yield from views[:tail]
    for run in runs_to_merge(sizes[tail:]):
        yield from views[next_view : tail + run.start]
        yield SegmentView.merge(views[tail + run.start : tail + run.stop])
        next_view = tail + run.stop
    yield from views[next_view:]


def _estimate_item_bytes(item: IndexedItem) -> int:
    texts = sum(map(len, (item.id, *item.labels)))
    metadata = _BYTES_PER_METADATA_CHARACTER * len(json.dumps(item.metadata))
    return _BYTES_PER_ITEM + _BYTES_PER_LABEL * len(item.labels) + texts + metadata
