"""The worker is killed while pictures are encoded anew: searches go on, and the next one takes the job up."""

import io
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from app.answers import Hit
from app.client import Client
from tests.app.e2e.conftest import Server
from tests.app.e2e.test_crash_during_retrain import (
    COLOURS,
    NAME,
    SECONDS,
    SETTINGS,
    WORDS,
    secret,
    wait_for_success,
    worker_of,
)

__all__ = ["secret"]
PICTURES = 240
"""Some seconds of encoding by SIFT: enough to be killed in the middle."""


def photograph(kind: int, seed: int) -> bytes:
    """Return a picture with so much in it that SIFT takes its time, in the colour of its kind."""
    noise = np.random.default_rng(seed).integers(0, 70, (28, 28, 3))
    pixels = (np.array(COLOURS[kind]) - 35 + noise).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC).save(stored, "JPEG")
    return stored.getvalue()


def add(client: Client, numbers: range) -> None:
    items: list[dict[str, Any]] = []
    for number in numbers:
        kind = number % 3
        facts = {"labels": [str(kind)]}
        items.append({"id": f"i{number}", "modality": "image", "picture": photograph(kind, number), **facts})
        items.append({"id": f"t{number}", "modality": "text", "text": WORDS[kind], **facts})
    client.create_items(NAME, items)


def search(client: Client) -> int:
    """Return which version finds the green pictures."""
    found = client.search(NAME, "text", "image", text="meadow green", k=20)
    assert {main_label(hit) for hit in found.hits} == {"1"}
    return found.model_version


def main_label(hit: Hit) -> str:
    assert hit.labels is not None
    return hit.labels[0]


def wait_until_some_are_encoded(client: Client, job_id: str) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        job = client.get_job(job_id)
        assert job.state in ("queued", "running"), job
        if job.progress.get("phase") == "re-encoding" and job.progress["items"] > 0:
            return
        assert time.monotonic() < deadline, job
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker through /proc")
def test_a_killed_worker_loses_neither_the_old_encoder_nor_the_work(
    start_server: Callable[..., Server], secret: str, tmp_path: Path
) -> None:
    codebook = tmp_path / "codebook.npy"
    np.save(codebook, np.random.default_rng(0).random((300, 128), np.float32))
    server = start_server(**SETTINGS)
    with server.client(secret) as client:
        client.create_collection(NAME, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
        add(client, range(PICTURES))
        wait_for_success(client, client.retrain(NAME, alpha=0.01).id)
        assert search(client) == 1
        parts = [{"type": "hog-color"}, {"type": "sift-bovw", "path": str(codebook)}]
        combined = {"image": {"type": "combine", "parts": parts}}
        job_id = client.retrain(NAME, alpha=0.01, encoders=combined).id
        wait_until_some_are_encoded(client, job_id)
        worker_id = worker_of(server.process.pid)
        assert worker_id is not None
        os.kill(worker_id, signal.SIGKILL)
        assert search(client) == 1
        add(client, range(PICTURES, PICTURES + 3))  # by the old encoder, which still is the collection's
        assert search(client) == 1
        closed = wait_for_success(client, job_id)
        assert (closed.attempts, closed.model_version) == (2, 2)
        gate = client.get_model(NAME, 2).report["gate"]
        assert gate["active_value"] is not None, gate
        assert str(tmp_path) not in str(closed.parameters)
        events = httpx.get(
            f"{server.url}/v1/admin/jobs/{job_id}/events",
            headers={"Authorization": f"Bearer {secret}"},
            trust_env=False,
            timeout=SECONDS,
        )
        starts = [line for line in events.raise_for_status().text.splitlines() if '"re-encoding"' in line]
        assert any(f'"of": {PICTURES}' in line or f'"of":{PICTURES}' in line for line in starts)
        later = starts[-1].replace(" ", "")  # the second attempt had less to do than the first
        assert f'"of":{PICTURES}' not in later
        deadline = time.monotonic() + 30.0
        while (version := search(client)) != 2:
            assert time.monotonic() < deadline, version
            time.sleep(0.05)
        assert client.get_collection(NAME).modalities["image"].encoder["type"] == "combine"
        new = client.search(NAME, "image", "image", item_id=f"i{PICTURES}", k=5)
        assert {main_label(hit) for hit in new.hits} == {"0"}
