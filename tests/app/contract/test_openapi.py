"""The OpenAPI document is complete, and its examples work as they stand."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from app.api.schemas.admin import EncoderIn
from app.bootstrap import Services, build
from app.domain.names import Scope
from app.encoders.registry import TYPES
from app.main import create_app
from app.settings import OWN_PATHS, Settings
from app.worker.worker import make_worker
from tests.app.contract.material import picture

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    services = build(Settings(data_dir=tmp_path_factory.mktemp("openapi"), database_url=""))
    services.schema.upgrade()
    yield services
    services.database.engine.dispose()


@pytest.fixture(scope="module")
def client(services: Services) -> Iterator[TestClient]:
    _, secret = services.access.create(Scope.ADMIN)
    headers = {"Authorization": f"Bearer {secret}"}
    with TestClient(create_app(services), headers=headers, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return method, path and entry by operation id."""
    return {
        entry["operationId"]: (method.upper(), path, entry)
        for path, methods in document["paths"].items()
        for method, entry in methods.items()
    }


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def is_valid(document: dict[str, Any], schema: dict[str, Any], value: Any) -> str:
    """Return what is wrong with a value; nothing when it is valid."""
    whole = {"components": document["components"], "allOf": [schema]}
    return "; ".join(str(error) for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(value))


def test_every_operation_is_told_in_full(document: dict[str, Any]) -> None:
    entries = [entry for methods in document["paths"].values() for entry in methods.values()]
    ids = [entry["operationId"] for entry in entries]
    assert len(set(ids)) == len(ids)
    known = {tag["name"] for tag in document["tags"]}
    for entry in entries:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", entry["operationId"])
        assert entry["summary"].strip()
        assert entry["description"].strip().endswith((".", "now")), entry["operationId"]
        assert entry["tags"]
        assert set(entry["tags"]) <= known
        for parameter in entry.get("parameters", ()):
            assert parameter["description"], (entry["operationId"], parameter["name"])


def schemas_in(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from schemas_in(inner)


def test_bounds_are_told_in_the_words_of_json_schema(document: dict[str, Any]) -> None:
    words_of_python = {"ge", "gt", "le", "lt", "min_length", "max_length", "multiple_of"}
    # A filter has properties of these names.
    named = document["components"]["schemas"]["ValueConditions"]["properties"]
    others = [each for each in schemas_in(document) if each is not named]
    assert [each for each in others if words_of_python & each.keys()] == []
    version = document["components"]["schemas"]["ActivateIn"]["properties"]["expected_version"]["anyOf"][0]
    assert (version["minimum"], version["maximum"]) == (0, 2**31 - 1)


def test_operations_keep_their_ids(document: dict[str, Any]) -> None:
    assert {
        *("list_encoders", "create_collection", "list_collections", "get_collection", "delete_collection"),
        *("create_items", "import_items", "export_items", "delete_items", "update_items", "list_items"),
        *("put_item", "get_item", "get_content", "delete_item", "put_labels", "list_partners"),
        *("create_feedback", "list_feedback", "delete_feedback", "count_values", "draw_map"),
        *("search", "search_batch", "search_composed", "search_version", "get_plot", "job_events"),
        *("retrain", "set_retraining", "get_job", "cancel_job", "create_key", "list_keys", "revoke_key"),
        *("list_models", "get_model", "activate_model", "roll_back", "list_activations", "healthz", "readyz"),
    } <= set(operations(document))


def test_every_call_says_which_key_it_needs(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert [(scheme["type"], scheme["scheme"]) for scheme in schemes.values()] == [("http", "bearer")]
    for method, path, entry in operations(document).values():
        if path.startswith("/v1/"):
            assert entry["security"] == [{name: []} for name in schemes], (method, path)


def test_every_answer_has_a_schema_and_an_example(document: dict[str, Any]) -> None:
    for name, (_, _, entry) in operations(document).items():
        successes = {status: told for status, told in entry["responses"].items() if status.startswith("2")}
        assert successes, name
        for status, told in entry["responses"].items():
            assert told["description"], (name, status)
            for media_type, content in told.get("content", {}).items():
                if media_type not in ("application/json", PROBLEM):
                    continue
                examples = resolved(document, content["schema"]).get("examples")
                assert examples, (name, status)
                for example in examples:
                    assert not is_valid(document, content["schema"], example), (name, status)


def test_what_comes_with_a_refusal_is_told(document: dict[str, Any], client: httpx.Client) -> None:
    for name, (_, path, entry) in operations(document).items():
        if path.startswith("/v1/"):
            assert entry["responses"]["401"]["headers"]["WWW-Authenticate"]["required"], name
            assert entry["responses"]["503"]["headers"]["Retry-After"]["required"], name
    refused = client.get("/v1/collections", headers={"Authorization": "Bearer none"})
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_a_method_that_is_not_there_is_answered_with_those_that_are(client: httpx.Client) -> None:
    for method, path, allowed in (
        ("PATCH", "/v1/collections/a/items/b", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "/v1/collections", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/static/page.js", "GET, HEAD"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
        assert answer.headers["Content-Type"] == PROBLEM


def test_no_route_takes_a_parameter_that_it_does_not_have(
    document: dict[str, Any], client: httpx.Client
) -> None:
    for name, (method, path, entry) in operations(document).items():
        values = (
            {one["name"]: one.get("example") for one in entry["parameters"] if one["in"] == "path"}
            if "parameters" in entry
            else {}
        )
        address = path.format(**values)
        for body in bodies_of(entry, document):
            answer = client.request(method, address, params={"nothing_like_it": "secret"}, **body)
            assert (answer.status_code, answer.json()["field"]) == (422, "nothing_like_it"), name
            assert "secret" not in answer.text
        unsigned = client.request(method, f"{address}?nothing_like_it", headers={"Authorization": ""})
        assert unsigned.status_code == 422 if path in ("/healthz", "/readyz", "/metrics") else 401, name


@pytest.mark.parametrize(
    ("query", "field", "told"),
    [
        ("lable=Bags", "lable", "is no parameter of this address: do you mean label?"),
        ("Label=Bags", "Label", "do you mean label?"),
        ("limit=1&limit=2", "limit", "stands 2 times in the address, expected once"),
        ("=x", "query", "which has cursor, filter, item_id, label, limit, modality, pair_id, where"),
        ("limit=0&wher=a", "wher", "do you mean where?"),
    ],
)
def test_a_parameter_that_is_misspelt_is_named_with_the_nearest_one(
    client: httpx.Client, query: str, field: str, told: str
) -> None:
    answer = client.get(f"/v1/collections/none/items?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert told in answer.json()["detail"]
    lists = client.get("/v1/collections/none/items?label=a&label=b&where=a%3D1&where=b%3D2")
    assert lists.json()["type"] == "/problems/collection-not-found"


def test_the_service_cannot_be_put_under_a_path_of_its_own(
    document: dict[str, Any], client: TestClient
) -> None:
    paths = {*document["paths"], *(getattr(route, "path", "/") for route in client.app.routes)}
    assert {path.split("/")[1] for path in paths} - {""} == set(OWN_PATHS)
    for wrong in (
        "/v1",
        "/docs/lrbs",
        "lrbs",
        "//evil",
        "/a//b",
        "/a/..",
        "/a b",
        "https://evil",
        "/a?b",
        "/\n",
    ):
        with pytest.raises(ValidationError, match="root_path"):
            Settings(root_path=wrong)
    assert [Settings(root_path=path).root_path for path in ("/", "/a/", "/a/b.c")] == ["", "/a", "/a/b.c"]


def test_a_path_with_a_slash_too_many_is_not_found(client: httpx.Client) -> None:
    answer = client.get("/v1/collections/", follow_redirects=False)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, PROBLEM)


def test_the_document_knows_the_encoders_and_their_options() -> None:
    described = {one["title"]: set(one["properties"]) for one in EncoderIn.model_json_schema()["oneOf"]}
    assert described == {name: set(entry.options.__annotations__) for name, entry in TYPES.items()}
    assert {"combine", "hog-color", "onnx", "tfidf", "vector"} <= set(described)


WHEN = ("create_collection", "create_items", "put_item", "retrain", "cancel_job", "create_key")
"""Made first, in this order; what deletes comes last and everything else between."""


def in_order(document: dict[str, Any]) -> list[str]:
    found = sorted(operations(document))
    rest = [name for name in found if name not in WHEN]
    last = ("delete_item", "revoke_key", "delete_collection")
    return [*WHEN, *(name for name in rest if name not in last), *last]


def bodies_of(entry: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what is sent for each example of each form of a body; nothing where there is no body."""
    if "requestBody" not in entry:
        yield {}
        return
    for media_type, content in entry["requestBody"]["content"].items():
        schema = resolved(document, content["schema"])
        examples = [content["example"]] if "example" in content else schema["examples"]
        for example in examples:
            if media_type != "multipart/form-data":
                sent = example if isinstance(example, str) else json.dumps(example)
                yield {"content": sent, "headers": {"Content-Type": media_type}}
                continue
            values = {name: value for name, value in example.items() if name != "picture"}
            texts = {
                name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
            }
            yield {"files": {"picture": ("a.png", picture("shoes"), "image/png")}, "data": texts}


def more_items() -> list[dict[str, Any]]:
    """Return what training needs beside the examples."""
    found: list[dict[str, Any]] = []
    for number, label in enumerate(("shoes", "wallets") * 2):
        encoded = base64.b64encode(picture(label, number)).decode()
        found.append({"modality": "text", "text": f"{label} to wear", "labels": [label]})
        found.append({"modality": "image", "image_base64": encoded, "labels": [label]})
    return found


def test_every_example_of_a_request_gets_the_answer_that_is_declared(
    document: dict[str, Any], client: httpx.Client, services: Services
) -> None:
    known: dict[str, Any] = {}
    for name in in_order(document):
        method, path, entry = operations(document)[name]
        declared = next(int(status) for status in entry["responses"] if status.startswith("2"))
        for body in bodies_of(entry, document):
            if name == "retrain" and "job_id" in known:
                client.post(f"/v1/admin/jobs/{known['job_id']}/cancel")
            if name == "roll_back":
                client.post(path.format(collection="products")[: -len("rollback")] + "models/1/activate")
            parameters = {
                parameter["name"]: known.get(parameter["name"], parameter.get("example"))
                for parameter in entry.get("parameters", ())
                if parameter["in"] == "path"
            }
            if name in ("search", "search_version") and "files" in body:
                # The examples of the parameters are for a text; a picture is of the other modality.
                parameters |= {"source": parameters["target"], "target": parameters["source"]}
            query = {
                parameter["name"]: parameter["example"]
                for parameter in entry.get("parameters", ())
                if parameter["in"] == "query" and "example" in parameter
            }
            answer = client.request(method, path.format(**parameters), params=query, **body)
            assert answer.status_code == declared, (name, body, answer.text)
            if method == "GET":
                head = client.head(path.format(**parameters), params=query)
                assert (head.status_code, head.content) == (declared, b""), name
                assert head.headers["Content-Type"] == answer.headers["Content-Type"], name
                assert ("Content-Length" in head.headers) == ("Content-Length" in answer.headers), name
            content = entry["responses"][str(declared)].get("content", {}).get("application/json")
            if content is not None:
                assert not is_valid(document, content["schema"], answer.json()), name
                example = resolved(document, content["schema"])["examples"][0]
                assert set(example) <= set(answer.json()), name
            if name == "create_items" and "items" in str(body.get("content")):
                items = {"items": more_items()}
                client.post(path.format(**parameters), json=items).raise_for_status()
            if name == "retrain":
                known["job_id"] = answer.json()["id"]
            if name == "create_key":
                known["key_id"] = answer.json()["id"]
        if name == "cancel_job":
            train(client, services, 1)
            train(client, services, 2)


def train(client: httpx.Client, services: Services, version: int) -> None:
    body = {"alpha": 0.01, "scaling": "center"}
    client.post("/v1/admin/collections/products/retrain", json=body).raise_for_status()
    job = make_worker(services).run_once()
    assert job is not None
    assert job.model_version == version, job.error
