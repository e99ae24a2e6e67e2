"""A service that starts without its database removes nothing, says so, and goes on once it is back."""

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import sqlalchemy

from app.bootstrap import build
from app.client import UnavailableError
from app.domain.names import Scope
from app.settings import Settings
from solver.datasets import make_low_rank_pairs
from tests.app.e2e.conftest import LRBS, ROOT, Server, environment_of
from tests.app.integration.conftest import Pairs
from tests.app.integration.test_files import files_under, grow_old, picture
from tests.app.integration.test_ownership import ALBUM

FILE = "lrbs.sqlite3"
SECONDS = 90.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts `lrbs serve` with a worker, and waits until it listens."""
    started: list[Server] = []

    def start(**settings: str) -> Server:
        server = Server(tmp_path / "data", ("serve",), **settings)
        started.append(server)
        wait_for(server, lambda: "LRBS serves on" in server.said())
        server.url = server.said().partition("LRBS serves on ")[2].split()[0]
        return server

    yield start
    for server in started:
        server.end()


def wait_for(server: Server, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert server.process.poll() is None, server.said()
        assert time.monotonic() < deadline, server.said()
        time.sleep(0.1)


def readiness(server: Server) -> tuple[int, str]:
    answer = httpx.get(f"{server.url}/readyz", trust_env=False, verify=False, timeout=30.0)
    return answer.status_code, answer.json().get("reason", "")


def fill(folder: Path, url: str) -> tuple[str, set[Path]]:
    """Store pictures, train a model, and make all files old; return a key and the files."""
    services = build(Settings(data_dir=folder, database_url=url))
    services.schema.set_up()
    vectors = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)
    pairs = Pairs(services, vectors)
    pairs.fill("a")
    pairs.train("a")
    services.catalogue.create("album", ALBUM)
    services.catalogue.add_items("album", [picture(f"p{number}", number) for number in range(5)])
    _, secret = services.access.create(Scope.ADMIN)
    services.ownership.note_progress()
    services.database.engine.dispose()
    for kind in ("pictures", "models"):
        grow_old(folder / kind)
    return secret, files(folder)


def files(folder: Path) -> set[Path]:
    return files_under(folder / "pictures") | files_under(folder / "models")


def check_refused(server: Server, secret: str) -> None:
    wait_for(server, lambda: "no file is removed" in server.said() or "worker: " in server.said())
    time.sleep(1.0)
    status, reason = readiness(server)
    assert (status, "lrbs db adopt" in reason) == (503, True), reason
    with server.client(secret) as client, pytest.raises(UnavailableError) as refused:
        client.delete_collection("album")
    assert refused.value.status == 503


def check_served(server: Server, secret: str) -> None:
    wait_for(server, lambda: readiness(server) == (200, ""))
    with server.client(secret) as client:
        for number in range(5):
            assert client.get_content("album", f"p{number}")
        assert client.get_collection("a").active_version == 1


def test_a_sqlite_file_that_is_away_for_a_while_costs_nothing(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    secret, before = fill(folder, "")
    away = (folder / FILE).rename(tmp_path / "away")
    server = start()
    check_refused(server, secret)
    assert files(folder) == before
    assert not (folder / FILE).exists()
    away.rename(folder / FILE)
    check_served(server, secret)
    assert files(folder) == before
    # Once more, now from under the running service.
    (folder / FILE).rename(away)
    wait_for(server, lambda: readiness(server)[0] == 503)
    check_refused(server, secret)
    away.rename(folder / FILE)
    check_served(server, secret)
    assert files(folder) == before


@pytest.mark.postgres
def test_a_postgres_database_that_is_restored_after_the_start_costs_nothing(
    start: Callable[..., Server], tmp_path: Path, postgres_url: str
) -> None:
    folder, own = tmp_path / "data", sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    url = own.render_as_string(hide_password=False)
    secret, before = fill(folder, url)
    server_url = own.set(database="postgres")
    engine = sqlalchemy.create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{own.database}" RENAME TO "{own.database}_away"')
        connection.exec_driver_sql(f'CREATE DATABASE "{own.database}"')
    try:
        upgraded = subprocess.run(
            [*LRBS, "db", "upgrade"],
            cwd=ROOT,
            env={**environment_of(folder), "LRBS_DATABASE_URL": url},
            capture_output=True,
            text=True,
        )
        assert upgraded.returncode == 1
        assert "lrbs db adopt" in upgraded.stderr
        server = start(LRBS_DATABASE_URL=url)
        check_refused(server, secret)
        assert files(folder) == before
        # Every statement of two processes fails several times a second, for one reason.
        assert 1 <= server.said().count("rejected a statement") <= 2
        assert "SELECT" not in server.said()
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{own.database}" WITH (FORCE)')
            connection.exec_driver_sql(f'ALTER DATABASE "{own.database}_away" RENAME TO "{own.database}"')
        engine.dispose()
    check_served(server, secret)
    assert files(folder) == before


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_first_starts_at_the_same_time_make_one_installation(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = environment_of(tmp_path / "data")
    if kind == "postgres":
        found = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
        url = found.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        environment["LRBS_DATABASE_URL"] = url

    def create_key(_: int) -> subprocess.CompletedProcess[str]:
        command = [*LRBS, "keys", "create"]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(create_key, range(4)))
    assert [process.returncode for process in done] == [0] * 4, [process.stderr for process in done]
    services = build(
        Settings(data_dir=tmp_path / "data", database_url=environment.get("LRBS_DATABASE_URL", ""))
    )
    assert services.health.check().reason is None
    assert len(services.access.list_keys()) == 4
    services.database.engine.dispose()
