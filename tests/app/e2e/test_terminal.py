"""What a newcomer reads who is not at a terminal, or presses Ctrl-C."""

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.app.e2e.conftest import ROOT, archive_of_pairs
from tests.app.e2e.conftest import LrbsInside as Lrbs
from tests.app.waiting import wait_for


def test_long_work_says_what_it_does_without_a_terminal(
    lrbs_process: Lrbs, lrbs_inside: Lrbs, tmp_path: Path
) -> None:
    brought = lrbs_process("ingest", "npz", archive_of_pairs(tmp_path / "pairs.npz"), "-c", "arrays")
    assert brought.returncode == 0
    first, *steps, last = brought.stderr.splitlines()
    assert first.startswith("Importing 120 items into 'arrays'")
    assert any("storing 120 of 120" in step for step in steps)
    assert re.fullmatch(r"done in \d+ s", last)

    untrained = lrbs_inside("models", "arrays")
    assert (untrained.returncode, untrained.stdout) == (0, "")
    assert "no models yet: run lrbs train arrays" in untrained.stderr
    searched = lrbs_inside("search", "arrays", "--item", "image-pairs:000000")
    assert searched.returncode == 0
    assert "nothing has been trained yet" in searched.stderr
    assert len(searched.stdout.splitlines()) == 10

    trained = lrbs_process("train", "arrays")
    assert trained.returncode == 0, trained.stderr
    assert "learned from 45 image and 45 text items" in trained.stdout
    assert trained.stderr.startswith("Training on 'arrays', which has 60 image and 60 text items: ")
    assert re.search(r"training: [a-z ]+ \d+ %", trained.stderr)
    assert re.search(r"^done in \d+ s$", trained.stderr, re.MULTILINE)
    assert "Warning" not in trained.stderr
    assert re.search(
        r"^image-to-text: validation MAP [01]\.\d+, nDCG@10 [01]\.\d+, partner in the first ten [01]\.\d+ "
        r"on \d+ image and \d+ text items held out",
        trained.stdout,
        re.M,
    )
    listed = lrbs_inside("models", "arrays").stdout
    assert re.search(r"validation MAP image-to-text [01]\.\d+, .*\(\d+ image and \d+ text items\)", listed)

    by_text = lrbs_inside("search", "arrays", "--text", "hi")
    assert by_text.returncode == 1
    assert "--text: collection 'arrays' has no modality for text; search with" in by_text.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--alpha", "-3", "above 0"),
        ("--alpha", "nan", "above 0"),
        ("--scaling", "foo", "none, center, standard, l2 or sqrt"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_queued(
    lrbs_inside: Lrbs, option: str, value: str, said: str
) -> None:
    done = lrbs_inside("train", "anything", f"{option}={value}")
    assert done.returncode == 2
    told = re.sub(r"[\s│]+", " ", done.stderr)
    assert option in told
    assert said in told


def test_a_picture_that_is_none_is_named_with_its_row(lrbs_inside: Lrbs, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = []
    pixels = Image.new("RGB", (8, 8))
    for number in range(120):
        pixels.save(tmp_path / f"{number}.png")
        rows.append(f"p{number},{number}.png,a text,a")
    table.write_text("\n".join(["id,image,text,label", *rows]) + "\n")
    (tmp_path / "110.png").write_bytes(b"none")
    done = lrbs_inside("ingest", "table", str(table), "-c", "a")
    assert done.returncode == 3
    assert done.stderr.count("refused: ") == 1
    assert "refused: table.csv, line 112.picture 110.png: is not a picture" in done.stderr
    assert done.stdout == "239 items stored in 'a': 239 new, 0 changed, 0 unchanged; 1 refused\n"
    again = lrbs_inside("ingest", "table", str(table), "-c", "a", "--strict")
    assert again.returncode == 1
    assert "error: table.csv, line 112.picture 110.png: is not a picture" in again.stderr
    assert "200 items were stored in 'a' before this" in again.stderr


def test_a_failed_job_is_a_line_of_the_servers_log(tmp_path: Path, start_server: Callable[..., Any]) -> None:
    from app.bootstrap import build
    from app.domain.entities import Content, Modality
    from app.services.catalogue.service import NewItem
    from app.services.training.requests import TrainingParameters
    from app.settings import Settings

    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.schema.upgrade()
    modalities = [Modality("image", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    services.catalogue.create("shop", modalities)
    for number, label in enumerate("??!!"):
        vector, text = (
            Content(vector=[float(number)]),
            Content(text="?"),
        )  # neither texts nor labels have a word
        items = [NewItem(side, one, labels=(label,)) for side, one in (("image", vector), ("text", text))]
        services.catalogue.add_items("shop", items)
    job = services.training.request("shop", TrainingParameters())
    server = start_server()
    deadline = time.monotonic() + 60
    while "failed" not in server.said():
        assert time.monotonic() < deadline, server.said()
        time.sleep(0.1)
    reason = wait_for(
        lambda: services.training.job(job.id).error
    )  # which is stored after the line is written
    services.database.engine.dispose()
    (line,) = [line for line in server.said().splitlines() if "failed" in line]
    assert f"job {job.id}: retraining shop failed: {reason}" in line


def test_a_served_demo_ends_with_ctrl_c_and_without_an_error(
    tmp_path: Path, start_server: Callable[..., Any]
) -> None:
    server = start_server()
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.process.wait(timeout=30) == 0
    assert "Traceback" not in server.said()
    assert "rror" not in server.said()


@pytest.mark.parametrize("status", [0, 130])
def test_make_takes_ctrl_c_for_the_end_of_the_demo(tmp_path: Path, status: int) -> None:
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "venv" / ".runtime-stamp").touch()
    lrbs = programs / "lrbs"
    lrbs.write_text(f"#!/bin/sh\ntrap 'exit {status}' INT\necho started\nwhile :; do sleep 0.1; done\n")
    lrbs.chmod(lrbs.stat().st_mode | stat.S_IXUSR)
    with subprocess.Popen(
        ["make", "--no-print-directory", "demo", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What is run in the background ignores Ctrl-C, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    # make has other words of its own where its child ends before it has heard of the signal.
    assert "*** [" not in errors
