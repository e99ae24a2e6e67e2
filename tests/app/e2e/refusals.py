"""Asking for what must be refused: the limits, a client with a key, and what every refusal looks like."""

import io
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI
from PIL import Image

from app.domain.names import Scope

MAX_BODY = 300_000
MAX_IMPORT, MAX_IMPORT_LINE = 3_000_000, 150_000
MAX_PICTURE = 50_000
MAX_TEXT = 200
VECTORS, MIXED = "/v1/collections/vectors", "/v1/collections/mixed"
MODALITIES = {"image": {"encoder": {"type": "vector"}}, "text": {"encoder": {"type": "vector"}}}


def png(width: int = 8, height: int = 8) -> bytes:
    stored = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(stored, "PNG")
    return stored.getvalue()


@dataclass
class Api:
    """A client with an admin key, and what the two collections hold."""

    client: httpx.Client
    keys: dict[Scope, str]
    folder: Path

    def begin(self) -> None:
        """Make both collections anew."""
        for made in self.client.get("/v1/collections").json()["collections"]:
            self.client.delete(f"/v1/collections/{made['name']}").raise_for_status()
        for path, encoders in ((VECTORS, ("vector", "vector")), (MIXED, ("hog-color", "tfidf"))):
            sides = zip(MODALITIES, encoders, strict=True)
            modalities = {side: {"encoder": {"type": encoder}} for side, encoder in sides}
            body = {"name": path.rpartition("/")[2], "modalities": modalities}
            self.client.post("/v1/collections", json=body).raise_for_status()
        first = {"id": "first", "modality": "image", "vector": [1.0, 2.0], "labels": ["a"]}
        other = {"id": "other", "modality": "text", "vector": [1.0], "labels": ["a"]}
        self.client.post(f"{VECTORS}/items", json={"items": [first, other]}).raise_for_status()

    def state(self) -> list[Any]:
        found = [self.client.get(path).json() for path in (VECTORS, MIXED)]
        return [(one["revision"], one["items"], one["modalities"]) for one in found]


def client_of(
    application: FastAPI, headers: dict[str, str], event_loop: BlockingPortal | None = None
) -> httpx.Client:
    """Return a client; clients that ask at the same time need one event loop, as a server has."""
    with warnings.catch_warnings():
        # Starlette would rather have a successor of httpx, which is not among the dependencies.
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    client = TestClient(application, headers=headers, raise_server_exceptions=False)
    client.portal = event_loop
    return client


def check_problem(answer: httpx.Response, status: int, named: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["type"].startswith("/problems/")
    assert body["title"]
    assert named in body["detail"], body["detail"]
    assert "Value error" not in answer.text
    return body


def check_next_request_works(api: Api) -> None:
    item = {"id": uuid.uuid4().hex, "modality": "image", "vector": [3.0, 4.0]}
    assert api.client.post(f"{VECTORS}/items", json={"items": [item]}).status_code == 201


def vector_item(**fields: Any) -> dict[str, Any]:
    return {"id": "new", "modality": "image", "vector": [1.0, 2.0], **fields}
