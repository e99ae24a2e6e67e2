"""Many connections, those that never ask for anything, and those that stop in the middle of it."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.app.e2e.conftest import LRBS, Server, servers
from tests.app.e2e.test_wire import WHOLE, check_refusal, connected, new_key, post, read_to_the_end
from tests.app.waiting import wait_for

SECONDS = 60.0
FEW_FILES = ("/bin/sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *LRBS)
LOW_SOFT_LIMIT = ("/bin/sh", "-c", 'ulimit -S -n 64 && exec "$@"', "sh", *LRBS)
HEALTH = "/healthz"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    with servers() as begin:
        yield lambda command=LRBS, **settings: begin(
            tmp_path / "data", ("serve", "--no-worker"), command, **settings
        )


def ask(connection: socket.socket, sent: bytes = WHOLE) -> bytes:
    """Return an answer in JSON, over a connection that stays open."""
    connection.sendall(sent)
    told = b""
    while not told.endswith(b"}"):
        piece = connection.recv(1 << 16)
        assert piece, told
        told += piece
    return told


def test_connections_that_ask_for_nothing_keep_nobody_out(start: Callable[..., Server]) -> None:
    server = start(FEW_FILES)
    with contextlib.ExitStack() as held:
        honest = held.enter_context(connected(server.url))
        assert b" 200 " in ask(honest)
        for number in range(300):
            silent = held.enter_context(connected(server.url))
            if number % 3 == 0:
                silent.sendall(b"GET /healthz HTT")
            if number % 20 == 0:
                assert b" 200 " in ask(honest), "an idle one would be closed on a slow machine"
        for _ in range(20):
            assert (
                httpx.get(f"{server.url}{HEALTH}", trust_env=False, verify=False, timeout=SECONDS).status_code
                == 200
            )
        assert b" 200 " in ask(honest), "it was used, and others never were"
    assert len(server.said()) < 10_000, server.said()
    assert "Traceback" not in server.said()


def test_the_limit_of_open_files_is_raised(start: Callable[..., Server]) -> None:
    server = start(LOW_SOFT_LIMIT)
    with contextlib.ExitStack() as held:
        kept = [held.enter_context(connected(server.url)) for _ in range(200)]
        for _ in range(2):
            assert {ask(connection)[:12] for connection in kept} == {b"HTTP/1.1 200"}


def busy(url: str, key: str, address: str) -> socket.socket:
    """Return a connection whose request is being worked on: the rest of its body is waited for."""
    connection = connected(url, address)
    connection.sendall(post(f"Authorization: Bearer {key}".encode(), b"Content-Length: 9", body=b"{"))
    return connection


def test_when_all_are_at_work_one_more_is_told_so_and_another_address_is_served(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    key = new_key(tmp_path / "data")
    server = start(LRBS, LRBS_MAX_CONNECTIONS="12", LRBS_BODY_PAUSE_SECONDS="60")
    with contextlib.ExitStack() as held:
        for _ in range(9):  # three quarters
            held.enter_context(busy(server.url, key, "127.0.0.1"))
        refused = check_refusal(read_to_the_end(held.enter_context(connected(server.url))), 503)
        assert refused["type"] == "/problems/overloaded"
        with connected(server.url, "127.0.0.2") as other:
            assert b" 200 " in ask(other)
        for number in range(3):
            held.enter_context(busy(server.url, key, f"127.0.0.{3 + number}"))
        told = read_to_the_end(held.enter_context(connected(server.url, "127.0.0.6")))
        check_refusal(told, 503)
        assert b"retry-after: " in told.lower()
    wait_for(lambda: asked(server.url))


def asked(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}{HEALTH}", trust_env=False, verify=False, timeout=SECONDS).status_code == 200
    return False


def test_who_asks_for_nothing_or_stops_in_the_middle_is_closed(start: Callable[..., Server]) -> None:
    server = start(LRBS, LRBS_BODY_PAUSE_SECONDS="1")
    with contextlib.ExitStack() as held:
        silent, blank, stopped, later, slow = (held.enter_context(connected(server.url)) for _ in range(5))
        blank.sendall(b"\r\n\r\n")
        stopped.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        assert b" 200 " in ask(later)
        assert b" 200 " in ask(slow)
        later.sendall(b"GET /healthz HT")
        assert read_to_the_end(silent) == b""
        assert read_to_the_end(blank) == b""
        check_refusal(read_to_the_end(stopped), 408)
        check_refusal(read_to_the_end(later), 408)
        told = b""
        with contextlib.suppress(ConnectionError):
            for byte in WHOLE.replace(b"Host", b"A: " + b"b" * 1000 + b"\r\nHost"):
                slow.sendall(bytes([byte]))
                time.sleep(0.01)
            told = slow.recv(1 << 16)
        assert b" 200 " not in told, "a byte at a time earns nothing"


def test_an_answer_that_is_not_read_does_not_hold_its_connection(start: Callable[..., Server]) -> None:
    server = start(LRBS, LRBS_BODY_PAUSE_SECONDS="1")

    def open_connections() -> int:
        return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))

    before = open_connections()
    with contextlib.ExitStack() as held:
        for _ in range(5):
            connection = held.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            address = urlsplit(server.url)
            connection.connect((address.hostname, address.port))
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 30)
        wait_for(lambda: open_connections() >= before + 3)
        wait_for(lambda: open_connections() <= before + 1)


def test_many_invalid_requests_write_little_to_the_log(start: Callable[..., Server]) -> None:
    server = start()
    for _ in range(200):
        with connected(server.url) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            check_refusal(read_to_the_end(connection), 400)
    assert len(server.said()) < 5000, server.said()
