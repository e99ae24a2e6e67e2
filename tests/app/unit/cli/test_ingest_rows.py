import re

import pytest

from app.cli.console import duration, pace
from app.cli.sources.contents import content_of
from app.cli.sources.rows import identifier_of
from app.domain.errors import InvalidFieldError
from app.domain.names import MAX_IDENTIFIER, MAX_NAME, check_identifier


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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_text_is_read_in_the_encodings_that_editors_write(encoding: str) -> None:
    assert content_of("text", " für 1 €\r\n".encode(encoding)).text == "für 1 €"


@pytest.mark.parametrize("content", [b"\xfe\xffa", b"\xff\xfe\x00\xd8", b"\x81"])
def test_a_text_in_no_known_encoding_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidFieldError, match="neither UTF-8, UTF-16 nor Windows-1252"):
        content_of("text", content)
