"""Code blocks of the documents are run: ``bash`` and ``python`` are programs, ``console`` is for people."""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL.Image import Image

from app.cli.reference import problems_table, settings_table
from app.sample import draw_sample
from tests.app.e2e.shell_command import shell_command

ROOT = Path(__file__).parents[3]
DOCUMENTS = {
    path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "app" / "README.md")
}
BLOCK_SECONDS = 300.0
KINDS = {"shoe": "sailing boats", "bag": "starry nights"}  # whose pictures stand for the reader's own


def block(language: str, holding: str) -> str:
    """Return the one block of that language that holds a text."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    (found,) = [
        text for document in DOCUMENTS.values() for text in pattern.findall(document) if holding in text
    ]
    return found


@cache
def pictures_of(kind: str) -> Sequence[Image]:
    return [draw_sample(kind, number).image for number in range(1, 7)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Path]:
    """A folder with the pictures and the table that the documents name, and the command `lrbs`."""
    rows = []
    for name, kind in KINDS.items():
        for number, image in enumerate(pictures_of(kind), 1):
            picture = f"{name}-{number}.jpg"
            image.save(tmp_path / picture)
            split = "train" if number < 6 else "test"
            rows.append((f"{name}{number}", picture, f"a {name}, number {number}", name, split))
    with (tmp_path / "items.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("id", "image", "text", "label", "split"), *rows])
    (tmp_path / "bin").mkdir()
    with shell_command(tmp_path / "bin"):
        yield tmp_path


def run(desk: Path, script: str, **settings: str) -> str:
    """Run a block in that folder; every command of it has to succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LRBS_")}
    environment |= {
        "PATH": f"{desk / 'bin'}{os.pathsep}{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LRBS_DATA_DIR": str(desk / "data"),
        **settings,
    }
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def clean_demo(demo_server: str, demo_key: str) -> Iterator[dict[str, str]]:
    """What the README calls URL and KEY; its collection is taken away afterwards."""
    yield {"URL": demo_server, "KEY": demo_key}
    headers = {"Authorization": f"Bearer {demo_key}"}
    httpx.delete(f"{demo_server}/v1/collections/shop", headers=headers, trust_env=False).raise_for_status()


def test_the_calls_make_train_and_search_a_collection(
    desk: Path, clean_demo: dict[str, str], curl: str
) -> None:
    feedback = block("console", "shop/feedback").removeprefix("$ ")
    said = run(desk, f"{block('bash', 'curl')}\n{feedback}", **clean_demo)
    assert '"state":"succeeded"' in said.replace(" ", "")
    answers: list[Any] = [json.loads(line) for line in said.split("\n") if line.startswith("{")]
    assert (answers[0]["name"], answers[0]["active_version"]) == ("shop", None)
    assert [len(answer["ids"]) for answer in answers[1:6]] == [1, 1, 1, 1, 4]
    pictures, texts = answers[-3]["hits"], answers[-2]["hits"]
    assert [hit["labels"] for hit in pictures] == [["shoe"], ["shoe"]]
    assert ["bag" in hit["text"] for hit in texts] == [True, True]
    assert len(answers[-1]["ids"]) == 1


def test_the_commands_bring_in_train_and_search_a_table(desk: Path) -> None:
    said = run(desk, block("bash", "lrbs ingest table")).splitlines()
    assert said[0] == "24 items stored in 'catalogue': 24 new, 0 changed, 0 unchanged"
    assert said[1].startswith("version 1:")
    found = [line for line in said if re.match(r" +\d+ +-?\d+\.\d+ +\d+\.\d% .*image-", line)]
    assert ["shoe" in line for line in found] == [True] * 3
    assert float(found[0].split()[2].rstrip("%")) > 50.0
    hits = [json.loads(line) for line in said if line.startswith("{")]
    assert [hit["labels"] for hit in hits] == [["bag"]] * 3
    assert all(0.0 <= hit["probability"] <= 1.0 for hit in hits)
    assert said[-1].startswith("*   1")


def test_the_solver_alone_runs(desk: Path) -> None:
    code = block("python", "LowRankBilinear")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    first, score = done.stdout.split("\n")[:2]
    rank, gap = first.split()
    assert int(rank) > 0
    assert 0 <= float(gap) < 1
    assert 0.5 < float(score) <= 1


@pytest.mark.parametrize(("name", "table"), [("settings", settings_table), ("problems", problems_table)])
def test_tables_are_those_that_the_code_makes(name: str, table: Callable[[], str]) -> None:
    document = DOCUMENTS[ROOT / "app" / "README.md"]
    (written,) = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", document, re.DOTALL)
    assert written == table(), f"run lrbs reference {name}"


def anchors_of(document: Path) -> set[str]:
    """Return what a link can lead to inside a document: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    aim = path.parent / name if name else path
    return aim.exists() and (not anchor or anchor in anchors_of(aim))


def test_links_lead_to_files_and_headings() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("[a-z]*/**/*.md")]
    assert len(documents) > 10
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents
        for target in re.findall(r"\]\(([^):]+)\)", path.read_text(encoding="utf-8"))
        if not leads_somewhere(path, target)
    ]
    assert not broken


def test_readme_is_short() -> None:
    assert len(DOCUMENTS[ROOT / "README.md"].splitlines()) <= 120
