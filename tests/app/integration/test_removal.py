"""Deleting collections of any size: gone for everybody at once, removed in bounded steps."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy
from alembic import command

from app.db.schema import DatabaseSchema
from app.db.session import Database
from app.domain.entities import Collection, Item, JobState
from app.domain.errors import CollectionNotFoundError
from tests.app.integration.conftest import MODALITIES
from tests.app.integration.in_process import at_work
from tests.app.integration.test_database import migrate, version
from tests.app.refused import refused
from tests.app.waiting import wait_for

ROOT = Path(__file__).parents[3]
MANY = 20_000
_COLUMNS = "collection_id, modality, text, content_hash, labels, metadata, train, revision, is_deleted"
_DELETE = [sys.executable, "-m", "app.cli", "collections", "delete", "large", "--yes"]


def put(database: Database, collection: Collection, *items: Item) -> None:
    with database.write() as work:
        work.items.put(collection, items, work.collections.next_revision(collection))


def delete(database: Database, name: str = "pairs") -> None:
    with database.write() as work:
        work.collections.delete(name)


def step(database: Database, collection: Collection, rows: int = 100, size: int = 1 << 20) -> Any:
    with database.write() as work:
        return work.collections.remove_some(collection.id, rows, size)


def items_left(database: Database, collection_id: int) -> int:
    query = sqlalchemy.text("SELECT count(*) FROM items WHERE collection_id = :id")
    with database.engine.connect() as connection:
        return connection.scalar(query, {"id": collection_id}) or 0


def deleted(database: Database) -> list[int]:
    with database.read() as work:
        return list(work.collections.deleted_ids())


def test_a_deleted_one_is_gone_with_its_jobs_before_its_rows_are(
    database: Database, collection: Collection
) -> None:
    put(database, collection, Item("a", "x", text="t", content_hash="f" * 64))
    with database.write() as work:
        closed = work.jobs.enqueue(collection, {})
        work.jobs.request_cancel(closed.id)
        queued = work.jobs.enqueue(collection, {})
        progress = work.installation.progress()
    delete(database)
    assert items_left(database, collection.id) == 1
    assert deleted(database) == [collection.id]
    hidden = f"deleted/{collection.id}"
    with database.read() as work:
        for name in ("pairs", hidden):
            with pytest.raises(CollectionNotFoundError):
                work.collections.get(name)
            with pytest.raises(CollectionNotFoundError):
                work.collections.lock(name)
        assert work.collections.list() == []
        for job in (closed, queued):
            with refused("job-not-found"):
                work.jobs.get(job.id)
        assert work.jobs.counts() == dict.fromkeys(JobState, 0)
        assert work.items.used_content(["f" * 64]) == {"f" * 64}, "its file goes after its row"
        assert work.installation.progress() != progress
    with database.write() as work:
        assert work.jobs.claim("worker", 60.0, 3) is None
        with refused("job-not-found"):
            work.jobs.request_cancel(closed.id)
        with pytest.raises(CollectionNotFoundError):
            work.collections.next_revision(collection)
        with pytest.raises(CollectionNotFoundError):
            work.collections.delete(hidden)
    with database.write() as work:
        assert work.collections.add("pairs", collection.modalities).id != collection.id


def test_rows_are_removed_in_steps_of_bounded_rows_and_bytes(
    database: Database, collection: Collection
) -> None:
    with database.write() as work:
        other = work.collections.add("other", collection.modalities)
    put(database, other, Item("kept", "x", content_hash="0" * 64))
    vector = np.ones(256, np.float32)
    items = [Item(f"i{n}", "x", features=vector, content_hash=f"{n % 4:064d}") for n in range(10)]
    put(database, collection, *items)
    with database.write() as work:
        work.models.add(collection, version(1))
        job = work.jobs.enqueue(collection, {})
        work.jobs.request_cancel(job.id)
    assert step(database, collection) is None, "it is not deleted"
    assert items_left(database, collection.id) == 10
    delete(database)
    left, pictures = [], set()
    for rows, size in ((3, 1 << 20), (100, 2048), (100, 1), (100, 1 << 20)):
        pictures |= step(database, collection, rows, size)
        left.append(items_left(database, collection.id))
    assert left == [7, 5, 4, 0]
    assert pictures == {f"{n:064d}" for n in range(4)}
    assert step(database, collection) == set(), "the version and the job that had ended"
    assert step(database, collection) is None
    assert step(database, collection) is None
    assert items_left(database, other.id) == 1
    with database.engine.connect() as connection:
        counts = {"collections": 1, "items": 1, "model_versions": 0, "jobs": 0, "job_events": 0}
        for table, count in counts.items():
            assert connection.scalar(sqlalchemy.text(f"SELECT count(*) FROM {table}")) == count


def test_nothing_is_added_to_a_collection_that_is_being_deleted(
    database: Database, collection: Collection
) -> None:
    def enqueue() -> None:
        with database.write() as work:
            work.jobs.enqueue(collection, {})

    with ThreadPoolExecutor(2) as pool:
        with database.write() as work:
            work.collections.delete("pairs")
            calls = [pool.submit(enqueue), pool.submit(put, database, collection, Item("late", "x"))]
            time.sleep(0.5)  # both wait for the deletion
        for call in calls:
            with pytest.raises(CollectionNotFoundError):
                call.result(timeout=60)
    assert step(database, collection) is None


def test_a_killed_deletion_is_carried_on_by_a_worker(either: Any) -> None:
    services = either.services
    database = services.database
    either.make("large")
    large = services.catalogue.collection("large")[0]
    picture = services.catalogue._preparation.blobs.put(b"a picture")
    put(database, large, Item("i", "x", text="t", content_hash=picture))
    with database.engine.begin() as connection:
        connection.exec_driver_sql(
            f"WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {MANY - 1}) "
            f"INSERT INTO items ({_COLUMNS}, item_id) SELECT {_COLUMNS}, 'i' || n FROM items, g"
        )
    environment = {
        **os.environ,
        "LRBS_DATA_DIR": str(services.settings.data_dir),
        "LRBS_DATABASE_URL": services.settings.database_url,
        "LRBS_SWEEP_GRACE_SECONDS": "0",
    }
    with subprocess.Popen(_DELETE, env=environment, cwd=ROOT) as process:
        deadline = time.monotonic() + 60.0
        while items_left(database, large.id) == MANY:
            assert process.poll() is None
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 0 < items_left(database, large.id) < MANY
    assert services.catalogue.collections() == []
    with pytest.raises(CollectionNotFoundError):
        services.catalogue.collection("large")
    either.fill("large")
    ids = [item.id for _, item in services.catalogue.page("large", None, 0, 1000).rows]
    with at_work(services):
        wait_for(lambda: not deleted(database))
        wait_for(lambda: picture not in services.catalogue._preparation.blobs.names())
    assert items_left(database, large.id) == 0
    assert [item.id for _, item in services.catalogue.page("large", None, 0, 1000).rows] == ids


def test_an_older_schema_is_left_nothing_of_deleted_collections(engine: sqlalchemy.Engine) -> None:
    DatabaseSchema(engine).upgrade()
    database = Database(engine)
    for name in ("a", "b"):
        with database.write() as work:
            made = work.collections.add(name, MODALITIES)
        put(database, made, Item("i", "x"))
    delete(database, "a")
    migrate(engine, "0009", command.downgrade)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT name FROM collections").scalars().all() == ["b"]
        assert connection.exec_driver_sql("SELECT count(*) FROM items").scalar() == 1
    migrate(engine, "head")
    with database.read() as work:
        assert [found.name for found in work.collections.list()] == ["b"]
