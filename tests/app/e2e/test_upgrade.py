"""Processes that bring one database to the current schema at the same time."""

import subprocess
from pathlib import Path

import pytest
import sqlalchemy

from app.db.schema import DatabaseSchema
from app.db.session import make_engine
from tests.app.e2e.conftest import LRBS, ROOT, environment_of

PROCESSES = 3


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        (tmp_path / "lrbs.sqlite3").touch()
        return f"sqlite:///{tmp_path / 'lrbs.sqlite3'}"
    found = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
    return found.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def test_upgrades_at_the_same_time_all_succeed(url: str, tmp_path: Path) -> None:
    environment = {**environment_of(tmp_path), "LRBS_DATABASE_URL": url}
    running = [
        subprocess.Popen(
            [*LRBS, "db", "upgrade"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES, told
    assert told == ["the schema is current\n"] * PROCESSES
    engine = make_engine(url)
    assert DatabaseSchema(engine).is_current()
    engine.dispose()


def test_an_upgrade_waits_longer_for_another_than_a_write_does(url: str, tmp_path: Path) -> None:
    """The other one holds its lock for longer than LRBS_LOCK_WAIT_SECONDS."""
    holder = make_engine(url)
    environment = {
        **environment_of(tmp_path),
        "LRBS_DATABASE_URL": url,
        "LRBS_LOCK_WAIT_SECONDS": "0.1",
    }
    with holder.begin() as held:
        if held.dialect.name == "postgresql":
            held.exec_driver_sql("SELECT pg_advisory_xact_lock(1280459347)")
        else:
            held.exec_driver_sql("CREATE TABLE busy (id INTEGER)")
        process = subprocess.Popen(
            [*LRBS, "db", "upgrade"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=12)
    told = process.communicate(timeout=60)[0]
    assert (process.returncode, told) == (0, "the schema is current\n")
    assert DatabaseSchema(holder).is_current()
    holder.dispose()
