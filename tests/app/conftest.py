"""Databases with the current schema, each a copy of one that was migrated once, and commands on them."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy

from app.cli.main import main
from app.db.schema import DatabaseSchema
from app.db.session import make_engine
from app.settings import DATABASE_FILE
from tests.conftest import postgres_database

LrbsInside = Callable[..., subprocess.CompletedProcess[str]]
_NEW_IDENTITY = "UPDATE installation SET identity = :identity"


def psycopg_url(url: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")


def _migrate(url: str) -> None:
    engine = make_engine(url)
    DatabaseSchema(engine).upgrade()
    engine.dispose()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database without rows, only to be copied."""
    file = tmp_path_factory.mktemp("migrated") / DATABASE_FILE
    _migrate(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def copy_migrated(migrated_file: Path) -> Callable[[Path], None]:
    """A function that puts a migrated database of an identity of its own into a data folder."""

    def copy(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        copied = shutil.copyfile(migrated_file, folder / DATABASE_FILE)
        connection = sqlite3.connect(copied)
        with connection:
            connection.execute(_NEW_IDENTITY, {"identity": uuid.uuid4().hex})
        connection.close()

    return copy


@pytest.fixture(scope="session")
def _migrated_template() -> Iterator[str]:
    with postgres_database() as url:
        _migrate(psycopg_url(url).render_as_string(hide_password=False))
        yield str(psycopg_url(url).database)


@contextlib.contextmanager
def migrated_database(request: pytest.FixtureRequest, kind: str, folder: Path) -> Iterator[str]:
    """Make a migrated database, of PostgreSQL or in a data folder; yields the setting of its URL."""
    if kind == "postgres":
        with postgres_database(request.getfixturevalue("_migrated_template")) as made:
            yield psycopg_url(made).render_as_string(hide_password=False)
    else:
        request.getfixturevalue("copy_migrated")(folder)
        yield ""


@pytest.fixture
def migrated_postgres_url(_migrated_template: str) -> Iterator[str]:
    """URL of a migrated database of this test's own, with the driver that the service takes."""
    with postgres_database(_migrated_template) as made:
        url = psycopg_url(made)
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(_NEW_IDENTITY), {"identity": uuid.uuid4().hex})
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def lrbs_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> LrbsInside:
    """Run the command line in this process."""

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        values = {"LRBS_DATA_DIR": str(tmp_path / "data"), "LRBS_DATABASE_URL": "", **settings}
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in values.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["lrbs", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        status = ended.value.code or 0
        assert isinstance(status, int)
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run
