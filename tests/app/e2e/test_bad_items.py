import base64
import json
import struct
import zlib
from typing import Any

import pytest

from tests.app.e2e.refusals import (
    MAX_BODY,
    MAX_PICTURE,
    MAX_TEXT,
    MIXED,
    MODALITIES,
    VECTORS,
    Api,
    check_next_request_works,
    check_problem,
    png,
    vector_item,
)

JSON = {"Content-Type": "application/json"}


def claiming_png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size; its data is that of a few pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\x00" * 100)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def text_item(text: str) -> dict[str, Any]:
    return {"modality": "text", "text": text}


def picture_item(content: bytes) -> dict[str, Any]:
    return {"modality": "image", "image_base64": base64_of(content)}


BAD_ITEMS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "too long": (VECTORS, vector_item(vector=[1.0, 2.0, 3.0]), 422, "vector"),
    "empty": (VECTORS, vector_item(vector=[]), 422, "vector"),
    "beyond single precision": (VECTORS, vector_item(vector=[1.0, 1e300]), 422, "vector.1"),
    "not numbers": (VECTORS, vector_item(vector=["a", "b"]), 422, "vector.0"),
    "a text where vectors are": (VECTORS, {"modality": "image", "text": "a boat"}, 422, "text"),
    "nothing": (VECTORS, {"modality": "image"}, 422, "body"),
    "two at once": (VECTORS, vector_item(text="a boat"), 422, "vector"),
    "unknown modality": (VECTORS, vector_item(modality="sound"), 422, "modality"),
    "no modality": (VECTORS, {"vector": [1.0, 2.0]}, 422, "modality"),
    "unknown field": (VECTORS, vector_item(lables=["a"]), 422, "lables"),
    "bad id": (VECTORS, vector_item(id="a/b"), 422, "id"),
    "a step in a path": (VECTORS, vector_item(id=".."), 422, "id"),
    "long id": (VECTORS, vector_item(id="a" * 129), 422, "id"),
    "duplicate id": (VECTORS, vector_item(id="good"), 409, "id"),
    "taken id": (VECTORS, vector_item(id="first"), 409, "id"),
    "empty label": (VECTORS, vector_item(labels=["a", ""]), 422, "labels.1"),
    "long label": (VECTORS, vector_item(labels=["a" * 201]), 422, "labels.0"),
    "NUL in a label": (VECTORS, vector_item(labels=["a\x00"]), 422, "body"),
    "NUL in metadata": (VECTORS, vector_item(metadata={"a": ["b\x00"]}), 422, "body"),
    "too much metadata": (VECTORS, vector_item(metadata={"a": ["b" * 100] * 200}), 422, "metadata"),
    "surrogate in a label": (VECTORS, vector_item(labels=["\ud800"]), 422, "body"),
    "surrogate in metadata": (VECTORS, vector_item(metadata={"\ud800": 1}), 422, "body"),
    "surrogate as field": (VECTORS, {**vector_item(), "\ud800": 1}, 422, "body"),
    "long text": (MIXED, text_item("a" * (MAX_TEXT + 1)), 413, "text"),
    "blank text": (MIXED, text_item(" \n"), 422, "text"),
    "NUL in a text": (MIXED, text_item("a\x00b"), 422, "body"),
    "surrogate in a text": (MIXED, text_item("a\ud800b"), 422, "body"),
    "not a picture": (MIXED, picture_item(b"this is not a picture"), 422, "image_base64"),
    "empty picture": (MIXED, picture_item(b""), 422, "image_base64"),
    "cut picture": (MIXED, picture_item(png(64, 64)[:-40]), 422, "image_base64"),
    "picture of too many bytes": (MIXED, picture_item(png() + bytes(MAX_PICTURE)), 413, "image_base64"),
    "bomb": (MIXED, picture_item(claiming_png(50_000, 50_000)), 413, "image_base64"),
    "picture of too many pixels": (MIXED, picture_item(claiming_png(1001, 1000)), 413, "image_base64"),
    "not base64": (MIXED, {"modality": "image", "image_base64": "%%%"}, 422, "image_base64"),
    "not ASCII": (MIXED, {"modality": "image", "image_base64": "é"}, 422, "image_base64"),
}
"""What is wrong with an item, and the field at fault: "body" is the whole of it."""


@pytest.mark.parametrize("case", BAD_ITEMS)
def test_a_bad_item_is_refused_however_it_is_sent_with_all_that_came_with_it(
    lasting_api: Api, case: str
) -> None:
    path, bad, status, field = BAD_ITEMS[case]
    before, client = lasting_api.state(), lasting_api.client
    good = vector_item(id="good") if path == VECTORS else {"id": "good", **text_item("a boat")}
    # ASCII only, so that lone surrogates can travel.
    body = json.dumps({"items": [good, bad]})
    answer = client.post(f"{path}/items", content=body, headers=JSON)
    place = "items.1" if field == "body" else f"items.1.{field}"
    assert check_problem(answer, status, "")["field"] == ("body" if "surrogate" in case else place)
    if field != "id":  # of an item that is put the path has it
        alone = json.dumps({name: value for name, value in bad.items() if name != "id"})
        answer = client.put(f"{path}/items/new", content=alone, headers=JSON)
        assert check_problem(answer, status, "")["field"] == field
    if case != "taken id":  # which an import replaces
        lines = f"{json.dumps(good)}\n\n{json.dumps(bad)}\n"
        told = check_problem(client.post(f"{path}/items:import", content=lines), status, "line 3: ")
        assert (told["line"], told["field"]) == (3, field)
    assert lasting_api.state() == before
    assert client.get(f"{path}/items/good").status_code == 404
    check_next_request_works(lasting_api)


def test_vectors_of_two_lengths_are_refused_before_any_is_stored(api: Api) -> None:
    path = "/v1/collections/fresh"
    body = {"name": "fresh", "modalities": MODALITIES}
    api.client.post("/v1/collections", json=body).raise_for_status()
    items = [{"modality": "image", "vector": [1.0] * length} for length in (3, 3, 2)]
    answer = api.client.post(f"{path}/items", json={"items": items})
    assert check_problem(answer, 422, "expected 3")["field"] == "items.2.vector"
    answer = api.client.post(f"{path}/items:import", content="\n".join(map(json.dumps, items)))
    assert check_problem(answer, 422, "expected 3")["line"] == 3
    made = api.client.get(path).json()
    assert made["items"] == {"image": 0, "text": 0}
    assert made["modalities"]["image"] == {"encoder": {"type": "vector"}, "content": "vector"}
    assert api.client.post(f"{path}/items:import", content=json.dumps(items[2])).status_code == 201
    assert api.client.get(path).json()["modalities"]["image"]["encoder"]["dim"] == 2
    assert api.client.post(f"{path}/items", json={"items": items[2:]}).status_code == 201


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(lasting_api: Api, number: str) -> None:
    before = lasting_api.state()
    for field, place in (
        (f'"vector": [1.0, {number}]', "items.0.vector.1: Input should be a finite number"),
        (f'"vector": [1.0, 2.0], "metadata": {{"a": {number}}}', "items.0"),
    ):
        item = f'{{"items": [{{"modality": "image", {field}}}]}}'
        answer = lasting_api.client.post(f"{VECTORS}/items", content=item, headers=JSON)
        check_problem(answer, 422, place)
    assert lasting_api.state() == before
    check_next_request_works(lasting_api)


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
def test_a_body_that_is_no_request_is_refused(lasting_api: Api, body: bytes) -> None:
    before = lasting_api.state()
    for path in (f"{VECTORS}/items", f"{VECTORS}/search/text-to-image", "/v1/collections"):
        answer = lasting_api.client.post(path, content=body, headers=JSON)
        assert answer.status_code in (400, 422), answer.text
        check_problem(answer, answer.status_code, "")
    assert lasting_api.state() == before
    check_next_request_works(lasting_api)


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
    answer = api.client.post(f"{VECTORS}/items", content=iter([b'{"items": ', b" " * MAX_BODY, b"[]}"]))
    check_problem(answer, 413, "body")
    assert api.state() == before
    check_next_request_works(api)


def test_put_refuses_an_id_that_no_item_may_have(api: Api) -> None:
    before = api.state()
    item = {"modality": "image", "vector": [1.0, 2.0]}
    check_problem(api.client.put(f"{VECTORS}/items/a%20b", json=item), 422, "id")
    check_problem(api.client.put(f"{VECTORS}/items/a", json={**item, "id": "b"}), 422, "id")
    assert api.state() == before
