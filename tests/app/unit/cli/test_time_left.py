import pytest

from app.cli.console import time_left


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
