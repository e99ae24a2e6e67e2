import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.api.problems import PROBLEMS
from app.domain.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidRequestError,
    LineError,
    NotFoundError,
    ServiceError,
    UnavailableError,
)
from tests.app.e2e.refusals import MODALITIES, VECTORS, Api, check_problem, vector_item


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
        ({"filter": {"metadata": {f"k{n}": 1 for n in range(101)}}}, "filter.metadata"),
        ({"filter": {"metadata": {"n": list(range(1001))}}}, "filter"),
        ({"filter": {"labels": ["a"], "metadata": {"n": list(range(500)), "m": list(range(500))}}}, "filter"),
        ({"filter": []}, "filter"),
        ({"filter": {"metadata": []}}, "filter.metadata"),
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
    "fields",
    [
        *({"alpha": alpha} for alpha in (0, -1, 1e-300, 1e-45, 1e300)),
        *({"tol": tol} for tol in (0, 1, 1e300)),
        *({"max_iter": limit} for limit in (0, 100_001, 10**30)),
        *({"seed": seed} for seed in (-1, 2**32)),
        {"scaling": "log"},
    ],
)
def test_a_bad_retrain_is_refused(api: Api, fields: dict[str, Any]) -> None:
    answer = api.client.post("/v1/admin/collections/vectors/retrain", json=fields)
    check_problem(answer, 422, next(iter(fields)))


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"name": "vectors"}, 409, "vectors"),
        ({"name": "a/b"}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "a" * 65}, 422, "name"),
        ({"name": "a\x00"}, 422, "name"),
        ({"modalities": {"image": {"encoder": {"type": "vector"}}}}, 422, "modalities"),
        (
            {"modalities": {**MODALITIES, "text": {"encoder": {"type": "magic"}}}},
            422,
            "modalities.text.encoder.type",
        ),
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
    check_problem(answer, 422, "modalities.text.encoder")
    assert api.client.get("/v1/collections").json() == before


def kinds_of(error: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_every_refusal_has_its_problem() -> None:
    families = {AccessDeniedError, ConflictError, InvalidRequestError, NotFoundError, UnavailableError}
    assert set(kinds_of(ServiceError)) == set(PROBLEMS) | families | {LineError}
    assert all(re.fullmatch(r"[a-z-]+", code) and title for _, code, title in PROBLEMS.values())
    assert all(400 <= status < 600 for status, _, _ in PROBLEMS.values())
