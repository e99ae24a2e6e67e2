"""A search does what FastAPI would do with its documented route, and passes through that route."""

import asyncio
import sys
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.routes import searches
from app.api.routes.searches import SearchRoute
from app.domain.entities import Content, KeyBounds
from app.domain.names import Scope
from app.main import create_app
from app.services.catalogue.preparation import NewItem
from tests.app.integration.conftest import FINE

PATH = "/v1/collections/a/search/z-to-x"
OK = {"k": 3}
BODIES: dict[str, tuple[str, Any, dict[str, str]]] = {
    "a vector": (PATH, OK, {}),
    "some fields": (PATH, OK | {"include": ["labels"]}, {}),
    "a filter": (PATH, OK | {"filter": {"labels": ["0"]}}, {}),
    "nothing to leave out": (PATH, OK | {"filter": {"metadata": {"none": {"ne": 1}}}}, {}),
    "an unknown label": (PATH, OK | {"filter": {"labels": ["none"]}}, {}),
    "a wrong dimension": (PATH, {"vector": [1.0]}, {}),
    "no content": (PATH, {"vector": None}, {}),
    "a wrong type": (PATH, OK | {"k": "many"}, {}),
    "an unknown option": (PATH, OK | {"q": 1}, {}),
    "an unknown parameter": (PATH + "?q=1", OK, {}),
    "an unknown item": (PATH, {"vector": None, "item_id": "none"}, {}),
    "an unknown direction": ("/v1/collections/a/search/z-to-y", OK, {}),
    "one modality": ("/v1/collections/a/search/z-to-z", OK, {}),
    "an unknown collection": ("/v1/collections/b/search/z-to-x", OK, {}),
    "a wrong key": (PATH, OK, {"Authorization": "Bearer wrong"}),
    "no key": (PATH, OK, {"Authorization": ""}),
    "another scheme": (PATH, OK, {"Authorization": "Basic abc"}),
    "an id of its own": (PATH, OK, {"X-Request-ID": "a-client-chose-this"}),
    "another site's page": (PATH, OK, {"Origin": "https://example.org"}),
    "a later page": (PATH, OK | {"offset": 2}, {}),
    "more than one call may rank": (PATH, OK | {"k": 10_001}, {}),
}


def new_client(app: Any, **headers: str) -> httpx.Client:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    return TestClient(app, headers=headers)  # type: ignore[return-value]


@pytest.fixture
def served(trained_pairs: Any) -> Any:
    trained_pairs.services.settings.open_search = False
    return trained_pairs


@pytest.fixture
def client(served: Any) -> httpx.Client:
    _, secret = served.services.access.create(Scope.SEARCH)
    client = new_client(create_app(served.services), Authorization=f"Bearer {secret}")
    client.post(PATH, json={"vector": served.data.Z[0].tolist()} | OK).raise_for_status()
    return client


def post(client: httpx.Client, pairs: Any, case: str) -> httpx.Response:
    path, options, headers = BODIES[case]
    body = {"vector": pairs.data.Z[0].tolist()} | options
    given = {name: value for name, value in body.items() if value is not None}
    return client.post(path, json=given, headers=headers)


def comparable(answer: httpx.Response) -> tuple[int, dict[str, str], dict[str, Any]]:
    changing = {"x-request-id", "content-length"}
    headers = {name: value for name, value in answer.headers.items() if name not in changing}
    return answer.status_code, headers, {k: v for k, v in answer.json().items() if k != "took_ms"}


def test_what_the_route_leaves_out_of_fastapi_changes_no_answer(
    client: httpx.Client, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {case: comparable(post(client, served, case)) for case in BODIES}
    (notice,) = answers["nothing to leave out"][2]["notices"]
    assert notice["message"].startswith("a part of the filter leaves nothing out: no item has the key 'none'")
    assert {200, 401, 404, 422} <= {status for status, _, _ in answers.values()}
    assert client.get(PATH).status_code == 405
    monkeypatch.setattr(SearchRoute, "handle", APIRoute.handle)
    for case, answer in answers.items():
        assert answer == comparable(post(client, served, case)), case
    assert client.get(PATH).status_code == 405


def test_every_search_passes_the_documented_endpoint(served: Any) -> None:
    served.services.settings.open_search = True
    served.make("t", x="vector", t="tfidf")
    words = ("red shoe", "blue hat", "green bag")
    rows = [served.item("x", f"x{n}", served.data.X[n], f"{n % 3}") for n in range(54)]
    texts = [NewItem("t", Content(text=f"{words[n % 3]} {n}"), f"t{n}", (f"{n % 3}",)) for n in range(54)]
    served.services.catalogue.add_items("t", [*rows, *texts])
    served.train("t", FINE)
    endpoints = {searches.search.__code__, searches.search_batch.__code__}
    passed: dict[Any, str] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in endpoints:
            passed[frame] = frame.f_code.co_name

    vector = {"vector": served.data.X[0].tolist()}

    async def run() -> list[int]:
        transport = httpx.ASGITransport(create_app(served.services))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60.0) as client:
            at = "/v1/collections/t/search"
            sys.setprofile(note)
            try:
                answers = [
                    await client.post(f"{at}/x-to-t", json=vector),
                    await client.post(f"{at}/x-to-t", json=vector),
                    await client.post(f"{at}/t-to-x", json={"text": "red"}),
                    await client.post(f"{at}/t-to-x", json={"text": "red"}),
                    await client.post(f"{at}/t-to-x", json={"item_id": "t1", "k": 300}),
                    await client.post(f"{at}/t-to-x", files={"picture": b"\x89PNG"}),
                    await client.post(f"{at}/t-to-x/batch", json={"queries": [{"text": "blue"}]}),
                ]
            finally:
                sys.setprofile(None)
        return [answer.status_code for answer in answers]

    assert asyncio.run(run()) == [200] * 5 + [422, 200]
    assert Counter(passed.values()) == {"search": 6, "search_batch": 1}


def test_each_search_is_counted_once(client: httpx.Client, served: Any) -> None:
    bounds = KeyBounds(requests_per_minute=4)
    _, secret = served.services.access.create(Scope.SEARCH, bounds=bounds)
    client.headers["Authorization"] = f"Bearer {secret}"
    cases = ["a vector", "a vector", "an unknown label", "a vector", "a vector"]
    assert [post(client, served, case).status_code for case in cases] == [200, 200, 422, 200, 429]


def test_a_key_of_other_collections_finds_nothing_and_a_revoked_one_ends_at_once(
    client: httpx.Client, served: Any
) -> None:
    served.fill("b")
    _, secret = served.services.access.create(Scope.SEARCH, bounds=KeyBounds(collections=("b",)))
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"vector": served.data.Z[0].tolist()}
    assert [client.post(PATH, json=body, headers=headers).status_code for _ in range(2)] == [404, 404]
    key, secret = served.services.access.create(Scope.SEARCH)
    headers = {"Authorization": f"Bearer {secret}"}
    assert [client.post(PATH, json=body, headers=headers).status_code for _ in range(2)] == [200, 200]
    served.services.access.revoke(key.id)
    assert client.post(PATH, json=body, headers=headers).status_code == 401


def test_no_search_takes_a_larger_body_than_the_setting_allows(served: Any) -> None:
    vector = served.data.Z[0].tolist()
    size = len(httpx.Request("POST", "/", json={"vector": vector} | OK).content)
    for least, status in ((size, 200), (size - 1, 413)):
        settings = served.services.settings.model_copy(
            update={"open_search": True, "max_search_body_bytes": least}
        )
        client = new_client(create_app(replace(served.services, settings=settings)))
        answers = [client.post(PATH, json={"vector": vector} | OK) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [status] * 2


def test_a_large_answer_is_the_same_whoever_writes_it(client: httpx.Client, served: Any) -> None:
    # Its segment has so many small items that the large ones do not show in their mean.
    best = int(post(client, served, "a vector").json()["hits"][0]["id"].removeprefix("x"))
    item = NewItem("x", Content(vector=served.data.X[best].tolist()), "a", metadata={"note": "l" * 16_600})
    small = replace(item, metadata={})
    others = [replace(small, id=f"small{number}") for number in range(290)]
    served.services.catalogue.add_items("a", [*(replace(item, id=f"long{n}") for n in range(4)), *others])
    body = {"vector": served.data.Z[0].tolist(), "k": 50}
    answers = [client.post(PATH, json=body).json()["hits"] for _ in range(3)]
    (batch,) = client.post(PATH + "/batch", json={"queries": [{"vector": body["vector"]}], "k": 50}).json()[
        "results"
    ]
    assert len(str(answers[0])) > 1 << 16
    assert answers[0] == answers[1] == answers[2] == batch["hits"]
