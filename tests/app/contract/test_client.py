"""The clients have every operation of the REST interface, in its words and with its fields."""

import asyncio
import inspect
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import is_dataclass
from datetime import UTC, datetime
from types import NoneType
from typing import Any

import httpx
import pytest

from app import answers as answers_module
from app.bootstrap import build
from app.client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    InvalidRequestError,
    LrbsError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
)
from app.client import operations as operations_module
from app.client.operations import Operations
from app.main import create_app
from app.settings import Settings
from tests.app.contract.test_openapi import operations

LEFT_OUT = {"job_events": "an endless stream; `wait_for_job` follows a training"}
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "search_version": ("a", 1, "x", "y"),
    "create_key": ("search",),
    "count_values": ("a", "x"),
    "create_collection": ("a", {"x": {"type": "vector"}}),
    "put_item": ("a", "i", {"modality": "x"}),
    "put_labels": ("a", "i", ["l"]),
    "list_partners": ("a", ["i"]),
    "create_items": ("a", []),
    "import_items": ("a", []),
    "create_feedback": ("a", []),
    "search": ("a", "x", "y"),
    "search_batch": ("a", "x", "y", []),
    "search_composed": ("a", "y", []),
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    services = build(Settings(data_dir=tmp_path_factory.mktemp("client"), database_url=""))
    found = create_app(services).openapi()
    services.database.engine.dispose()
    return found


def call_of(name: str) -> Any:
    """A call of an operation with as few parameters as it takes."""
    make: Callable[..., Any] = getattr(operations_module, name)
    needed = [
        parameter
        for parameter in inspect.signature(make).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return make(*EXAMPLES.get(name, tuple("1" for _ in needed)))


def test_every_operation_is_a_method_with_its_path_and_answer(document: dict[str, Any]) -> None:
    found = operations(document)
    methods = {name for name in vars(Operations) if not name.startswith("_")}
    assert methods == found.keys() - LEFT_OUT.keys() | {"metrics"}
    for name, (method, path, entry) in found.items():
        if name in LEFT_OUT or name == "metrics":
            continue
        call = call_of(name)
        pattern = re.sub(r"\\\{[a-z_]+\\\}", "[^/]+", re.escape(path))
        assert (call.method, bool(re.fullmatch(pattern, call.path))) == (method, True), (name, call.path)
        parameters = {one["name"] for one in entry.get("parameters", ()) if one["in"] == "query"}
        taken = inspect.signature(getattr(operations_module, name)).parameters
        assert parameters <= taken.keys() | {"item_id"}, name
        (answer,) = (told for status, told in entry["responses"].items() if status.startswith("2"))
        content = answer.get("content", {}).get("application/json")
        assert (content is None) == (call.answer in (bytes, NoneType)), name
        if content is not None:
            assert content["schema"] == {"$ref": f"#/components/schemas/{call.answer.__name__}"}, name
    described = {name for name, each in vars(answers_module).items() if is_dataclass(each)}
    assert described < document["components"]["schemas"].keys()


def test_names_are_quoted_in_paths() -> None:
    call = operations_module.get_item("a/b", "ü?x=1")
    assert call.path == "/v1/collections/a%2Fb/items/%C3%BC%3Fx%3D1"


def answering(*answers: httpx.Response | Exception) -> tuple[Client, list[httpx.Request]]:
    """A client whose calls get these answers one after the other, and its calls."""
    requests: list[httpx.Request] = []
    waiting = list(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    http = httpx.Client(base_url="http://service", transport=httpx.MockTransport(handle))
    return Client("http://service", http=http, patience=1.0), requests


def test_certificates_are_read_by_clients_that_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise OSError("certificates are read")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read)
    Client("HTTP://service").close()
    with pytest.raises(OSError, match="certificates are read"):
        Client("https://service")


AFFECTED = {"matched": 0, "changed": 0, "ids": [], "revision": 1}
PROBLEM = {
    "type": "/problems/invalid-request",
    "title": "Invalid request",
    "detail": "k: too large",
    "field": "k",
}


def test_what_is_done_to_all_that_pass_a_filter_may_take_longer_than_other_calls() -> None:
    client, requests = answering(*(httpx.Response(200, json=AFFECTED) for _ in range(2)), httpx.Response(204))
    client.delete_items("a", filter={"labels": ["b"]})
    client.update_items("a", all=True, labels=[])
    client.delete_collection("a")
    assert [request.extensions["timeout"]["read"] for request in requests] == [3600.0, 3600.0, 5.0]
    assert {request.extensions["timeout"]["connect"] for request in requests} == {5.0}


def test_problems_are_exceptions_with_what_the_service_said() -> None:
    kinds = [
        (401, NotAllowedError),
        (404, NotFoundError),
        (422, InvalidRequestError),
        (507, UnavailableError),
    ]
    for status, kind in kinds:
        client, _ = answering(httpx.Response(status, json=PROBLEM | {"correlation_id": "c"}))
        with pytest.raises(kind, match=rf"{status} Invalid request: k: too large \(k\)") as caught:
            client.list_collections()
        assert (caught.value.type, caught.value.field) == ("invalid-request", "k")
        assert (caught.value.status, caught.value.correlation_id) == (status, "c")
    client, _ = answering(httpx.Response(502, text="<html>Bad gateway</html>"))
    with pytest.raises(
        UnavailableError, match="502 Bad Gateway: a proxy in front of the service does not reach it"
    ):
        client.list_collections()
    client, _ = answering(httpx.Response(301, headers={"Location": "https://service/"}))
    with pytest.raises(LrbsError, match="DELETE /v1/collections/a: the service is at https://service/"):
        client.delete_collection("a")
    client, _ = answering(httpx.Response(200, text="<html>a login page</html>"))
    with pytest.raises(LrbsError, match="the answer is not of this service"):
        client.list_collections()


def test_what_was_turned_away_is_sent_again_and_what_may_have_been_done_is_not() -> None:
    busy = httpx.Response(503, json=PROBLEM, headers={"Retry-After": "0"})
    lost = httpx.ConnectError("refused")
    done = httpx.Response(200, json={"collections": []})
    client, requests = answering(busy, lost, done)
    assert client.list_collections().collections == []
    assert len(requests) == 3
    written = httpx.Response(201, json={"ids": ["a"], "revision": 1})
    client, requests = answering(busy, written)
    assert client.create_items("a", [{"text": "t"}]).ids == ["a"]
    client, requests = answering(lost, written)
    with pytest.raises(ConnectionFailedError, match=r"^POST http://service/v1/collections/a/items: refused$"):
        client.create_items("a", [{"text": "t"}])
    assert len(requests) == 1
    client, requests = answering(*[httpx.Response(503, json=PROBLEM, headers={"Retry-After": "60"})] * 2)
    with pytest.raises(UnavailableError) as caught:
        client.list_collections()
    assert (len(requests), caught.value.retry_after) == (1, 60.0)


def test_times_of_keys_are_sent_with_their_zone() -> None:
    call = operations_module.create_key("search", expires_at=datetime(2030, 1, 31, tzinfo=UTC))
    assert call.json == {"scope": "search", "expires_at": "2030-01-31T00:00:00+00:00"}


def test_an_export_is_read_line_by_line_and_an_early_end_is_an_error() -> None:
    items = [{"id": "a", "text": "one\u2028line\n"}, {"id": "b"}]
    sent = b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in items)

    class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __init__(self, name: str) -> None:
            self.is_whole, self.is_hidden = name == "whole", name == "hidden"

        def __iter__(self) -> Iterator[bytes]:
            yield from (sent[:9], sent[9:-3], sent[-3:] if self.is_whole else b"")
            if not (self.is_whole or self.is_hidden):
                raise httpx.RemoteProtocolError("ended early")

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self:
                yield piece

    def answer(request: httpx.Request) -> httpx.Response:
        if "none" in request.url.path:
            return httpx.Response(404, json=PROBLEM)
        return httpx.Response(200, stream=Pieces(request.url.path.split("/")[-2]), request=request)

    async def collect(collection: str) -> list[Any]:
        http = httpx.AsyncClient(base_url="http://service", transport=httpx.MockTransport(answer))
        async with AsyncClient("http://service", http=http, patience=1.0) as client:
            return [item async for item in client.iter_export(collection)]

    http = httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer))
    client = Client("http://service", http=http, patience=1.0)
    for read in (lambda name: list(client.iter_export(name)), lambda name: asyncio.run(collect(name))):
        assert read("whole") == items
        for name in ("part", "hidden"):
            with pytest.raises(ConnectionFailedError, match="ended early"):
                read(name)
        with pytest.raises(NotFoundError):
            read("none")
