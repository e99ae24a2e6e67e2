"""The short way of a search answers as the route does that it stands for."""

import warnings
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api.routes.short_way import ShortSearchRoute
from app.domain.entities import Scope
from app.main import create_app

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
    "an unknown collection": ("/v1/collections/b/search/z-to-x", OK, {}),
    "a wrong key": (PATH, OK, {"Authorization": "Bearer wrong"}),
}


@pytest.fixture
def clients(pairs: Any) -> tuple[httpx.Client, httpx.Client]:
    """Return clients of two applications over the same services, the second without the short way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    pairs.fill("a")
    pairs.train("a")
    _, secret = pairs.services.access.create(Scope.SEARCH)
    settings = pairs.services.settings.model_copy(update={"open_search": False})
    short, long = (create_app(replace(pairs.services, settings=settings)) for _ in range(2))
    (route,) = (route for route in long.router.routes if isinstance(route, ShortSearchRoute))
    long.router.routes.remove(route)
    headers = {"Authorization": f"Bearer {secret}"}
    return TestClient(short, headers=headers), TestClient(long, headers=headers)


@pytest.mark.parametrize("case", BODIES)
def test_both_ways_give_the_same_answer(
    clients: tuple[httpx.Client, httpx.Client], pairs: Any, case: str
) -> None:
    path, options, headers = BODIES[case]
    body = {"vector": pairs.data.Z[0].tolist()} | options
    short, long = (
        client.post(
            path, json={name: value for name, value in body.items() if value is not None}, headers=headers
        )
        for client in clients
    )
    assert short.status_code == long.status_code
    assert short.headers.keys() == long.headers.keys()
    first, second = (
        {
            name: value
            for name, value in answer.json().items()
            if name not in ("took_ms", "instance", "request_id")
        }
        for answer in (short, long)
    )
    assert first == second


def test_the_answers_are_of_several_kinds(clients: tuple[httpx.Client, httpx.Client], pairs: Any) -> None:
    answers = [
        clients[0]
        .post(path, json={"vector": pairs.data.Z[0].tolist()} | options, headers=headers)
        .status_code
        for path, options, headers in BODIES.values()
    ]
    assert {200, 401, 404, 422} <= set(answers)
