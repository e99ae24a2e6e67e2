import contextlib
import io
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.answers import Job
from app.client import Client
from tests.app.e2e.conftest import Server

NAME = "album"
COLOURS = ((60, 120, 230), (40, 170, 60), (180, 70, 50))
WORDS = ("clouds wind blue", "meadow lawn green", "wall house red")
PER_KIND = 20
SECONDS = 90.0
SETTINGS = {"LRBS_LEASE_SECONDS": "1", "LRBS_SWEEP_GRACE_SECONDS": "5"}


def png(kind: int, seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 40, (48, 48, 3))
    stored = io.BytesIO()
    Image.fromarray((np.array(COLOURS[kind]) - 20 + noise).astype(np.uint8)).save(stored, "PNG")
    return stored.getvalue()


def items_of(kind: int, prefix: str) -> list[dict[str, Any]]:
    words = WORDS[kind].split()
    found: list[dict[str, Any]] = []
    for number in range(PER_KIND):
        text = f"{words[number % 3]} {words[(number + 1) % 3]}"
        shared = {"labels": [str(kind)]}
        found.append(
            {"id": f"{prefix}-i{number}", "modality": "image", "picture": png(kind, number), **shared}
        )
        found.append({"id": f"{prefix}-t{number}", "modality": "text", "text": text, **shared})
    return found


def active_versions(client: Client) -> list[int]:
    return [model.version for model in client.list_models(NAME).models if model.is_active]


def wait_for_start(client: Client, job_id: str) -> None:
    deadline = time.monotonic() + SECONDS
    while (job := client.get_job(job_id)).state == "queued":
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    assert job.state in ("running", "succeeded"), job


def wait_for_success(client: Client, job_id: str) -> Job:
    job = client.wait_for_job(job_id, timeout=SECONDS)
    assert job.state == "succeeded", job
    return job


def worker_of(server_id: int) -> int | None:
    """Return the process id of the worker beside a server."""
    children = Path(f"/proc/{server_id}/task/{server_id}/children").read_text().split()
    for tasks in Path(f"/proc/{server_id}/task").iterdir():
        with contextlib.suppress(OSError):
            children += (tasks / "children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):
            if b"worker" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
    return None


@pytest.fixture
def secret(create_admin_key: Callable[[], str]) -> str:
    return create_admin_key()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker through /proc")
def test_kills_during_retrains_lose_nothing(start_server: Callable[..., Server], secret: str) -> None:
    chance = random.Random(11)
    server = start_server(**SETTINGS)
    expected: set[str] = set()
    with server.client(secret) as client:
        client.create_collection(NAME, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
        for kind in range(3):
            expected |= set(client.create_items(NAME, items_of(kind, f"first-{kind}")).ids)
        wait_for_success(client, client.retrain(NAME).id)

    for number, victims in enumerate(("server", "worker", "both")):
        with server.client(secret) as client:
            before = active_versions(client)
            assert len(before) == 1
            job = client.retrain(NAME, seed=number)
            expected |= set(client.create_items(NAME, items_of(number % 3, f"round-{number}")).ids)
            wait_for_start(client, job.id)
            time.sleep(chance.uniform(0.0, 1.5))
            worker_id = worker_of(server.process.pid)
        if victims != "server" and worker_id is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker_id, signal.SIGKILL)
        if victims != "worker":
            server.kill()
            server = start_server(**SETTINGS)
        with server.client(secret) as client:
            found = {item.id: item.content_url for item in client.iter_items(NAME, limit=1000)}
            assert found.keys() == expected
            pictures = sorted(item_id for item_id, url in found.items() if url)
            for item_id in chance.sample(pictures, 3):
                assert client.get_content(NAME, item_id).startswith(b"\x89PNG")
            # The job whose worker died is taken up by the next one, and closed.
            closed = wait_for_success(client, job.id)
            assert active_versions(client) == [closed.model_version]
            hits = client.search(NAME, "text", "image", text="meadow green", k=len(expected)).hits
            assert sorted(hit.id for hit in hits) == pictures
            assert hits[0].labels == ["1"]
            assert client.readyz().status == "ready"
