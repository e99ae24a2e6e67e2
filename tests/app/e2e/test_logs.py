"""What a service that logs everything writes down, and what it never does."""

import base64
import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.app.e2e.refusals import png

TEXT = "a very private sentence"
ID = "request-id-of-the-test"


def test_every_line_is_json_and_none_holds_a_key_or_content(
    create_admin_key: Callable[[], str], start_server: Callable[..., Any], tmp_path: Path
) -> None:
    admin = create_admin_key()
    server = start_server("--no-worker", LRBS_LOG_FORMAT="json", LRBS_LOCK_WAIT_SECONDS="0.1")
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
        broken = {"items": [{**item, "id": "q", "image_base64": encoded[:80]}]}
        assert client.post("/v1/collections/a/items", json=broken).status_code == 422
        files = {"picture": picture}
        assert client.post("/v1/collections/a/items", files=files).status_code == 201
        assert client.post("/v1/collections/a/search/text-to-image", json={"text": TEXT}).status_code == 409
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
    asked = [line for line in lines if line["logger"] == "app.api.middleware.request_log"]
    # Asking for readiness is not worth a line.
    assert len(asked) == 10
    assert {line["request_id"] for line in asked} == {ID}
    assert {line["status"] for line in asked} == {201, 401, 403, 409, 422, 503}
    assert all(line["milliseconds"] > 0 for line in asked)
    away = [line for line in lines if "database unavailable" in line["message"]]
    assert [line["request_id"] for line in away] == [ID]
