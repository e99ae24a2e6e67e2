"""Which segments of a gallery are merged."""

import numpy as np
import pytest

from app.services.serving.segments import SegmentSize, runs_to_merge


def sizes(*live: int) -> list[SegmentSize]:
    return [SegmentSize(n, n) for n in live]


@pytest.mark.parametrize(
    ("live", "runs"),
    [
        ((), []),
        ((7,), []),
        ((500, 100, 20, 4), []),
        ((500, 101, 20, 5), [range(2, 4)]),
        ((500, 100, 20, 5), [range(4)]),
        ((500, 100, 24, 5), []),
        ((100, 1), []),
        ((4, 1), [range(2)]),
        ((1, 1, 1), [range(3)]),
        ((80, 16, 4, 1), [range(3)]),
        ((1, 5000), [range(2)]),
        ((400, 20, 20, 1, 90), [range(5)]),
    ],
)
def test_a_segment_is_merged_into_one_that_is_not_much_larger(
    live: tuple[int, ...], runs: list[range]
) -> None:
    assert runs_to_merge(sizes(*live)) == runs


@pytest.mark.parametrize(("n_live", "runs"), [(75, []), (74, [range(1, 2)])])
def test_a_segment_with_many_dead_rows_is_rewritten_alone(n_live: int, runs: list[range]) -> None:
    segments = [SegmentSize(1000, 1000), SegmentSize(n_live, 100), SegmentSize(1, 1)]
    assert runs_to_merge(segments) == runs


def test_runs_are_in_order_and_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n_rows = rng.integers(1, 2000, rng.integers(0, 9))
        segments = [SegmentSize(int(rng.integers(1, rows + 1)), int(rows)) for rows in n_rows]
        runs = runs_to_merge(segments)
        positions = [position for run in runs for position in run]
        assert positions == sorted(set(positions))
        assert set(positions) <= set(range(len(segments)))


def test_single_writes_leave_few_segments_and_copy_rows_a_few_times() -> None:
    segments, n_copied, n_writes = sizes(5000), 0, 1000
    for _ in range(n_writes):
        segments = [*segments, SegmentSize(1, 1)]
        for run in reversed(runs_to_merge(segments)):
            total = sum(segments[position].n_live for position in run)
            segments[run.start : run.stop] = [SegmentSize(total, total)]
            n_copied += total
        assert len(segments) <= 7
    assert segments[0].n_live == 5000, "the large segment is never copied"
    assert n_copied <= 12 * n_writes
