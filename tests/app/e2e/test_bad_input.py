import base64
import io
import json
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image

from app.api.problems import PROBLEMS
from app.bootstrap import build
from app.domain.entities import Scope
from app.domain.errors import ServiceError
from app.main import create_app
from app.settings import Settings

MAX_BODY = 300_000
MAX_PICTURE = 50_000
MAX_TEXT = 200
VECTORS, MIXED = "/v1/collections/vectors", "/v1/collections/mixed"


def png(width: int = 8, height: int = 8) -> bytes:
    stored = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(stored, "PNG")
    return stored.getvalue()


def claiming_png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size; its data is that of a few pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\x00" * 100)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


@dataclass
class Api:
    """A client with an admin key, and what the two collections hold."""

    client: httpx.Client
    keys: dict[Scope, str]

    def state(self) -> list[Any]:
        found = [self.client.get(path).json() for path in (VECTORS, MIXED)]
        return [(one["revision"], one["items"], one["modalities"]) for one in found]


def client_of(application: FastAPI, headers: dict[str, str]) -> httpx.Client:
    with warnings.catch_warnings():
        # Starlette would rather have a successor of httpx, which is not among the dependencies.
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    return TestClient(application, headers=headers, raise_server_exceptions=False)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = Settings(
        data_dir=tmp_path,
        database_url="",
        open_search=False,
        max_body_bytes=MAX_BODY,
        max_picture_bytes=MAX_PICTURE,
        max_picture_pixels=1_000_000,
        max_text_chars=MAX_TEXT,
        max_batch=5,
    )
    services = build(settings)
    services.upgrade_schema()
    keys = {scope: services.access.create(scope)[1] for scope in Scope}
    headers = {"Authorization": f"Bearer {keys[Scope.ADMIN]}"}
    with client_of(create_app(services), headers) as client:
        for name, encoders in (("vectors", ("vector", "vector")), ("mixed", ("hog-color", "tfidf"))):
            modalities = {
                side: {"encoder": {"type": encoder}}
                for side, encoder in zip(("image", "text"), encoders, strict=True)
            }
            client.post("/v1/collections", json={"name": name, "modalities": modalities}).raise_for_status()
        first = {"id": "first", "modality": "image", "vector": [1.0, 2.0], "labels": ["a"]}
        other = {"id": "other", "modality": "text", "vector": [1.0], "labels": ["a"]}
        client.post(f"{VECTORS}/items", json={"items": [first, other]}).raise_for_status()
        yield Api(client, keys)
    services.database.engine.dispose()


def check_problem(answer: httpx.Response, status: int, named: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["type"].startswith("/problems/")
    assert body["title"]
    assert named in body["detail"], body["detail"]
    return body


def check_next_request_works(api: Api) -> None:
    item = {"id": "next", "modality": "image", "vector": [3.0, 4.0]}
    assert api.client.post(f"{VECTORS}/items", json={"items": [item]}).status_code == 201


def vector_item(**fields: Any) -> dict[str, Any]:
    return {"id": "new", "modality": "image", "vector": [1.0, 2.0], **fields}


def text_item(text: str) -> dict[str, Any]:
    return {"modality": "text", "text": text}


def picture_item(content: bytes) -> dict[str, Any]:
    return {"modality": "image", "image_base64": base64_of(content)}


BAD_ITEMS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "too long": (VECTORS, vector_item(vector=[1.0, 2.0, 3.0]), 422, "items.1"),
    "empty": (VECTORS, vector_item(vector=[]), 422, "items.1"),
    "beyond single precision": (VECTORS, vector_item(vector=[1e300, 0.0]), 422, "items.1"),
    "not numbers": (VECTORS, vector_item(vector=["a", "b"]), 422, "items.1.vector"),
    "a text where vectors are": (VECTORS, {"modality": "image", "text": "a boat"}, 422, "items.1"),
    "nothing": (VECTORS, {"modality": "image"}, 422, "items.1"),
    "two at once": (VECTORS, vector_item(text="a boat"), 422, "items.1"),
    "unknown modality": (VECTORS, vector_item(modality="sound"), 422, "items.1.modality"),
    "no modality": (VECTORS, {"vector": [1.0, 2.0]}, 422, "items.1.modality"),
    "unknown field": (VECTORS, vector_item(lables=["a"]), 422, "items.1.lables"),
    "bad id": (VECTORS, vector_item(id="a/b"), 422, "items.1.id"),
    "long id": (VECTORS, vector_item(id="a" * 129), 422, "items.1.id"),
    "duplicate id": (VECTORS, vector_item(id="good"), 409, "items.1.id"),
    "taken id": (VECTORS, vector_item(id="first"), 409, "items.1.id"),
    "empty label": (VECTORS, vector_item(labels=[""]), 422, "items.1.labels.0"),
    "long label": (VECTORS, vector_item(labels=["a" * 201]), 422, "items.1.labels.0"),
    "NUL in a label": (VECTORS, vector_item(labels=["a\x00"]), 422, "labels"),
    "NUL in metadata": (VECTORS, vector_item(metadata={"a": ["b\x00"]}), 422, "metadata"),
    "surrogate in metadata": (VECTORS, vector_item(metadata={"\ud800": 1}), 422, "body"),
    "surrogate as field": (VECTORS, {**vector_item(), "\ud800": 1}, 422, "body"),
    "long text": (MIXED, text_item("a" * (MAX_TEXT + 1)), 413, "items.1"),
    "blank text": (MIXED, text_item(" \n"), 422, "items.1"),
    "NUL in a text": (MIXED, text_item("a\x00b"), 422, "text"),
    "surrogate in a text": (MIXED, text_item("a\ud800b"), 422, "body"),
    "not a picture": (MIXED, picture_item(b"this is not a picture"), 422, "items.1"),
    "empty picture": (MIXED, picture_item(b""), 422, "items.1"),
    "cut picture": (MIXED, picture_item(png(64, 64)[:-40]), 422, "items.1"),
    "picture of too many bytes": (MIXED, picture_item(png() + bytes(MAX_PICTURE)), 413, "items.1"),
    "bomb": (MIXED, picture_item(claiming_png(50_000, 50_000)), 413, "items.1"),
    "picture of too many pixels": (MIXED, picture_item(claiming_png(1001, 1000)), 413, "items.1"),
    "not base64": (MIXED, {"modality": "image", "image_base64": "%%%"}, 422, "items.1.image_base64"),
    "not ASCII": (MIXED, {"modality": "image", "image_base64": "é"}, 422, "items.1.image_base64"),
}


@pytest.mark.parametrize("case", BAD_ITEMS)
def test_a_bad_item_is_refused_with_all_that_came_with_it(api: Api, case: str) -> None:
    path, bad, status, named = BAD_ITEMS[case]
    before = api.state()
    good = vector_item(id="good") if path == VECTORS else {"id": "good", **text_item("a boat")}
    # ASCII only, so that lone surrogates can travel.
    body = json.dumps({"items": [good, bad]})
    answer = api.client.post(f"{path}/items", content=body, headers={"Content-Type": "application/json"})
    check_problem(answer, status, named)
    assert api.state() == before
    assert api.client.get(f"{path}/items/good").status_code == 404
    check_next_request_works(api)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(api: Api, number: str) -> None:
    before = api.state()
    headers = {"Content-Type": "application/json"}
    for field in (f'"vector": [1.0, {number}]', f'"vector": [1.0, 2.0], "metadata": {{"a": {number}}}'):
        item = f'{{"items": [{{"modality": "image", {field}}}]}}'
        check_problem(api.client.post(f"{VECTORS}/items", content=item, headers=headers), 422, "items.0")
    assert api.state() == before
    check_next_request_works(api)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"items": []}',
        b'{"items": {}}',
        b"\xff\xfe",
        b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"items": [{"modality": "image", "vector": [1, 2], "metadata": {"a": '
        + b"[" * 5000
        + b"]" * 5000
        + b"}}]}",
        b'{"items": [{"modality": "image", "vector": [1, ' + b"9" * 5000 + b"]}]}",
    ],
    ids=lambda body: f"{len(body)} bytes, {body[:8]!r}",
)
def test_a_body_that_is_no_request_is_refused(api: Api, body: bytes) -> None:
    before = api.state()
    headers = {"Content-Type": "application/json"}
    for path in (f"{VECTORS}/items", f"{VECTORS}/search/text-to-image", "/v1/collections"):
        answer = api.client.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        check_problem(answer, answer.status_code, "")
    assert api.state() == before
    check_next_request_works(api)


def test_too_many_items_and_queries_are_refused(api: Api) -> None:
    before = api.state()
    items = [vector_item(id=f"many{number}") for number in range(6)]
    check_problem(api.client.post(f"{VECTORS}/items", json={"items": items}), 413, "items")
    body = {"queries": [{"vector": [1.0]}] * 6}
    check_problem(api.client.post(f"{VECTORS}/search/text-to-image/batch", json=body), 413, "queries")
    assert api.state() == before


def test_large_and_chunked_bodies_are_refused(api: Api) -> None:
    before = api.state()
    answer = api.client.post(f"{VECTORS}/items", content=b" " * (MAX_BODY + 1))
    check_problem(answer, 413, "body")
    answer = api.client.post(f"{VECTORS}/items", content=iter([b'{"items": ', b"[]}"]))
    assert answer.status_code in (411, 413)
    check_problem(answer, answer.status_code, "body")
    assert api.state() == before
    check_next_request_works(api)


def test_a_large_or_bad_picture_file_is_refused(api: Api) -> None:
    before = api.state()
    for content, status in ((b"\x00" * (MAX_PICTURE + 1), 413), (b"no picture", 422), (png()[:30], 422)):
        files = {"picture": ("a.png", content, "image/png")}
        check_problem(api.client.post(f"{MIXED}/items/picture", files=files), status, "")
    for item in ('{"modality"', "[]", '{"modality": "image", "x\\ud800": 1}', "[" * 50_000, '{"id": "a"}'):
        files = {"picture": ("a.png", png(), "image/png")}
        answer = api.client.post(f"{MIXED}/items/picture", files=files, data={"item": item})
        check_problem(answer, 422, "item")
    assert api.state() == before
    files = {"picture": ("a.png", png(), "image/png")}
    assert api.client.post(f"{MIXED}/items/picture", files=files).status_code == 201


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"k": 0}, "k"),
        ({"k": 10_001}, "k"),
        ({"k": 10**30}, "k"),
        ({"k": "many"}, "k"),
        ({"offset": -1}, "offset"),
        ({"offset": 1_000_001}, "offset"),
        ({"filter": {"label": ["a"]}}, "filter.label"),
        ({"filter": {"metadata": {"a": {"b": 1}}}}, "filter.metadata"),
        ({"text": "two at once"}, "vector"),
        ({"item_id": "two at once"}, "vector"),
        ({"vektor": [1.0]}, "vektor"),
    ],
)
def test_a_bad_search_is_refused(api: Api, fields: dict[str, Any], named: str) -> None:
    answer = api.client.post(f"{VECTORS}/search/text-to-image", json={"vector": [1.0], **fields})
    check_problem(answer, 422, named)


@pytest.mark.parametrize("cursor", ["abc", "-1", "9" * 19, "1.5", ""])
def test_a_bad_cursor_is_refused(api: Api, cursor: str) -> None:
    answer = api.client.get(f"{VECTORS}/items", params={"cursor": cursor})
    check_problem(answer, 422, "cursor")
    assert api.client.get(f"{VECTORS}/items", params={"cursor": "9" * 18}).json()["items"] == []


def test_what_is_not_there_is_not_found(api: Api) -> None:
    for path in ("/v1/collections/none", "/v1/collections/none/items", f"{VECTORS}/items/none"):
        check_problem(api.client.get(path), 404, "none")
    check_problem(api.client.get("/v1/admin/jobs/none"), 404, "none")
    check_problem(api.client.delete("/v1/admin/keys/none"), 404, "none")
    check_problem(api.client.delete(f"{VECTORS}/items/none"), 404, "none")
    check_problem(api.client.post("/v1/admin/collections/vectors/models/7/activate"), 404, "7")
    check_problem(api.client.get(f"{VECTORS}/items", params={"modality": "sound"}), 422, "modality")
    check_problem(api.client.get("/v1/nothing"), 404, "")
    check_problem(api.client.put("/v1/collections"), 405, "")


def test_an_untrained_collection_says_what_to_call(api: Api) -> None:
    answer = api.client.post(f"{VECTORS}/search/text-to-image", json={"vector": [1.0]})
    check_problem(answer, 409, "/v1/admin/collections/vectors/retrain")


def test_nothing_to_train_on_is_refused(api: Api) -> None:
    check_problem(api.client.post("/v1/admin/collections/mixed/retrain"), 409, "image")


def test_a_second_retrain_is_refused_while_one_waits(api: Api) -> None:
    path = "/v1/admin/collections/vectors/retrain"
    more = [vector_item(id=f"x{n}", labels=[label]) for n, label in enumerate(("a", "b", "b"))]
    api.client.post(f"{VECTORS}/items", json={"items": more}).raise_for_status()
    more = [{"modality": "text", "vector": [1.0], "labels": [label]} for label in ("a", "b", "b")]
    api.client.post(f"{VECTORS}/items", json={"items": more}).raise_for_status()
    job = api.client.post(path).json()
    check_problem(api.client.post(path), 409, "vectors")
    assert api.client.post(f"/v1/admin/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    assert api.client.post(path).status_code == 202


@pytest.mark.parametrize(
    "fields", [{"alpha": 0}, {"alpha": -1}, {"scaling": "log"}, {"tol": 0}, {"max_iter": 0}, {"seed": -1}]
)
def test_a_bad_retrain_is_refused(api: Api, fields: dict[str, Any]) -> None:
    answer = api.client.post("/v1/admin/collections/vectors/retrain", json=fields)
    check_problem(answer, 422, next(iter(fields)))


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer nothing", "Basic bm86cGU=", "Bearer \xe9"]
)
def test_no_key_is_unauthenticated(api: Api, authorization: str | None) -> None:
    before = api.state()
    del api.client.headers["Authorization"]
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    calls = (("GET", VECTORS), ("DELETE", VECTORS), ("POST", f"{VECTORS}/items"), ("GET", "/v1/admin/keys"))
    for method, path in calls:
        body = {"items": [vector_item()]} if method == "POST" else None
        answer = api.client.request(method, path, headers=headers, json=body)
        check_problem(answer, 401, "key")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    api.client.headers["Authorization"] = f"Bearer {api.keys[Scope.ADMIN]}"
    assert api.state() == before


def test_a_key_of_too_small_a_scope_is_forbidden(api: Api) -> None:
    before = api.state()
    for scope, method, path in (
        (Scope.SEARCH, "POST", f"{VECTORS}/items"),
        (Scope.SEARCH, "DELETE", f"{VECTORS}/items/first"),
        (Scope.SEARCH, "DELETE", VECTORS),
        (Scope.WRITE, "DELETE", VECTORS),
        (Scope.WRITE, "GET", "/v1/admin/keys"),
        (Scope.WRITE, "POST", "/v1/admin/collections/vectors/retrain"),
    ):
        body = {"items": [vector_item()]} if path.endswith("/items") else None
        headers = {"Authorization": f"Bearer {api.keys[scope]}"}
        check_problem(api.client.request(method, path, headers=headers, json=body), 403, "scope")
    assert api.state() == before


def test_put_refuses_an_id_that_no_item_may_have(api: Api) -> None:
    before = api.state()
    item = {"modality": "image", "vector": [1.0, 2.0]}
    check_problem(api.client.put(f"{VECTORS}/items/a%20b", json=item), 422, "id")
    check_problem(api.client.put(f"{VECTORS}/items/a", json={**item, "id": "b"}), 422, "id")
    assert api.state() == before


MODALITIES = {"image": {"encoder": {"type": "vector"}}, "text": {"encoder": {"type": "vector"}}}


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"name": "vectors"}, 409, "vectors"),
        ({"name": "a/b"}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "a" * 65}, 422, "name"),
        ({"name": "a\x00"}, 422, "name"),
        ({"modalities": {"image": {"encoder": {"type": "vector"}}}}, 422, "modalities"),
        ({"modalities": {**MODALITIES, "text": {"encoder": {"type": "magic"}}}}, 422, "type"),
        ({"modalities": {**MODALITIES, "text": {"encoder": {}}}}, 422, "type"),
        ({"modalities": {"a-to-b": MODALITIES["image"], "b": MODALITIES["image"]}}, 422, "modalities"),
        ({"extra": 1}, 422, "extra"),
    ],
)
def test_a_bad_collection_is_refused(api: Api, fields: dict[str, Any], status: int, named: str) -> None:
    before = api.client.get("/v1/collections").json()
    body = {"name": "third", "modalities": MODALITIES, **fields}
    check_problem(api.client.post("/v1/collections", json=body), status, named)
    assert api.client.get("/v1/collections").json() == before


@pytest.mark.parametrize(
    "encoder",
    [
        {"type": "vector", "dim": float("nan")},
        {"type": "vector", "dim": "many"},
        {"type": "vector", "dim": 0},
        {"type": "vector", "dmi": 3},
        {"type": "tfidf", "max_features": "many"},
        {"type": "tfidf", "ngrams": 0},
        {"type": "hog-color", "note": "a\x00b"},
    ],
    ids=str,
)
def test_bad_encoder_options_are_refused(api: Api, encoder: dict[str, Any]) -> None:
    before = api.client.get("/v1/collections").json()
    body = json.dumps({"name": "third", "modalities": {**MODALITIES, "text": {"encoder": encoder}}})
    answer = api.client.post("/v1/collections", content=body, headers={"Content-Type": "application/json"})
    check_problem(answer, 422, "encoder")
    assert api.client.get("/v1/collections").json() == before


def kinds_of(error: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_every_refusal_has_its_problem() -> None:
    assert set(kinds_of(ServiceError)) == set(PROBLEMS)
    assert all(400 <= status < 600 for status, _, _ in PROBLEMS.values())
