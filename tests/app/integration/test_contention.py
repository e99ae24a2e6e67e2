"""Callers at the same time: locks, connections, and what others learn of a call that one of them makes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.db.session import Database, make_engine
from app.domain.errors import DatabaseUnavailableError, ServiceError
from app.domain.names import Scope
from app.services.training.requests import TrainingParameters
from app.settings import Settings
from tests.app.closing import close
from tests.app.integration.conftest import EITHER, MODALITIES, PARAMETERS


@pytest.fixture(params=EITHER)
def services(
    request: pytest.FixtureRequest, tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> Iterator[Services]:
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_postgres_url")
    else:
        copy_migrated(tmp_path)
    settings = Settings(data_dir=tmp_path, database_url=url, lock_wait_seconds=0.3)
    built = build(settings)
    yield built
    close(built)


def test_another_broken_constraint_is_no_retrain(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (services.catalogue.create(name, MODALITIES) for name in "ab")
    monkeypatch.setattr("app.db.jobs.secrets.token_hex", lambda _: "the same id")
    with services.database.write() as work:
        work.jobs.enqueue(first, {})
    with pytest.raises(sqlalchemy.exc.IntegrityError), services.database.write() as work:
        work.jobs.enqueue(second, {})


def test_a_write_that_gets_no_lock_is_refused_soon(services: Services) -> None:
    made = services.catalogue.create("a", MODALITIES)
    other = Database(make_engine(services.settings.resolved_database_url))
    with other.write() as holder:
        holder.collections.next_revision(made)
        with pytest.raises(DatabaseUnavailableError), services.database.write() as work:
            work.collections.next_revision(made)
    other.engine.dispose()
    with services.database.write() as work:
        assert work.collections.next_revision(made) == 2


def test_a_busy_database_is_a_problem_with_a_time_to_wait(pairs: Any) -> None:
    impatient = pairs.services.settings.model_copy(update={"lock_wait_seconds": 0.2})
    pairs.fill("a")
    made, _ = pairs.services.catalogue.collection("a")
    other = pairs.services
    pairs.services = build(impatient)
    client = pairs.client()
    body = {"items": [{"modality": "x", "vector": [1.0] * 8}]}
    with other.database.write() as holder:
        holder.collections.next_revision(made)
        answer = client.post("/v1/collections/a/items", json=body)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["type"] == "/problems/database-unavailable"
    assert client.post("/v1/collections/a/items", json=body).status_code == 201
    close(pairs.services)


def test_a_full_pool_is_a_problem_too(tmp_path: Path) -> None:
    (tmp_path / "lrbs.sqlite3").touch()
    url = f"sqlite:///{tmp_path / 'lrbs.sqlite3'}"
    engine = make_engine(url, 0.1)
    database = Database(engine)
    assert isinstance(engine.pool, sqlalchemy.QueuePool)
    assert engine.pool.timeout() == 0.1
    held = [engine.connect() for _ in range(15)]
    with pytest.raises(DatabaseUnavailableError), database.read() as work:
        work.collections.list()
    for connection in held:
        connection.close()
    engine.dispose()


def test_whether_the_schema_is_current_is_told_while_somebody_writes(pairs: Any) -> None:
    """On SQLite, where one writer at a time holds the whole database."""
    services = build(pairs.services.settings.model_copy(update={"lock_wait_seconds": 60.0}))
    with pairs.services.database.write() as work:
        work.collections.list()
        began = time.monotonic()
        assert services.health.check().is_ready
        assert time.monotonic() - began < 30.0, "it waited for the writer"
    close(services)


def test_as_many_transactions_as_may_run_find_a_connection(either: Any) -> None:
    settings = either.services.settings.model_copy(update={"max_running": 8, "lock_wait_seconds": 0.5})
    services = build(settings)
    together = threading.Barrier(3 * 8)
    failed: list[BaseException] = []

    def read() -> None:
        try:
            with services.database.read() as work:
                work.collections.list()
                together.wait(60.0)
        except (DatabaseUnavailableError, threading.BrokenBarrierError) as error:
            together.abort()
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3 * 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert failed == []
    close(services)


@pytest.mark.postgres
def test_those_who_watch_do_not_wait_for_a_database_that_hangs(postgres_url: str, tmp_path: Path) -> None:
    # It waits for locks for longer than the test lasts: what ends the waiting is the patience of the query.
    services = build(Settings(data_dir=tmp_path, database_url=postgres_url, lock_wait_seconds=600.0))
    services.schema.upgrade()
    assert services.health.check().is_ready
    outside = sqlalchemy.create_engine(postgres_url, poolclass=sqlalchemy.pool.NullPool)
    for table in ("collections", "alembic_version"):
        with outside.begin() as holder:
            holder.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            found = services.health.check()
            assert not found.is_ready
            assert "database" in (found.reason or "")
            if table == "collections":
                with pytest.raises(DatabaseUnavailableError):
                    services.health.collections(10)
    assert services.health.check().is_ready
    # The patience ends with the transaction: other queries of the same connection may take their time.
    with services.database.read(0.05), services.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "0"
    close(services)


@pytest.mark.postgres
def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    import socket

    from app.db.session import Database, make_engine

    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        database = Database(make_engine(f"postgresql+psycopg://nobody@127.0.0.1:{port}/x", 0.1))
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailableError), database.read() as work:
            work.collections.list()
        assert time.monotonic() - began < 60.0, "the driver's own patience has no end"
        database.engine.dispose()


CALLERS = 6


def outcomes(pairs: Any, call: Callable[[], object]) -> Counter[str]:
    """Count how the call ends for callers that all found everything as it was before."""

    def outcome() -> str:
        try:
            call()
        except ServiceError as error:
            return error.code
        return "done"

    engine: sqlalchemy.Engine = pairs.services.database.engine
    with ThreadPoolExecutor(CALLERS) as pool:
        with engine.begin() as holder:
            # Nobody can write: on PostgreSQL all look first, then wait for these rows.
            for table in ("collections", "api_keys", "jobs"):
                holder.exec_driver_sql(f"UPDATE {table} SET id = id")
            calls = [pool.submit(outcome) for _ in range(CALLERS)]
            time.sleep(1.0)
        return Counter(call.result(timeout=60) for call in calls)


@pytest.mark.filterwarnings("ignore:DELETE statement on table:sqlalchemy.exc.SAWarning")  # as in production
def test_one_caller_creates_deletes_and_revokes(either: Any) -> None:
    either.fill("a")
    services, new = either.services, either.item("x", "new", either.data.X[0])
    key, _ = services.access.create(Scope.SEARCH)
    for call, code in (
        (lambda: services.catalogue.add_items("a", [new]), "item-exists"),
        (lambda: services.catalogue.delete_item("a", "x00"), "item-not-found"),
        (lambda: services.access.revoke(key.id), "key-not-found"),
        (lambda: services.catalogue.delete_collection("a"), "collection-not-found"),
    ):
        assert outcomes(either, call) == {"done": 1, code: CALLERS - 1}


def test_one_caller_asks_for_a_retrain_and_all_may_cancel_it(either: Any) -> None:
    either.fill("a")
    found = outcomes(either, lambda: either.services.training.request("a", PARAMETERS))
    assert found == {"done": 1, "training-already-running": CALLERS - 1}
    (job,) = either.services.training.jobs("a", 10)
    assert outcomes(either, lambda: either.services.training.cancel(job.id)) == {"done": CALLERS}
    _, events = either.services.training.events(job.id, 0, 100)
    assert [event.data["state"] for event in events] == ["queued", "cancelled"]


def test_one_caller_rolls_back_and_a_version_is_activated_once(either: Any) -> None:
    either.fill("a")
    for seed in (0, 1):
        either.train("a", TrainingParameters(alpha=1e-3, scaling="standard", max_iter=20, seed=seed))
    versions = either.services.versions
    found = outcomes(either, lambda: versions.roll_back("a", "test"))
    assert found == {"done": 1, "active-version-conflict": CALLERS - 1}
    assert outcomes(either, lambda: versions.activate("a", 2, "test")) == {"done": CALLERS}
    assert [entry.version for entry in versions.history("a", 10)] == [2, 1, 2, 1]


def test_a_list_of_jobs_takes_as_many_queries_as_one_job(either: Any) -> None:
    either.fill("a")
    statements: list[str] = []

    def listed(count: int) -> int:
        while len(either.services.training.jobs("a", 100)) < count:
            either.services.training.cancel(either.services.training.request("a", PARAMETERS).id)
        statements.clear()
        assert len(either.services.training.jobs("a", 100)) == count
        return len(statements)

    own = threading.get_ident()  # threads in the background ask the database, too

    def note(*given: Any) -> None:
        if threading.get_ident() == own:
            statements.append(given[2])

    sqlalchemy.event.listen(either.services.database.engine, "before_cursor_execute", note)
    assert listed(1) == listed(12)
