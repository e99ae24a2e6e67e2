import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from app.domain.entities import Content
from app.encoders.entry import Resources
from app.encoders.pictures import PictureLimits, PixelBudget
from app.encoders.registry import find_types

DOCUMENT = (Path(__file__).parents[4] / "app" / "tutorials" / "encoder-author.md").read_text(encoding="utf-8")
(ENCODER, _) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
"""The module that shows how an encoder is written."""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of one module, with an entry point for its ENCODER."""
    modules = []

    def put(module: str, source: str) -> None:
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        facts = tmp_path / f"{module}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[lrbs.encoders]\n{module} = {module}:ENCODER\n")

    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield put
    for module in modules:
        sys.modules.pop(module, None)


def test_a_type_of_another_package_is_found_by_its_entry_point(install: Install) -> None:
    before = set(find_types())
    install("hashed_words", ENCODER)
    types = find_types()
    assert set(types) - before == {"hashed-words"}
    resources = Resources(PictureLimits(1, 1, PixelBudget(1)), 100, lambda options: pytest.fail("no parts"))
    encoder = types["hashed-words"].make({"type": "hashed-words", "buckets": 16}, resources)
    assert np.sort(encoder.encode([Content(text="red Red shoe")]))[0, -2:].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_is_not_there", "No module named 'a_module_that_is_not_there'"),
        ("ENCODER = 3", "expected an EncoderType, got 3"),
        (
            ENCODER.replace("hashed-words", "tfidf"),
            "the encoder type 'tfidf' of bad_encoder:ENCODER is left out",
        ),
    ],
)
def test_a_type_that_cannot_be_used_is_logged_and_the_others_serve(
    install: Install, caplog: pytest.LogCaptureFixture, source: str, reason: str
) -> None:
    before = find_types()
    install("bad_encoder", source)
    install("hashed_words", ENCODER)
    types = find_types()
    assert set(types) == {*before, "hashed-words"}
    assert types["tfidf"] is before["tfidf"]
    assert reason in caplog.text


PROGRAM = """
import json, sys
from fastapi.testclient import TestClient
from typer.testing import CliRunner
from app.bootstrap import build
from app.cli.main import cli
from app.main import create_app
from app.settings import Settings

encoder = ["--text-encoder", "hashed-words:buckets=64"]
done = CliRunner().invoke(cli, ["ingest", "ndjson", sys.argv[1], "-c", "c", *encoder])
client = TestClient(create_app(build(Settings())))
types = {entry["type"]: entry for entry in client.get("/v1/encoders").json()["encoders"]}
schema = client.get("/openapi.json").json()["components"]["schemas"]["EncoderIn"]
print(json.dumps([
    done.exit_code,
    build(Settings()).catalogue.collection("c")[0].modalities[1].encoder,
    types["hashed-words"],
    [one["title"] for one in schema["oneOf"]],
]))
"""


def test_commands_and_routes_know_the_encoder_that_the_document_shows(
    install: Install, tmp_path: Path
) -> None:
    install("hashed_words", ENCODER)
    lines = tmp_path / "items.ndjson"
    lines.write_text('{"modality": "text", "text": "a red shoe"}')
    root = Path(__file__).parents[4]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LRBS_")}
    environment |= {
        "LRBS_DATA_DIR": str(tmp_path / "data"),
        "LRBS_OPEN_SEARCH": "true",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)]),
    }
    program = [sys.executable, "-c", PROGRAM, str(lines)]
    ended = subprocess.run(program, capture_output=True, text=True, env=environment, cwd=root)
    assert ended.returncode == 0, ended.stderr
    status, stored, listed, titles = json.loads(ended.stdout)
    assert status == 0
    assert stored == {"type": "hashed-words", "buckets": 64}
    assert (listed["content"], listed["required"]) == ("text", [])
    assert listed["options"]["buckets"]["maximum"] == 4096
    assert "hashed-words" in titles
