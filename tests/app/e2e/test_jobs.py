"""Retrains in real processes: followed, cancelled, killed."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.service import NewItem
from app.settings import Settings
from tests.app.conftest import migrated_database
from tests.app.e2e.conftest import Server
from tests.app.integration.conftest import EITHER, copy_services
from tests.app.waiting import wait_for

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes through /proc")
FAST = {"LRBS_LEASE_SECONDS": "2", "LRBS_JOB_RETRY_SECONDS": "0.2", "LRBS_JOB_ATTEMPTS": "5"}
QUICK = {"alpha": 0.01, "scaling": "standard"}
"""Tries nothing else: for what is killed at once, or need not last."""
IN_SQLITE, IN_POSTGRES = (
    pytest.mark.parametrize("filled", [database], indirect=True, scope="module") for database in EITHER
)
CLOSED = {"succeeded", "failed", "cancelled"}
WORDS = [f"word{number}" for number in range(3000)]
PER_CLASS, CLASSES, GALLERY = 50, 8, 8_000


@dataclass
class Place:
    """A data folder, a database, a key, and the means to run processes over them."""

    folder: Path
    settings: dict[str, str]
    secret: str
    start: Callable[..., Server]

    def serve(self, *options: str) -> Server:
        return self.start("serve", *options, **self.settings)

    def client(self, server: Server) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx.Client(base_url=server.url, headers=headers, trust_env=False, verify=False, timeout=60.0)

    def fill(self, name: str, per_class: int, gallery: int) -> None:
        url = self.settings.get("LRBS_DATABASE_URL", "")
        services = build(Settings(data_dir=self.folder, database_url=url))
        fill(services, name, per_class, gallery)
        services.database.engine.dispose()


def fill(services: Services, name: str, per_class: int = PER_CLASS, gallery: int = 0) -> None:
    """Make a collection, unless it is there, whose retrain takes a while: each encodes its texts."""
    drawn = np.random.default_rng(0)
    means = drawn.normal(size=(CLASSES, 64))
    items = []
    for number in range(per_class * CLASSES):
        kind = number % CLASSES
        row = means[kind] + drawn.normal(size=64)
        items.append(NewItem("image", Content(vector=row.tolist()), f"i{number}", (str(kind),)))
        items.append(NewItem("text", Content(text=_text(drawn, kind)), f"t{number}", (str(kind),)))
    if items:
        modalities = [
            Modality("image", {"type": "vector"}),
            Modality("text", {"type": "tfidf", "characters": 0}),
        ]
        services.catalogue.create(name, modalities)
    for number in range(gallery):
        text = Content(text=_text(drawn, number % CLASSES))
        items.append(NewItem("text", text, f"g{number}", train=False))
    for start in range(0, len(items), 1000):
        services.catalogue.add_items(name, items[start : start + 1000])


def _text(drawn: np.random.Generator, kind: int) -> str:
    own = drawn.integers(kind * 100, kind * 100 + 200, 20)
    return " ".join(WORDS[number] for number in [*own, *drawn.integers(0, len(WORDS), 40)])


@pytest.fixture(scope="module", params=EITHER)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of what `place` is a copy of, with the collection "a"."""
    folder = tmp_path_factory.mktemp("jobs") / "data"
    with migrated_database(request, request.param, folder) as url:
        settings = Settings(data_dir=folder, database_url=url)
        services = build(settings)
        fill(services, "a")
        services.database.engine.dispose()
        yield settings


@pytest.fixture
def place(filled: Settings, tmp_path: Path) -> Iterator[Place]:
    folder, started = tmp_path / "data", list[Server]()

    def start(command: str, *options: str, **environment: str) -> Server:
        server = Server(folder, (command, *options), **environment)
        started.append(server)
        if command == "serve":
            server.wait_until_ready()
        return server

    with copy_services(filled, folder) as services:
        _, secret = services.access.create(Scope.ADMIN)
        services.database.engine.dispose()
        url = services.settings.database_url
        yield Place(folder, FAST | {"LRBS_DATABASE_URL": url}, secret, start)
        for server in started:
            server.end()
            for left in processes(b"app.worker.trainer", folder):
                os.kill(left, signal.SIGKILL)


def processes(word: bytes, folder: Path) -> list[int]:
    """Return the processes over a data folder that have a word in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = os.fsencode(f"LRBS_DATA_DIR={folder}\0") in (process / "environ").read_bytes() + b"\0"
            is_alive = " Z " not in (process / "stat").read_text()
            if is_ours and is_alive and word in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def retrain(client: httpx.Client, name: str = "a", **parameters: Any) -> str:
    # The method whose every iteration is told; what is tested here is the same for all.
    parameters = {"method": "lrbs", **parameters}
    answer = client.post(f"/v1/admin/collections/{name}/retrain", json=parameters).raise_for_status()
    return str(answer.json()["id"])


def job_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/admin/jobs/{job_id}").raise_for_status().json()
    return found


def closed(client: httpx.Client, job_id: str) -> dict[str, Any]:
    def is_closed() -> dict[str, Any] | None:
        job = job_of(client, job_id)
        return job if job["state"] in CLOSED else None

    found: dict[str, Any] = wait_for(is_closed, 300.0)
    return found


def events(client: httpx.Client, job_id: str, after: int | None = None) -> Iterator[tuple[int, str, Any]]:
    """Yield (number, kind, data) as a browser would understand the stream."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/v1/admin/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                fields = {}


def trainer_of(place: Place) -> int:
    (found,) = wait_for(lambda: processes(b"app.worker.trainer", place.folder))
    return int(found)


@IN_SQLITE
def test_a_job_is_followed_to_its_end_and_again_from_any_event(place: Place) -> None:
    server = place.serve()
    with place.client(server) as client:
        job_id = retrain(client, **QUICK)
        seen = list(events(client, job_id))
        assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
        states = [data["state"] for _, kind, data in seen if kind == "state"]
        assert states == ["queued", "running", "succeeded"]
        assert seen[-1][2] == {"state": "succeeded", "error": None, "model_version": 1}
        steps = [data for _, kind, data in seen if kind == "progress" and data["phase"] == "fitting"]
        report = client.get("/v1/admin/collections/a/models/1").json()["report"]
        assert len(steps) == report["fit"]["convergence"]["iteration"] > 1
        assert {"iteration", "objective", "gap", "rank"} <= steps[0].keys()
        (listed,) = client.get("/v1/admin/collections/a/jobs").json()["jobs"]
        assert (listed["id"], listed["state"], listed["model_version"]) == (job_id, "succeeded", 1)
        middle = len(seen) // 2
        assert list(events(client, job_id, middle)) == seen[middle:]
        # Somebody who has seen everything is told the state once more, since a stream ends with it.
        assert [data["state"] for _, _, data in events(client, job_id, len(seen))] == ["succeeded"]
        path = f"/v1/admin/jobs/{job_id}/events"
        answer = client.get(path, headers={"Last-Event-ID": "none"})
        assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")
        assert client.get("/v1/admin/jobs/none/events").json()["type"] == "/problems/job-not-found"
        assert client.get(path, headers={"Authorization": "Bearer no"}).status_code == 401


@IN_SQLITE
def test_a_job_is_cancelled_whatever_it_is_at(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.fill("a", 0, GALLERY)
    server = place.serve()
    took, n_succeeded = {}, 0
    with place.client(server) as client:
        phases = ["loading", "encoding", "choosing", "indexing"]
        while phases and n_succeeded < 5:
            job_id = retrain(client, **(QUICK if phases[0] == "indexing" else {}))
            for _, kind, data in events(client, job_id):
                if kind == "progress" and data["phase"] == phases[0]:
                    began = time.monotonic()
                    client.post(f"/v1/admin/jobs/{job_id}/cancel").raise_for_status()
                    break
            if closed(client, job_id)["state"] == "cancelled":
                wait_for(lambda: not processes(b"app.worker.trainer", place.folder))
                took[phases.pop(0)] = time.monotonic() - began
            else:
                n_succeeded += 1  # it was done before the request came
        assert len(client.get("/v1/admin/collections/a/models").json()["models"]) <= n_succeeded
    with capsys.disabled():
        shown = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in took.items())
        print(f"\n[cancelled while {shown}]")  # noqa: T201
    assert not phases


def test_a_killed_trainer_is_tried_again(place: Place) -> None:
    server = place.serve()
    with place.client(server) as client:
        job_id = retrain(client, **QUICK)
        os.kill(trainer_of(place), signal.SIGKILL)
        done = closed(client, job_id)
        assert (done["state"], done["attempts"], done["model_version"]) == ("succeeded", 2, 1)
        states = [data for _, kind, data in events(client, job_id) if kind == "state"]
        assert [data["state"] for data in states] == ["queued", "running", "queued", "running", "succeeded"]
        assert "SIGKILL" in states[2]["reason"]
        assert len(client.get("/v1/admin/collections/a/models").json()["models"]) == 1


def test_a_killed_worker_takes_its_trainer_along_and_another_one_goes_on(place: Place) -> None:
    server = place.serve()
    with place.client(server) as client:
        job_id = retrain(client, **QUICK)
        trainer = trainer_of(place)
        (worker,) = [
            each for each in processes(b"worker", place.folder) if each not in (trainer, server.process.pid)
        ]
        os.kill(worker, signal.SIGKILL)
        # One that is just being imported ends when it is through with that.
        wait_for(lambda: trainer not in processes(b"app.worker.trainer", place.folder), 30.0)
        done = closed(client, job_id)
        assert (done["state"], done["attempts"]) == ("succeeded", 2)
        models = client.get("/v1/admin/collections/a/models").json()["models"]
        assert [model["is_active"] for model in models] == [True]


def test_of_several_workers_each_job_has_one(place: Place) -> None:
    names = [f"c{number}" for number in range(3)]
    for name in names:
        place.fill(name, 20, 0)
    server = place.serve("--no-worker")
    for _ in range(2):
        place.start("worker", **place.settings)
    with place.client(server) as client:
        for done in [closed(client, job_id) for job_id in [retrain(client, name, **QUICK) for name in names]]:
            assert (done["state"], done["attempts"], done["model_version"]) == ("succeeded", 1, 1)
        for name in names:
            entries = client.get(f"/v1/admin/collections/{name}/activations").json()["activations"]
            assert [(entry["version"], entry["previous"]) for entry in entries] == [(1, None)]


@IN_SQLITE
def test_a_stopping_server_gives_the_job_back_and_ends_its_streams(place: Place) -> None:
    server = place.serve()
    with place.client(server) as client:
        job_id = retrain(client)
        trainer_of(place)
        seen: list[Any] = []

        def follow() -> None:
            with contextlib.suppress(httpx.TransportError):
                for event in events(client, job_id):
                    seen.append(event)

        follower = threading.Thread(target=follow)
        follower.start()
        wait_for(lambda: seen)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) is not None
        follower.join(60)
        assert not follower.is_alive()
    wait_for(lambda: not processes(b"app.worker", place.folder), 30.0)
    again = place.serve()
    with place.client(again) as client:
        done = closed(client, job_id)
        assert (done["state"], done["attempts"]) == ("succeeded", 1)


@IN_POSTGRES
def test_lost_database_connections_cost_no_job(place: Place) -> None:
    url = place.settings["LRBS_DATABASE_URL"]
    server = place.serve()
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with place.client(server) as client, engine.connect() as connection:
        job_id = retrain(client)
        trainer_of(place)
        killed = 0
        for _ in range(10):
            killed += connection.exec_driver_sql(f"{kill} AND datname = current_database()").scalar_one()
            time.sleep(0.3)
        assert killed > 0
        assert closed(client, job_id)["state"] == "succeeded"
        models = client.get("/v1/admin/collections/a/models").json()["models"]
        assert [(model["version"], model["is_active"]) for model in models] == [(1, True)]
