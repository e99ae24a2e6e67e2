"""Items of one modality ranked for a query of the same one, by the cosine of their projections."""
# What is learned compares the two modalities. Within one of them it says which differences between items
# matter for the other. An inner product would also put the items with the longest projections first, which
# are hubs rather than similar ones. So scores are cosines, and no probability belongs to them. Every row is
# compared, since the approximate indexes are made for inner products.

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from app.domain.entities import Matrix, Vector
from app.domain.searches import ItemFilter
from app.services.serving.segments import IndexedItem, SegmentView

__all__ = ["rank_similar"]

_ROWS_PER_STEP = 1 << 16
"""Rows whose cosines are computed at once: bounds memory at some megabytes beside the result."""


def rank_similar(
    segments: Iterable[SegmentView],
    query: Vector,
    k: int,
    offset: int,
    item_filter: ItemFilter,
    left_out: str | None = None,
) -> list[tuple[IndexedItem, float]]:
    """Return results offset + 1 to offset + k with their cosines, best first, equal ones by id. The query
    (rank,) is a projection of the gallery's own modality; the item `left_out` is the query itself."""
    depth = offset + k
    candidates = [
        (-cosine, item.id, item)
        for view in segments
        for item, cosine in _best_of(view, query, depth + (left_out is not None), item_filter)
        if item.id != left_out
    ]
    candidates.sort(key=lambda candidate: candidate[:2])
    return [(item, -negative) for negative, _, item in candidates[offset:depth]]


def _best_of(
    view: SegmentView, query: Vector, depth: int, item_filter: ItemFilter
) -> list[tuple[IndexedItem, float]]:
    """Return the `depth` best live items of a segment, in no order; more if some tie with the last one."""
    mask = view.matches(item_filter)
    rows = None if mask is None else np.flatnonzero(mask)
    scores = _cosines(view.segment.index.vectors, query, rows)
    if depth < len(scores):
        last = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        best = np.flatnonzero(scores >= last)
    else:
        best = np.arange(len(scores))
    items = view.segment.items
    numbers = best if rows is None else rows[best]
    return [
        (items[number], score) for number, score in zip(numbers.tolist(), scores[best].tolist(), strict=True)
    ]


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
