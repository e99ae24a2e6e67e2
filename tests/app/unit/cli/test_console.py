from pathlib import Path

import pytest

from app.cli.console import duration, pace, time_left, whole_file


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, ""),
        (59, ""),
        (60, "about 1 min left"),
        (61, "about 2 min left"),
        (119, "about 2 min left"),
        (600, "about 10 min left"),
        (601, "about 15 min left"),
        (3600, "about 60 min left"),
    ],
)
def test_time_left_is_in_coarse_steps(seconds: int, said: str) -> None:
    assert time_left(seconds) == said


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 100, 9.0, ""),
        (50, 100, 1.0, ""),
        (50, 100, 5.0, "10/s, about 5 s left"),
        (100, 10_000, 10.0, "10/s, about 16 min 30 s left"),
        (50, 0, 5.0, "10/s"),
        (1, 3, 8.0, "0.12/s, about 16 s left"),
    ],
)
def test_the_pace_has_a_rate_and_the_time_left(done: int, total: int, seconds: float, text: str) -> None:
    assert pace(done, total, seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (285.0, "4 min 45 s"),
        (3599.6, "1 h"),
        (7512.0, "2 h 5 min"),
    ],
)
def test_a_duration_is_told_in_its_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_two_exports_to_one_file_at_once_leave_that_of_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "items.ndjson"
    with whole_file(file) as later:
        with whole_file(file) as earlier:
            later.write(b"later")
            earlier.write(b"earlier")
        assert file.read_bytes() == b"earlier"
    assert [(one, one.read_bytes()) for one in tmp_path.iterdir()] == [(file, b"later")]
