"""Bytes on real sockets: what is no HTTP/1.1, or may be read in two ways, is refused and not gone on with."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.settings import Settings
from tests.app.e2e.conftest import servers

SECONDS = 30.0
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SMUGGLED = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


MODALITIES = {name: {"encoder": {"type": "vector"}} for name in ("x", "z")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wire")


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    return new_key(folder)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with servers() as start:
        server = start(folder, ("serve", "--no-worker"))
        yield server.url
        assert "Traceback" not in server.said()


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    """Return a connection from an address of this machine."""
    address = urlsplit(url)
    place = (address.hostname, address.port)
    return socket.create_connection(place, timeout=SECONDS, source_address=(source, 0))


def read_to_the_end(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes; fails if it does not."""
    told = bytearray()
    while piece := connection.recv(1 << 16):
        told += piece
    return bytes(told)


def new_key(folder: Path, scope: Scope = Scope.ADMIN) -> str:
    services = build(Settings(data_dir=folder, database_url=""))
    services.schema.upgrade()
    _, secret = services.access.create(scope)
    services.database.engine.dispose()
    return secret


def answers_to(url: str, sent: bytes) -> bytes:
    with connected(url) as connection:
        connection.sendall(sent)
        return read_to_the_end(connection)


def check_refusal(told: bytes, *statuses: int) -> dict[str, Any]:
    """Check that there is one answer, a problem, and that it ends the connection."""
    head, _, body = told.partition(b"\r\n\r\n")
    assert told.count(b"HTTP/1.1 ") == 1, told
    assert int(head.split()[1]) in statuses, told
    lines = {
        name.lower(): value for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n"))
    }
    assert lines[b"connection"] == b"close"
    assert lines[b"content-type"] == b"application/problem+json"
    assert lines[b"x-content-type-options"] == b"nosniff"
    assert lines[b"x-request-id"]
    assert len(body) == int(lines[b"content-length"])
    problem: dict[str, Any] = json.loads(body)
    assert problem["status"] == int(head.split()[1])
    return problem


def post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = b"".join(header + b"\r\n" for header in (b"Host: x", *headers))
    return b"POST /v1/collections HTTP/" + version + b"\r\n" + lines + b"\r\n" + body


def chunks(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body=body)


AMBIGUOUS = {
    "length and coding": post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "coding and length": post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n"),
    "two lengths": post(b"Content-Length: 1", b"Content-Length: 2", body=b"ab"),
    "the same length twice": post(b"Content-Length: 2", b"Content-Length: 2", body=b"ab"),
    "a list of lengths": post(b"Content-Length: 2, 2", body=b"ab"),
    "a signed length": post(b"Content-Length: +2", body=b"ab"),
    "a length in hexadecimal": post(b"Content-Length: 0x2", body=b"ab"),
    "no length": post(b"Content-Length: ", body=b"ab"),
    "a huge length": post(b"Content-Length: " + b"9" * 30),
    "bare LF": b"GET /healthz HTTP/1.1\nHost: x\n\n",
    "bare LF behind the first line": b"GET /healthz HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF behind a header": b"GET /healthz HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare LF at the end": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\n",
    "bare CR": b"GET /healthz HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a folded header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "a header folded by a tab": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
    "a folded coding": post(b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"),
    "a fold before any header": b"GET /healthz HTTP/1.1\r\n A: b\r\nHost: x\r\n\r\n",
    "space before a colon": post(b"Content-Length : 2", body=b"ab"),
    "space in a name": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
    "no colon": b"GET /healthz HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n",
    "no name": b"GET /healthz HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "NUL in a value": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "NUL in a name": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n",
    "NUL in the target": b"GET /healthz\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "another coding": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity", body=b"ab"),
    "chunked, then identity": post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
    "gzip, then chunked": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "identity, then chunked": post(b"Transfer-Encoding: identity, chunked", body=b"0\r\n\r\n"),
    "two codings": post(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunked twice": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "a coding in 1.0": post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n", version=b"1.0"),
    "an invalid chunk size": chunks(b"g\r\n"),
    "a signed chunk size": chunks(b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk size in C": chunks(b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a huge chunk size": chunks(b"f" * 17 + b"\r\nabc"),
    "space behind a chunk size": chunks(b"3 \r\nabc\r\n0\r\n\r\n"),
    "bare LF behind a chunk size": chunks(b"3\nabc\r\n0\r\n\r\n"),
    "bare LF behind a chunk": chunks(b"3\r\nabc\n0\r\n\r\n"),
    "bare LF in a chunk extension": chunks(b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
    "a chunk longer than its size": chunks(b"3\r\nabcd\r\n0\r\n\r\n"),
    "a length as a trailer": chunks(b"0\r\nContent-Length: 5\r\n\r\n"),
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2.0": b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version of tomorrow": b"GET /healthz HTTP/1.9\r\nHost: x\r\n\r\n",
    "a target of another host": b"GET http://y/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "a proxy's target": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a fragment": b"GET /healthz#a HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "no method": b"\x00\x01\x02\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_may_be_read_in_two_ways_is_refused(url: str, name: str) -> None:
    problem = check_refusal(answers_to(url, AMBIGUOUS[name] + SMUGGLED), 400)
    assert problem["type"] == "/problems/http"
    assert problem["detail"]


def test_heads_have_a_bound(url: str) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    for head in (
        b"GET /" + b"a" * (1 << 17) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        start + b"A: " + b"b" * (1 << 17) + b"\r\n\r\n",
        start + b"A: b\r\n" * 30_000 + b"\r\n",
        start + b"A: " + b"b" * (1 << 22),  # has no end
        start + b"A" * (1 << 22),
    ):
        with connected(url) as connection:
            with contextlib.suppress(ConnectionError):  # it is refused before all is sent
                connection.sendall(head)
            check_refusal(read_to_the_end(connection), 431)


@pytest.mark.parametrize(
    "endless", [b"1;" + b"a" * (1 << 22), b"0" * (1 << 22), b"0\r\nA: " + b"b" * (1 << 22)]
)
def test_what_is_not_content_in_a_chunked_body_has_a_bound(url: str, key: str, endless: bytes) -> None:
    head = [b"Transfer-Encoding: chunked", f"Authorization: Bearer {key}".encode()]
    with connected(url) as connection:
        with contextlib.suppress(ConnectionError):  # it is refused before all is sent
            connection.sendall(post(*head, body=endless))
        check_refusal(read_to_the_end(connection), 431)


def test_small_chunks_are_no_overhead(url: str, key: str) -> None:
    body = json.dumps({"name": "chunks", "modalities": MODALITIES}).encode().ljust(100_000)
    head = [b"Transfer-Encoding: chunked", f"Authorization: Bearer {key}".encode(), b"Connection: close"]
    pieces = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body)
    trailers = b"0\r\nAuthorization: Bearer nobody\r\nX: y\r\n\r\n"
    assert answers_to(url, post(*head, body=pieces + trailers)).startswith(b"HTTP/1.1 201 ")


def test_a_fault_behind_whole_requests_is_told_after_their_answers(url: str) -> None:
    told = answers_to(url, WHOLE + WHOLE + b"nonsense\r\n\r\n")
    assert [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]
    # Of a request that breaks in its body nobody hears but by the refusal.
    told = answers_to(url, WHOLE + AMBIGUOUS["an invalid chunk size"])
    assert [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_requests_that_come_at_once_are_answered_in_order_up_to_a_bound(url: str) -> None:
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    told = answers_to(url, WHOLE + SMUGGLED + WHOLE + last)
    parts = told.split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in parts] == [b"200", b"200", b"200", b"404"]
    assert [b"openapi" in part for part in parts] == [False, True, False, False]
    told = answers_to(url, WHOLE * 1000)
    assert 1 <= told.count(b"HTTP/1.1 200") < 100
    assert told.count(b"HTTP/1.1 400") == 1


def test_an_upgrade_is_ignored_with_nothing_lost_behind_it(url: str) -> None:
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    told = answers_to(url, WHOLE[:-2] + upgrade + last)
    assert told.count(b"HTTP/1.1 200") == 2
    body = post(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 40", body=SMUGGLED[:40])
    told = answers_to(url, body + last)
    assert [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]] == [b"401"], "its body is no request"


def test_valid_requests_of_other_clients_are_taken(url: str) -> None:
    for sent in (
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET HTTP://X/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"\r\n\r\nGET /healthz HTTP/1.1\r\nhOST: x\r\nConnection: close\r\n\r\n",
        b"GET /%68ealthz HTTP/1.1\r\nHost:x\r\nA:\r\nA: \t b \t\r\nConnection: close\r\n\r\n",
        WHOLE[:-2] + b"Transfer-Encoding: CHUNKED\r\nConnection: close\r\n\r\n0\r\n\r\n",
    ):
        assert answers_to(url, sent).startswith(b"HTTP/1.1 200 "), sent
