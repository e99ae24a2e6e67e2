"""A collection goes out as a tar file of samples, and comes back as it was."""

import base64
import io
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.bootstrap import build
from app.settings import Settings
from tests.app.e2e.conftest import LRBS, ROOT, LrbsInside, said
from tests.app.waiting import wait_for


def picture(form: str, colour: str) -> dict[str, str]:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(content, form)
    return {"modality": "photo", "image_base64": base64.b64encode(content.getvalue()).decode()}


def text(content: str) -> dict[str, str]:
    return {"modality": "words", "text": content}


KINDS = {
    "size": 2**60 + 1,
    "price": 1.5,
    "is_new": True,
    "note": None,
    "sizes": [1, {"a": "größe"}],
    "lrbs": "x",
}
ITEMS: list[dict[str, Any]] = [
    {"id": "a:1", **picture("JPEG", "red"), "pair_id": "p1", "labels": ["red", "wide"], "metadata": KINDS},
    {
        "id": "a:2",
        **text(" rot\r\n"),
        "pair_id": "p1",
        "labels": ["red", "wide"],
        "metadata": {**KINDS, "size": 3},
    },
    {"id": "b.1", **picture("PNG", "blue"), "pair_id": "p2", "labels": ["two\nlines"], "train": False},
    {"id": "b.2", **text("blau"), "pair_id": "p2", "metadata": {"source": "b.txt"}, "train": False},
    {"id": "c", **picture("WEBP", "lime")},
    {"id": "d", **text("\ufefftext")},
    {"id": "e", **text("late"), "pair_id": "p1", "labels": ["x"]},
]


@pytest.fixture
def shop(lrbs_inside: LrbsInside, tmp_path: Path) -> Path:
    """Make a collection, and return a folder for files."""
    bring_in(lrbs_inside, "shop", ITEMS, tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    return files


def bring_in(lrbs_inside: LrbsInside, name: str, items: list[dict[str, Any]], folder: Path) -> None:
    lines = folder / f"{name}.ndjson"
    lines.write_text("\n".join(map(json.dumps, items)))
    said(lrbs_inside("ingest", "ndjson", str(lines), "-c", name, "--modalities", "photo,words"))


def exported(lrbs_inside: LrbsInside, name: str, folder: Path, *options: str) -> list[dict[str, Any]]:
    lines = folder / "exported.ndjson"
    said(lrbs_inside("export", name, str(lines), "--replace", *options))
    items = [json.loads(line) for line in lines.read_text().splitlines()]
    lines.unlink()
    return items


def test_a_tar_file_comes_back_as_it_was(lrbs_inside: LrbsInside, shop: Path) -> None:
    file = shop / "shop.tar"
    assert "7 items exported" in lrbs_inside("export", "shop", str(file)).stderr
    stored = "7 items stored in '{}': {} new, 0 changed, {} unchanged\n"
    for name, counts in (("again", (7, 0)), ("again", (0, 7)), ("shop", (0, 7))):
        done = lrbs_inside("ingest", "tar", str(file), "-c", name, "--modalities", "photo,words")
        assert said(done) == stored.format(name, *counts)
    assert exported(lrbs_inside, "again", shop) == exported(lrbs_inside, "shop", shop)
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert names[:4] == [f"000000000.{ending}" for ending in ("jpg", "txt", "json", "cls")]
    whole = file.read_bytes()
    assert lrbs_inside("export", "shop", str(file)).returncode == 2
    said(lrbs_inside("export", "shop", str(shop / "other"), "--format", "tar"))
    said(lrbs_inside("export", "shop", str(file), "--replace", "--label", "red"))
    assert (shop / "other").read_bytes() == whole
    for name in ("shop.tar.gz", "shop.csv", "shop.XLSX"):
        refused = lrbs_inside("export", "shop", str(shop / name))
        assert (refused.returncode, ".ndjson" in refused.stderr) == (2, True)
    with tarfile.open(file) as archive:
        assert archive.getnames() == names[:4]
    assert sorted(one.name for one in shop.iterdir()) == ["other", "shop.tar"]


def test_what_a_tar_file_cannot_hold_is_refused_before_there_is_one(
    lrbs_inside: LrbsInside, shop: Path, tmp_path: Path
) -> None:
    def refusal(name: str, *options: str) -> str:
        refused = lrbs_inside("export", name, "--format", "tar", *options)
        assert (refused.returncode, refused.stdout) == (1, "")
        return refused.stderr

    said(
        lrbs_inside(
            "collections", "create", "own", "--modalities", "photo,words", "--image-encoder", "vector"
        )
    )
    bring_in(lrbs_inside, "own", [{"id": "v", "modality": "photo", "vector": [1.0, 2.0]}], tmp_path)
    said(
        lrbs_inside(
            "collections", "create", "alike", "--modalities", "photo,words", "--image-encoder", "tfidf"
        )
    )
    bring_in(
        lrbs_inside,
        "alike",
        [{"id": "a", "modality": "photo", "text": "a"}, {"id": "b", **text("b")}],
        tmp_path,
    )
    cannot = ", which a tar file cannot hold: export NDJSON"
    assert f"error: own: has vectors{cannot}" in refusal("own")
    assert f"error: alike: has two modalities of one kind of files{cannot}" in refusal("alike")
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    (original,) = (tmp_path / "data").rglob(f"{services.catalogue.item('shop', 'c').content_hash}*")
    original.unlink()
    assert "error: item 'c': has a vector or no original" in refusal("shop", str(shop / "shop.tar"))
    assert list(shop.iterdir()) == []
    services.database.engine.dispose()


@pytest.mark.parametrize(("number", "n_rests"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)])
def test_an_export_that_is_killed_leaves_no_half_file(
    shop: Path, tmp_path: Path, number: signal.Signals, n_rests: int
) -> None:
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    (original,) = (tmp_path / "data").rglob(f"{services.catalogue.item('shop', 'c').content_hash}*")
    services.database.engine.dispose()
    original.unlink()
    os.mkfifo(original)  # which is waited for
    settings = {"LRBS_DATA_DIR": str(tmp_path / "data"), "LRBS_DATABASE_URL": "", "PYTHONPATH": str(ROOT)}
    command = [*LRBS, "export", "shop", str(shop / "shop.tar")]
    with subprocess.Popen(command, env={**os.environ, **settings}, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(shop.iterdir()))
        process.send_signal(number)
    assert process.returncode
    rests = list(shop.iterdir())
    assert (len(rests), shop / "shop.tar" in rests) == (n_rests, False)


def test_a_tar_file_over_http_is_the_one_of_the_database(
    lrbs_inside: LrbsInside, demo_server: str, demo_key: str, demo_folder: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here.tar", tmp_path / "there.tar"
    said(lrbs_inside("export", "sample", str(here), LRBS_DATA_DIR=str(demo_folder)))
    said(lrbs_inside("export", "sample", str(there), "--url", demo_server, "--key", demo_key))
    assert there.read_bytes() == here.read_bytes()
    with tarfile.open(here) as archive:
        names = archive.getnames()
    n_pairs = sum(name.endswith(".txt") for name in names)
    assert n_pairs == len({name.partition(".")[0] for name in names})
