"""What a service that logs everything writes down, and what it never does."""

import base64
import contextlib
import json
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.app.e2e.refusals import png
from tests.app.e2e.test_processes import children_of
from tests.app.waiting import wait_for

TEXT = "a very private sentence"
ID = "request-id-of-the-test"


def test_every_line_is_json_and_none_holds_a_key_or_content(
    create_admin_key: Callable[[], str], start_server: Callable[..., Any], tmp_path: Path
) -> None:
    admin = create_admin_key()
    settings = {"LRBS_LOCK_WAIT_SECONDS": "0.1", "LRBS_TRUSTED_PROXIES": "127.0.0.1"}
    server = start_server("--no-worker", LRBS_LOG_FORMAT="json", **settings)
    picture = png(40, 40)
    encoded = base64.b64encode(picture).decode()
    item = {"id": "p", "modality": "image", "image_base64": encoded, "metadata": {"note": TEXT}}
    with httpx.Client(base_url=server.url, trust_env=False, headers={"X-Request-ID": ID}) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        modalities = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
        client.post("/v1/collections", json={"name": "a", "modalities": modalities}).raise_for_status()
        other = client.post("/v1/admin/keys", json={"scope": "search"}).raise_for_status().json()["secret"]
        items = {"items": [item, {"modality": "text", "text": TEXT}]}
        assert client.post("/v1/collections/a/items", json=items).status_code == 201
        assert client.post("/v1/collections/a/items", json=items).status_code == 409
        for _ in range(4):
            client.get("/healthz", headers={"X-Forwarded-Prefix": "no-path"}).raise_for_status()
        broken = {"items": [{**item, "id": "q", "image_base64": encoded[:80]}]}
        assert client.post("/v1/collections/a/items", json=broken).status_code == 422
        files = {"picture": picture}
        assert client.post("/v1/collections/a/items", files=files).status_code == 201
        assert client.post("/v1/collections/a/search/text-to-image", json={"text": TEXT}).status_code == 200
        for secret in ("lrbs_a-guess", other):
            answer = client.get("/v1/admin/keys", headers={"Authorization": f"Bearer {secret}"})
            assert answer.status_code in (401, 403)
        database = tmp_path / "data" / "lrbs.sqlite3"
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert client.delete("/v1/collections/a/items/p").status_code == 503
    server.process.terminate()  # a line is written after its answer is sent
    server.process.wait(30.0)
    said = server.said()
    for secret in (admin, other, admin[5:25], "lrbs_", encoded[:40], TEXT, "Bearer"):
        assert secret not in said
    lines = [json.loads(line) for line in said.splitlines()]
    asked = [line for line in lines if line["logger"] == "app.api.gate"]
    # Asking for readiness is not worth a line.
    assert len(asked) == 10
    assert {line["request_id"] for line in asked} == {ID}
    assert {line["status"] for line in asked} == {200, 201, 401, 403, 409, 422, 503}
    assert all(line["milliseconds"] > 0 for line in asked)
    assert sum("X-Forwarded-Prefix" in line["message"] for line in lines) == 1  # once a minute
    away = [line for line in lines if "database unavailable" in line["message"]]
    assert [line["request_id"] for line in away] == [ID]


def test_who_did_what_and_which_process_died_how_is_told(
    create_admin_key: Callable[[], str], start_server: Callable[..., Any]
) -> None:
    settings = {"LRBS_LEASE_SECONDS": "1", "LRBS_JOB_RETRY_SECONDS": "0.1", "LRBS_PROCESES": "3"}
    admin = create_admin_key()
    server = start_server("--processes", "2", **settings)
    with server.client(admin) as client:
        client.create_collection("a", {side: {"type": "vector"} for side in ("x", "z")})
        rows = [
            {
                "id": f"{side}{n}",
                "modality": side,
                "vector": [float(n % 2), 1.0, n / 9],
                "labels": [str(n % 2)],
            }
            for side in ("x", "z")
            for n in range(30)
        ]
        client.create_items("a", rows)
        other = client.create_key("search")
        client.revoke_key(other.id)
        job = client.retrain("a")
        (worker,) = wait_for(lambda: children_of(server.process.pid, "worker"))
        (trainer,) = wait_for(lambda: children_of(worker, "app.worker.trainer"))
        os.kill(trainer, signal.SIGKILL)
        again = wait_for(lambda: children_of(worker, "app.worker.trainer") - {trainer})
        os.kill(worker, signal.SIGKILL)
        for process in again:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        client.wait_for_job(job.id, timeout=90.0)
        version = client.list_models("a").models[0].version
        client.activate_model("a", version)
        client.delete_item("a", "x0")
        (owner,) = {key.id for key in client.list_keys().keys}
        client.delete_collection("a")
    servers = wait_for(lambda: len(found := children_of(server.process.pid)) == 2 and found)
    for process in servers:
        os.kill(process, signal.SIGKILL)
        wait_for(lambda process=process: f"server-process {process} was ended" in server.said())
    wait_for(lambda: len(children_of(server.process.pid) - servers) == 2)
    server.wait_until_ready()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60.0) == 0

    lines = server.said().splitlines()
    form = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} \[\d+\] (INFO|WARNING|ERROR) (.+)")
    matches = [form.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, matches, strict=True) if not match] == []
    told = [match[2] for match in matches if match]
    deeds = [
        "collection a was created",
        f"key {other.id} of scope search was created",
        f"key {other.id} was revoked",
        f"job {job.id}: a retrain of a was requested",
        f"a: version {version} was activated",
        "a: item x0 was deleted",
        "collection a was deleted",
    ]
    by_owner = [line for line in told if line.endswith(f" (key {owner})") and "unused files" not in line]
    assert by_owner == [f"{deed} (key {owner})" for deed in deeds]
    killed = "was ended by SIGKILL (out of memory?)"
    assert f"job {job.id}: retraining a: the trainer {killed}; another attempt in 0.1 s" in told
    assert f"worker {worker} {killed} while job {job.id} retrained a, another is started" in told
    for process in servers:  # each has its line
        assert f"server-process {process} {killed} while it served, another is started" in told
    assert told.count("LRBS_PROCESES is not a setting and has no effect: do you mean LRBS_PROCESSES?") == 1
    stops = "the worker has stopped", "stopping: accepted requests have 30 s to end", "LRBS has stopped"
    assert {"the worker looks for jobs", *stops} <= set(told)
    assert sum(line.endswith(" is started") for line in told) == 3 + 2 * 3  # three died, two lines each
