"""What docker-compose.yml runs, run by hand: migrate, API and worker as processes over one PostgreSQL."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy
import yaml

from tests.app.e2e.conftest import LRBS, ROOT, Server, environment_of
from tests.app.e2e.test_crash import fill
from tests.app.waiting import wait_for

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

pytestmark = pytest.mark.postgres


def filled_in(value: str) -> str:
    """Return a value as compose gives it where no variable is set: with the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.fixture
def run(postgres_url: str, tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Return a function that starts a service as compose does, with this test's own places."""
    url = sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    started: list[Server] = []

    password = tmp_path / "password"
    password.write_text("anything, since the server of the tests trusts its clients")

    def start(name: str) -> Server:
        service = SERVICES[name]
        environment = {
            **{name: filled_in(value) for name, value in service["environment"].items()},
            "LRBS_DATABASE_URL": url.render_as_string(hide_password=False),
            "LRBS_DATABASE_PASSWORD_FILE": str(password),
            "LRBS_DATA_DIR": str(tmp_path / "data"),
            "LRBS_PORT": "0",
            "LRBS_HOST": "127.0.0.1",
        }
        if name == "worker":
            environment["LRBS_ALIVE_FILE"] = str(tmp_path / "alive")
        server = Server(tmp_path / name, tuple(service["command"]), **environment)
        started.append(server)
        return server

    yield start
    for server in started:
        server.end()


def test_migrate_api_and_worker_answer_a_search(
    run: Callable[[str], Server], tmp_path: Path, postgres_url: str
) -> None:
    worker_too_early = run("worker")
    assert worker_too_early.process.wait(60) == 1
    assert "lrbs db upgrade" in worker_too_early.said()

    migrate = run("migrate")
    assert migrate.process.wait(60) == 0, migrate.said()
    api, worker = run("api"), run("worker")
    api.wait_until_ready(120)
    url = sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    environment = {
        **environment_of(tmp_path / "data"),
        "LRBS_DATABASE_URL": url.render_as_string(hide_password=False),
    }
    made = subprocess.run(
        [*LRBS, "keys", "create", "--scope", "admin"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    with api.client(made.stdout.strip()) as client:
        query = fill(client)
        for _ in range(6):  # of two server processes each answers some
            found = client.search("pairs", "z", "x", vector=query, k=5)
            assert len(found.hits) == 5
            assert found.model_version == 1
        assert b'collection="pairs"' in client.metrics()
    with httpx.Client(base_url=api.url, trust_env=False, timeout=60.0) as stranger:
        refused = stranger.get("/metrics")
        assert refused.status_code == 401, "it names every collection"
        assert "pairs" not in refused.text
        described = stranger.get("/openapi.json").json()["paths"]["/metrics"]["get"]
        assert described["security"] == [{"HTTPBearer": []}]
        assert {"401", "403"} <= set(described["responses"])
    before = (tmp_path / "alive").stat().st_mtime_ns
    wait_for(lambda: (tmp_path / "alive").stat().st_mtime_ns > before)
    for server in (api, worker):
        server.process.terminate()
    assert api.process.wait(60) == 0, api.said()
    assert worker.process.wait(60) == 0, worker.said()
