"""`items:import`: NDJSON in, all of it or nothing, as often as one likes."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

from app.domain.names import Scope
from tests.app.e2e.refusals import MIXED, VECTORS, Api, check_next_request_works, check_problem, vector_item

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines_of(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def vectors(count: int, prefix: str = "v", **facts: Any) -> list[dict[str, Any]]:
    return [vector_item(id=f"{prefix}{n}", vector=[n, n / 3], labels=["a"], **facts) for n in range(count)]


def run_import(api: Api, content: Any, path: str = VECTORS) -> httpx.Response:
    return api.client.post(f"{path}/items:import", content=content, headers=NDJSON)


def imported(api: Api, content: Any, path: str = VECTORS) -> dict[str, Any]:
    answer = run_import(api, content, path)
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


def counts(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["created"], told["updated"], told["unchanged"]


def stored(api: Api, path: str = VECTORS) -> dict[str, Any]:
    page = api.client.get(f"{path}/items", params={"limit": 1000}).raise_for_status().json()
    return {item["id"]: item for item in page["items"]}


def test_an_import_repeated_changes_nothing(api: Api) -> None:
    content = lines_of(*vectors(20))
    first = imported(api, content)
    assert counts(first) == (20, 0, 0)
    assert first["ids"] == [f"v{n}" for n in range(20)]
    before = stored(api)
    assert {before[item_id]["revision"] for item_id in first["ids"]} == {first["revision"]}
    again = imported(api, content)
    assert counts(again) == (0, 0, 20)
    assert again["revision"] == first["revision"]
    assert stored(api) == before


@pytest.mark.parametrize("count", [3, 1200])
def test_lines_without_content_change_labels_and_metadata_of_what_is_stored(api: Api, count: int) -> None:
    """In one transaction, and in parts."""
    imported(api, lines_of(*vectors(count, f"c{count}-", metadata={"size": 1, "colour": "red"})))
    before = stored(api)[f"c{count}-0"]
    ids = [f"c{count}-{n}" for n in range(count)]
    changes = [{"id": item_id, "metadata": {"price": 9.5, "colour": None}} for item_id in ids]
    changes[1] |= {"labels": ["b"]}
    new = vector_item(id=f"new{count}", vector=[1, 2])
    assert counts(imported(api, lines_of(*changes, new))) == (1, count, 0)
    assert counts(imported(api, lines_of(*changes, new))) == (0, 0, count + 1)
    first, second = (api.client.get(f"{VECTORS}/items/{item_id}").json() for item_id in ids[:2])
    assert first == {**before, "metadata": {"size": 1, "price": 9.5}, "revision": first["revision"]}
    assert (first["labels"], second["labels"]) == (["a"], ["b"])
    for line, message in (
        ({"id": "nowhere", "metadata": {"price": 1}}, "there is no item 'nowhere' to change"),
        ({"id": ids[0], "metadata": {"x": "y" * 21_000}}, "at most 20000 characters"),
        ({"id": ids[0], "train": False}, "only labels and metadata are changed"),
        ({"id": ids[0], "vector": [1, 2]}, "modality"),
        ({"metadata": {"price": 1}}, "modality"),
    ):
        answer = run_import(api, lines_of(changes[1], line))
        assert (answer.status_code, answer.json()["line"]) == (422, 2), answer.text
        assert message in answer.json()["detail"]
    answer = run_import(api, lines_of(changes[0], changes[0]))
    assert "stands on line 1 already" in answer.json()["detail"]


def test_pictures_that_another_item_has_already_are_counted(api: Api) -> None:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(content, "PNG")
    picture = {"modality": "image", "image_base64": base64.b64encode(content.getvalue()).decode()}
    first, second = (lines_of({**picture, "id": f"teal-{name}"}) for name in "ab")
    assert [imported(api, lines, MIXED)["copies"] for lines in (first, second, second)] == [0, 1, 0]


def test_an_import_goes_on_where_another_left_off(api: Api) -> None:
    items = vectors(30)
    first = imported(api, lines_of(*items[:12]))
    items[3] = {**items[3], "labels": ["changed"]}
    second = imported(api, lines_of(*items))
    assert counts(second) == (18, 1, 11)
    assert second["revision"] == first["revision"] + 1
    found = stored(api)
    assert found["v3"]["labels"] == ["changed"]
    revisions = {item_id: found[item_id]["revision"] for item_id in second["ids"]}
    assert {n for n in range(30) if revisions[f"v{n}"] == second["revision"]} == {3, *range(12, 30)}


@pytest.mark.parametrize(
    "change",
    [
        {"vector": [1.0, 0.5]},
        {"labels": ["a", "b"]},
        {"labels": []},
        {"metadata": {"n": 1.0}},
        {"metadata": {"n": True}},
        {"metadata": {}},
        {"pair_id": "q"},
        {"train": False},
        {"modality": "text", "vector": [1.0]},
    ],
    ids=str,
)
def test_an_item_that_differs_in_anything_is_replaced(api: Api, change: dict[str, Any]) -> None:
    item = vector_item(id="one", labels=["a"], metadata={"n": 1}, pair_id="p")
    imported(api, lines_of(item))
    assert counts(imported(api, lines_of({**item, **change}))) == (0, 1, 0)
    assert counts(imported(api, lines_of({**item, **change}))) == (0, 0, 1)


def test_a_deleted_item_is_created_again(api: Api) -> None:
    content = lines_of(*vectors(3))
    imported(api, content)
    api.client.delete(f"{VECTORS}/items/v1").raise_for_status()
    assert counts(imported(api, content)) == (1, 0, 2)
    assert "v1" in stored(api)


def test_a_put_of_the_same_item_changes_nothing(api: Api) -> None:
    item = vector_item(id="one")
    first = api.client.put(f"{VECTORS}/items/one", json=item).json()["revision"]
    assert api.client.put(f"{VECTORS}/items/one", json=item).json()["revision"] == first
    changed = api.client.put(f"{VECTORS}/items/one", json={**item, "labels": ["new"]}).json()
    assert changed["revision"] == first + 1


def test_items_without_an_id_are_the_same_when_they_come_again(api: Api) -> None:
    items = [vector_item(vector=[n, 1.0]) for n in range(5)]
    for item in items:
        del item["id"]
    first = imported(api, lines_of(*items))
    assert counts(first) == (5, 0, 0)
    assert len(set(first["ids"])) == 5
    again = imported(api, lines_of(*items))
    assert counts(again) == (0, 0, 5)
    assert again["ids"] == first["ids"]
    answer = run_import(api, lines_of(items[0], items[1], items[0]))
    assert check_problem(answer, 409, "line 3: id: ")["line"] == 3


def test_pictures_and_texts_are_imported(api: Api) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), (9, 90, 200)).save(picture, "PNG")
    encoded = base64.b64encode(picture.getvalue()).decode()
    content = lines_of(
        {"id": "p", "modality": "image", "image_base64": encoded, "pair_id": "one"},
        {"id": "t", "modality": "text", "text": "a blue boat, Straße 🚂", "pair_id": "one"},
    )
    assert counts(imported(api, content, MIXED)) == (2, 0, 0)
    assert counts(imported(api, content, MIXED)) == (0, 0, 2)
    assert api.client.get(f"{MIXED}/items/p/content").content == picture.getvalue()
    assert api.client.get(f"{MIXED}/items/t/content").text == "a blue boat, Straße 🚂"
    pair = api.client.get(f"{MIXED}/items", params={"pair_id": "one"}).json()["items"]
    assert [item["id"] for item in pair] == ["p", "t"]


def test_a_stream_larger_than_any_other_body_needs_no_length(api: Api) -> None:
    items = vectors(2000, metadata={"note": "x" * 100})

    def stream() -> Iterator[bytes]:
        for item in items:
            line = lines_of(item)
            yield line[:7]
            yield line[7:]

    told = imported(api, stream())
    assert counts(told) == (2000, 0, 0)
    assert told["ids"] == [item["id"] for item in items]
    assert api.client.get(VECTORS).json()["items"]["image"] == 2001


def test_how_lines_end_does_not_matter(api: Api) -> None:
    first, second = (json.dumps(item).encode() for item in vectors(2))
    for content in (
        first + b"\n" + second,
        first + b"\r\n" + second + b"\r\n",
        b"\n \n" + first + b"\n\n\n\t" + second + b"\n\n",
    ):
        assert imported(api, content)["ids"] == ["v0", "v1"]


GOOD = lines_of(vector_item(id="good"))
BAD_LINES: dict[str, tuple[bytes, int, str]] = {
    "cut": (lines_of(vector_item(id="bad"))[:-9], 422, "body"),
    "no JSON": (b"id,modality\n", 422, "body"),
    "a list": (b"[]\n", 422, "body"),
    "a number": (b"7\n", 422, "body"),
    "two in a line": (GOOD.strip() * 2 + b"\n", 422, "body"),
    "bad UTF-8": (b'{"id": "bad", "modality": "image", "vector": [1, 2], "labels": ["\xff"]}\n', 422, ""),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, 422, "body"),
    "deep": (
        b'{"modality": "image", "vector": [1, 2], "metadata": {"a": ' + b"[" * 9000 + b"]" * 9000 + b"}}\n",
        422,
        "",
    ),
    "a huge number": (b'{"modality": "image", "vector": [1, ' + b"9" * 5000 + b"]}\n", 422, "body"),
    "too long": (lines_of(vector_item(metadata={"a": "x" * 200_000})), 413, "body"),
    "too long, unfinished": (b'{"id": "' + b"x" * 200_000, 413, "body"),
    **{
        name: (f'{{"modality": "image", "vector": [1.0, {name}]}}\n'.encode(), 422, "vector.1")
        for name in ("NaN", "Infinity", "-Infinity", "1e999")
    },
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_is_stored(lasting_api: Api, case: str) -> None:
    bad, status, field = BAD_LINES[case]
    before = lasting_api.state()
    after = b"" if case in ("cut", "too long, unfinished") else lines_of(*vectors(500, "after"))
    answer = run_import(lasting_api, GOOD + b"\n" + bad + after)
    body = check_problem(answer, status, "line 3: ")
    assert body["line"] == 3
    # A number that is none ends the parsing of its line, and stands nowhere in particular.
    assert body["field"] in ((field, "body") if field.startswith("vector.") else (field,)) or not field
    assert lasting_api.state() == before
    assert lasting_api.client.get(f"{VECTORS}/items/good").status_code == 404
    check_next_request_works(lasting_api)


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \r\n\n"], ids=repr)
def test_an_import_of_nothing_is_refused(lasting_api: Api, content: bytes) -> None:
    before = lasting_api.state()
    assert check_problem(run_import(lasting_api, content), 422, "body: ")["field"] == "body"
    assert lasting_api.state() == before


def test_the_first_fault_is_told_wherever_it_is_noticed(api: Api) -> None:
    lines = [*vectors(5), vector_item(id="short", vector=[1]), *vectors(5, "w")]
    content = lines_of(*lines) + b"{\n" + lines_of(vector_item(id="v0"))
    assert check_problem(run_import(api, content), 422, "line 6: vector: ")["line"] == 6


def test_an_import_larger_than_allowed_is_refused(api: Api) -> None:
    before = api.state()
    line = lines_of(vector_item(id="big", metadata={"a": "x" * 15_000}))
    limit = api.client.app.state.api.limits.max_import_bytes  # type: ignore[attr-defined]
    blanks = b"\n" * (limit - len(line) + 1)
    check_problem(run_import(api, line + blanks), 413, "body: ")
    check_problem(run_import(api, iter([line, blanks])), 413, "body: ")
    assert api.state() == before
    imported(api, line + blanks[1:])


def test_an_import_needs_a_key_that_may_write_and_a_collection(api: Api) -> None:
    content = lines_of(vector_item())
    url = f"{VECTORS}/items:import"
    bearer = {"Authorization": f"Bearer {api.keys[Scope.SEARCH]}", **NDJSON}
    assert api.client.post(url, content=content, headers=bearer).status_code == 403
    assert api.client.post(url, content=content, headers={"Authorization": ""}).status_code == 401
    assert run_import(api, content, "/v1/collections/none").status_code == 404


def test_nothing_is_left_on_disk(api: Api) -> None:
    imported(api, lines_of(*vectors(1200, metadata={"note": "x" * 2000})))
    run_import(api, lines_of(*vectors(1200, metadata={"note": "x" * 2000})) + b"{")
    assert list((api.folder / "imports").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"id,text\n1,a red shoe\n", "is no item in JSON: lrbs ingest table takes tables such as CSV"),
        (b"\x89PNG\r\n\x1a\n" + bytes(8), "is a picture: lrbs ingest folder"),
        (b"PK\x03\x04" + bytes(30), "is a workbook or another ZIP file"),
        (b"a.txt".ljust(257, b"\0") + b"ustar\x0000" + bytes(248), "is a tar file: lrbs ingest tar"),
    ],
)
def test_a_file_in_place_of_lines_is_named(api: Api, content: bytes, said: str) -> None:
    answer = run_import(api, content)
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["field"], problem["line"]) == ("body", 1)
    assert problem["detail"].endswith("expected one item a line, in JSON")
    assert said in problem["detail"]
