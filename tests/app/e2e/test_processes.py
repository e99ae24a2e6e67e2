"""Several server processes behind one port, and how they end."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.bootstrap import build
from app.settings import Settings
from solver.datasets import make_low_rank_pairs
from tests.app.e2e.conftest import Server
from tests.app.integration.conftest import PARAMETERS, Pairs
from tests.app.waiting import wait_for

SECONDS = 60.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def headers(create_admin_key: Callable[[], str]) -> dict[str, str]:
    return {**JSON, "Authorization": f"Bearer {create_admin_key()}"}


def children_of(pid: int, command: str = "server-process") -> set[int]:
    """Return the processes of a command that any thread of a process started."""
    found = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for number in children.read_text().split():
                if f"\0{command}\0" in Path(f"/proc/{number}/cmdline").read_text():
                    found.add(int(number))
    return found


def is_gone(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text().replace(")", " ) ")
    except (FileNotFoundError, ProcessLookupError):  # before the file is opened, or before it is read
        return True


def asked_afresh(url: str, path: str, **options: Any) -> httpx.Response:
    """Ask over a connection of its own, which any of the processes may take."""
    return httpx.get(f"{url}{path}", trust_env=False, verify=False, timeout=30.0, **options)


def test_several_processes_serve_one_database_and_end_with_their_parent(
    start_server: Callable[..., Any], headers: dict[str, str]
) -> None:
    server = start_server("--no-worker", "--processes", "2")
    processes = wait_for(lambda: len(found := children_of(server.process.pid)) == 2 and found)
    modalities = {name: {"encoder": {"type": "vector"}} for name in ("x", "z")}
    body = {"name": "a", "modalities": modalities}
    httpx.post(f"{server.url}/v1/collections", json=body, headers=headers, trust_env=False).raise_for_status()
    for _ in range(20):
        answer = asked_afresh(server.url, "/v1/collections/a", headers=headers)
        assert answer.status_code == 200
    counted = asked_afresh(server.url, "/metrics").text
    line = 'lrbs_http_requests_total{method="GET",route="/v1/collections/{collection}",status="200"} 20.0'
    assert line in counted, "whoever is asked tells of all"

    os.kill(min(processes), signal.SIGKILL)
    replaced = wait_for(
        lambda: len(found := children_of(server.process.pid) - {min(processes)}) == 2 and found
    )
    assert replaced != processes
    wait_for(lambda: _answers(server.url))
    for _ in range(5):
        assert asked_afresh(server.url, "/v1/collections/a", headers=headers).status_code == 200

    server.kill()
    wait_for(lambda: all(is_gone(pid) for pid in replaced))
    address = urlsplit(server.url)
    # The threads of a process that is gone may hold its socket for another moment.
    wait_for(lambda: _refuses(address.hostname, address.port), 5.0)


_OPENED = """
from app.bootstrap import build
from app.cli.serve import run_server
from app.settings import Settings

services = build(Settings().model_copy(update={"open_search": True, "processes": 2}))
services.schema.upgrade()
run_server(services, False, lambda url: print("LRBS serves on", url))
"""


def test_every_process_has_the_settings_of_the_first(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", ("-c", _OPENED), (sys.executable,), LRBS_OPEN_SEARCH="false")
    try:
        server.wait_until_ready()
        assert len(children_of(server.process.pid)) == 2
        answers = [asked_afresh(server.url, "/v1/collections").status_code for _ in range(10)]
    finally:
        server.end()
    assert answers == [200] * 10


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return asked_afresh(url, "/healthz").status_code == 200
    return False


def _refuses(host: str | None, port: int | None) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


@contextlib.contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(folder / "lrbs.sqlite3", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_was_accepted_is_finished_after_a_request_to_stop(
    start_server: Callable[..., Any], headers: dict[str, str], tmp_path: Path, processes: str
) -> None:
    patient = {"LRBS_LOCK_WAIT_SECONDS": "60", "LRBS_BODY_PAUSE_SECONDS": "60", "LRBS_SHUTDOWN_SECONDS": "60"}
    server = start_server("--no-worker", "--processes", processes, **patient)
    address = urlsplit(server.url)
    body = json.dumps({"scope": "search", "name": "slow"}).encode()
    lines = ["POST /v1/admin/keys HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    answers: list[httpx.Response] = []

    def write() -> None:
        answers.append(
            httpx.post(
                f"{server.url}/v1/admin/keys",
                content=body,
                headers=headers,
                trust_env=False,
                verify=False,
                timeout=60.0,
            )
        )

    with socket.create_connection((address.hostname, address.port), timeout=60) as half_sent:
        half_sent.sendall("\r\n".join([*lines, "", ""]).encode() + body[:10])
        with write_lock(tmp_path / "data"):
            writer = threading.Thread(target=write)
            writer.start()
            wait_for(
                lambda: 'lrbs_queue_running{lane="write"} 1.0' in asked_afresh(server.url, "/metrics").text
            )
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: not _answers(server.url))
            assert server.process.poll() is None, "two requests are not finished"
        half_sent.sendall(body[10:])
        told = half_sent.recv(65536)
        writer.join(60)
    assert told.startswith(b"HTTP/1.1 201 "), told
    assert [answer.status_code for answer in answers] == [201]
    assert server.process.wait(90) == 0  # LRBS_SHUTDOWN_SECONDS, and the seconds until it exits by force
    assert "shutdown timed out" not in server.said()
    # When keys were last used is written down on the way out.
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "lrbs.sqlite3")) as database:
        used = database.execute("SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL").fetchone()
    assert used == (1,)


def test_a_stop_waits_for_ever_neither_for_a_body_nor_for_a_thread(
    start_server: Callable[..., Any], headers: dict[str, str], tmp_path: Path
) -> None:
    impatient = {
        "LRBS_SHUTDOWN_SECONDS": "1",
        "LRBS_LOCK_WAIT_SECONDS": "600",
        "LRBS_BODY_PAUSE_SECONDS": "60",
    }
    server = start_server("--no-worker", **impatient)
    address = urlsplit(server.url)

    def write() -> None:
        with contextlib.suppress(httpx.TransportError):
            body = {"scope": "search", "name": "slow"}
            httpx.post(
                f"{server.url}/v1/admin/keys",
                json=body,
                headers=headers,
                trust_env=False,
                verify=False,
                timeout=600,
            )

    with (
        write_lock(tmp_path / "data"),
        socket.create_connection((address.hostname, address.port), timeout=SECONDS) as stalled,
    ):
        lines = ["POST /v1/admin/keys HTTP/1.1", "Host: x", "Content-Length: 100"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        stalled.sendall("\r\n".join([*lines, "", ""]).encode() + b"{")
        writer = threading.Thread(target=write)
        writer.start()
        wait_for(lambda: 'lrbs_queue_running{lane="write"} 1.0' in asked_afresh(server.url, "/metrics").text)
        wait_for(lambda: "in_progress 3.0" in asked_afresh(server.url, "/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == 0
        writer.join(SECONDS)
    assert "with a request still running" in server.said()


@pytest.fixture
def queued_job(tmp_path: Path, headers: dict[str, str]) -> str:
    """A job that nobody runs."""
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    data = make_low_rank_pairs(12, 12, n_features_x=3, n_features_z=3, n_classes=2, random_state=1)
    Pairs(services, data).fill("a")
    job = services.training.request("a", PARAMETERS)
    services.database.engine.dispose()
    return job.id


def test_an_event_stream_ends_in_order_when_the_server_stops(
    start_server: Callable[..., Any], headers: dict[str, str], queued_job: str
) -> None:
    server = start_server("--no-worker")
    events = f"{server.url}/v1/admin/jobs/{queued_job}/events"
    told: list[str] = []
    with (
        httpx.Client(trust_env=False, verify=False, timeout=SECONDS) as client,
        client.stream("GET", events, headers=headers) as stream,
    ):
        for line in stream.iter_lines():  # raises if the answer is cut off
            if line and not told:
                server.process.send_signal(signal.SIGTERM)
            told.append(line)
    assert any("queued" in line for line in told)
    assert server.process.wait(SECONDS) == 0
    assert "ERROR" not in server.said()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_worker_beside_ends_before_the_last_request(
    start_server: Callable[..., Any], headers: dict[str, str], processes: str
) -> None:
    patient = {"LRBS_SHUTDOWN_SECONDS": "600", "LRBS_BODY_PAUSE_SECONDS": "600"}
    server = start_server("--processes", processes, **patient)
    workers = wait_for(lambda: children_of(server.process.pid, "worker"))
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=SECONDS) as stalled:
        lines = ["POST /v1/admin/keys HTTP/1.1", "Host: x", "Content-Length: 100"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        stalled.sendall("\r\n".join([*lines, "", ""]).encode() + b"{")
        wait_for(lambda: "in_progress 2.0" in asked_afresh(server.url, "/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: all(is_gone(pid) for pid in workers))
        assert server.process.poll() is None, "a request is not finished"


_WITHOUT_DESCRIPTORS = """
import io, pathlib, resource, sys, time
from app.bootstrap import build
from app.cli.serve import worker_beside
from app.settings import Settings

def wait_for(condition):
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

services, told = build(Settings()), io.StringIO()
usual = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
sys.stderr, errors = told, sys.stderr
with worker_beside(services):
    wait_for(told.getvalue)
    resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    sys.stderr = errors
    tasks = pathlib.Path("/proc/self/task")
    wait_for(lambda: any(path.read_text() for path in tasks.glob("*/children")))
print("started")
"""


def test_a_worker_that_could_not_be_started_is_started_later(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_DESCRIPTORS]
    environment = {**os.environ, "LRBS_DATA_DIR": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "started\n", ended.stderr


def test_without_a_setting_a_server_has_a_process_for_each_core(
    start_server: Callable[..., Any], headers: dict[str, str]
) -> None:
    expected = Settings(processes=0).resolved_processes
    server = start_server("--no-worker", LRBS_PROCESSES="0")
    n_children = expected if expected > 1 else 0
    wait_for(lambda: len(children_of(server.process.pid)) == n_children)
    body = {"name": "a", "modalities": {name: {"encoder": {"type": "vector"}} for name in ("x", "z")}}
    httpx.post(f"{server.url}/v1/collections", json=body, headers=headers, trust_env=False).raise_for_status()
    for _ in range(4 * expected):  # whichever process answers
        assert asked_afresh(server.url, "/v1/collections/a", headers=headers).status_code == 200
