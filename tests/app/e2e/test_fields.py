"""Problems name fields as the client wrote them, and the OpenAPI document tells of all of it."""

import base64
import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from app.bootstrap import build
from app.domain.errors import PROBLEMS
from app.domain.names import Scope
from app.main import create_app
from app.settings import Settings
from tests.app.integration.in_process import run_here
from tests.app.phone_pictures import picture_of
from tests.fuzz.images import PICTURE_FORMS, damaged_picture

VECTORS, MIXED = "/v1/collections/vectors", "/v1/collections/mixed"
KINDS = {"sea": (20, 60, 200), "wood": (20, 160, 40)}


def png(colour: tuple[int, int, int] = (200, 30, 30), seed: int = 0) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 40, (24, 24, 3))
    stored = io.BytesIO()
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of `vectors` (untrained) and `mixed` (trained), with an admin key."""
    from fastapi.testclient import TestClient

    services = build(Settings(data_dir=tmp_path_factory.mktemp("fields"), database_url="", max_batch=200))
    services.schema.upgrade()
    _, secret = services.access.create(Scope.ADMIN)
    headers = {"Authorization": f"Bearer {secret}"}
    with TestClient(create_app(services), headers=headers) as client:
        for name, types in (("vectors", ("vector", "vector")), ("mixed", ("hog-color", "tfidf"))):
            sides = zip(("image", "text"), types, strict=True)
            modalities = {side: {"encoder": {"type": kind}} for side, kind in sides}
            client.post("/v1/collections", json={"name": name, "modalities": modalities}).raise_for_status()
        for kind, colour in KINDS.items():
            for number in range(4):
                files = {"picture": ("a.png", png(colour, number), "image/png")}
                facts = {"id": f"{kind}{number}", "modality": "image", "labels": [kind]}
                added = client.post(f"{MIXED}/items", files=files, data={"item": json.dumps(facts)})
                assert added.status_code == 201, added.text
                text = {"modality": "text", "text": f"{kind} number{number}", "labels": [kind]}
                client.post(f"{MIXED}/items", json={"items": [text]}).raise_for_status()
        body = {"alpha": 0.01, "scaling": "center"}
        client.post("/v1/admin/collections/mixed/retrain", json=body).raise_for_status()
        job = run_here(services)
        assert job is not None
        assert job.model_version == 1, job.error
        yield client
    services.database.engine.dispose()


def field_of(answer: httpx.Response, status: int = 422) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: str = answer.json()["field"]
    assert answer.json()["detail"].startswith(f"{found}: ")
    return found


ITEM = {"modality": "image", "vector": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"text": "  "}, "text"),
        ({"vector": [1.0]}, "vector"),
        ({"image_base64": "AAAA"}, "image_base64"),
        ({"image_base64": "%%%"}, "image_base64"),
        ({"text": "a", "item_id": "b"}, "text"),
        ({"item_id": "sea0"}, "item_id"),
        ({}, "body"),
    ],
)
def test_a_bad_query_is_named_where_it_stands(
    client: httpx.Client, query: dict[str, Any], field: str
) -> None:
    assert field_of(client.post(f"{MIXED}/search/text-to-image", json=query)) == field
    place = "queries.0" if field == "body" else f"queries.0.{field}"
    batch = client.post(f"{MIXED}/search/text-to-image/batch", json={"queries": [query]})
    assert field_of(batch) == place


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{VECTORS}/items", b'{"items": ['),
        (f"{MIXED}/search/text-to-image", b"{'text': 'a'}"),
        ("/v1/collections", b""),
        ("/v1/admin/keys", b"\xff"),
        ("/v1/admin/collections/mixed/retrain", b"{,}"),
    ],
)
def test_what_is_no_json_is_the_bodys_fault(client: httpx.Client, path: str, body: bytes) -> None:
    answer = client.post(path, content=body)
    assert field_of(answer) == "body"
    assert "JSON" in answer.json()["detail"]


def test_a_picture_that_is_none_is_told_in_prose(client: httpx.Client) -> None:
    files = {"picture": ("a.png", b"no picture", "image/png")}
    for path in (f"{MIXED}/items", f"{MIXED}/search/image-to-text"):
        answer = client.post(path, files=files)
        assert field_of(answer) == "picture"
        assert "expected a file in JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF, " in answer.json()["detail"]


@pytest.mark.parametrize(
    ("form", "media_type", "is_shown"),
    [
        ("MPO", "image/jpeg", True),
        ("AVIF", "image/avif", True),
        ("TIFF", "image/tiff", False),
        ("HEIF", "image/heic", False),
        ("JPEG2000", "image/jp2", False),
    ],
)
def test_pictures_of_phones_cameras_and_scanners_are_taken_found_and_shown(
    client: httpx.Client, form: str, media_type: str, is_shown: bool
) -> None:
    content = picture_of(form, KINDS["wood"], 9)
    encoded = base64.b64encode(content).decode()
    facts = {"id": form, "modality": "image", "image_base64": encoded}
    file = {"picture": ("phone.jpg", content, "image/jpeg")}
    ways = [
        client.post(f"{MIXED}/items", json={"items": [facts]}),
        client.put(f"{MIXED}/items/{form}", json=facts),
        client.post(f"{MIXED}/items:import", content=json.dumps({**facts, "id": f"{form}-2"})),
        client.post(
            f"{MIXED}/items", files=file, data={"item": json.dumps({"id": f"{form}-3", "modality": "image"})}
        ),
        client.post(f"{MIXED}/search/image-to-text", json={"image_base64": encoded}),
        client.post(f"{MIXED}/search/image-to-text", files=file),
        client.post(f"{MIXED}/search/text-to-image", json={"text": "wood", "k": 7}),
    ]
    assert [answer.status_code for answer in ways] == [201, 200, 201, 201, 200, 200, 200], [
        answer.text for answer in ways
    ]
    for answer in ways[4:6]:
        assert [hit["labels"] for hit in answer.json()["hits"][:4]] == [["wood"]] * 4
    assert {form, f"{form}-2", f"{form}-3"} <= {hit["id"] for hit in ways[6].json()["hits"]}
    path = f"{MIXED}/items/{form}/content"
    for accepted in ("*/*", "image/*", f"image/webp, {media_type};q=0.8, image/*"):
        original = client.get(path, headers={"Accept": accepted})
        assert (original.content, original.headers["Content-Type"]) == (content, media_type)
    seen = client.get(path, headers={"Accept": "image/avif,image/webp,image/apng,image/*,*/*;q=0.8"})
    assert seen.headers["Vary"] == "Accept"
    assert seen.headers["X-Content-Type-Options"] == "nosniff"
    assert seen.headers["Content-Type"] == (media_type if is_shown else "image/jpeg")
    assert (seen.content == content) == is_shown
    assert is_shown or Image.open(io.BytesIO(seen.content)).size in ((24, 32), (32, 24))
    for item_id in (form, f"{form}-2", f"{form}-3"):
        client.delete(f"{MIXED}/items/{item_id}").raise_for_status()


def test_no_damage_of_any_picture_is_more_than_a_refusal(client: httpx.Client) -> None:
    random = Random(5)
    for content in (damaged_picture(random, form) for form in PICTURE_FORMS for _ in range(3)):
        answer = client.post(f"{MIXED}/search/image-to-text", files={"picture": ("a", content)})
        assert answer.status_code in (200, 413, 422), answer.text


def test_a_picture_as_the_body_is_told_where_it_belongs(client: httpx.Client) -> None:
    for path in (f"{MIXED}/items", f"{MIXED}/search/image-to-text"):
        for content in (
            png(KINDS["sea"], 9),
            picture_of("TIFF", KINDS["sea"], 9),
            picture_of("HEIF", KINDS["sea"], 9),
        ):
            answer = client.post(path, content=content)
            assert field_of(answer) == "body"
            assert "a multipart form with the file as its part 'picture'" in answer.json()["detail"]


def test_an_empty_text_is_refused_as_such(client: httpx.Client) -> None:
    answer = client.post(f"{MIXED}/items", json={"items": [{"modality": "text", "text": ""}]})
    assert field_of(answer) == "items.0.text"
    assert answer.json()["detail"] == "items.0.text: expected a text that is not empty"


def search_with_picture(client: httpx.Client, **fields: str) -> httpx.Response:
    files = {"picture": ("a.png", png(KINDS["sea"], 9), "image/png")}
    return client.post(f"{MIXED}/search/image-to-text", files=files, data=fields)


def test_a_multipart_search_takes_all_options(client: httpx.Client) -> None:
    plain = search_with_picture(client).json()["hits"]
    assert len(plain) == 8
    wanted = json.dumps({"labels": ["wood"]})
    hits = search_with_picture(client, k="3", offset="1", filter=wanted, include='["text"]').json()["hits"]
    encoded = base64.b64encode(png(KINDS["sea"], 9)).decode()
    options = {"k": 3, "offset": 1, "filter": json.loads(wanted), "include": ["text"]}
    by_json = client.post(f"{MIXED}/search/image-to-text", json={"image_base64": encoded, **options})
    assert by_json.json()["hits"] == hits
    assert [hit["rank"] for hit in hits] == [2, 3, 4]
    assert all(hit["text"].startswith("wood") and hit["labels"] is None for hit in hits)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 8),
        ({"labels": []}, 0),
        ({"metadata": {}}, 8),
        ({"metadata": {"n": []}}, 0),
        ({"labels": [], "metadata": {}}, 0),
        ({"labels": ["wood"], "metadata": {"n": []}}, 0),
    ],
)
def test_any_of_none_is_none_wherever_a_filter_is_taken(
    client: httpx.Client, wanted: dict[str, Any], count: int
) -> None:
    text = {"text": "sea", "filter": wanted}
    single = client.post(f"{MIXED}/search/text-to-image", json=text)
    queries = {"queries": [{"text": "sea"}] * 2, "filter": wanted}
    batch = client.post(f"{MIXED}/search/text-to-image/batch", json=queries)
    form = search_with_picture(client, filter=json.dumps(wanted))
    answers = [single.json(), *batch.json()["results"], form.json()]
    assert [len(answer["hits"]) for answer in answers] == [count] * 4


def test_a_filter_may_have_a_thousand_values(client: httpx.Client) -> None:
    body = {"text": "sea", "filter": {"labels": ["wood"], "metadata": {"n": list(range(999))}}}
    answer = client.post(f"{MIXED}/search/text-to-image", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["hits"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"filtre": "{}"}, "filtre"),
        ({"text": "a boat"}, "text"),
        ({"filter": "{"}, "filter"),
        ({"filter": '{"label": []}'}, "filter.label"),
        ({"filter": '{"labels": ["unheard of"]}'}, "filter.labels.0"),
        ({"filter": json.dumps({"metadata": {"n": list(range(1001))}})}, "filter"),
        ({"include": '["labels", "all"]'}, "include.1"),
        ({"include": "texts"}, "include.0"),
        ({"include": "{}"}, "include"),
        ({"include": '"labels"'}, "include"),
        ({"k": "many"}, "k"),
        ({"k": "0"}, "k"),
    ],
)
def test_a_bad_multipart_search_is_refused(client: httpx.Client, fields: dict[str, str], field: str) -> None:
    assert field_of(search_with_picture(client, **fields)) == field
    wrong_name = {"image": ("a.png", png(), "image/png")}
    assert field_of(client.post(f"{MIXED}/search/image-to-text", files=wrong_name)) == "image"


def test_an_unknown_label_is_refused_in_a_filter_and_taken_in_a_write(client: httpx.Client) -> None:
    body = {"text": "sea", "filter": {"labels": ["sea", "new"]}}
    answer = client.post(f"{MIXED}/search/text-to-image", json=body)
    assert field_of(answer) == "filter.labels.1"
    assert answer.json()["type"] == "/problems/unknown-label"
    assert "'new'" in answer.json()["detail"]
    body_in_capitals = {"text": "sea", "filter": {"labels": ["SEA"]}}
    answer = client.post(f"{MIXED}/search/text-to-image", json=body_in_capitals)
    assert "the label 'SEA' (did you mean 'sea'?); labels are 'sea'" in answer.json()["detail"]
    text = {"modality": "text", "text": "sea", "labels": ["new"]}
    assert client.put(f"{MIXED}/items/extra", json=text).status_code == 200
    assert client.post(f"{MIXED}/search/text-to-image", json=body).status_code == 200
    assert client.delete(f"{MIXED}/items/extra").status_code == 200


def test_the_size_of_an_answer_is_bounded(client: httpx.Client) -> None:
    batch = {"queries": [{"text": "sea"}] * 11, "k": 10_000}
    answer = client.post(f"{MIXED}/search/text-to-image/batch", json=batch)
    assert field_of(answer) == "k"
    assert "110000" in answer.json()["detail"]
    assert "100000" in answer.json()["detail"]
    far = client.post(f"{MIXED}/search/text-to-image", json={"text": "sea", "k": 10_000, "offset": 1_000_000})
    assert far.json()["hits"] == []
    past = client.post(f"{MIXED}/search/text-to-image", json={"text": "sea", "k": 10_000, "offset": 6})
    assert [hit["rank"] for hit in past.json()["hits"]] == [7, 8]


def test_a_retrain_that_would_fail_is_refused_at_once(client: httpx.Client) -> None:
    path = "/v1/admin/collections/vectors/retrain"
    for item, said in (
        (None, "no item of modality 'image'"),
        ({**ITEM, "labels": ["a"]}, "no item of modality 'text'"),
        ({"modality": "text", "vector": [1.0], "labels": ["b"]}, "no label stands on items of both"),
        ({"modality": "text", "vector": [2.0], "labels": ["a"]}, "two items of 'image' and two of 'text'"),
    ):
        if item is not None:
            client.post(f"{VECTORS}/items", json={"items": [item]}).raise_for_status()
        answer = client.post(path)
        assert answer.status_code == 409
        assert answer.json()["type"] == "/problems/training-data"
        assert said in answer.json()["detail"]
    with_alpha = {"alpha": 0.01}
    assert "too few items of 'image' and 'text'" in client.post(path, json=with_alpha).json()["detail"]
    more = [{**ITEM, "labels": ["a"]}] * 3 + [{"modality": "text", "vector": [3.0], "labels": ["b"]}] * 2
    client.post(f"{VECTORS}/items", json={"items": more}).raise_for_status()
    accepted = client.post(path, json=with_alpha)
    assert accepted.status_code == 202
    client.post(f"/v1/admin/jobs/{accepted.json()['id']}/cancel").raise_for_status()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for entry in value.values():
            yield from references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from references(entry)


def test_the_openapi_document_tells_of_every_problem(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {reference.rsplit("/", 1)[1] for reference in references(document)} <= set(schemas)
    wanted = {"type", "title", "status", "detail", "instance", "field", "errors", "line", "correlation_id"}
    assert set(schemas["Problem"]["properties"]) == wanted
    assert "HTTPValidationError" not in schemas
    for name, operation in operations(document):
        if name.split()[1] in ("/healthz", "/readyz"):
            continue
        problems = {int(status) for status in operation["responses"] if int(status) >= 400}
        for status in problems:
            content = operation["responses"][str(status)]["content"]
            assert list(content) == ["application/problem+json"], (name, status)
            assert content["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
        needs_a_key = name != "GET /metrics"  # open unless LRBS_OPEN_METRICS says otherwise
        assert ("security" in operation) == needs_a_key, name
        assert ({401, 403} <= problems) == needs_a_key, name
        assert 500 in problems, name
        if "requestBody" in operation:
            assert {400, 408, 413, 422} <= problems, name
    told = {int(status) for _, found in operations(document) for status in found["responses"]}
    assert {problem.status for problem in PROBLEMS.values()} <= told
