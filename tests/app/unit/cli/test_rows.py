import re

import pytest

from app.cli.sources.rows import SUFFIXES, content_of, identifier_of
from app.domain.errors import InvalidFieldError
from app.domain.names import MAX_IDENTIFIER, MAX_NAME, check_identifier
from tests.conftest import ROOT


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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_text_is_read_in_the_encodings_that_editors_write(encoding: str) -> None:
    assert content_of("text", " für 1 €\r\n".encode(encoding)).text == "für 1 €"


@pytest.mark.parametrize("content", [b"\xfe\xffa", b"\xff\xfe\x00\xd8", b"\x81"])
def test_a_text_in_no_known_encoding_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidFieldError, match="neither UTF-8, UTF-16 nor Windows-1252"):
        content_of("text", content)


def test_the_page_takes_files_of_the_endings_that_the_commands_take() -> None:
    script = (ROOT / "app" / "web" / "static" / "rows.js").read_text(encoding="utf-8")
    patterns = dict(re.findall(r"(picture|sound|text): /(\S+)\$/i", script))
    everything = set().union(*SUFFIXES.values()) | {".eps", ".pdf", ".ico", ".svg", ".mp3", ".jpx2", ".jpa"}
    for form, endings in SUFFIXES.items():
        taken = {ending for ending in everything if re.search(rf"{patterns[form]}$", f"a{ending}")}
        assert taken == endings, form
