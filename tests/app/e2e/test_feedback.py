"""Feedback over HTTP."""

import base64
import json
from typing import Any

import pytest

from app.domain.names import Scope
from tests.app.e2e.refusals import MAX_BODY, MIXED, VECTORS, Api, check_problem, png

GOOD = {"query": {"vector": [2.0]}, "source": "text", "target": "image", "item_id": "first", "relevant": True}
BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown item": ({"item_id": "nothing"}, 404, "feedback.1.item_id"),
    "bad id": ({"item_id": "a/b"}, 422, "feedback.1.item_id"),
    "unknown item as query": ({"query": {"item_id": "nothing"}}, 404, "feedback.1.query.item_id"),
    "item of the other modality": ({"item_id": "other"}, 422, "feedback.1.item_id"),
    "query of the other modality": ({"query": {"item_id": "first"}}, 422, "feedback.1.query.item_id"),
    "unknown source": ({"source": "sound"}, 422, "feedback.1.source"),
    "unknown target": ({"target": "sound"}, 422, "feedback.1.target"),
    "no query": ({"query": {}}, 422, "feedback.1.query"),
    "two queries": ({"query": {"vector": [2.0], "item_id": "other"}}, 422, "feedback.1.query.vector"),
    "a text where vectors are": ({"query": {"text": "a boat"}}, 422, "feedback.1.query.text"),
    "too long a vector": ({"query": {"vector": [2.0, 3.0]}}, 422, "feedback.1.query.vector"),
    "too large a number": ({"query": {"vector": [1e300]}}, 422, "feedback.1.query.vector.0"),
    "not base64": ({"query": {"image_base64": "%%%"}}, 422, "feedback.1.query.image_base64"),
    "no answer": ({"relevant": None}, 422, "feedback.1.relevant"),
    "not a yes or no": ({"relevant": 1}, 422, "feedback.1.relevant"),
    "unknown field": ({"score": 1.0}, 422, "feedback.1.score"),
    "NUL": ({"query": {"item_id": "a\x00"}}, 422, "feedback.1.query"),
}


def listed(api: Api, path: str = VECTORS, **parameters: Any) -> Any:
    answer = api.client.get(f"{path}/feedback", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_feedback_is_stored_listed_in_pages_and_deleted(api: Api) -> None:
    before = api.state()
    given = [GOOD, {**GOOD, "query": {"item_id": "other"}, "relevant": False}, GOOD]
    answer = api.client.post(f"{VECTORS}/feedback", json={"feedback": given})
    assert answer.status_code == 201, answer.text
    first, second, third = answer.json()["ids"]
    page = listed(api, limit=2)
    assert [entry["id"] for entry in page["feedback"]] == [first, second]
    assert page["feedback"][1] == {
        "id": second,
        "query": {"form": "item_id", "item_id": "other", "text": None, "picture_sha256": None},
        "source": "text",
        "target": "image",
        "item_id": "first",
        "relevant": False,
        "created_at": page["feedback"][1]["created_at"],
    }
    assert page["feedback"][0]["query"]["form"] == "vector"
    rest = listed(api, limit=2, cursor=page["next_cursor"])
    assert [entry["id"] for entry in rest["feedback"]] == [third]
    assert rest["next_cursor"] is None
    assert api.client.delete(f"{VECTORS}/feedback/{second}").status_code == 204
    check_problem(api.client.delete(f"{VECTORS}/feedback/{second}"), 404, f"no feedback {second}")
    check_problem(api.client.delete(f"{MIXED}/feedback/{first}"), 404, "no feedback")
    for number in (0, -1, 2**53, 2**70, "a"):
        check_problem(api.client.delete(f"{VECTORS}/feedback/{number}"), 422, "feedback_id")
    assert [entry["id"] for entry in listed(api)["feedback"]] == [first, third]
    assert api.state() == before, "the galleries and the revision are as they were"


def test_queries_by_text_and_by_picture(api: Api) -> None:
    item = {"id": "boat", "modality": "text", "text": "a boat"}
    api.client.post(f"{MIXED}/items", json={"items": [item]}).raise_for_status()
    encoded = base64.b64encode(png()).decode()
    queries = [("text", {"text": "a red boat"}), ("image", {"image_base64": encoded})]
    feedback = [
        {"query": query, "source": source, "target": "text", "item_id": "boat", "relevant": True}
        for source, query in queries
    ]
    api.client.post(f"{MIXED}/feedback", json={"feedback": feedback}).raise_for_status()
    text, picture = (entry["query"] for entry in listed(api, MIXED)["feedback"])
    assert (text["form"], text["text"]) == ("text", "a red boat")
    assert (picture["form"], len(picture["picture_sha256"])) == ("image_base64", 64)
    for bad, status in (("AAAA", 422), (encoded[:-40], 422), ("A" * 80_000, 413)):
        with_bad = [{**feedback[1], "query": {"image_base64": bad}}]
        answer = api.client.post(f"{MIXED}/feedback", json={"feedback": with_bad})
        assert check_problem(answer, status, "")["field"] == "feedback.0.query.image_base64"
    answer = api.client.post(
        f"{MIXED}/feedback", json={"feedback": [{**feedback[0], "query": {"text": " "}}]}
    )
    assert check_problem(answer, 422, "text")["field"] == "feedback.0.query.text"


def test_one_bad_entry_refuses_all_of_a_request(api: Api) -> None:
    headers = {"Content-Type": "application/json"}
    for name, (fields, status, field) in BAD.items():
        body = json.dumps({"feedback": [GOOD, {**GOOD, **fields}]})
        answer = api.client.post(f"{VECTORS}/feedback", content=body, headers=headers)
        assert check_problem(answer, status, "")["field"] == field, name
    assert listed(api) == {"feedback": [], "next_cursor": None}
    assert api.client.post(f"{VECTORS}/feedback", json={"feedback": [GOOD]}).status_code == 201


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b'{"feedback": []}', 422),
        (b'{"feedback": {}}', 422),
        (json.dumps({"feedback": [GOOD] * 6}).encode(), 413),
        (b" " * (MAX_BODY + 1), 413),
    ],
    ids=lambda value: None if isinstance(value, int) else f"{len(value)} bytes",
)
def test_bodies_have_the_limits_of_items(api: Api, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    check_problem(api.client.post(f"{VECTORS}/feedback", content=body, headers=headers), status, "")
    assert listed(api)["feedback"] == []


def test_a_key_needs_the_scope_write(api: Api) -> None:
    for scope, statuses in ((Scope.SEARCH, (403, 403, 403)), (Scope.WRITE, (201, 200, 204))):
        headers = {"Authorization": f"Bearer {api.keys[scope]}"}
        path = f"{VECTORS}/feedback"
        written = api.client.post(path, headers=headers, json={"feedback": [GOOD]})
        read = api.client.get(path, headers=headers)
        (number,) = written.json().get("ids", [1])
        deleted = api.client.delete(f"{path}/{number}", headers=headers)
        assert (written.status_code, read.status_code, deleted.status_code) == statuses


def test_an_unknown_collection_is_not_found(api: Api) -> None:
    path = "/v1/collections/nothing/feedback"
    for method, rest, body in (("POST", "", {"feedback": [GOOD]}), ("GET", "", None), ("DELETE", "/1", None)):
        check_problem(api.client.request(method, f"{path}{rest}", json=body), 404, "nothing")
