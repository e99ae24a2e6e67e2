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
from app.domain.errors import CollectionNotFoundError, DatabaseUnavailableError, ServiceError
from app.settings import Settings
from tests.app.closing import close
from tests.app.integration.conftest import EITHER, MODALITIES


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


def test_of_creators_at_the_same_time_one_succeeds(services: Services) -> None:
    outcomes: Counter[str] = Counter()

    def create(name: str, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            services.catalogue.create(name, MODALITIES)
            outcomes["created"] += 1
        except ServiceError as error:
            outcomes[error.code] += 1

    for number in range(10):
        barrier = threading.Barrier(3)
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(create, f"c{number}", barrier) for _ in range(3)]
        for call in calls:
            call.result()
    assert outcomes == {"created": 10, "collection-exists": 20}


def test_a_job_for_a_collection_that_is_gone_says_so(services: Services) -> None:
    gone = services.catalogue.create("gone", MODALITIES)
    services.catalogue.delete_collection("gone")
    with pytest.raises(CollectionNotFoundError), services.database.write() as work:
        work.jobs.enqueue(gone, {})


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
