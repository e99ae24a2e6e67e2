"""When the segments of a gallery are merged, as in Lucene and tantivy.

A search visits every segment, so there should be few; a merge copies rows, so it should be rare. Merging
segments of like size, as a log-structured merge tree does, leaves a number of segments logarithmic in the
number of rows, and copies each row a logarithmic number of times in its life.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MAX_SIZE_RATIO = 4.0
"""A segment is merged into the one before it while that one has at most this many times as many live rows.
Larger values leave fewer segments and copy more rows. With 4, 1,000 single writes to a gallery of one segment
of 5,000 items leave at most 7 segments and copy a new row at most 12 times on average."""
_MAX_DEAD_FRACTION = 0.25
"""A segment is rewritten once more than this fraction of its rows is dead: dead rows cost a third of the live
ones at most, and a rewrite is paid for by the deletion of a third as many rows as it copies."""


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What decides whether a segment is merged.

    Parameters
    ----------
    n_live : int
        Rows that are neither deleted nor replaced.
    n_rows : int
        All rows.
    """

    n_live: int
    n_rows: int

    @property
    def has_many_dead(self) -> bool:
        """Whether it is to be rewritten even alone."""
        return self.n_rows - self.n_live > _MAX_DEAD_FRACTION * self.n_rows


def runs_to_merge(segments: Sequence[SegmentSize]) -> list[range]:
    """Return the runs of adjacent segments to be rewritten as one segment each, in order.

    Segments in no run stay as they are. A run of one segment only drops its dead rows.

    Parameters
    ----------
    segments : sequence of SegmentSize
        Oldest first; usually the largest first, too.
    """
    runs: list[tuple[range, int]] = []
    for position, segment in enumerate(segments):
        start, n_live = position, segment.n_live
        while runs and runs[-1][1] <= _MAX_SIZE_RATIO * n_live:
            run, n_before = runs.pop()
            start, n_live = run.start, n_before + n_live
        runs.append((range(start, position + 1), n_live))
    return [run for run, _ in runs if len(run) > 1 or segments[run.start].has_many_dead]
