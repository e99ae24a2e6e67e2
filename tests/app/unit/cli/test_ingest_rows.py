import re

import pytest

from app.cli.imports import pace
from app.cli.sources.rows import identifier_of
from app.domain.limits import MAX_IDENTIFIER, MAX_NAME
from app.domain.names import check_identifier


def test_a_file_name_that_can_be_an_id_is_one() -> None:
    assert identifier_of("shoe/a-1.jpg") == "shoe:a-1.jpg"


@pytest.mark.parametrize("name", ["shoe/a 1.jpg", "größe.png", "x/" * 60 + "1.jpg", "a\udcff.jpg", "a:b.jpg"])
def test_other_file_names_get_ids_that_differ(name: str) -> None:
    made = {identifier_of(name), identifier_of(name + "x"), identifier_of("y" + name)}
    assert len(made) == 3
    for identifier in made:
        check_identifier("id", f"{'m' * MAX_NAME}-{identifier}")
        assert len(identifier) < MAX_IDENTIFIER - MAX_NAME
        assert re.search(r":[0-9a-f]{16}$", identifier)


def test_a_name_with_a_colon_is_not_that_of_a_file_in_a_folder() -> None:
    assert identifier_of("a:b.jpg") != identifier_of("a/b.jpg")


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 100, 9.0, ""),
        (50, 100, 1.0, ""),
        (50, 100, 5.0, "10/s, 5 s left"),
        (100, 10_000, 10.0, "10/s, 16 min left"),
        (50, 0, 5.0, "10/s"),
    ],
)
def test_the_pace_has_a_rate_and_the_time_left(done: int, total: int, seconds: float, text: str) -> None:
    assert pace(done, total, seconds) == text
