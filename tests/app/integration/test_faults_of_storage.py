"""A full or read-only database, a database file that was exchanged, and damage to what no search reads."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import build
from app.db.copies import copy_sqlite
from app.domain.entities import Modality
from app.domain.errors import StorageReadOnlyError
from tests.app.e2e.refusals import check_problem


def limit(pairs: Any, pragma: str) -> Any:
    def set_pragma(connection: Any, *_: Any) -> None:
        connection.execute(pragma)

    sqlalchemy.event.listen(pairs.services.database.engine, "checkout", set_pragma)
    return lambda: sqlalchemy.event.remove(pairs.services.database.engine, "checkout", set_pragma)


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
    remove()
    limit(pairs, undone)
    assert client.post("/v1/collections/a/items", json=items).status_code == 201


@pytest.mark.postgres
def test_a_read_only_postgres_is_not_called_busy(postgres_url: str, tmp_path: Path, pairs: Any) -> None:
    url = sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    settings = pairs.services.settings.model_copy(
        update={"data_dir": tmp_path / "pg", "database_url": url.render_as_string(hide_password=False)}
    )
    services = build(settings)
    services.set_up()
    modalities = [Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"})]
    services.catalogue.create("a", modalities)
    with services.database.engine.connect() as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{url.database}" SET default_transaction_read_only = on')
        connection.commit()
    services.database.engine.dispose()
    with pytest.raises(StorageReadOnlyError):
        services.catalogue.create("b", modalities)
    services.database.engine.dispose()


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
    fresh.database.engine.dispose()


def test_damage_to_the_held_out_part_stops_no_search(pairs: Any) -> None:
    pairs.fill("a")
    pairs.train("a")
    expected = pairs.ids("a")
    models = pairs.services.settings.data_dir / "models"
    (judged,) = models.glob("*/judged")
    shutil.rmtree(judged)
    fresh = build(pairs.services.settings)
    assert fresh.snapshots.current("a").damage is None
    fresh.database.engine.dispose()
    assert pairs.ids("a") == expected
    assert pairs.services.repair.request_what_is_damaged() == ["a"]
