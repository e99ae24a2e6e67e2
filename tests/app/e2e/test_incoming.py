"""Bodies that come in pieces, too large, too slowly or not at all."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from fastapi import Request

from app.api.admission import ConcurrencyLimits
from app.api.gate import Gate, body_of
from app.api.routes import ROUTERS
from app.domain.errors import ContentTooLargeError
from tests.app.e2e.conftest import Server
from tests.app.e2e.refusals import MAX_BODY, MIXED, VECTORS, Api, check_next_request_works, check_problem, png
from tests.app.refused import refused
from tests.app.waiting import wait_for

JSON = {"Content-Type": "application/json"}


class Pieces:
    """A chunked body that counts how much of it was asked for."""

    def __init__(self, content: bytes, size: int) -> None:
        self._content, self._size = content, size
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), self._size):
            self.taken += 1
            yield self._content[start : start + self._size]


def test_a_chunked_body_is_taken_up_to_the_limit(api: Api) -> None:
    item = {"id": "new", "modality": "image", "vector": [1.0, 2.0]}
    body = json.dumps({"items": [item]}).encode()
    pieces = Pieces(body.ljust(MAX_BODY), 1000)
    answer = api.client.post(f"{VECTORS}/items", content=iter(pieces), headers=JSON)
    assert answer.status_code == 201, answer.text


class Asked:
    """One request to `Gate` whose messages are given by hand."""

    def __init__(self, limits: dict[str, Any], restrict_to: int | None = None, path: str = "/") -> None:
        self.read = bytearray()
        self.sent: list[Any] = []
        self._restrict_to = restrict_to
        self._error: Exception | None = None
        self._gate = Gate(
            self._fail_openly,
            ConcurrencyLimits(ROUTERS, 9, 9, 1),
            **{"max_body_bytes": 100, "body_bytes_at_once": 50_000, "pause_seconds": 5.0, **limits},
        )
        self._path = path

    async def _fail_openly(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._application(scope, receive, send)
        except Exception as error:
            self._error = error

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        body_of(Request(scope)).caller = scope["caller"]
        if self._restrict_to is not None:
            body_of(Request(scope)).restrict(self._restrict_to)
        message = {"more_body": True}
        while message["more_body"]:
            message = await receive()
            self.read += message["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(
        self, messages: list[tuple[float, bytes]], headers: dict[str, str], caller: str = "one"
    ) -> None:
        coming = iter(messages)
        number = 0

        async def receive() -> dict[str, Any]:
            nonlocal number
            number += 1
            wait, body = next(coming)
            await anyio.sleep(wait)
            return {"type": "http.request", "body": body, "more_body": number < len(messages)}

        async def send(message: Any) -> None:
            self.sent.append(message)

        listed = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": self._path, "headers": listed, "caller": caller}
        await self._gate(scope, receive, send)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def run(self, messages: list[tuple[float, bytes]], **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        anyio.run(self.ask, messages, named)


def test_a_chunked_body_is_refused_at_the_first_byte_too_many() -> None:
    asked = Asked({})
    with pytest.raises(ContentTooLargeError, match="at most 100"):
        asked.run([(0, b"x" * 60)] * 1000, transfer_encoding="chunked")
    assert len(asked.read) == 60


def test_an_announced_body_is_refused_before_anything_is_read() -> None:
    asked = Asked({})
    with pytest.raises(ContentTooLargeError):
        asked.run([], content_length="101")
    asked = Asked({}, restrict_to=10)
    with pytest.raises(ContentTooLargeError, match="at most 10 "):
        asked.run([], content_length="11")


def test_a_route_may_take_more_than_the_service() -> None:
    asked = Asked({}, restrict_to=200)
    asked.run([(0, b"x" * 150)], content_length="150")
    assert len(asked.read) == 150


def test_an_import_is_counted_by_its_route() -> None:
    asked = Asked({"body_bytes_at_once": 10}, path="/v1/collections/a/items:import")
    asked.run([(0, b"x" * 90)] * 5, transfer_encoding="chunked")
    assert len(asked.read) == 450


@pytest.mark.parametrize(
    "path", ["/v1/collections/a/search/x-to-z:import", "/v1/collections/a/items/x:import", "/:import"]
)
def test_a_path_that_only_ends_like_an_import_is_counted(path: str) -> None:
    asked = Asked({}, path=path)
    with pytest.raises(ContentTooLargeError, match="at most 100"):
        asked.run([(0, b"x" * 90)] * 5, transfer_encoding="chunked")
    asked = Asked({"pause_seconds": 0.3, "max_body_bytes": 10_000}, path=path)
    with refused("body-timeout"):
        asked.run([(0.05, b"x")] * 1000, transfer_encoding="chunked")


def test_a_body_that_stops_is_given_up() -> None:
    for path in ("/", "/v1/collections/a/items:import"):
        asked = Asked({"pause_seconds": 0.1}, path=path)
        with refused("body-timeout"):
            asked.run([(0, b"x"), (10, b"x")], transfer_encoding="chunked")


IMPORT = "/v1/collections/a/items:import"


@pytest.mark.parametrize(
    ("path", "limits", "n_before", "most"),
    [
        ("/", {"pause_seconds": 0.3, "max_body_bytes": 10_000}, 0, 6),
        # Three times the longest pause, all in all; one byte earns a thousandth of a second.
        (IMPORT, {"pause_seconds": 0.2}, 0, 13),
        # What arrived at once long ago is no excuse for a trickle.
        (IMPORT, {"pause_seconds": 0.2}, 1_000_000, 13),
        ("/", {"max_body_bytes": 10_000_000, "body_bytes_at_once": 40_000_000}, 1_000_000, 13),
    ],
)
def test_what_only_trickles_is_given_up(path: str, limits: dict[str, Any], n_before: int, most: int) -> None:
    asked = Asked({"pause_seconds": 0.2, **limits}, path=path)
    with refused("body-timeout"):
        asked.run([(0, b"x" * n_before), *[(0.05, b"x")] * 1000], transfer_encoding="chunked")
    assert len(asked.read) <= n_before + most


def test_an_import_may_be_made_while_it_is_sent() -> None:
    asked = Asked({"pause_seconds": 0.5}, path=IMPORT)
    asked.run([(0.1, b"x" * 500)] * 30, transfer_encoding="chunked")  # three times what is wanted
    assert len(asked.read) == 15_000


def test_all_bodies_together_are_bounded_and_those_of_one_caller() -> None:
    asked = Asked({"body_bytes_at_once": 250})
    slowly = [(0.0, b"x" * 90), (0.3, b"x")]
    chunked, whole = {"transfer-encoding": "chunked"}, {"content-length": "90"}

    async def several() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked.ask, slowly, chunked, "one")
            await anyio.sleep(0.05)
            with refused("overloaded", match="of this caller"):
                await asked.ask([(0, b"x" * 90)], whole, "one")
            tasks.start_soon(asked.ask, slowly, chunked, "other")
            await anyio.sleep(0.05)
            with refused("overloaded", match="too many requests"):
                await asked.ask([(0, b"x" * 90)], whole, "third")
        await asked.ask([(0, b"x" * 90)], whole, "one")

    anyio.run(several)


def test_an_answer_before_the_end_of_the_body_closes_the_connection(api: Api) -> None:
    answer = api.client.post(
        f"{VECTORS}/items", content=b"x" * 1000, headers={**JSON, "Authorization": "Bearer wrong"}
    )
    check_problem(answer, 401, "key")
    assert answer.headers["Connection"] == "close"
    answer = api.client.post(f"{VECTORS}/items", content=b"{", headers=JSON)
    assert "Connection" not in answer.headers
    check_next_request_works(api)


def test_a_flood_of_unknown_keys_is_refused_before_it_is_parsed(api: Api) -> None:
    flood = ",".join(f'"k{n}":1' for n in range(16_001))
    path = f"{VECTORS}/search/text-to-image"
    for body in (f"{{{flood}}}", f'{{"vector": [1], "filter": {{"metadata": {{{flood}}}}}}}'):
        answer = api.client.post(path, content=body, headers=JSON)
        problem = check_problem(answer, 413, "more than 16000 keys")
        assert problem["field"] == "body"
    form = {"item": f'{{"modality": "image", "metadata": {{{flood}}}}}'}
    answer = api.client.post(f"{MIXED}/items", data=form, files={"picture": png()})
    check_problem(answer, 413, "more than 16000 keys")
    check_next_request_works(api)


@pytest.mark.parametrize("charset", ["punycode", "undefined", "utf-16", "no such"])
def test_a_form_in_another_encoding_is_refused(api: Api, charset: str) -> None:
    kind = f'multipart/form-data; boundary=b; charset="{charset}"'
    part = b'--b\r\nContent-Disposition: form-data; name="item"\r\n\r\n' + b"a" * 1000 + b"\r\n--b--\r\n"
    answer = api.client.post(f"{MIXED}/items", content=part, headers={"Content-Type": kind})
    problem = check_problem(answer, 422, "expected a form in UTF-8")
    assert problem["field"] == "body"
    check_next_request_works(api)


def test_a_form_that_names_its_encoding_is_read(api: Api) -> None:
    form = httpx.Request(
        "POST",
        f"{api.client.base_url}{MIXED}/items",
        data={"item": json.dumps({"id": "named", "modality": "image", "metadata": {"of": "Zoë"}})},
        files={"picture": png()},
    )
    kind = f"{form.headers['Content-Type']}; charset=UTF-8"
    answer = api.client.post(f"{MIXED}/items", content=form.read(), headers={"Content-Type": kind})
    assert answer.status_code == 201, answer.text
    item = api.client.get(f"{MIXED}/items/named").json()
    assert item["metadata"] == {"of": "Zoë"}
    api.client.delete(f"{MIXED}/items/named").raise_for_status()


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=20)


def test_who_stops_sending_is_sent_away(lasting_server: tuple[Server, str]) -> None:
    url, key = lasting_server[0].url, lasting_server[1]
    head = "POST /v1/collections HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for authorization, framing, status in (
        (f"Bearer {key}", "Content-Length: 100", b"408"),
        (f"Bearer {key}", "Transfer-Encoding: chunked", b"408"),
        ("Bearer wrong", "Content-Length: 100", b"401"),
    ):
        with connect(url) as connection:
            lines = f"{head}Authorization: {authorization}\r\n{framing}\r\n\r\n"
            connection.sendall(lines.encode() + (b"1\r\n{\r\n" if "chunked" in framing else b"{"))
            told = b""
            while piece := connection.recv(65536):  # until the other side closes
                told += piece
        assert told.startswith(b"HTTP/1.1 " + status), told
        assert b"connection: close" in told.lower()
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_a_slow_body_of_good_size_is_taken(lasting_server: tuple[Server, str]) -> None:
    url, key = lasting_server[0].url, lasting_server[1]
    body = json.dumps({"scope": "search"}).encode()

    def slowly() -> Iterator[bytes]:
        for start in range(0, len(body), 5):
            time.sleep(0.1)
            yield body[start : start + 5]

    headers = {**JSON, "Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/admin/keys", content=slowly(), headers=headers, trust_env=False)
    assert answer.status_code == 201


def test_who_breaks_off_is_no_error_of_ours(lasting_server: tuple[Server, str]) -> None:
    server, key = lasting_server
    client = httpx.Client(
        base_url=server.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60
    )
    modalities = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
    client.post("/v1/collections", json={"name": "a", "modalities": modalities}).raise_for_status()
    head = f"Host: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 1000\r\nContent-Type: "
    part = '--b\r\nContent-Disposition: form-data; name="picture"; filename="p"\r\n\r\nhalf of it'
    for path, kind, begun in (
        ("/v1/collections", "application/json", '{"name": '),
        ("/v1/collections/a/items", "multipart/form-data; boundary=b", part),
        ("/v1/collections/a/items:import", "application/x-ndjson", '{"id": '),
    ):
        with connect(server.url) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\n{head}{kind}\r\n\r\n{begun}".encode())
            wait_for(lambda: "in_progress 2.0" in client.get("/metrics").text)
        route = path.replace("/a/", "/{collection}/")
        line = f'lrbs_http_requests_total{{method="POST",route="{route}",status="400"}} 1.0'
        wait_for(lambda line=line: line in client.get("/metrics").text)
    client.close()
    assert "ERROR" not in server.said()
    assert "Traceback" not in server.said()


def test_who_still_sends_when_refused_can_read_the_answer(lasting_server: tuple[Server, str]) -> None:
    url = lasting_server[0].url
    with connect(url) as connection:
        head = b"POST /v1/collections HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: 300000\r\n\r\n")
        time.sleep(0.2)  # by now the answer is there: no key was given
        for _ in range(30):
            connection.sendall(b" " * 10_000)
            time.sleep(0.005)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.endswith(b"}")
    assert b"connection: close" in answer.lower()
