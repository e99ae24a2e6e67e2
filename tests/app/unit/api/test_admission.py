import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread
from fastapi import Request
from fastapi.routing import APIRoute

from app.api.admission import ConcurrencyLimits, aside, place_of
from app.api.bodies import reads_body
from app.api.gate import Gate
from app.api.routes import ROUTERS
from app.domain.errors import UnavailableError

pytestmark = pytest.mark.anyio

Send = Callable[[dict[str, Any]], Awaitable[None]]


def gate(application: Any, concurrency: ConcurrencyLimits) -> Gate:
    return Gate(application, concurrency, 1 << 20, 1 << 22, 60.0)


class Service:
    """An application behind `Gate` that lets a caller in, and answers when it is told to."""

    def __init__(self, running: int, waiting: int, streams: int = 1) -> None:
        self.working = self.most_working = 0
        self.statuses: list[int] = []
        self.status = 200
        self.reads_bodies = True
        self.may_answer = anyio.Event()
        self.may_send = anyio.Event()
        self.concurrency = ConcurrencyLimits(ROUTERS, running, waiting, streams)
        self._middleware = gate(self._application, self.concurrency)

    async def _application(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        try:
            await place_of(scope).admit(scope["caller"], reads_body=self.reads_bodies)
        except UnavailableError:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            return
        if scope["method"] == "POST":
            while (await receive())["more_body"]:
                pass
        self.working += 1
        self.most_working = max(self.most_working, self.working)
        await self.may_answer.wait()
        self.working -= 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def ask(self, path: str = "/v1/collections", method: str = "GET", key: str = "") -> None:
        async def receive() -> dict[str, Any]:
            await self.may_send.wait()
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])

        headers = [(b"content-length", b"2")] if method == "POST" else []
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers,
            "query_string": b"",
            "caller": key,
            "server": ("test", 80),
        }
        await self._middleware(scope, receive, send)


async def test_so_many_run_so_many_wait_and_the_rest_is_refused_at_once() -> None:
    service = Service(running=2, waiting=3)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(service.ask)
        await anyio.wait_all_tasks_blocked()
        assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (2, 3)
        for _ in range(4):
            await service.ask()  # answered although nobody has finished
        assert service.statuses == [503] * 4
        service.may_answer.set()
    assert sorted(service.statuses) == [200] * 5 + [503] * 4
    assert service.most_working == 2
    assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (0, 0)


async def test_a_slow_sender_holds_no_place() -> None:
    service = Service(running=1, waiting=0)
    service.may_answer.set()
    search = "/v1/collections/a/search/x-to-z"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.ask, search, "POST")
        await anyio.wait_all_tasks_blocked()
        assert service.concurrency.reads.running == 0
        await service.ask()
        assert service.statuses == [200]
        service.may_send.set()
    assert service.statuses == [200, 200]


async def test_a_body_that_no_route_reads_defers_no_place() -> None:
    service = Service(running=1, waiting=0)
    service.reads_bodies = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.ask, "/v1/collections/a/models/1/activate", "POST")
        await anyio.wait_all_tasks_blocked()
        assert service.concurrency.writes.running == 1
        await service.ask("/v1/collections/a/models/1/activate", "POST")
        assert service.statuses == [503]
        service.may_send.set()
        service.may_answer.set()


def test_the_routes_that_read_bodies_are_known() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    for route in routes:
        sends_one = not (route.methods or set()).isdisjoint({"POST", "PUT"}) and route.name != "cancel_job"
        if route.name == "import_items":
            continue  # it reads its body itself, as a stream
        assert reads_body(Request({"type": "http", "route": route})) == sends_one, route.path
    assert len(routes) > 20


async def test_writes_and_searches_do_not_keep_each_other_out() -> None:
    service = Service(running=1, waiting=0)
    service.may_send.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.ask, "/v1/collections/a/items", "POST")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(service.ask, "/v1/collections/a/search/x-to-z", "POST")
        await anyio.wait_all_tasks_blocked()
        assert service.working == 2
        await service.ask("/v1/collections/a", "DELETE")
        assert service.statuses == [503]
        service.may_answer.set()


IMPORTS = "/v1/collections/a/items:import", "/v1/collections/b/items:import"
EVENTS = ("/v1/admin/jobs/j/events",) * 2


@pytest.mark.parametrize(
    ("kind", "paths", "first", "other"),
    [
        ("imports", IMPORTS, ["one", "one", "one"], "other"),  # no key gets all places
        ("imports", IMPORTS, ["one", "two", "three"], "three"),  # nor does a collection
        ("events", EVENTS, ["one", "one", "one"], "other"),
    ],
)
async def test_neither_a_key_nor_a_collection_gets_all_places_of_a_kind(
    kind: str, paths: tuple[str, str], first: list[str], other: str
) -> None:
    service = Service(running=3, waiting=9) if kind == "imports" else Service(1, 1, streams=4)
    for name in "ab":
        service.concurrency.learn(name, 200)
    limiter, method = getattr(service.concurrency, kind), "POST" if kind == "imports" else "GET"
    async with anyio.create_task_group() as tasks:
        for key in first[:2]:
            tasks.start_soon(service.ask, paths[0], method, key)
        await anyio.wait_all_tasks_blocked()
        await service.ask(paths[0], method, first[2])
        assert service.statuses == [503]
        tasks.start_soon(service.ask, paths[1], method, other)
        await anyio.wait_all_tasks_blocked()
        assert limiter.running == 3
        service.may_send.set()
        service.may_answer.set()
    assert service.statuses == [503, 200, 200, 200]
    assert limiter._callers == {}, "none is remembered"


async def test_no_collection_gets_all_places() -> None:
    service = Service(running=3, waiting=9)
    for name in ("big", "small"):
        service.concurrency.learn(name, 200)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(service.ask, "/v1/collections/big/items")
        await anyio.wait_all_tasks_blocked()
        assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (2, 3)
        tasks.start_soon(service.ask, "/v1/collections/small/items")
        await anyio.wait_all_tasks_blocked()
        assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (3, 3)
        service.may_answer.set()
    assert service.statuses == [200] * 6
    reads = service.concurrency.reads
    assert (reads.running, reads.waiting, reads._last_turns, reads._present) == (0, 0, {}, {})


async def test_invented_names_take_turns_as_one() -> None:
    service = Service(running=2, waiting=4)
    service.may_answer.set()
    await service.ask("/v1/collections/real/items")
    service.may_answer = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(service.ask, f"/v1/collections/invented-{number}/items")
        await anyio.wait_all_tasks_blocked()
        assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (1, 4)
        tasks.start_soon(service.ask, "/v1/collections/real/items")
        await anyio.wait_all_tasks_blocked()
        assert service.concurrency.reads.running == 2
        tasks.start_soon(service.ask, "/v1/collections/real/items")
        await anyio.wait_all_tasks_blocked()
        assert service.statuses == [200, 503], "the last of the invented ones makes room"
        service.may_answer.set()


@pytest.mark.parametrize("status", [403, 404, 429])
async def test_a_name_is_invented_until_a_request_that_has_it_succeeds(status: int) -> None:
    service = Service(running=2, waiting=4)
    service.may_answer.set()
    party_of = service.concurrency.party_of
    service.status = status
    await service.ask("/v1/collections/new/items")
    assert party_of("new") == party_of("another")
    service.status = 200
    await service.ask("/v1/collections/new/items")
    assert party_of("new") == "new"


async def test_one_place_for_imports_is_for_anybody() -> None:
    service = Service(running=1, waiting=0)
    service.may_send.set()
    service.may_answer.set()
    for _ in range(3):
        await service.ask("/v1/collections/a/items:import", "POST", "one")
    assert service.statuses == [200] * 3


async def test_who_is_cancelled_while_waiting_leaves_the_line() -> None:
    service = Service(running=1, waiting=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.ask)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01):
            await service.ask()
        assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (1, 0)
        tasks.cancel_scope.cancel()
    assert (service.concurrency.reads.running, service.concurrency.reads.waiting) == (0, 0)


async def test_who_is_not_let_in_holds_no_place() -> None:
    concurrency = ConcurrencyLimits(ROUTERS, 1, 0, 1)
    held: list[int] = []

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        held.append(concurrency.imports.running)
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def send(message: Any) -> None:
        held.append(concurrency.imports.running)

    async def fail_late(scope: Any, receive: Any, send: Any) -> None:
        await place_of(scope).admit("one")
        held.append(concurrency.imports.running)
        await send({"type": "http.response.start", "status": 404, "headers": []})

    for application in (refuse, fail_late):
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/collections/a/items:import",
            "headers": [(b"transfer-encoding", b"chunked")],
        }
        await gate(application, concurrency)(scope, anyio.sleep_forever, send)
    assert held == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("method", "path", "limiter"),
    [
        ("GET", "/healthz", None),
        ("GET", "/metrics", None),
        ("GET", "/", None),
        ("GET", "/v1/collections/a/items", "read"),
        ("POST", "/v1/collections/a/search/x-to-z", "read"),
        ("POST", "/v1/collections/a/search/x-to-z/batch", "read"),
        ("POST", "/v1/collections/a/items", "write"),
        ("DELETE", "/v1/collections/a", "write"),
        ("POST", "/v1/collections/a/items:import", "import"),
        ("GET", "/v1/admin/jobs/1/events", "events"),
        # Names and ids are the client's choice.
        ("POST", "/v1/collections/a/search/x-to-z:import", "read"),
        ("POST", "/v1/collections/a:import", "write"),
        ("PUT", "/v1/collections/a/items/x:import", "write"),
        ("GET", "/v1/collections/a/items/x:import", "read"),
        ("GET", "/v1/collections/a/items:import", "read"),
        ("POST", "/v1/collections/search/items", "write"),
        ("DELETE", "/v1/collections/search/items/x", "write"),
        ("POST", "/v1/collections/search/items:import", "import"),
        ("GET", "/v1/collections/a/items/events", "read"),
        ("DELETE", "/v1/collections/a/items/events", "write"),
    ],
)
def test_each_request_has_its_limiter(method: str, path: str, limiter: str | None) -> None:
    found = ConcurrencyLimits(ROUTERS, 1, 1, 1).of({"method": method, "path": path})
    assert (found and found.name) == limiter


async def test_who_waits_aside_gives_its_place_to_others_and_takes_one_again() -> None:
    service = Service(running=1, waiting=1)
    reads = service.concurrency.reads
    may_go_on = threading.Event()
    seen: list[tuple[int, int]] = []

    def work() -> None:
        seen.append((reads.running, reads.waiting))
        with aside():
            assert may_go_on.wait(60.0)
        seen.append((reads.running, reads.waiting))

    async def application(scope: Any, _: Any, send: Send) -> None:
        await place_of(scope).admit("")
        await to_thread.run_sync(work)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(_: Any) -> None:
        """Nobody reads it."""

    scope = {"type": "http", "method": "GET", "path": "/v1/collections", "headers": []}
    service.may_answer.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate(application, service.concurrency), scope, service.ask, send)
        with anyio.fail_after(60):
            while not seen or reads.running:
                await anyio.sleep(0.01)
        await service.ask()
        assert service.statuses == [200], "its place is another one's meanwhile"
        may_go_on.set()
    assert seen == [(1, 0), (1, 0)]
    assert (reads.running, reads.waiting) == (0, 0)
