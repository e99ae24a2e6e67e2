"""Every tutorial is followed from its first block to its last, as its reader would."""

import itertools
import re
import shlex
import socket
import sys
from pathlib import Path

import pytest

from tests.app.e2e.test_documents import ROOT, desk, run

__all__ = ["desk"]

TUTORIALS = ROOT / "app" / "tutorials"
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = shlex.quote(sys.executable)
FACTS = "[lrbs.encoders]\nhashed_words = hashed_words:ENCODER\n"


def blocks(name: str) -> list[tuple[str, str]]:
    return BLOCK.findall((TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))


def program(name: str) -> str:
    """One shell program of all blocks of a tutorial; those of Python between two others are run by one."""
    parts = []
    for language, group in itertools.groupby(blocks(name), key=lambda block: block[0]):
        codes = [code for _, code in group]
        if language == "python":
            run_each = "".join(f"exec({code!r}, {{'__name__': '__main__'}})\n" for code in codes)
            codes = [f"{PYTHON} -W error - <<'END OF BLOCKS'\n{run_each}END OF BLOCKS\n"]
        parts += codes
    return "\n".join(parts)


@pytest.fixture
def photos(desk: Path) -> Path:
    """A folder of pictures with texts beside them, and a table with a colour for each picture."""
    for picture in sorted(desk.glob("*.jpg")):
        folder = desk / "photos" / picture.stem.partition("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / picture.name).write_bytes(picture.read_bytes())
        (folder / f"{picture.stem}.txt").write_text(f"a {picture.stem.replace('-', ', number ')}")
    header, *rows = (desk / "items.csv").read_text().splitlines()
    colours = [f"{row},{('red', 'blue')[number % 2]}" for number, row in enumerate(rows)]
    (desk / "items.csv").write_text("\n".join([f"{header},colour", *colours]) + "\n")
    return desk


@pytest.fixture
def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_tutorials_are_those_that_are_followed_here() -> None:
    names = {path.stem for path in TUTORIALS.glob("*.md")}
    assert names == {"encoder-author", "operator", "researcher", "shop-owner"}


def test_a_shop_owner_gets_from_a_folder_to_search(photos: Path) -> None:
    said = run(photos, program("shop-owner"), OPENBLAS_NUM_THREADS="1").splitlines()
    hits = [line for line in said if re.match(r" +\d +[\d.-]+ +[\d.]+ %|% ", line) or "  image-" in line]
    assert ["shoe" in line for line in hits[:3]] == [True] * 3
    assert len(hits) == 5
    assert said[-1] == "feedback 1 stored"


def test_a_researcher_gets_from_arrays_to_figures(desk: Path) -> None:
    settings = {"OPENBLAS_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"}  # a process more imports for seconds
    said = run(desk, program("researcher"), **settings).splitlines()
    assert re.fullmatch(r"rank \d+, relative duality gap \d\.\de-\d\d, converged", said[0])
    assert re.fullmatch(r"MAP 0\.9\d*", said[1])
    assert "mine-precision-recall.svg" in said
    assert "x: test MAP in %, mean ± standard deviation over the seeds 0, 1" in "\n".join(said)
    assert re.fullmatch(r"x,CCA,0,2,0\.9\d+,.*", said[-1])
    rows = [line for line in said if re.fullmatch(r"\w+ 0\.9\d* p [01]\.\d\d against \w+", line)]
    assert [row.split()[0] for row in rows] == ["LowRankBilinear", "CCA"] * 2


def test_an_operator_starts_looks_and_copies(desk: Path, free_port: str, curl: str) -> None:
    said = run(desk, program("operator"), LRBS_PORT=free_port, OPENBLAS_NUM_THREADS="1")
    assert '"status":"ready"' in said.replace(" ", "")
    assert "\nlrbs_" in said
    copied, _, restored = said.splitlines()[-3:]
    assert copied.startswith("kept  image (hog-color), text (tfidf)")
    assert restored == copied


def test_an_encoder_author_gets_from_a_file_to_a_collection(desk: Path) -> None:
    (_, encoder), (_, package), (_, test), (_, commands) = blocks("encoder-author")
    assert 'hashed_words = "hashed_words:ENCODER"' in package
    (desk / "hashed_words.py").write_text(encoder)
    facts = desk / "hashed_words-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hashed-words\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(FACTS)
    (desk / "test_hashed_words.py").write_text(test)
    tried = f"env -u PYTEST_ADDOPTS {PYTHON} -m pytest -q -p no:cacheprovider test_hashed_words.py"
    said = run(desk, f"export PYTHONPATH={desk}:{ROOT}\n{tried}\n{commands}")
    assert "1 passed" in said
    assert "text (hashed-words)" in said.splitlines()[-1]
