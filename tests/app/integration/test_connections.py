"""How many connections there are, and how long a database that hangs is waited for."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import build
from app.domain.errors import DatabaseUnavailableError
from app.settings import Settings
from tests.app.closing import close


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
    url = sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    shown = url.render_as_string(hide_password=False)
    # It waits for locks for longer than the test lasts: what ends the waiting is the patience of the query.
    services = build(Settings(data_dir=tmp_path, database_url=shown, lock_wait_seconds=600.0))
    services.schema.upgrade()
    assert services.health.check().is_ready
    outside = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
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
