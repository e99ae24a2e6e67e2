"""When the segments of a gallery are merged, as in Lucene and tantivy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What a merge policy knows of a segment.

    Parameters
    ----------
    n_live : int
        Rows that are neither deleted nor replaced.
    n_rows : int
        All rows.
    """

    n_live: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Keeps segments few and free of dead rows, at a bounded cost per write.

    A search visits every segment, so there should be few; a merge copies rows, so it should be rare. Merging
    segments of like size, as a log-structured merge tree does, leaves a number of segments logarithmic in the
    number of rows, and copies each row a logarithmic number of times in its life.

    Parameters
    ----------
    max_size_ratio : float
        A segment is merged into the one before it while that one has at most this many times as many live
        rows. Larger values leave fewer segments and copy more rows. With 4, the default, 1,000 single writes
        leave at most 5 segments and copy a row ten times on average, 20,000 writes 7 segments and 14 times.
    max_deleted_fraction : float
        A segment is rewritten once more than this fraction of its rows is dead. Smaller values waste less
        memory and search time on dead rows, and copy more. By default a quarter: dead rows cost a third of
        the live ones at most, and a rewrite is paid for by the deletion of a third as many rows as it copies.
    """

    max_size_ratio: float = 4.0
    max_deleted_fraction: float = 0.25

    def merges(self, segments: Sequence[SegmentSize]) -> list[range]:
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
            while runs and runs[-1][1] <= self.max_size_ratio * n_live:
                run, n_before = runs.pop()
                start, n_live = run.start, n_before + n_live
            runs.append((range(start, position + 1), n_live))
        return [run for run, _ in runs if len(run) > 1 or self._has_many_dead(segments[run.start])]

    def _has_many_dead(self, segment: SegmentSize) -> bool:
        return segment.n_rows - segment.n_live > self.max_deleted_fraction * segment.n_rows
