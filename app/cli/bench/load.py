"""A load generator: a lean client in a process of its own, raw HTTP/1.1 over connections that stay open."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Self
from urllib.parse import urlsplit

import uvloop
from click import ClickException
from typing_extensions import override

# It costs a tenth of what a general HTTP client does, so that the server is what is measured. Run as a
# program it reads a `LoadPlan` as one line of JSON from standard input and prints a `LoadResult` as JSON. It
# ends when the plan's time is over, or earlier when standard input is closed.

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_EXIT_SECONDS = 10.0
"""How long answers may still take after the end of the plan: ten times the slowest that were seen."""
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load is."""

    url: str
    key: str
    bodies: Sequence[str]  # JSON, sent in turn
    # in a closed loop each sends its next request when the one before is answered; in an open loop this is
    # the most requests that are being answered
    connections: int = 1
    seconds: float = 1.0
    warm_seconds: float = 0.0  # requests begun in this time from the start are not counted
    rate: float | None = None  # requests per second of an open loop; None for a closed one


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it, of successful answers."""

    qps: float  # answers per second
    requests: int
    failures: dict[str, int] = field(default_factory=dict)  # other answers by status, and lost connections
    # latencies in ms, like the next; in an open loop from the moment at which a request was due
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class _Connection(asyncio.Protocol):
    """One connection: sends a request, and reads its answer."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = bytearray()
        self._due = 0.0

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self._transport.write(request)

    @override
    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_HEAD_END)
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        start = head.index(_LENGTH) + len(_LENGTH)
        line_end = head.find(b"\r\n", start)
        length = int(head[start : line_end if line_end > 0 else None])
        if len(self._received) < end + len(_HEAD_END) + length:
            return
        self._received.clear()
        self._load.finish(self, head[9:12].decode(), self._due)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lose()

    def close(self) -> None:
        self._transport.abort()


class _Load:
    """One run of a plan."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._requests = [_request(plan, body.encode()) for body in plan.bodies]
        self._n_sent = 0
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[float] = deque()
        self._latencies: list[float] = []
        self._failures: Counter[str] = Counter()
        self._counted_from = self._end = 0.0
        self._ended = asyncio.Event()
        self._n_open = 0

    async def run(self) -> LoadResult:
        plan = self._plan
        connections: list[_Connection] = []
        host, _, port = urlsplit(plan.url).netloc.rpartition(":")
        for _ in range(plan.connections):
            _, connection = await self._loop.create_connection(lambda: _Connection(self), host, int(port))
            connections.append(connection)
        # Not the loop's clock, which counts whole milliseconds.
        began = time.perf_counter()
        self._counted_from, self._end = began + plan.warm_seconds, began + plan.seconds
        self._loop.add_reader(sys.stdin, self._stop)
        self._n_open = len(connections)
        self._loop.call_later(plan.seconds, self._ended.set)
        if plan.rate is None:
            for connection in connections:
                self._send(connection, time.perf_counter())
        else:
            self._idle.extend(connections)
            self._schedule(began, 0, plan.rate)
        await self._ended.wait()
        self._end = min(self._end, time.perf_counter())
        seconds = max(self._end - self._counted_from, 1e-9)
        await self._drain()
        for connection in connections:
            connection.close()
        ordered = sorted(self._latencies)
        return LoadResult(
            len(ordered) / seconds,
            len(ordered),
            dict(self._failures),
            **{name: _quantile(ordered, share) for name, share in PERCENTILES.items()},
        )

    def finish(self, connection: _Connection, status: str, due: float) -> None:
        """Count an answer, and send what comes next."""
        now = time.perf_counter()
        if self._counted_from <= due < self._end:
            if status == "200":
                self._latencies.append((now - due) * 1000.0)
            else:
                self._failures[status] += 1
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        elif self._plan.rate is None and now < self._end:
            self._send(connection, now)
        else:
            self._idle.append(connection)

    def lose(self) -> None:
        """Count a connection that the server closed."""
        self._n_open -= 1
        self._failures["lost"] += 1
        if not self._n_open:
            self._ended.set()

    def _send(self, connection: _Connection, due: float) -> None:
        connection.send(self._requests[self._n_sent % len(self._requests)], due)
        self._n_sent += 1

    def _schedule(self, began: float, number: int, rate: float) -> None:
        """Send what is due before the end, and come back for the next."""
        now = time.perf_counter()
        while (due := began + number / rate) <= min(now, self._end):
            if self._idle:
                self._send(self._idle.popleft(), due)
            else:
                self._waiting.append(due)
            number += 1
        if due < self._end:
            self._loop.call_later(due - now, self._schedule, began, number, rate)

    def _stop(self) -> None:
        self._loop.remove_reader(sys.stdin)
        self._end = min(self._end, time.perf_counter())
        self._ended.set()

    async def _drain(self) -> None:
        """Wait for the answers to what was sent."""
        deadline = time.perf_counter() + _EXIT_SECONDS
        while len(self._idle) < self._n_open and time.perf_counter() < deadline:
            await asyncio.sleep(0.001)
        unanswered = self._n_open - len(self._idle) + len(self._waiting)
        if unanswered:
            self._failures["unanswered"] += unanswered


def _request(plan: LoadPlan, body: bytes) -> bytes:
    address = urlsplit(plan.url)
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {plan.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


async def _main() -> None:
    """Run a plan; standard input must be open, since its end stops the load."""
    plan = LoadPlan(**json.loads(sys.stdin.readline()))
    sys.stdout.write(json.dumps(asdict(await _Load(plan).run())))


def run_load(plan: LoadPlan) -> LoadResult:
    """Run a load to its end; raises ClickException."""
    with LoadProcess(plan) as load:
        return load.result()


class LoadProcess:
    """The process of a load, which starts when made; a context manager."""

    def __init__(self, plan: LoadPlan) -> None:
        # By its file and not as a module of this package, whose other imports take seconds.
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self._input.write(json.dumps(asdict(plan)) + "\n")
        self._input.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            pass

    def stop(self) -> LoadResult:
        """End the load before its time is over, and return what came of it."""
        self._input.close()
        return self.result()

    def result(self) -> LoadResult:
        """Wait for the end of the load, and return what came of it; raises ClickException."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        output = self._process.stdout.read()
        if not output:
            raise ClickException(f"the client ended without a result: {self._process.stderr.read()}")
        return LoadResult(**json.loads(output))


if __name__ == "__main__":
    uvloop.run(_main())
