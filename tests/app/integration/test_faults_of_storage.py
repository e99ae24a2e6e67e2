"""A full or read-only database or disk, an exchanged database file, and damage to what no search reads."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.db.copies import copy_sqlite
from app.domain.entities import Content, Item
from app.services.catalogue.imports import ItemSpool
from app.services.catalogue.preparation import NewItem
from app.services.health import Readiness
from app.settings import Settings
from tests.app.closing import close
from tests.app.e2e.refusals import check_problem
from tests.app.integration.conftest import MODALITIES
from tests.app.integration.in_process import run_well
from tests.app.integration.loading import current, load
from tests.app.refused import refused
from tests.app.repairs import request_repairs


def limit(pairs: Any, pragma: str) -> Any:
    def set_pragma(connection: Any, *_: Any) -> None:
        connection.execute(pragma)

    sqlalchemy.event.listen(pairs.services.database.engine, "checkout", set_pragma)
    return lambda: sqlalchemy.event.remove(pairs.services.database.engine, "checkout", set_pragma)


def look_for_a_job(services: Services) -> None:
    """Do what an idle worker does all the time: a transaction that may write, and changes nothing."""
    with services.database.write() as work:
        assert work.jobs.claim("worker", 60.0, 3) is None


@pytest.mark.parametrize(
    ("pragma", "undone", "kind"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 4294967294", "storage-full"),
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF", "storage-read-only"),
    ],
)
def test_what_sqlite_cannot_write_is_not_called_busy(pairs: Any, pragma: str, undone: str, kind: str) -> None:
    pairs.make("a")
    client = pairs.client()
    items = {"items": [{"id": f"i{n}", "modality": "x", "vector": [float(n)] * 4000} for n in range(50)]}
    remove = limit(pairs, pragma)
    problem = check_problem(client.post("/v1/collections/a/items", json=items), 507, "nothing was stored")
    assert problem["type"] == f"/problems/{kind}"
    assert "the last write was refused" in str(pairs.services.health.check().reason)
    remove()
    limit(pairs, undone)
    look_for_a_job(pairs.services)
    assert "the last write was refused" in str(pairs.services.health.check().reason)
    assert client.post("/v1/collections/a/items", json=items).status_code == 201
    assert pairs.services.health.check().reason is None


@pytest.fixture
def on_postgres(postgres_url: str, tmp_path: Path) -> Iterator[Services]:
    """A service whose database is PostgreSQL's, which is ready."""
    services = build(Settings(data_dir=tmp_path / "pg", database_url=postgres_url))
    services.schema.set_up()
    services.catalogue.create("a", MODALITIES)
    assert load(services) == Readiness(True)
    yield services
    close(services)


def run_by_hand(services: Services, *statements: str) -> None:
    with services.database.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


@pytest.mark.postgres
def test_a_read_only_postgres_is_not_called_busy(on_postgres: Services) -> None:
    name = on_postgres.database.engine.url.database
    run_by_hand(on_postgres, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    close(on_postgres)
    # Before anybody has tried to write.
    assert on_postgres.health.check() == Readiness(True, "the database is read-only")
    with refused("storage-read-only"):
        on_postgres.catalogue.create("b", MODALITIES)
    run_by_hand(
        on_postgres,
        "SET TRANSACTION READ WRITE",
        f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
    )
    close(on_postgres)
    on_postgres.catalogue.create("b", MODALITIES)
    assert on_postgres.health.check() == Readiness(True)


def make_collection(services: Services) -> None:
    services.catalogue.create("b", MODALITIES)


def add_items(services: Services) -> None:
    """Items go in by COPY, which SQLAlchemy knows nothing of."""
    items = [NewItem("x", Content(vector=[float(n)]), f"i{n}") for n in range(3)]
    assert services.catalogue.add_items("a", items).ids == ["i0", "i1", "i2"]


@pytest.mark.postgres
@pytest.mark.parametrize(("table", "write"), [("collections", make_collection), ("items", add_items)])
def test_a_postgres_without_room_is_not_called_busy(
    on_postgres: Services, table: str, write: Callable[[Services], None]
) -> None:
    run_by_hand(
        on_postgres,
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$""",
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION fail()",
    )
    with refused("storage-full") as raised:
        write(on_postgres)
    assert isinstance(raised.value.__cause__, sqlalchemy.exc.DBAPIError)
    assert type(raised.value.__cause__.orig).__qualname__ == "DiskFull", "psycopg's own class"
    look_for_a_job(on_postgres)
    found = on_postgres.health.check()
    assert found.is_ready
    assert "the last write was refused: no space is left" in str(found.reason)
    run_by_hand(on_postgres, f"DROP TRIGGER full_disk ON {table}")
    write(on_postgres)
    assert on_postgres.health.check() == Readiness(True)


def test_a_database_file_that_was_exchanged_takes_the_writes_from_then_on(pairs: Any, tmp_path: Path) -> None:
    pairs.make("a")
    file = pairs.services.settings.data_dir / "lrbs.sqlite3"
    copy_sqlite(pairs.services.database.engine, tmp_path / "copy")
    for left in file.parent.glob("lrbs.sqlite3-*"):
        left.unlink()
    os.replace(tmp_path / "copy", file)
    pairs.make("b")
    fresh = build(pairs.services.settings)
    assert [one.name for one in fresh.catalogue.collections()] == ["a", "b"]
    close(fresh)


def test_damage_to_the_held_out_part_stops_no_search_and_is_told(trained_pairs: Any) -> None:
    expected = trained_pairs.ids("a")
    models = trained_pairs.services.settings.data_dir / "models"
    (judged,) = models.glob("*/judged")
    shutil.rmtree(judged)
    fresh = build(trained_pairs.services.settings)
    assert current(fresh.snapshots, "a").load_failure is None
    found = load(fresh)
    assert found.is_ready
    assert "a: later versions cannot be compared" in str(found.reason)
    assert trained_pairs.ids("a") == expected
    assert request_repairs(trained_pairs.services) == ["a"]
    run_well(trained_pairs.services)
    assert current(fresh.snapshots, "a").model.version == 2
    assert fresh.health.check() == Readiness(True)
    close(fresh)


FULL = Path("/dev/full")


def lines(count: int) -> str:
    items = [{"id": f"n{n}", "modality": "x", "vector": [float(n)] * 8} for n in range(count)]
    return "".join(json.dumps(item) + "\n" for item in items)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_an_import_that_finds_no_space_says_so_and_stores_nothing(
    pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.fill("a")
    client = pairs.client()
    before = client.get("/v1/collections/a").json()
    path = "/v1/collections/a/items:import"
    with monkeypatch.context() as patch:
        patch.setattr(
            "app.services.catalogue.imports.tempfile.SpooledTemporaryFile", lambda **_: FULL.open("r+b")
        )
        for count in (5, 2000):  # what a buffer takes, and more
            problem = check_problem(client.post(path, content=lines(count)), 507, "no space is left")
            assert problem["type"] == "/problems/storage-full"
    assert client.get("/v1/collections/a").json() == before
    assert client.post(path, content=lines(5)).status_code == 201


def test_ids_that_find_no_space_are_a_full_disk_too(tmp_path: Path) -> None:
    spool = ItemSpool(tmp_path)
    spool._ids.execute("PRAGMA max_page_count = 2")
    with pytest.raises(OSError, match="No space left") as raised:
        spool.add([(n, Item(f"a long id of an item {n}", "x")) for n in range(5000)])
    assert raised.value.errno == errno.ENOSPC
    spool.close()


def test_other_errors_of_the_system_are_internal(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs.make("a")

    def fail(**_: Any) -> Any:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr("app.services.catalogue.imports.tempfile.SpooledTemporaryFile", fail)
    answer = pairs.client().post("/v1/collections/a/items:import", content=lines(1))
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal"
