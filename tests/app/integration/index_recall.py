"""Recall of an index against the exact ranking of its rows."""

import numpy as np

from app.domain.entities import Matrix
from app.domain.ports import GalleryIndex

_DEPTH, _MAX_QUERIES = 10, 200
"""Recall is that of a first page of results; 200 queries of 10 hits each give it to about one percent."""
_ROUNDING = 1e-5
"""Relative difference of two float32 scores that may be rounding: an index sums in another order."""


def index_recall(index: GalleryIndex, queries: Matrix) -> float:
    """Return the mean recall@10 of an index for an even sample of projected queries, against the exact
    ranking of its rows."""
    # A row as good as the tenth counts like the tenth; an index of no rows, or asked nothing, is exact.
    depth = min(_DEPTH, index.size)
    if depth == 0 or len(queries) == 0:
        return 1.0
    sample = queries[np.linspace(0, len(queries) - 1, min(len(queries), _MAX_QUERIES)).astype(np.intp)]
    n_hits = 0
    for query in sample:
        rows, _ = index.search(query, depth, None)
        scores = index.vectors @ query
        tenth = np.partition(scores, -depth)[-depth]
        margin = _ROUNDING * max(float(np.abs(scores).max()), 1e-30)
        n_hits += int((scores[rows[:depth]] >= tenth - margin).sum())
    return n_hits / (depth * len(sample))
