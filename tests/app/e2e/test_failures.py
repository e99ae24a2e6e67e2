"""What goes on after an error, what a stopping server says, and whose word on origins counts."""

import contextlib
import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from app.bootstrap import build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.preparation import NewItem
from app.settings import Settings
from tests.app.e2e.conftest import Server
from tests.app.e2e.test_wire import connected, read_to_the_end
from tests.app.waiting import wait_for

SECONDS = 60.0
ITEMS = "/v1/collections/a/items"


@pytest.fixture
def key(tmp_path: Path, copy_migrated: Callable[[Path], None]) -> str:
    """A key of a service with a collection of two items."""
    copy_migrated(tmp_path / "data")
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.catalogue.create("a", [Modality(side, {"type": "vector"}) for side in "xz"])
    items = [NewItem("x", Content(vector=[1.0]), name) for name in ("whole", "unreadable")]
    services.catalogue.add_items("a", items)
    _, secret = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "lrbs.sqlite3")) as database, database:
        database.execute("UPDATE items SET metadata = '{' WHERE item_id = 'unreadable'")
    return secret


def test_what_comes_behind_an_error_is_answered(start_server: Callable[..., Server], key: str) -> None:
    server = start_server("--no-worker")
    said = f"Host: x\r\nAuthorization: Bearer {key}\r\n"
    broken = f"GET {ITEMS}/unreadable HTTP/1.1\r\n{said}\r\n"
    whole = f"GET {ITEMS}/whole HTTP/1.1\r\n{said}"
    with connected(server.url) as connection:
        connection.sendall(f"{broken}{whole}\r\n{broken}{whole}Connection: close\r\n\r\n".encode())
        told = read_to_the_end(connection)
    parts = told.split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in parts] == [b"500", b"200", b"500", b"200"], server.said()[-2000:]
    assert b"application/problem+json" in parts[0]
    assert b'"correlation_id"' in parts[0]
    assert b"JSONDecodeError" not in told
    assert "JSONDecodeError" in server.said()


def test_an_import_that_the_end_of_the_server_cuts_off_is_told_so(
    start_server: Callable[..., Server], key: str
) -> None:
    server = start_server("--no-worker", LRBS_SHUTDOWN_SECONDS="1", LRBS_BODY_PAUSE_SECONDS="60")
    line = json.dumps({"id": "one", "modality": "x", "vector": [1.0]}).encode() + b"\n"
    head = f"POST /v1/collections/a/items:import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    running = 'lrbs_queue_running{lane="import"} 1.0'
    with connected(server.url) as connection:
        connection.sendall(
            f"{head}Transfer-Encoding: chunked\r\n\r\n{len(line):x}\r\n".encode() + line + b"\r\n"
        )
        url = f"{server.url}/metrics"
        wait_for(lambda: running in httpx.get(url, trust_env=False, verify=False, timeout=SECONDS).text)
        server.process.send_signal(signal.SIGTERM)
        told = read_to_the_end(connection)
    head_of_answer, _, body = told.partition(b"\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 503 "), told
    assert b"connection: close" in head_of_answer.lower()
    assert b"retry-after: " in head_of_answer.lower()
    assert json.loads(body)["type"] == "/problems/stopping"
    assert server.process.wait(SECONDS) == 0
    assert "Traceback" not in server.said()


def statuses(server: Server, *forwarded: str) -> list[int]:
    answers = [
        httpx.get(
            f"{server.url}/v1/collections/a",
            headers={"X-Forwarded-For": one},
            trust_env=False,
            verify=False,
            timeout=SECONDS,
        )
        for one in forwarded
    ]
    return [answer.status_code for answer in answers]


def test_rate_limits_count_by_what_trusted_proxies_say_and_by_nobody_elses_word(
    start_server: Callable[..., Server], key: str
) -> None:
    limited = {"LRBS_OPEN_SEARCH": "true", "LRBS_RATE_LIMIT": "2"}
    addresses = [f"198.51.100.{number}" for number in range(4)]
    assert statuses(start_server("--no-worker", **limited), *addresses) == [200, 200, 429, 429]
    server = start_server("--no-worker", **limited, LRBS_TRUSTED_PROXIES="192.0.2.0/24, 127.0.0.1")
    assert statuses(server, *addresses) == [200] * 4
    told = [f"{one}, 203.0.113.9, 192.0.2.5" for one in addresses]
    assert statuses(server, *told) == [200, 200, 429, 429], "what stands before it is the client's own word"


@pytest.mark.parametrize("wrong", ["nowhere", "10.0.0.0/40", "*", "10.0.0.1;10.0.0.2"])
def test_what_is_no_address_is_no_trusted_proxy(wrong: str) -> None:
    with pytest.raises(ValidationError, match="trusted_proxies"):
        Settings(trusted_proxies=wrong)
    assert Settings(trusted_proxies=" 10.0.0.7/8,::1 ").proxies == ["10.0.0.0/8", "::1/128"]
