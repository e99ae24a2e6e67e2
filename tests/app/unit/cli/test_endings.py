"""The page tells files by the same endings as the commands."""

import re

from app.cli.sources.contents import SUFFIXES
from tests.conftest import ROOT


def test_the_page_takes_files_of_the_endings_that_the_commands_take() -> None:
    script = (ROOT / "app" / "web" / "static" / "rows.js").read_text(encoding="utf-8")
    patterns = dict(re.findall(r"(picture|sound|text): /(\S+)\$/i", script))
    everything = set().union(*SUFFIXES.values()) | {".eps", ".pdf", ".ico", ".svg", ".mp3", ".jpx2", ".jpa"}
    for form, endings in SUFFIXES.items():
        taken = {ending for ending in everything if re.search(rf"{patterns[form]}$", f"a{ending}")}
        assert taken == endings, form
