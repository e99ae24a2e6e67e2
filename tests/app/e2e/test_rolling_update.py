"""Processes of two releases beside each other on one database, whose schema the newer one has changed."""

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db.schema import REVISION
from tests.app.e2e.conftest import LRBS, ROOT, Server, environment_of
from tests.app.e2e.test_crash import NAME, fill
from tests.app.waiting import wait_for

NEXT = f"{int(REVISION) + 1:04}"
MIGRATION = f'''
"""What a later release may add.

Revision ID: {NEXT}
Revises: {REVISION}
"""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{REVISION}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("items", sa.Column("price", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("urgent", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_items_price", "items", ["price"])
    op.create_table("baskets", sa.Column("id", sa.Integer(), primary_key=True))
'''

_PAUSE_SECONDS = 0.05
"""Leaves the machine time for the processes that start."""

pytestmark = pytest.mark.postgres


@pytest.fixture
def later_release(tmp_path: Path) -> Path:
    """A copy of the code with one more migration."""
    root = tmp_path / "later"
    for name in ("app", "solver", "migrations"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "migrations" / "versions" / "later.py").write_text(MIGRATION)
    schema = root / "app" / "db" / "schema.py"
    code = schema.read_text()
    assert f'REVISION = "{REVISION}"' in code
    schema.write_text(code.replace(f'REVISION = "{REVISION}"', f'REVISION = "{NEXT}"'))
    return root


class Releases:
    """Starts processes of either release over one database and one data folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._settings = {"LRBS_DATABASE_URL": url, "LRBS_DATA_DIR": str(folder / "data")}
        self.started: list[Server] = []

    def start(self, root: Path, *arguments: str) -> Server:
        # The trainers that a worker starts find their code by these, too.
        code = {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
        folder = self._folder / f"process-{len(self.started)}"
        server = Server(folder, arguments, **code, **self._settings)
        self.started.append(server)
        return server

    def run(self, *arguments: str) -> str:
        environment = {**environment_of(self._folder / "data"), **self._settings}
        done = subprocess.run([*LRBS, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def releases(tmp_path: Path, migrated_postgres_url: str) -> Iterator[Releases]:
    releases = Releases(tmp_path, migrated_postgres_url)
    yield releases
    for server in releases.started:
        server.end()


class Load:
    """Searches and writes all the time; keeps what was answered otherwise than with success."""

    def __init__(self, client: httpx.Client, query: list[float]) -> None:
        self.written: list[str] = []
        self.refusals: list[str] = []
        self._client, self._query = client, query
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self) -> None:
        while not self._over.is_set():
            item = {"id": f"late{len(self.written)}", "modality": "x", "vector": [1.0] * 8}
            calls: list[tuple[str, dict[str, Any]]] = [
                ("items", {"items": [item]}),
                ("search/z-to-x", {"vector": self._query, "k": 5}),
            ]
            for path, body in calls:
                answer = self._client.post(f"/v1/collections/{NAME}/{path}", json=body)
                if not answer.is_success:
                    self.refusals.append(answer.text)
            self.written.append(item["id"])
            self._over.wait(_PAUSE_SECONDS)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def search(client: httpx.Client, query: list[float], k: int = 5) -> Any:
    body = {"vector": query, "k": k}
    return client.post(f"/v1/collections/{NAME}/search/z-to-x", json=body).raise_for_status().json()


def retrain(client: httpx.Client) -> str:
    body = {"alpha": 1e-3, "scaling": "standard"}
    job = client.post(f"/v1/admin/collections/{NAME}/retrain", json=body).raise_for_status().json()
    return str(job["id"])


def wait_until_done(client: httpx.Client, job: str) -> None:
    def is_closed() -> bool:
        state = client.get(f"/v1/admin/jobs/{job}").raise_for_status().json()["state"]
        assert state in ("queued", "running", "succeeded")
        return bool(state == "succeeded")

    wait_for(is_closed, 120.0)


def check_each_sees_the_other(before: httpx.Client, after: httpx.Client, query: list[float]) -> None:
    """What one release stores, the other finds."""
    for number, (writer, reader) in enumerate(((before, after), (after, before))):
        item = {"id": f"seen{number}", "modality": "x", "vector": [0.5] * 8}
        writer.post(f"/v1/collections/{NAME}/items", json={"items": [item]}).raise_for_status()
        wait_for(lambda: item["id"] in {hit["id"] for hit in search(reader, query, 1000)["hits"]})  # noqa: B023


def check_update(releases: Releases, root: Path, before: httpx.Client, query: list[float]) -> httpx.Client:
    """Start the later release beside the old one, and let a worker of each train; return a client of it."""
    old_worker = releases.started[1]
    upgrade = releases.start(root, "db", "upgrade")
    assert upgrade.process.wait(60) == 0, upgrade.said()
    new = releases.start(root, "serve", "--no-worker")
    new.wait_until_ready()
    after = httpx.Client(base_url=new.url, headers=before.headers, trust_env=False, timeout=60.0)
    told = before.get("/readyz").raise_for_status().json()
    assert "a newer release has changed the database" in told["reason"]
    assert after.get("/readyz").json().get("reason") is None
    check_each_sees_the_other(before, after, query)
    wait_until_done(after, retrain(before))  # by the old worker, on the new schema
    old_worker.process.terminate()
    assert old_worker.process.wait(60) == 0, old_worker.said()
    releases.start(root, "worker")
    wait_until_done(before, retrain(after))
    for client in (before, after):
        wait_for(lambda: search(client, query)["model_version"] == 3)  # noqa: B023
    return after


def test_a_rolling_update_loses_and_refuses_nothing(releases: Releases, later_release: Path) -> None:
    old, _ = releases.start(ROOT, "serve", "--no-worker"), releases.start(ROOT, "worker")
    headers = {"Authorization": f"Bearer {releases.run('keys', 'create', '--scope', 'admin')}"}
    old.wait_until_ready()
    with httpx.Client(base_url=old.url, headers=headers, trust_env=False, timeout=60.0) as before:
        query = fill(before)
        load = Load(before, query)
        try:
            after = check_update(releases, later_release, before, query)
        finally:
            load.end()
    with contextlib.closing(after):
        old.process.terminate()
        assert old.process.wait(60) == 0, old.said()
        stored = {hit["id"] for hit in search(after, query, 1000)["hits"]}
    assert load.refusals == []
    assert len(load.written) > 10
    assert set(load.written) <= stored
    late = releases.start(ROOT, "worker")  # the old release does not start any more
    assert late.process.wait(60) == 1
    assert "a newer release has changed the database" in late.said()
