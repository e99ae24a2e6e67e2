"""What a large body costs a real server."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.app.e2e.conftest import Server
from tests.app.waiting import wait_for
from tests.fuzz.campaign import megabytes

SIZE = 60_000_000
ITEMS, SEARCH = "/v1/collections/x/items", "/v1/collections/x/search/a-to-b"


def answer_to_headers(url: str, method: str, path: str, size: int, **headers: str) -> str:
    """Return the answer to a request whose body is announced and never sent."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {size}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        said = ""
        while not said.endswith("}"):
            said += connection.recv(65536).decode()
        return said


@pytest.fixture
def admin_key(create_admin_key: Callable[[], str]) -> str:
    return create_admin_key()


def test_no_body_is_read_for_who_has_no_key(lasting_server: tuple[Server, str]) -> None:
    url = lasting_server[0].url
    form = "multipart/form-data; boundary=x"
    for method, path, content_type in (
        ("POST", ITEMS, "application/json"),
        ("PUT", f"{ITEMS}/a", "application/json"),
        ("POST", ITEMS, form),
        ("POST", SEARCH, "application/json"),
        ("POST", SEARCH, form),
        ("POST", f"{SEARCH}/batch", "application/json"),
        ("POST", "/v1/collections", "application/json"),
        ("POST", "/v1/admin/collections/x/retrain", "application/json"),
        ("POST", "/v1/admin/keys", "application/json"),
    ):
        said = answer_to_headers(url, method, path, 1000, **{"Content-Type": content_type})
        assert said.startswith("HTTP/1.1 401 "), (path, said)
        assert "/problems/unauthenticated" in said


def test_a_search_may_bring_less_than_a_write(lasting_server: tuple[Server, str]) -> None:
    url = lasting_server[0].url
    headers = {"Authorization": f"Bearer {lasting_server[1]}", "Content-Type": "application/json"}
    for path, limit in ((SEARCH, 16 << 20), (f"{SEARCH}/batch", 16 << 20), ("/v1/admin/keys", 1 << 20)):
        said = answer_to_headers(url, "POST", path, limit + 1, **headers)
        assert said.startswith("HTTP/1.1 413 "), said
        assert '"field":"body"' in said


def wrong_numbers(vectors: int) -> bytes:
    """Return a body of items that is wrong from the first number to the last."""
    start, entry, end = b'{"modality":"a","vector":[', b'"a",', b'"a"]}'
    one = start + entry * ((SIZE // vectors - len(start) - len(end)) // len(entry)) + end
    return b'{"items":[' + b",".join([one] * vectors) + b"]}"


@pytest.mark.parametrize(
    ("vectors", "status", "field"),
    [(0, 401, None), (1, 413, "items.0"), (500, 422, "items.0.vector.0")],
    ids=["without a key", "one item", "many items"],
)
def test_others_are_served_while_a_large_body_comes_in(
    admin_key: str, start_server: Callable[..., Any], vectors: int, status: int, field: str | None
) -> None:
    server = start_server("--no-worker")
    headers = {"Content-Type": "application/json"}
    if vectors:
        headers["Authorization"] = f"Bearer {admin_key}"
        modalities = {name: {"encoder": {"type": "vector"}} for name in ("a", "b")}
        body: Any = {"name": "x", "modalities": modalities}
        httpx.post(f"{server.url}/v1/collections", json=body, headers=headers).raise_for_status()
    content = wrong_numbers(max(vectors, 1))
    before = megabytes(server.process.pid, "VmHWM")
    waits: list[float] = []
    done = threading.Event()

    def watch() -> None:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60.0) as other:
            while not done.is_set():
                began = time.monotonic()
                assert other.get("/healthz").status_code == 200
                waits.append(time.monotonic() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        wait_for(lambda: waits)  # a refusal may come sooner than the first answer of a busy machine
        answer = httpx.post(
            f"{server.url}{ITEMS}", content=content, headers=headers, trust_env=False, timeout=120.0
        )
    finally:
        done.set()
        watcher.join()
    grown = megabytes(server.process.pid, "VmHWM") - before
    print(f"{vectors} items: {max(waits):.2f} s at worst, {grown:.0f} MB")  # noqa: T201
    assert answer.status_code == status
    assert answer.json().get("field") == field
    # The body itself, and once more while it is cut; without a key nothing of it is read.
    assert grown < (3 * SIZE / 1e6 if vectors else 50)
    assert max(waits) < 3


def test_a_body_of_valid_vectors_is_stored_in_bounded_memory(
    admin_key: str, start_server: Callable[..., Any]
) -> None:
    server = start_server("--no-worker")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {admin_key}"}
    modalities = {name: {"encoder": {"type": "vector"}} for name in ("a", "b")}
    body: Any = {"name": "x", "modalities": modalities}
    httpx.post(f"{server.url}/v1/collections", json=body, headers=headers).raise_for_status()
    # The shortest numbers there are: the most of them in a body.
    item = b'{"modality":"a","vector":[' + b"0," * (SIZE // 4000 - 20) + b"0]}"
    content = b'{"items":[' + b",".join([item] * 1000) + b"]}"
    before = megabytes(server.process.pid, "VmHWM")
    answer = httpx.post(
        f"{server.url}{ITEMS}", content=content, headers=headers, trust_env=False, timeout=120.0
    )
    grown = megabytes(server.process.pid, "VmHWM") - before
    assert answer.status_code == 201, answer.text
    assert grown < 12 * len(content) / 1e6, f"{grown:.0f} MB"
