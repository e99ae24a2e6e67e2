"""Galleries: projected items of one modality in immutable segments, of which a write makes one more.

A write adds one small segment and marks the rows it replaces or deletes; everything else is shared with
the gallery before it. Segments of like size are merged, so that there are few of them and a row is copied
some ten times in its life, whatever the number of writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import ItemFilter, Matrix
from app.domain.ports import GalleryIndex
from app.services.serving.metadata_columns import MetadataColumns

IndexMaker = Callable[[Matrix], GalleryIndex]
Mask = npt.NDArray[np.bool]
_GROWTH = 4
"""A segment is merged into the one before it once that one is at most so many times as large."""
_MOST_DEAD = 0.25
"""A segment is rewritten once more than this share of its rows is dead."""
_REMEMBERED_FILTERS = 64
_BYTES_PER_ROW, _ROWS_WEIGHED = 400, 100


@dataclass(frozen=True, slots=True)
class Row:
    """What a gallery knows of an item besides its projection."""

    id: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


def _row_bytes(row: Row) -> int:
    """Return about how much memory a row takes: objects of Python are some times their text."""
    texts = sum(map(len, (row.id, *row.labels))) + 3 * len(json.dumps(row.metadata))
    return _BYTES_PER_ROW + 60 * len(row.labels) + texts


class Segment:
    """Rows that were put into a gallery together; never changed.

    Parameters
    ----------
    rows : sequence of Row
        Items.
    index : GalleryIndex
        Their projections, in the same order.
    """

    def __init__(self, rows: Sequence[Row], index: GalleryIndex) -> None:
        self.rows = rows
        self.index = index
        self._masks: dict[bytes, Mask] = {}

    @cached_property
    def estimated_bytes(self) -> int:
        """About how much memory it takes, by some of its rows: projections twice, here and in the index."""
        step = max(len(self.rows) // _ROWS_WEIGHED, 1)
        weighed = [_row_bytes(row) for row in self.rows[::step]]
        return 2 * self.index.vectors.nbytes + len(self.rows) * sum(weighed) // max(len(weighed), 1)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Row number of each id."""
        return {row.id: number for number, row in enumerate(self.rows)}

    @cached_property
    def labelled(self) -> Mapping[str, npt.NDArray[np.intp]]:
        """Row numbers of each label."""
        found: dict[str, list[int]] = {}
        for number, row in enumerate(self.rows):
            for label in row.labels:
                found.setdefault(label, []).append(number)
        return {label: np.asarray(numbers, np.intp) for label, numbers in found.items()}

    def passing(self, item_filter: ItemFilter) -> Mask:
        """Return which rows pass a filter."""
        key = item_filter.fingerprint
        mask = self._masks.get(key)
        if mask is None:
            mask = self._evaluate(item_filter)
            if len(self._masks) >= _REMEMBERED_FILTERS:
                self._masks.clear()
            self._masks[key] = mask
        return mask

    def _evaluate(self, item_filter: ItemFilter) -> Mask:
        mask = np.full(len(self.rows), item_filter.labels is None)
        for label in item_filter.labels or ():
            mask[self.labelled.get(label, [])] = True
        for key, wanted in item_filter.wanted_values.items():
            mask &= self._columns.matching(key, wanted)
        return mask

    @cached_property
    def _columns(self) -> MetadataColumns:
        return MetadataColumns([row.metadata for row in self.rows])


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A segment, and which of its rows are still alive; None when all are."""

    segment: Segment
    alive: Mask | None
    size: int

    @classmethod
    def whole(cls, segment: Segment) -> Part:
        """Return a part whose rows are all alive."""
        return cls(segment, None, len(segment.rows))

    def without(self, item_ids: Collection[str]) -> Part:
        """Return the part after some items left it; itself when none of them is in it."""
        places = self.segment.places
        if len(item_ids) <= len(places):
            gone = [places[item_id] for item_id in item_ids if item_id in places]
        else:
            gone = [place for item_id, place in places.items() if item_id in item_ids]
        if self.alive is not None:
            gone = [place for place in gone if self.alive[place]]
        if not gone:
            return self
        alive = np.ones(len(self.segment.rows), np.bool) if self.alive is None else self.alive.copy()
        alive[gone] = False
        return Part(self.segment, alive, self.size - len(gone))

    def allowed(self, item_filter: ItemFilter) -> Mask | None:
        """Return which rows are alive and pass a filter; None when all are and do."""
        if item_filter.is_empty:
            return self.alive
        passing = self.segment.passing(item_filter)
        return passing if self.alive is None else passing & self.alive

    def has_label(self, label: str) -> bool:
        """Return whether a living row carries a label."""
        rows = self.segment.labelled.get(label)
        return rows is not None and (self.alive is None or bool(self.alive[rows].any()))

    def living(self) -> tuple[list[Row], Matrix]:
        """Return the living rows and their projections."""
        rows, vectors = self.segment.rows, self.segment.index.vectors
        if self.alive is None:
            return list(rows), vectors
        return [rows[number] for number in np.flatnonzero(self.alive).tolist()], vectors[self.alive]


class Gallery:
    """Projected items of one modality; never changed.

    Parameters
    ----------
    parts : iterable of Part
        Each id is alive in one of them at most.
    make_index : callable
        Builds the index of a new segment.
    unranked : frozenset of str
        Stored items that are not in the gallery, because the model cannot place them.
    """

    def __init__(
        self, parts: Iterable[Part], make_index: IndexMaker, unranked: frozenset[str] = frozenset()
    ) -> None:
        self.parts = tuple(parts)
        self._make_index = make_index
        self.unranked = unranked

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        vectors: Matrix,
        make_index: IndexMaker,
        unranked: frozenset[str] = frozenset(),
    ) -> Gallery:
        """Return a gallery of one segment."""
        parts = [Part.whole(Segment(rows, make_index(vectors)))] if len(rows) else []
        return cls(parts, make_index, unranked)

    @property
    def size(self) -> int:
        """Number of items."""
        return sum(part.size for part in self.parts)

    def ids(self) -> Iterator[str]:
        """Yield the id of each item, also of those it cannot rank."""
        yield from self.unranked
        for part in self.parts:
            for number, row in enumerate(part.segment.rows):
                if part.alive is None or part.alive[number]:
                    yield row.id

    @property
    def estimated_bytes(self) -> int:
        """About how much memory it takes."""
        return sum(part.segment.estimated_bytes for part in self.parts)

    def has_label(self, label: str) -> bool:
        """Return whether an item carries a label."""
        return any(part.has_label(label) for part in self.parts)

    def changed(
        self,
        item_ids: Collection[str],
        rows: Sequence[Row],
        vectors: Matrix,
        unranked: Collection[str] = (),
    ) -> Gallery:
        """Return the gallery after a write.

        Parameters
        ----------
        item_ids : collection of str
            What was written or deleted; of no interest where it never was in the gallery.
        rows : sequence of Row
            What of it is in the gallery now.
        vectors : ndarray of shape (n_rows, rank)
            Their projections.
        unranked : collection of str
            What of it the model cannot place.
        """
        left_out = self.unranked.difference(item_ids).union(unranked)
        parts = [part.without(item_ids) for part in self.parts]
        if not rows and all(new is old for new, old in zip(parts, self.parts, strict=True)):
            return self if left_out == self.unranked else Gallery(parts, self._make_index, left_out)
        if rows:
            parts.append(Part.whole(Segment(rows, self._make_index(vectors))))
        return Gallery(self._tidied([part for part in parts if part.size]), self._make_index, left_out)

    def search(self, query: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[tuple[Row, float]]:
        """Return results offset + 1 to offset + k of one query, best first, equal scores by id."""
        masks = [part.allowed(item_filter) for part in self.parts]
        sizes = [
            part.size if item_filter.is_empty or mask is None else int(np.count_nonzero(mask))
            for part, mask in zip(self.parts, masks, strict=True)
        ]
        wanted = min(offset + k, sum(sizes))
        if offset >= wanted:
            return []
        found: list[tuple[float, str, Row]] = []
        for part, mask, size in zip(self.parts, masks, sizes, strict=True):
            ((numbers, scores),) = part.segment.index.search(query, min(wanted, size), mask)
            rows = part.segment.rows
            for number, score in zip(numbers.tolist(), scores.tolist(), strict=True):
                found.append((-score, rows[number].id, rows[number]))
        found.sort(key=lambda entry: entry[:2])
        return [(row, -negative) for negative, _, row in found[offset : offset + k]]

    def _tidied(self, parts: list[Part]) -> Iterator[Part]:
        """Yield the parts, those with too many dead rows rewritten and the last ones merged."""
        merged: list[Part] = []
        for part in parts:
            tail = part
            while merged and merged[-1].size <= _GROWTH * tail.size:
                tail = self._rewritten(merged.pop(), tail)
            merged.append(tail)
        for part in merged:
            dead = len(part.segment.rows) - part.size
            yield self._rewritten(part) if dead > _MOST_DEAD * len(part.segment.rows) else part

    def _rewritten(self, *parts: Part) -> Part:
        living = [part.living() for part in parts]
        rows = [row for found, _ in living for row in found]
        return Part.whole(Segment(rows, self._make_index(np.concatenate([vectors for _, vectors in living]))))
