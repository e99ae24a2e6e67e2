"""Imports over a real connection: in chunks, cut off, refused in the middle."""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.bootstrap import build
from app.domain.entities import Modality
from app.domain.names import Scope
from app.settings import Settings
from tests.fuzz.campaign import megabytes

IMPORT, COLLECTION = "/v1/collections/x/items:import", "/v1/collections/x"


def line(number: int, filling: int = 10) -> bytes:
    facts = {"id": f"i{number}", "modality": "a", "vector": [1.0, number], "metadata": {"n": "x" * filling}}
    return json.dumps(facts).encode() + b"\n"


@pytest.fixture
def serving(
    tmp_path: Path, start_server: Callable[..., Any], copy_migrated: Callable[[Path], None]
) -> tuple[Any, dict[str, str]]:
    copy_migrated(tmp_path / "data")
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.catalogue.create("x", [Modality(name, {"type": "vector"}) for name in "ab"])
    _, secret = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    return start_server("--no-worker"), {"Authorization": f"Bearer {secret}"}


def facts(server: Any, headers: dict[str, str]) -> tuple[int, int]:
    found = httpx.get(f"{server.url}{COLLECTION}", headers=headers, trust_env=False).raise_for_status().json()
    return found["revision"], found["items"]["a"]


@contextlib.contextmanager
def connected(server: Any) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(server.url)
    with contextlib.closing(
        http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    ) as made:
        yield made


def test_a_long_stream_takes_little_memory(serving: tuple[Any, dict[str, str]]) -> None:
    server, headers = serving
    count, filling = 8_000, 12_500

    def stream() -> Iterator[bytes]:
        for start in range(0, count, 20):
            yield b"".join(line(number, filling) for number in range(start, start + 20))

    with connected(server) as connection:
        connection.request("POST", IMPORT, line(0), headers)
        connection.getresponse().read()
        before = megabytes(server.process.pid, "VmHWM")
        connection.request("POST", IMPORT, stream(), headers, encode_chunked=True)
        answer = connection.getresponse()
        told = json.loads(answer.read())
    assert answer.status == 201, told
    assert told["created"] + told["updated"] == count
    grown = megabytes(server.process.pid, "VmHWM") - before
    print(f"{count * filling / 1e6:.0f} MB came in, memory grew by {grown:.0f} MB")  # noqa: T201
    assert grown < 60
    assert facts(server, headers) == (2, count)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_stream_that_ends_early_stores_nothing(
    serving: tuple[Any, dict[str, str]], is_chunked: bool
) -> None:
    server, headers = serving
    address = urlsplit(server.url)
    content = b"".join(line(number) for number in range(5000))
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(content)}"
        lines = [f"POST {IMPORT} HTTP/1.1", "Host: x", length, f"Authorization: {headers['Authorization']}"]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        part = content[: len(content) // 2]
        connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n" if is_chunked else part)
    assert facts(server, headers) == (0, 0)
    sent = httpx.post(f"{server.url}{IMPORT}", content=content, headers=headers, trust_env=False, timeout=60)
    assert sent.json()["created"] == 5000
    assert "Traceback" not in server.said()


def test_a_fault_at_the_beginning_is_told_to_who_sends_all_the_rest(
    serving: tuple[Any, dict[str, str]],
) -> None:
    server, headers = serving
    content = line(0) + b'{"id": "bad"}\n' + b"".join(line(number, 10_000) for number in range(1, 3000))
    for body in (content, iter([content[:100], content[100:]])):
        with connected(server) as connection:
            connection.request("POST", IMPORT, body, headers, encode_chunked=not isinstance(body, bytes))
            answer = connection.getresponse()
            told = json.loads(answer.read())
        assert (answer.status, told["line"], told["field"]) == (422, 2, "id")
    assert facts(server, headers) == (0, 0)
