"""When the segments of a gallery are merged, as in Lucene and tantivy."""
# A search visits every segment, so there should be few; a merge copies rows, so it should be rare. Merging
# segments of like size, as a log-structured merge tree does, leaves a number of segments logarithmic in the
# number of rows, and copies each row a logarithmic number of times in its life.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def runs_to_merge(segments: Sequence[SegmentSize]) -> list[range]:
    """Return the runs of adjacent segments, oldest first, to be rewritten as one segment each; others stay as
    they are. A run of one segment only drops its dead rows."""
    runs: list[tuple[range, int, bool]] = []
    for position, segment in enumerate(segments):
        start, n_live, is_approximate = position, segment.n_live, segment.is_approximate
        while runs and runs[-1][1] <= _max_ratio(runs[-1][2] and not segment.is_approximate) * n_live:
            run, n_before, was_approximate = runs.pop()
            start, n_live = run.start, n_before + n_live
            is_approximate = is_approximate or was_approximate
        runs.append((range(start, position + 1), n_live, is_approximate))
    return [run for run, _, _ in runs if len(run) > 1 or segments[run.start].has_many_dead]


def find_tail(segments: Sequence[SegmentSize]) -> int:
    """Return the position of the first segment that a write may merge itself; all after it may be, too."""
    start, n_rows = len(segments), 0
    while start and (n_rows := n_rows + segments[start - 1].n_rows) <= _ROWS_OF_A_WRITE:
        start -= 1
    return start


def _max_ratio(is_approximate: bool) -> float:
    return _MAX_APPROXIMATE_SIZE_RATIO if is_approximate else _MAX_SIZE_RATIO
