import asyncio
import socket
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.server import ServerState

from app.api.admission import ConcurrencyLimits
from app.api.gate import Gate
from app.api.request_scope import ABORT
from app.api.routes import ROUTERS
from app.wire.protocol import Connections, StrictProtocol

pytestmark = pytest.mark.anyio

LARGE = 300_000
SEARCH, WRITE = "/v1/collections/a/search/x-to-z", "/v1/collections/a/items"


class Reader:
    """What a client got, which takes a piece only when it may."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.pieces = 0
        self.is_complete = False
        self.reads = anyio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        # As a server does: the first piece goes into its buffer, the next one waits.
        if self.pieces:
            await self.reads.wait()
        self.pieces += 1
        self.body += message["body"]
        self.is_complete = not message.get("more_body", False)


class Service:
    """An application behind `Gate` whose every answer is large."""

    def __init__(self, max_bytes: int, pause_seconds: float = 60.0, size: int = LARGE) -> None:
        self.body = bytes(range(256)) * (size // 256)
        self.answers = Gate(
            self._application,
            ConcurrencyLimits(ROUTERS, 9, 9, 1),
            max_bytes,
            max_bytes,
            pause_seconds,
        )
        self.refused: list[str] = []
        self.answers.concurrency.watch(lambda _: None, lambda limiter: self.refused.append(limiter.name))

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    async def ask(self, reader: Reader, path: str = SEARCH) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [],
            "query_string": b"",
            "server": ("test", 80),
        }

        async def receive() -> Any:
            raise AssertionError("nothing is asked for")

        await self.answers(scope, receive, reader.send)


async def test_a_large_answer_goes_out_piece_by_piece_and_whole() -> None:
    service, reader = Service(10**6), Reader()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.ask, reader)
        await anyio.wait_all_tasks_blocked()
        assert 0 < len(reader.body) <= 1 << 16
        assert service.answers.held == len(service.body)
        reader.reads.set()
    assert reader.body == service.body
    assert reader.is_complete
    assert service.answers.held == 0


async def test_answers_that_nobody_reads_are_bounded_in_total() -> None:
    service = Service(2 * LARGE)
    readers = [Reader() for _ in range(12)]
    async with anyio.create_task_group() as tasks:
        for reader in readers:
            tasks.start_soon(service.ask, reader)
        await anyio.wait_all_tasks_blocked()
        assert [reader.status for reader in readers] == [200] * 2 + [503] * 10
        assert service.answers.held <= 2 * LARGE
        assert service.refused == ["read"] * 10
        assert b"too many large answers" in readers[-1].body
        # What a write did is told however full it is, and small answers need no room.
        written = Reader()
        tasks.start_soon(service.ask, written, WRITE)
        await anyio.wait_all_tasks_blocked()
        assert written.status == 200
        for reader in (*readers, written):
            reader.reads.set()
    assert all(reader.is_complete for reader in readers)
    again = Reader()
    again.reads.set()
    await service.ask(again)
    assert again.status == 200


async def test_the_only_answer_may_be_larger_than_all_together() -> None:
    reader = Reader()
    reader.reads.set()
    await Service(10).ask(reader)
    assert reader.is_complete


async def test_who_stops_reading_loses_the_connection() -> None:
    service, reader = Service(LARGE, pause_seconds=0.1), Reader()
    await service.ask(reader)  # returns, with an incomplete answer
    assert not reader.is_complete
    assert service.answers.held == 0


async def test_who_reads_too_slowly_loses_the_connection_too() -> None:
    class Slow(Reader):
        async def send(self, message: dict[str, Any]) -> None:
            await anyio.sleep(0.3 if message["type"] == "http.response.body" else 0)
            self.reads.set()
            await super().send(message)

    # A piece earns four seconds: only bodies in smaller ones can be too slow, such as those of streams.
    service, reader = Service(10**6, pause_seconds=0.5, size=256), Slow()

    async def trickle(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    service.answers._app = trickle
    await service.ask(reader)
    assert reader.pieces <= 2
    assert not reader.is_complete


async def test_a_reader_that_stalls_before_an_answer_begins_loses_its_connection() -> None:
    service = Service(10**6, pause_seconds=0.01)
    aborted: list[bool] = []

    async def send(_: Any) -> None:
        await anyio.sleep_forever()

    scope = {
        "type": "http",
        "method": "POST",
        "path": SEARCH,
        "headers": [],
        "extensions": {ABORT: {"abort": lambda: aborted.append(True)}},
    }
    await service.answers(scope, anyio.sleep_forever, send)
    assert aborted == [True]
    assert service.answers.held == 0


async def test_a_page_of_another_site_can_read_that_its_answer_is_refused() -> None:
    service, reader = Service(LARGE), Reader()
    site = "https://a.example"
    service.answers = Gate(
        service._application,
        service.answers.concurrency,
        LARGE,
        LARGE,
        60.0,
        origins=[site],
    )
    starts: list[dict[bytes, bytes]] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            starts.append({b":status": str(message["status"]).encode(), **dict(message["headers"])})

    scope = {
        "type": "http",
        "method": "POST",
        "path": SEARCH,
        "headers": [(b"origin", site.encode())],
        "query_string": b"",
        "server": ("test", 80),
    }
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.answers, dict(scope), anyio.sleep_forever, reader.send)
        await anyio.wait_all_tasks_blocked()
        await service.answers(dict(scope), anyio.sleep_forever, send)  # type: ignore[arg-type]
        reader.reads.set()
    assert [start[b":status"] for start in starts] == [b"503"]
    assert starts[0][b"access-control-allow-origin"] == site.encode()
    assert starts[0][b"x-frame-options"] == b"DENY"


async def test_who_does_not_read_the_end_of_an_answer_is_cut_off() -> None:
    loop, connections = asyncio.get_running_loop(), Connections(4, 60.0)
    config = uvicorn.Config(Service(1 << 20).answers, log_config=None)
    own, client = socket.socketpair()
    own.setblocking(False)
    with client:
        _, protocol = await loop.connect_accepted_socket(
            lambda: StrictProtocol(connections, config, ServerState(), {}), own
        )
        protocol.transport.write(bytes(1 << 22))
        protocol.transport.close()
        now = loop.time()
        for seconds in (0.0, 10.0, 19.0):
            connections.sweep(now + seconds)
            await anyio.sleep(0.01)
            assert len(connections) == 1
        connections.sweep(now + 21.0)
        await anyio.sleep(0.01)
        assert not connections
