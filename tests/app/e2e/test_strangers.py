"""Callers without a valid key, who keep nobody from anything."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.bootstrap import build
from app.domain.entities import KeyBounds, Modality
from app.domain.names import Scope
from app.settings import Settings
from tests.app.e2e.conftest import servers

IMPORT = "/v1/collections/a/items:import"
EVENTS = "/v1/admin/jobs/none/events"
IMPORTS, SECONDS = 15, 60.0
PLACES = 4
"""Imports that a server works on at once, by default."""
LINE = b'{"id": "one", "modality": "x", "vector": [1.0]}\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def keys(folder: Path) -> dict[str, str]:
    services = build(Settings(data_dir=folder, database_url=""))
    services.schema.upgrade()
    for name in "ab":
        services.catalogue.create(name, [Modality(side, {"type": "vector"}) for side in "xz"])
    made = {
        "writer": services.access.create(Scope.WRITE),
        "searcher": services.access.create(Scope.SEARCH),
        "bound": services.access.create(Scope.WRITE, bounds=KeyBounds(("b",))),
    }
    services.database.engine.dispose()
    return {name: secret for name, (_, secret) in made.items()}


@pytest.fixture(scope="module")
def url(folder: Path, keys: dict[str, str]) -> Iterator[str]:
    with servers() as start:
        yield start(folder, ("serve", "--no-worker")).url


def invented() -> str:
    return f"lrbs_{secrets.token_urlsafe(32)}"


async def attack(
    url: str, pause: float, secret: Callable[[], str], writers: list[asyncio.StreamWriter], told: list[bytes]
) -> None:
    """Ask for imports and event streams, announcing bodies that never come, and read what comes back."""
    address = urlsplit(url)

    async def listen(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            told.append(await reader.read(12))
            await reader.read()

    try:
        async with asyncio.TaskGroup() as readers:
            while True:
                for head in (f"POST {IMPORT}", f"GET {EVENTS}"):
                    reader, writer = await asyncio.open_connection(address.hostname, address.port)
                    lines = (f"{head} HTTP/1.1", "Host: x", f"Authorization: Bearer {secret()}")
                    length = "Content-Length: 1000000" if "POST" in head else "X: y"
                    writer.write("\r\n".join([*lines, length, "", ""]).encode())
                    writers.append(writer)
                    readers.create_task(listen(reader))
                await asyncio.sleep(pause)
    finally:
        for writer in writers:
            writer.close()


async def imported_meanwhile(url: str, key: str, pause: float, secret: Callable[[], str]) -> Any:
    """Return the statuses of honest imports, and how the attackers were answered."""
    told: list[bytes] = []
    connected: list[asyncio.StreamWriter] = []
    attacker = asyncio.create_task(attack(url, pause, secret, connected, told))
    while len(connected) < 3 * PLACES:  # half of them ask for imports: more than there are places
        await asyncio.sleep(0.05)
    statuses = []
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=SECONDS) as client:
        for _ in range(IMPORTS):
            await asyncio.sleep(0.1)
            answer = await client.post(IMPORT, content=LINE, headers={"Authorization": f"Bearer {key}"})
            statuses.append(answer.status_code)
    attacker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attacker
    return statuses, told


@pytest.mark.parametrize("imports_a_second", [4, 25])
@pytest.mark.parametrize("who", ["stranger", "searcher", "bound"])
def test_who_may_not_import_keeps_nobody_from_it(
    url: str, keys: dict[str, str], who: str, imports_a_second: int
) -> None:
    secret = invented if who == "stranger" else lambda: keys[who]
    statuses, told = asyncio.run(imported_meanwhile(url, keys["writer"], 1 / imports_a_second, secret))
    assert statuses == [201] * IMPORTS
    expected = {"stranger": {b"401"}, "searcher": {b"403"}, "bound": {b"403", b"404"}}[who]
    assert {line.split()[1] for line in told if line} == expected
    assert len(told) > 4


def test_a_stranger_is_answered_before_any_of_the_body_and_let_go(url: str) -> None:
    async def scenario() -> None:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = (f"POST {IMPORT} HTTP/1.1", "Host: x", f"Authorization: Bearer {invented()}")
        writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        assert b" 401 " in head
        assert b"connection: close" in head.lower()
        await asyncio.wait_for(reader.read(), SECONDS)  # until it is closed
        writer.close()

    asyncio.run(scenario())


def test_a_flood_of_invented_keys_is_answered_while_a_known_one_searches(
    url: str, keys: dict[str, str]
) -> None:
    address, done, told = urlsplit(url), asyncio.Event(), []

    def request(connection: str) -> bytes:
        head = f"GET /v1/collections HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n"
        return f"{head}Authorization: Bearer {invented()}\r\n\r\n".encode()

    async def flood() -> None:
        while not done.is_set():
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(b"".join(map(request, ["keep-alive"] * 4 + ["close"])))
            told.append(await asyncio.wait_for(reader.read(), SECONDS))
            writer.close()

    async def scenario() -> list[int]:
        headers = {"Authorization": f"Bearer {keys['searcher']}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, trust_env=False, timeout=SECONDS
        ) as client:
            await client.get("/v1/collections")
            floods = [asyncio.create_task(flood()) for _ in range(60)]
            while len(told) < 60:
                await asyncio.sleep(0.01)
            honest = [(await client.get("/v1/collections")).status_code for _ in range(10)]
            done.set()
            await asyncio.gather(*floods)
            return honest

    assert asyncio.run(scenario()) == [200] * 10
    statuses = [re.findall(rb"HTTP/1.1 (\d+)", answers) for answers in told]
    assert {len(of_connection) for of_connection in statuses} == {5}
    assert {status for of_connection in statuses for status in of_connection} <= {b"401", b"503"}


def test_a_revoked_key_ends_at_once_although_it_was_seen(
    folder: Path, url: str, keys: dict[str, str]
) -> None:
    services = build(Settings(data_dir=folder, database_url=""))
    key, secret = services.access.create(Scope.SEARCH)
    headers = {"Authorization": f"Bearer {secret}"}

    def status() -> int:
        answer = httpx.get(f"{url}/v1/collections", headers=headers, trust_env=False, timeout=SECONDS)
        return answer.status_code

    assert [status(), status()] == [200, 200]
    services.access.revoke(key.id)
    assert [status(), status()] == [401, 401]
    services.database.engine.dispose()
