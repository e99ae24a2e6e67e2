"""Several server processes, of one host and of two, behave as one service towards each key."""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.bootstrap import build
from app.domain.entities import KeyBounds
from app.domain.names import Scope
from app.settings import Settings
from solver.datasets import make_low_rank_pairs
from tests.app.closing import close
from tests.app.conftest import psycopg_url
from tests.app.e2e.conftest import Server
from tests.app.e2e.test_processes import children_of
from tests.app.integration.searching import fill, train
from tests.app.waiting import wait_for
from tests.conftest import postgres_database

LIMIT = 20
ROUNDS = 4
MANY = 2000
"""Items of a write: more than a search replays itself, and more than one transaction of an import."""


@contextlib.contextmanager
def stopped(processes: set[int]) -> Iterator[None]:
    """Have processes stand still, so that another one takes the next connection."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        for process in processes:
            state = Path(f"/proc/{process}/stat")
            wait_for(lambda state=state: state.read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@dataclass
class OneService:
    """Hosts over one database, and a connection to each of their processes for every key."""

    hosts: list[Server]
    key: str
    limited: list[str]
    row: list[float]
    until_ended: contextlib.ExitStack

    def processes(self) -> list[int]:
        return [process for host in self.hosts for process in sorted(children_of(host.process.pid))]

    def connect(self, key: str) -> dict[int, httpx.Client]:
        """Return a client for each process, which keeps its connection."""
        found = {}
        for host in self.hosts:
            processes = children_of(host.process.pid)
            for process in sorted(processes):
                client = httpx.Client(
                    base_url=host.url,
                    headers={"Authorization": f"Bearer {key}"},
                    trust_env=False,
                    verify=False,
                    timeout=60.0,
                )
                with stopped(processes - {process}):
                    self.until_ended.enter_context(client).get("/healthz").raise_for_status()
                found[process] = client
        return found

    def found(self, client: httpx.Client, label: str) -> int:
        body = {"vector": self.row, "k": MANY + 100, "filter": {"labels": [label]}, "include": []}
        answer = client.post("/v1/collections/pairs/search/z-to-x", json=body)
        if answer.status_code == 422:  # a label that no item carries
            return 0
        return len(answer.raise_for_status().json()["hits"])


@pytest.fixture(scope="module", params=["one host", pytest.param("two hosts", marks=pytest.mark.postgres)])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneService]:
    folder = tmp_path_factory.mktemp("service")
    with contextlib.ExitStack() as until_ended:
        url, counts = "", ["4"]
        if request.param == "two hosts":
            url, counts = until_ended.enter_context(postgres_database()), ["2", "2"]
            url = psycopg_url(url).render_as_string(hide_password=False)
        services = build(Settings(data_dir=folder, database_url=url))
        services.schema.upgrade()
        vectors = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)
        fill(services, vectors)
        train(services)
        _, key = services.access.create(Scope.ADMIN)
        limited = KeyBounds(requests_per_minute=LIMIT)
        keys = [services.access.create(Scope.SEARCH, bounds=limited)[1] for _ in range(2)]
        close(services)
        hosts = []
        for count in counts:
            options = "serve", "--no-worker", "--processes", count
            hosts.append(Server(folder, options, LRBS_DATABASE_URL=url))
            until_ended.callback(hosts[-1].end)
        for host, count in zip(hosts, counts, strict=True):
            host.wait_until_ready()
            wait_for(lambda host=host, count=count: len(children_of(host.process.pid)) == int(count))
        made = OneService(hosts, key, keys, np.asarray(vectors.Z[0]).tolist(), until_ended)
        yield made


def test_the_next_search_finds_what_its_key_wrote_whichever_process_answers(service: OneService) -> None:
    clients = service.connect(service.key)
    processes = service.processes()
    assert len(clients) == len(processes) == 4
    for client in clients.values():
        assert service.found(client, "class 0") > 0
    missed = []
    for number in range(ROUNDS):
        writer = clients[processes[number % 4]]
        items = [
            {
                "id": f"{number}-{n}",
                "modality": "x",
                "vector": [float(n % 7 + 1)] * 8,
                "labels": [f"new {number}"],
            }
            for n in range(MANY)
        ]
        if number % 2:
            lines = "\n".join(json.dumps(item) for item in items)
            writer.post("/v1/collections/pairs/items:import", content=lines).raise_for_status()
        else:
            writer.post("/v1/collections/pairs/items", json={"items": items[:1000]}).raise_for_status()
        expected = MANY if number % 2 else 1000
        for process in reversed(processes):
            found = service.found(clients[process], f"new {number}")
            if found != expected:
                missed.append((number, process, found))
    assert missed == []


def test_a_burst_over_all_processes_passes_as_many_calls_as_the_limit(service: OneService) -> None:
    body = {"vector": service.row, "k": 1}

    def call(client: httpx.Client) -> int:
        return client.post("/v1/collections/pairs/search/z-to-x", json=body).status_code

    first, second = (list(service.connect(key).items()) for key in service.limited)
    with ThreadPoolExecutor(16) as pool:
        statuses = Counter(pool.map(call, [client for _, client in first] * 15))
    assert statuses == {200: LIMIT, 429: 60 - LIMIT}
    # A process that dies takes nothing with it: what it let pass counts, and nobody waits for it.
    (killed, client), *others = second
    assert [call(client) for _ in range(5)] == [200] * 5
    os.kill(killed, signal.SIGKILL)
    with ThreadPoolExecutor(16) as pool:
        statuses = Counter(pool.map(call, [client for _, client in others] * 20))
    assert statuses == {200: LIMIT - 5, 429: 65 - LIMIT}
