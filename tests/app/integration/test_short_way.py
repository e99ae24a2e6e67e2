"""The two short ways of a search answer as the route does that they stand for."""

import warnings
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Request

from app.api.request_scope import WHOLE_BODY
from app.api.routes.short_way import ShortSearchRoute
from app.domain.entities import Content, KeyBounds, Scope
from app.main import create_app
from app.services.catalogue.preparation import NewItem

PATH = "/v1/collections/a/search/z-to-x"
OK = {"k": 3}
BODIES: dict[str, tuple[str, Any, dict[str, str]]] = {
    "a vector": (PATH, OK, {}),
    "some fields": (PATH, OK | {"include": ["labels"]}, {}),
    "a filter": (PATH, OK | {"filter": {"labels": ["0"]}}, {}),
    "an unknown label": (PATH, OK | {"filter": {"labels": ["none"]}}, {}),
    "a wrong dimension": (PATH, {"vector": [1.0]}, {}),
    "no content": (PATH, {"vector": None}, {}),
    "a wrong type": (PATH, OK | {"k": "many"}, {}),
    "an unknown option": (PATH, OK | {"q": 1}, {}),
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


class WithWholeBody:
    """Does what the server does: says when the body of a request is complete."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.n_received = 0

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        message = await receive()
        scope["extensions"] = {WHOLE_BODY: {"read": lambda: message["body"]}}

        async def receive_again() -> Message:
            self.n_received += 1
            return message

        await self.app(scope, receive_again, send)


@pytest.fixture
def ways(pairs: Any) -> dict[str, Any]:
    """Return three applications over the same services, each of which goes another way."""
    pairs.fill("a")
    pairs.train("a")
    settings = pairs.services.settings.model_copy(update={"open_search": False})
    light, short, long = (create_app(replace(pairs.services, settings=settings)) for _ in range(3))
    (route,) = (route for route in long.router.routes if isinstance(route, ShortSearchRoute))
    long.router.routes.remove(route)
    return {"light": WithWholeBody(light), "short": short, "long": long}


@pytest.fixture
def clients(pairs: Any, ways: dict[str, Any]) -> dict[str, httpx.Client]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    _, secret = pairs.services.access.create(Scope.SEARCH)
    clients: dict[str, httpx.Client] = {
        way: TestClient(app, headers={"Authorization": f"Bearer {secret}"}) for way, app in ways.items()
    }
    for client in clients.values():  # a light search needs a snapshot that was looked up, and a known key
        client.post(PATH, json={"vector": pairs.data.Z[0].tolist()} | OK).raise_for_status()
    return clients


def post(client: httpx.Client, pairs: Any, case: str) -> httpx.Response:
    path, options, headers = BODIES[case]
    body = {"vector": pairs.data.Z[0].tolist()} | options
    given = {name: value for name, value in body.items() if value is not None}
    return client.post(path, json=given, headers=headers)


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("way", ["light", "short"])
def test_all_ways_give_the_same_answer(
    clients: dict[str, httpx.Client], pairs: Any, way: str, case: str
) -> None:
    answer, expected = post(clients[way], pairs, case), post(clients["long"], pairs, case)
    assert answer.status_code == expected.status_code
    assert answer.headers.keys() == expected.headers.keys()
    changing = {"x-request-id", "content-length"}
    given = {name: value for name, value in answer.headers.items() if name not in changing}
    assert given == {name: value for name, value in expected.headers.items() if name not in changing}
    first, second = (
        {
            name: value
            for name, value in of_way.json().items()
            if name not in ("took_ms", "instance", "request_id")
        }
        for of_way in (answer, expected)
    )
    assert first == second


def test_the_answers_are_of_several_kinds(clients: dict[str, httpx.Client], pairs: Any) -> None:
    answers = [post(clients["light"], pairs, case).status_code for case in BODIES]
    assert {200, 401, 404, 422} <= set(answers)


@pytest.mark.parametrize(
    ("case", "is_light"),
    [("a vector", True), ("some fields", True), ("a wrong dimension", True), ("a filter", False)],
)
def test_light_searches_do_not_pass_the_other_middleware(
    clients: dict[str, httpx.Client], ways: dict[str, Any], pairs: Any, case: str, is_light: bool
) -> None:
    before = ways["light"].n_received
    post(clients["light"], pairs, case)
    assert (ways["light"].n_received == before) == is_light


def test_a_filter_is_light_once_its_rows_are_known(
    clients: dict[str, httpx.Client], ways: dict[str, Any], pairs: Any
) -> None:
    label = post(clients["long"], pairs, "a vector").json()["hits"][0]["labels"][0]
    body = {"vector": pairs.data.Z[0].tolist(), "k": 3, "filter": {"labels": [label]}}
    expected = clients["long"].post(PATH, json=body).json()["hits"]
    assert {hit["labels"][0] for hit in expected} == {label}
    before = ways["light"].n_received
    assert clients["light"].post(PATH, json=body).json()["hits"] == expected
    assert ways["light"].n_received == before


def test_the_id_that_a_client_chose_is_returned(clients: dict[str, httpx.Client], pairs: Any) -> None:
    assert post(clients["light"], pairs, "an id of its own").headers["X-Request-ID"] == "a-client-chose-this"


@pytest.mark.parametrize("way", ["light", "short"])
def test_each_search_is_counted_once(clients: dict[str, httpx.Client], pairs: Any, way: str) -> None:
    bounds = KeyBounds(requests_per_minute=4)
    _, secret = pairs.services.access.create(Scope.SEARCH, bounds=bounds)
    clients[way].headers["Authorization"] = f"Bearer {secret}"
    cases = ["a vector", "a vector", "an unknown label", "a vector", "a vector"]
    statuses = [post(clients[way], pairs, case).status_code for case in cases]
    assert statuses == [200, 200, 422, 200, 429]


def test_a_key_of_other_collections_finds_nothing(clients: dict[str, httpx.Client], pairs: Any) -> None:
    pairs.fill("b")
    _, secret = pairs.services.access.create(Scope.SEARCH, bounds=KeyBounds(collections=("b",)))
    clients["light"].headers["Authorization"] = f"Bearer {secret}"
    assert [post(clients["light"], pairs, "a vector").status_code for _ in range(2)] == [404, 404]


def test_a_light_search_sees_a_write_of_this_process_at_once(
    clients: dict[str, httpx.Client], pairs: Any
) -> None:
    found = post(clients["light"], pairs, "a vector").json()["hits"][0]["id"]
    pairs.services.catalogue.delete_item("a", found)
    hits = post(clients["light"], pairs, "a vector").json()["hits"]
    assert hits
    assert found not in [hit["id"] for hit in hits]


def test_searches_that_show_much_are_not_light(
    clients: dict[str, httpx.Client], ways: dict[str, Any], pairs: Any
) -> None:
    item = NewItem("x", Content(vector=pairs.data.X[0].tolist()), "long", metadata={"note": "long" * 4000})
    pairs.services.catalogue.add_items("a", [replace(item, id=f"long{number}") for number in range(6)])
    body = {"vector": pairs.data.Z[0].tolist(), "k": 100}
    clients["light"].post(PATH, json=body).raise_for_status()  # looks the new state up
    before = ways["light"].n_received
    answers = [clients[way].post(PATH, json=body).json()["hits"] for way in ("light", "long")]
    assert len(str(answers[0])) > 1 << 16
    assert answers[0] == answers[1]
    assert ways["light"].n_received == before + 1


def test_a_large_answer_of_a_light_search_is_sent_in_pieces(
    clients: dict[str, httpx.Client], ways: dict[str, Any], pairs: Any
) -> None:
    # Its segment has so many small items that the large one does not show in their mean.
    best = int(post(clients["long"], pairs, "a vector").json()["hits"][0]["id"].removeprefix("x"))
    item = NewItem("x", Content(vector=pairs.data.X[best].tolist()), "a", metadata={"note": "l" * 16_600})
    small = replace(item, metadata={})
    others = [replace(small, id=f"small{number}") for number in range(290)]
    pairs.services.catalogue.add_items("a", [*(replace(item, id=f"long{n}") for n in range(4)), *others])
    body = {"vector": pairs.data.Z[0].tolist(), "k": 50}
    clients["light"].post(PATH, json=body).raise_for_status()
    before = ways["light"].n_received
    answers = [clients[way].post(PATH, json=body).json()["hits"] for way in ("light", "light", "long")]
    assert len(str(answers[0])) > 1 << 16
    assert answers[0] == answers[1] == answers[2]
    assert ways["light"].n_received > before
