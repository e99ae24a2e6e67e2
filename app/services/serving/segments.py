"""Segments of a gallery: immutable rows with their index, and views that know which rows are alive.

The words are those of Lucene and tantivy: a write adds a segment, a deletion clears bits of a segment's
alive bitset, and a view is a segment together with one such bitset.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import ItemFilter, Matrix
from app.domain.ports import GalleryIndex
from app.services.serving.metadata_columns import MetadataColumns

IndexFactory = Callable[[Matrix], GalleryIndex]
"""Builds an index over projected rows."""
Mask = npt.NDArray[np.bool]

_CACHED_FILTERS = 64
"""Filters whose mask a segment remembers: a byte per row each, so that pages of one search reuse it."""
_BYTES_PER_ITEM = 400
"""About what the Python objects of an item take: instance, id, tuple of labels, metadata dictionary."""
_BYTES_PER_LABEL = 60
"""Overhead of a label's string object and its reference."""
_BYTES_PER_METADATA_CHARACTER = 3
"""Memory of parsed JSON in relation to its text."""
_SAMPLED_ITEMS = 100
"""Items that are measured to estimate the size of a segment, so that it takes a moment at any size."""


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """What a gallery knows of an item apart from its projection."""

    id: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


class Segment:
    """Items that were put into a gallery together; immutable.

    Parameters
    ----------
    items : sequence of IndexedItem
        One per row of the index.
    index : GalleryIndex
        Their projections.
    """

    def __init__(self, items: Sequence[IndexedItem], index: GalleryIndex) -> None:
        self.items = items
        self.index = index
        self._masks: dict[bytes, Mask] = {}

    @cached_property
    def estimated_bytes(self) -> int:
        """Estimated memory, from a sample of the items."""
        step = max(len(self.items) // _SAMPLED_ITEMS, 1)
        sizes = [_estimate_item_bytes(item) for item in self.items[::step]]
        return self.index.n_bytes + len(self.items) * sum(sizes) // max(len(sizes), 1)

    def with_index(self, index: GalleryIndex) -> Segment:
        """Return a segment of the same items with another index over the same rows."""
        changed = copy.copy(self)
        changed.index = index
        changed.__dict__.pop("estimated_bytes", None)
        return changed

    @cached_property
    def row_by_id(self) -> Mapping[str, int]:
        """Row number of each item id."""
        return {item.id: row for row, item in enumerate(self.items)}

    @cached_property
    def rows_by_label(self) -> Mapping[str, npt.NDArray[np.intp]]:
        """Row numbers of each label."""
        rows: dict[str, list[int]] = {}
        for row, item in enumerate(self.items):
            for label in item.labels:
                rows.setdefault(label, []).append(row)
        return {label: np.asarray(numbers, np.intp) for label, numbers in rows.items()}

    def matches(self, item_filter: ItemFilter) -> Mask:
        """Return which rows match a filter, dead ones included."""
        key = item_filter.fingerprint
        mask = self._masks.get(key)
        if mask is None:
            mask = self._evaluate(item_filter)
            if len(self._masks) >= _CACHED_FILTERS:
                self._masks.clear()
            self._masks[key] = mask
        return mask

    def _evaluate(self, item_filter: ItemFilter) -> Mask:
        mask = np.full(len(self.items), item_filter.labels is None)
        for label in item_filter.labels or ():
            mask[self.rows_by_label.get(label, [])] = True
        for key, values in item_filter.wanted_values.items():
            mask &= self._columns.matches(key, values)
        return mask

    @cached_property
    def _columns(self) -> MetadataColumns:
        return MetadataColumns([item.metadata for item in self.items])


@dataclass(frozen=True, slots=True, eq=False)
class SegmentView:
    """A segment and the rows of it that are alive at one revision.

    Parameters
    ----------
    segment : Segment
        Shared by the views of many revisions.
    alive : ndarray of bool, shape (n_rows,), or None
        The alive bitset; None when all rows are alive.
    n_live : int
        How many rows are alive.
    """

    segment: Segment
    alive: Mask | None
    n_live: int

    @classmethod
    def of_all(cls, segment: Segment) -> SegmentView:
        """Return a view in which every row is alive."""
        return cls(segment, None, len(segment.items))

    @classmethod
    def merge(cls, views: Sequence[SegmentView]) -> SegmentView:
        """Return a view of one new segment that holds the live rows of some views, in order.

        Its index is of the kind of the largest one's.
        """
        items: list[IndexedItem] = []
        vectors: list[Matrix] = []
        for view in views:
            items += view.live_items()
            vectors.append(view.live_vectors())
        largest = max(views, key=lambda view: view.n_live)
        return cls.of_all(Segment(items, largest.segment.index.rebuild(np.concatenate(vectors))))

    def without(self, item_ids: Collection[str]) -> SegmentView:
        """Return the view after a deletion; itself when none of the items is alive in it."""
        row_by_id = self.segment.row_by_id
        if len(item_ids) <= len(row_by_id):
            dead = [row_by_id[item_id] for item_id in item_ids if item_id in row_by_id]
        else:
            dead = [row for item_id, row in row_by_id.items() if item_id in item_ids]
        if self.alive is not None:
            dead = [row for row in dead if self.alive[row]]
        if not dead:
            return self
        alive = np.ones(len(self.segment.items), np.bool) if self.alive is None else self.alive.copy()
        alive[dead] = False
        return SegmentView(self.segment, alive, self.n_live - len(dead))

    def matches(self, item_filter: ItemFilter) -> Mask | None:
        """Return which rows are alive and match a filter; None when all are and do."""
        if item_filter.is_empty:
            return self.alive
        mask = self.segment.matches(item_filter)
        return mask if self.alive is None else mask & self.alive

    def has_label(self, label: str) -> bool:
        """Return whether a live item carries a label."""
        rows = self.segment.rows_by_label.get(label)
        return rows is not None and (self.alive is None or bool(self.alive[rows].any()))

    def live_items(self) -> Sequence[IndexedItem]:
        """Return the live items, in row order."""
        items = self.segment.items
        return items if self.alive is None else [items[row] for row in np.flatnonzero(self.alive).tolist()]

    def live_vectors(self) -> Matrix:
        """Return the (n_live, rank) projections of the live items."""
        vectors = self.segment.index.vectors
        return vectors if self.alive is None else vectors[self.alive]


def _estimate_item_bytes(item: IndexedItem) -> int:
    texts = sum(map(len, (item.id, *item.labels)))
    metadata = _BYTES_PER_METADATA_CHARACTER * len(json.dumps(item.metadata))
    return _BYTES_PER_ITEM + _BYTES_PER_LABEL * len(item.labels) + texts + metadata
