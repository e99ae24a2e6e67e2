import json
from typing import Any

import httpx
import pytest

from tests.app.e2e.refusals import MAX_PICTURE, MIXED, Api, check_next_request_works, check_problem, png


def upload(api: Api, item: Any = None, picture: bytes | None = None, **parts: Any) -> httpx.Response:
    """Post a form; `item` goes as the text it is, or as a JSON file the way a browser sends it."""
    files = {"picture": ("a.png", png() if picture is None else picture, "image/png"), **parts}
    fields = {"item": item} if isinstance(item, str) else {}
    if item is not None and not fields:
        files["item"] = ("blob", json.dumps(item).encode(), "application/json")
    return api.client.post(f"{MIXED}/items", files=files, data=fields)


@pytest.mark.parametrize("as_text", [True, False])
def test_a_picture_file_becomes_an_item(api: Api, as_text: bool) -> None:
    facts = {
        "id": "boat",
        "modality": "image",
        "labels": ["boats", "sea"],
        "pair_id": "p1",
        "metadata": {"year": 2015, "tags": ["a", None]},
        "train": False,
    }
    revision = api.client.get(MIXED).json()["revision"]
    written = upload(api, json.dumps(facts) if as_text else facts)
    assert written.status_code == 201, written.text
    assert written.json() == {"ids": ["boat"], "revision": revision + 1}
    item = api.client.get(f"{MIXED}/items/boat").json()
    assert {name: item[name] for name in facts} == facts
    content = api.client.get(f"{MIXED}/items/boat/content")
    assert (content.content, content.headers["content-type"]) == (png(), "image/png")


def test_a_picture_file_alone_is_an_image(lasting_api: Api) -> None:
    (item_id,) = upload(lasting_api).raise_for_status().json()["ids"]
    item = lasting_api.client.get(f"{MIXED}/items/{item_id}").json()
    assert (item["modality"], item["labels"], item["train"]) == ("image", [], True)


@pytest.mark.parametrize("content", [{"text": "a boat"}, {"vector": [1.0]}, {"image_base64": "AAAA"}])
def test_a_second_content_beside_a_picture_file_is_refused(lasting_api: Api, content: dict[str, Any]) -> None:
    before = lasting_api.state()
    body = check_problem(upload(lasting_api, {"modality": "image", **content}), 422, next(iter(content)))
    assert body["field"] == f"item.{next(iter(content))}"
    assert lasting_api.state() == before


BAD_FACTS = {
    '{"modality"': "item",
    "[]": "item",
    "null, null": "item",
    "[" * 50_000: "item",
    '{"id": "a"}': "item.modality",
    '{"modality": 1}': "item.modality",
    '{"modality": "sound"}': "modality",
    '{"modality": "text"}': "text",
    '{"modality": "image", "id": "a/b"}': "item.id",
    '{"modality": "image", "lables": ["a"]}': "item.lables",
    '{"modality": "image", "labels": "a"}': "item.labels",
    '{"modality": "image", "metadata": {"a": NaN}}': "metadata",
    '{"modality": "image", "x\\ud800": 1}': "item",
}


@pytest.mark.parametrize("facts", BAD_FACTS, ids=lambda facts: facts[:40])
def test_bad_facts_beside_a_picture_file_are_refused(lasting_api: Api, facts: str) -> None:
    before = lasting_api.state()
    check_problem(upload(lasting_api, facts), 422, BAD_FACTS[facts])
    assert lasting_api.state() == before
    assert upload(lasting_api).status_code == 201


def test_a_large_or_bad_picture_file_is_refused(lasting_api: Api) -> None:
    before = lasting_api.state()
    for content, status in ((b"\x00" * (MAX_PICTURE + 1), 413), (b"no picture", 422), (png()[:30], 422)):
        check_problem(upload(lasting_api, {"modality": "image"}, content), status, "")
    assert lasting_api.state() == before
    assert upload(lasting_api).status_code == 201


def test_a_bad_form_is_refused(lasting_api: Api) -> None:
    before = lasting_api.state()
    path = f"{MIXED}/items"
    unknown = {"pictrue": ("a.png", png(), "image/png")}
    check_problem(upload(lasting_api, **unknown), 422, "pictrue")
    check_problem(lasting_api.client.post(path, files=unknown), 422, "pictrue")
    twice = [("picture", ("a.png", png(), "image/png"))] * 2
    check_problem(lasting_api.client.post(path, files=twice), 422, "picture")
    check_problem(lasting_api.client.post(path, files=twice + twice), 400, "files")
    no_file = {"item": (None, '{"modality": "image"}')}
    check_problem(lasting_api.client.post(path, files=no_file), 422, "picture")
    check_problem(lasting_api.client.post(path, files={"picture": (None, "a.png")}), 422, "picture")
    for kind in ("multipart/form-data", "multipart/form-data; boundary=none"):
        answer = lasting_api.client.post(path, content=b"--some\r\nnothing", headers={"Content-Type": kind})
        check_problem(answer, answer.status_code, "")
        assert answer.status_code in (400, 422)
    assert lasting_api.state() == before
    check_next_request_works(lasting_api)
