"""Processes of two releases beside each other on one database, whose schema the newer one has changed."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bootstrap import build
from app.client import Client, LrbsError
from app.db.schema import REVISION
from app.domain.names import Scope
from app.settings import Settings
from tests.app.e2e.conftest import ROOT, Server
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
        # With the compiled files, but none that is just being written.
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    (root / "migrations" / "versions" / "later.py").write_text(MIGRATION)
    schema = root / "app" / "db" / "schema.py"
    code = schema.read_text()
    assert f'REVISION = "{REVISION}"' in code
    schema.write_text(code.replace(f'REVISION = "{REVISION}"', f'REVISION = "{NEXT}"'))
    return root


class Releases:
    """Starts processes of either release over one database and one data folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._settings = {"LRBS_DATABASE_URL": url, "LRBS_DATA_DIR": str(folder / "data")}
        self.started: list[Server] = []
        self.key = ""

    def start(self, root: Path, *arguments: str) -> Server:
        # The trainers that a worker starts find their code by these, too; this release is found anyway.
        code = {} if root == ROOT else {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
        folder = self._folder / f"process-{len(self.started)}"
        server = Server(folder, arguments, **code, **self._settings)
        self.started.append(server)
        return server

    def make_key(self) -> None:
        services = build(Settings(data_dir=self._folder / "data", database_url=self._url))
        _, self.key = services.access.create(Scope.ADMIN)
        services.database.engine.dispose()


@pytest.fixture
def releases(tmp_path: Path, migrated_postgres_url: str) -> Iterator[Releases]:
    releases = Releases(tmp_path, migrated_postgres_url)
    yield releases
    for server in releases.started:
        server.end()


class Load:
    """Searches and writes all the time, each once; keeps what was refused."""

    def __init__(self, client: Client, query: list[float]) -> None:
        self.written: list[str] = []
        self.refusals: list[LrbsError] = []
        self._client, self._query = client, query
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self) -> None:
        while not self._over.is_set():
            item = {"id": f"late{len(self.written)}", "modality": "x", "vector": [1.0] * 8}
            try:
                self._client.create_items(NAME, [item])
                self.written.append(item["id"])
                self._client.search(NAME, "z", "x", vector=self._query, k=5)
            except LrbsError as error:
                self.refusals.append(error)
            self._over.wait(_PAUSE_SECONDS)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def ids(client: Client, query: list[float]) -> set[str]:
    return {hit.id for hit in client.search(NAME, "z", "x", vector=query, k=1000).hits}


def check_each_sees_the_other(before: Client, after: Client, query: list[float]) -> None:
    """What one release stores, the other finds."""
    for number, (writer, reader) in enumerate(((before, after), (after, before))):
        writer.create_items(NAME, [{"id": f"seen{number}", "modality": "x", "vector": [0.5] * 8}])
        wait_for(lambda: f"seen{number}" in ids(reader, query))  # noqa: B023


def check_update(releases: Releases, root: Path, before: Client, query: list[float]) -> Server:
    """Start the later release beside the old one, and let a worker of each train; return its server."""
    old_worker = releases.started[1]
    upgrade = releases.start(root, "db", "upgrade")
    assert upgrade.process.wait(60) == 0, upgrade.said()
    new, late = releases.start(root, "serve", "--no-worker"), releases.start(ROOT, "worker")
    job = before.retrain(NAME, alpha=1e-3, scaling="standard")
    new.wait_until_ready()
    with new.client(releases.key) as after:
        assert "a newer release has changed the database" in str(before.readyz().reason)
        assert after.readyz().reason is None
        check_each_sees_the_other(before, after, query)
        assert late.process.wait(60) == 1, "the old release does not start any more"
        assert "a newer release has changed the database" in late.said()
        assert after.wait_for_job(job.id, timeout=120.0).state == "succeeded"  # the old worker's
        old_worker.process.terminate()
        assert old_worker.process.wait(60) == 0, old_worker.said()
        releases.start(root, "worker")
        job = after.retrain(NAME, alpha=1e-3, scaling="standard")
        assert before.wait_for_job(job.id, timeout=120.0).state == "succeeded"
        for client in (before, after):
            wait_for(lambda: client.search(NAME, "z", "x", vector=query).model_version == 3)  # noqa: B023
    return new


def test_a_rolling_update_loses_and_refuses_nothing(releases: Releases, later_release: Path) -> None:
    old, _ = releases.start(ROOT, "serve", "--no-worker"), releases.start(ROOT, "worker")
    releases.make_key()
    old.wait_until_ready()
    with old.client(releases.key) as before, old.client(releases.key) as other:
        query = fill(before)
        load = Load(other, query)
        try:
            new = check_update(releases, later_release, before, query)
        finally:
            load.end()
    old.process.terminate()
    assert old.process.wait(60) == 0, old.said()
    assert load.refusals == []
    assert len(load.written) > 10
    with new.client(releases.key) as after:
        assert set(load.written) <= ids(after, query)
