import base64
import contextlib
import io
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from app.bootstrap import Services, build
from app.domain.entities import Scope
from app.settings import Settings

NAME = "album"
COLOURS = ((60, 120, 230), (40, 170, 60), (180, 70, 50))
WORDS = ("clouds wind blue", "meadow lawn green", "wall house red")
PER_KIND = 20
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
        picture = base64.b64encode(png(kind, number)).decode()
        text = f"{words[number % 3]} {words[(number + 1) % 3]}"
        shared = {"labels": [str(kind)]}
        found.append({"id": f"{prefix}-i{number}", "modality": "image", "image_base64": picture, **shared})
        found.append({"id": f"{prefix}-t{number}", "modality": "text", "text": text, **shared})
    return found


def client_of(url: str, secret: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0)


def ids_in(client: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = {}
    cursor: str | None = "0"
    while cursor is not None:
        parameters = {"cursor": cursor, "limit": "1000"}
        page = client.get(f"/v1/collections/{NAME}/items", params=parameters).raise_for_status().json()
        found |= {item["id"]: item["content_url"] for item in page["items"]}
        cursor = page["next_cursor"]
    return found


def active_versions(client: httpx.Client) -> list[int]:
    models = client.get(f"/v1/admin/collections/{NAME}/models").raise_for_status().json()["models"]
    return [model["version"] for model in models if model["is_active"]]


def wait_for_job(client: httpx.Client, job_id: str, states: set[str]) -> dict[str, Any]:
    deadline = time.monotonic() + 90.0
    while True:
        job: dict[str, Any] = client.get(f"/v1/admin/jobs/{job_id}").raise_for_status().json()
        if job["state"] in states:
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


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
def secret(tmp_path: Path) -> str:
    services: Services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.schema.upgrade()
    _, made = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    return made


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the worker through /proc")
def test_kills_during_retrains_lose_nothing(start_server: Callable[..., Any], secret: str) -> None:
    chance = random.Random(11)
    server = start_server(**SETTINGS)
    expected: set[str] = set()
    with client_of(server.url, secret) as client:
        modalities = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
        body = {"name": NAME, "modalities": modalities}
        client.post("/v1/collections", json=body).raise_for_status()
        for kind in range(3):
            items = items_of(kind, f"first-{kind}")
            answer = client.post(f"/v1/collections/{NAME}/items", json={"items": items}).raise_for_status()
            expected |= set(answer.json()["ids"])
        job = client.post(f"/v1/admin/collections/{NAME}/retrain", json={}).raise_for_status().json()
        assert wait_for_job(client, job["id"], {"succeeded", "failed"})["state"] == "succeeded"

    for number, victims in enumerate(("server", "worker", "both")):
        with client_of(server.url, secret) as client:
            before = active_versions(client)
            assert len(before) == 1
            answer = client.post(f"/v1/admin/collections/{NAME}/retrain", json={"seed": number})
            job = answer.raise_for_status().json()
            items = items_of(number % 3, f"round-{number}")
            answer = client.post(f"/v1/collections/{NAME}/items", json={"items": items}).raise_for_status()
            expected |= set(answer.json()["ids"])
            wait_for_job(client, job["id"], {"running", "succeeded"})
            time.sleep(chance.uniform(0.0, 1.5))
            worker_id = worker_of(server.process.pid)
        if victims != "server" and worker_id is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker_id, signal.SIGKILL)
        if victims != "worker":
            server.kill()
            server = start_server(**SETTINGS)
        with client_of(server.url, secret) as client:
            found = ids_in(client)
            assert found.keys() == expected
            for item_id in chance.sample(sorted(url for url in found.values() if url), 3):
                assert client.get(item_id).raise_for_status().content.startswith(b"\x89PNG")
            # The job whose worker died is taken up by the next one, and closed.
            closed = wait_for_job(client, job["id"], {"succeeded", "failed", "cancelled"})
            assert closed["state"] == "succeeded", closed
            assert active_versions(client) == [closed["model_version"]]
            body = {"text": "meadow green", "k": len(expected)}
            result = client.post(f"/v1/collections/{NAME}/search/text-to-image", json=body)
            result.raise_for_status()
            hits = result.json()["hits"]
            assert sorted(hit["id"] for hit in hits) == sorted(i for i, url in found.items() if url)
            assert hits[0]["labels"] == ["1"]
            assert client.get("/readyz").status_code == 200
