"""The worker is killed while pictures are encoded anew: searches go on, and the next one takes the job up."""

import base64
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

from tests.app.e2e.test_crash_during_retrain import (
    COLOURS,
    NAME,
    SETTINGS,
    WORDS,
    client_of,
    secret,
    wait_for_job,
    worker_of,
)

__all__ = ["secret"]
PICTURES = 240
"""Some seconds of encoding by SIFT: enough to be killed in the middle."""


def photograph(kind: int, seed: int) -> str:
    """Return a picture with so much in it that SIFT takes its time, in the colour of its kind."""
    noise = np.random.default_rng(seed).integers(0, 70, (28, 28, 3))
    pixels = (np.array(COLOURS[kind]) - 35 + noise).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC).save(stored, "JPEG")
    return base64.b64encode(stored.getvalue()).decode()


def add(client: httpx.Client, numbers: range) -> None:
    items: list[dict[str, Any]] = []
    for number in numbers:
        kind = number % 3
        facts = {"labels": [str(kind)]}
        items.append(
            {"id": f"i{number}", "modality": "image", "image_base64": photograph(kind, number), **facts}
        )
        items.append({"id": f"t{number}", "modality": "text", "text": WORDS[kind], **facts})
    client.post(f"/v1/collections/{NAME}/items", json={"items": items}).raise_for_status()


def retrain(client: httpx.Client, **body: Any) -> str:
    path = f"/v1/admin/collections/{NAME}/retrain"
    made: str = client.post(path, json={"alpha": 0.01, **body}).raise_for_status().json()["id"]
    return made


def search(client: httpx.Client) -> int:
    """Return which version finds the green pictures."""
    body = {"text": "meadow green", "k": 20}
    found = client.post(f"/v1/collections/{NAME}/search/text-to-image", json=body).raise_for_status().json()
    assert {hit["labels"][0] for hit in found["hits"]} == {"1"}
    version: int = found["model_version"]
    return version


def wait_until_some_are_encoded(client: httpx.Client, job_id: str) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        job = client.get(f"/v1/admin/jobs/{job_id}").raise_for_status().json()
        assert job["state"] in ("queued", "running"), job
        if job["progress"].get("phase") == "re-encoding" and job["progress"]["items"] > 0:
            return
        assert time.monotonic() < deadline, job
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker through /proc")
def test_a_killed_worker_loses_neither_the_old_encoder_nor_the_work(
    start_server: Callable[..., Any], secret: str, tmp_path: Path
) -> None:
    codebook = tmp_path / "codebook.npy"
    np.save(codebook, np.random.default_rng(0).random((300, 128), np.float32))
    server = start_server(**SETTINGS)
    with client_of(server.url, secret) as client:
        modalities = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
        client.post("/v1/collections", json={"name": NAME, "modalities": modalities}).raise_for_status()
        add(client, range(PICTURES))
        wait_for_job(client, retrain(client), {"succeeded"})
        assert search(client) == 1
        parts = [{"type": "hog-color"}, {"type": "sift-bovw", "path": str(codebook)}]
        job_id = retrain(client, encoders={"image": {"type": "combine", "parts": parts}})
        wait_until_some_are_encoded(client, job_id)
        worker_id = worker_of(server.process.pid)
        assert worker_id is not None
        os.kill(worker_id, signal.SIGKILL)
        assert search(client) == 1
        add(client, range(PICTURES, PICTURES + 3))  # by the old encoder, which still is the collection's
        assert search(client) == 1
        closed = wait_for_job(client, job_id, {"succeeded", "failed", "cancelled"})
        assert (closed["state"], closed["attempts"], closed["model_version"]) == ("succeeded", 2, 2)
        model = client.get(f"/v1/admin/collections/{NAME}/models/2").raise_for_status().json()
        assert model["report"]["gate"]["active_value"] is not None, model["report"]["gate"]
        assert str(tmp_path) not in str(closed["parameters"])
        steps = client.get(f"/v1/admin/jobs/{job_id}/events").raise_for_status().text
        starts = [line for line in steps.splitlines() if '"re-encoding"' in line]
        assert any(f'"of": {PICTURES}' in line or f'"of":{PICTURES}' in line for line in starts)
        later = starts[-1].replace(" ", "")  # the second attempt had less to do than the first
        assert f'"of":{PICTURES}' not in later
        deadline = time.monotonic() + 30.0
        while (version := search(client)) != 2:
            assert time.monotonic() < deadline, version
            time.sleep(0.05)
        described = client.get(f"/v1/collections/{NAME}").json()["modalities"]["image"]["encoder"]
        assert described["type"] == "combine"
        new = client.post(
            f"/v1/collections/{NAME}/search/image-to-image", json={"item_id": f"i{PICTURES}", "k": 5}
        )
        assert {hit["labels"][0] for hit in new.raise_for_status().json()["hits"]} == {"0"}
