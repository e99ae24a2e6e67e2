import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from app.domain import errors
from app.domain.errors import PROBLEMS, ServiceError
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
def test_a_bad_search_is_refused(lasting_api: Api, fields: dict[str, Any], named: str) -> None:
    answer = lasting_api.client.post(f"{VECTORS}/search/text-to-image", json={"vector": [1.0], **fields})
    check_problem(answer, 422, named)


@pytest.mark.parametrize("cursor", ["abc", "-1", "9" * 19, "1.5", ""])
def test_a_bad_cursor_is_refused(lasting_api: Api, cursor: str) -> None:
    answer = lasting_api.client.get(f"{VECTORS}/items", params={"cursor": cursor})
    check_problem(answer, 422, "cursor")
    assert lasting_api.client.get(f"{VECTORS}/items", params={"cursor": "9" * 18}).json()["items"] == []


def test_what_is_not_there_is_not_found(lasting_api: Api) -> None:
    for path in ("/v1/collections/none", "/v1/collections/none/items", f"{VECTORS}/items/none"):
        check_problem(lasting_api.client.get(path), 404, "none")
    check_problem(lasting_api.client.get("/v1/admin/jobs/none"), 404, "none")
    check_problem(lasting_api.client.delete("/v1/admin/keys/none"), 404, "none")
    check_problem(lasting_api.client.delete(f"{VECTORS}/items/none"), 404, "none")
    check_problem(lasting_api.client.post("/v1/admin/collections/vectors/models/7/activate"), 404, "7")
    check_problem(lasting_api.client.get(f"{VECTORS}/items", params={"modality": "sound"}), 422, "modality")
    check_problem(lasting_api.client.get("/v1/nothing"), 404, "")
    check_problem(lasting_api.client.put("/v1/collections"), 405, "")


def test_an_untrained_collection_says_what_to_call(lasting_api: Api) -> None:
    answer = lasting_api.client.post(f"{VECTORS}/search/text-to-image", json={"vector": [1.0]})
    check_problem(answer, 409, "/v1/admin/collections/vectors/retrain")


def test_nothing_to_train_on_is_refused(lasting_api: Api) -> None:
    check_problem(lasting_api.client.post("/v1/admin/collections/mixed/retrain"), 409, "image")


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
def test_a_bad_retrain_is_refused(lasting_api: Api, fields: dict[str, Any]) -> None:
    answer = lasting_api.client.post("/v1/admin/collections/vectors/retrain", json=fields)
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
def test_a_bad_collection_is_refused(
    lasting_api: Api, fields: dict[str, Any], status: int, named: str
) -> None:
    before = lasting_api.client.get("/v1/collections").json()
    body = {"name": "third", "modalities": MODALITIES, **fields}
    check_problem(lasting_api.client.post("/v1/collections", json=body), status, named)
    assert lasting_api.client.get("/v1/collections").json() == before


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
def test_bad_encoder_options_are_refused(lasting_api: Api, encoder: dict[str, Any]) -> None:
    before = lasting_api.client.get("/v1/collections").json()
    body = json.dumps({"name": "third", "modalities": {**MODALITIES, "text": {"encoder": encoder}}})
    answer = lasting_api.client.post(
        "/v1/collections", content=body, headers={"Content-Type": "application/json"}
    )
    check_problem(answer, 422, "modalities.text.encoder")
    assert lasting_api.client.get("/v1/collections").json() == before


def calls_in(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield what is called in the modules of a folder, with the texts among what it is called with."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                texts = [part.value for part in node.args if isinstance(part, ast.Constant)]
                yield (
                    ast.unparse(node.func).rpartition(".")[2],
                    [text for text in texts if isinstance(text, str)],
                )


def test_every_refusal_has_its_problem() -> None:
    families = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    made = set()
    for name, texts in calls_in(Path(app.__file__).parent):
        kind = families.get(name)
        if kind is None or not issubclass(kind, ServiceError):
            continue
        codes = [text for text in texts if text in PROBLEMS]
        assert codes or kind.__init__ is not ServiceError.__init__ or not texts, (name, texts)
        assert all(PROBLEMS[code].family is kind for code in codes), (name, codes)
        made |= set(codes)
    of_one_kind = {
        code for code, problem in PROBLEMS.items() if problem.family.__init__ is not ServiceError.__init__
    }
    by_the_system = {"storage-full", "storage-read-only", "database-unavailable", "database-unopened"}
    assert set(PROBLEMS) == made | of_one_kind | by_the_system
    assert all(re.fullmatch(r"[a-z-]+", problem.type or code) for code, problem in PROBLEMS.items())
    assert all(problem.title and 400 <= problem.status < 600 for problem in PROBLEMS.values())
