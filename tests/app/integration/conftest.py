from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from app.db.migrate import upgrade
from app.db.session import SqlDatabase, make_engine
from app.domain.entities import Collection, Modality

MODALITIES = (Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"}))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    url = f"sqlite:///{tmp_path / 'lrbs.sqlite3'}"
    if request.param == "postgres":
        found = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
        if found.drivername == "postgresql":
            found = found.set(drivername="postgresql+psycopg")
        url = found.render_as_string(hide_password=False)
    made = make_engine(url)
    yield made
    made.dispose()


@pytest.fixture
def database(engine: sqlalchemy.Engine) -> SqlDatabase:
    upgrade(engine)
    return SqlDatabase(engine)


@pytest.fixture
def collection(database: SqlDatabase) -> Collection:
    with database.write() as work:
        return work.collections.add("pairs", MODALITIES)
