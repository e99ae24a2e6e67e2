import contextlib
import shutil
import subprocess
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.db.session import Database, make_engine
from app.domain.entities import Collection, Content, Job, JobState, Modality
from app.domain.names import Scope
from app.domain.searches import SearchResult
from app.main import create_app
from app.services.catalogue.service import NewItem
from app.services.serving.search import Query
from app.services.training import index_tuning
from app.services.training.requests import TrainingParameters
from app.settings import DATABASE_FILE, Settings
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from tests.app.closing import close
from tests.app.conftest import LrbsInside, migrated_database, psycopg_url
from tests.app.integration.in_process import run_here
from tests.app.integration.searching import fill, find, train
from tests.conftest import postgres_database

PARAMETERS = TrainingParameters(alpha=1e-1, scaling="standard", max_iter=20)
FINE = replace(PARAMETERS, alpha=1e-3)
"""For texts, noise and many classes, of which the other penalty leaves little or nothing."""
EITHER = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
"""Databases that a fixture has as its parameters."""
CopyOf = Callable[..., tuple["Pairs", Any]]
"""What the fixture `copy_of` is."""


@dataclass
class Pairs:
    """Services over an empty database, and vectors of two modalities to fill collections with."""

    services: Services
    data: SyntheticPairs
    readers: frozenset[str] | None = None
    """Keys that search here, whose writes are waited for; None: every write is."""

    def make(self, name: str, **types: str) -> None:
        """Create a collection of modalities of some types of encoders, or of vectors, x and z."""
        modalities = [Modality(side, {"type": kind}) for side, kind in types.items()]
        self.services.catalogue.create(name, modalities or MODALITIES)

    def fill(self, name: str, prefix: str = "") -> None:
        self.make(name)
        data = self.data
        for side, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
            items = [
                self.item(side, f"{prefix}{side}{number:02d}", row, f"class {label}")
                for number, (row, label) in enumerate(zip(rows, labels, strict=True))
            ]
            self.services.catalogue.add_items(name, items)

    @staticmethod
    def item(modality: str, item_id: str, row: Any, *labels: str, **facts: Any) -> NewItem:
        return NewItem(modality, Content(vector=np.asarray(row).tolist()), item_id, labels, **facts)

    def try_to_train(self, name: str, parameters: TrainingParameters = PARAMETERS) -> Job:
        self.services.training.request(name, parameters)
        return run_here(self.services)

    def train(self, name: str, parameters: TrainingParameters = PARAMETERS) -> int:
        job = self.try_to_train(name, parameters)
        assert job.state is JobState.SUCCEEDED, job.error
        assert job.model_version is not None
        return job.model_version

    def search(self, name: str, k: int = 100, row: Any = None) -> SearchResult:
        """Search x with a vector of z."""
        vector = np.asarray(self.data.Z[0] if row is None else row).tolist()
        query = [Query(Content(vector=vector))]
        (result,) = find(self.services, name, "z", "x", query, k, readers=self.readers)
        return result

    def ids(self, name: str) -> list[str]:
        return [hit.id for hit in self.search(name).hits]

    def client(self, raise_errors: bool = False) -> httpx.Client:
        """Return a client with an admin key."""
        with warnings.catch_warnings():
            # Starlette would rather have a successor of httpx, which is not among the dependencies.
            warnings.simplefilter("ignore")
            from fastapi.testclient import TestClient
        _, secret = self.services.access.create(Scope.ADMIN)
        headers = {"Authorization": f"Bearer {secret}"}
        return TestClient(create_app(self.services), headers=headers, raise_server_exceptions=raise_errors)


@pytest.fixture(scope="session")
def vectors() -> SyntheticPairs:
    return make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)


@pytest.fixture
def pairs(tmp_path: Path, vectors: SyntheticPairs, copy_migrated: Callable[[Path], None]) -> Iterator[Pairs]:
    copy_migrated(tmp_path)
    services = build(Settings(data_dir=tmp_path, database_url="", open_search=True))
    yield Pairs(services, vectors)
    close(services)


@pytest.fixture(scope="module")
def lasting_pairs(
    tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs, copy_migrated: Callable[[Path], None]
) -> Iterator[Pairs]:
    """As `pairs`, for the tests of a module that only read what one training made."""
    folder = tmp_path_factory.mktemp("lasting")
    copy_migrated(folder)
    services = build(Settings(data_dir=folder, database_url="", open_search=True))
    yield Pairs(services, vectors)
    close(services)


@pytest.fixture(scope="session")
def _kept_copies() -> dict[Any, tuple[Settings, Any]]:
    """What `copy_of` has made, by what makes it."""
    return {}


@pytest.fixture
def copy_of(
    _kept_copies: dict[Any, tuple[Settings, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    vectors: SyntheticPairs,
    copy_migrated: Callable[[Path], None],
) -> Iterator[CopyOf]:
    """Return a function that makes a copy of what another one, called once, makes of `pairs` with its
    arguments; it returns the copy, and what that one returned."""
    with contextlib.ExitStack() as until_ended:

        def copy(make: Callable[..., Any], *arguments: Hashable, **options: Hashable) -> tuple[Pairs, Any]:
            key = (make, arguments, tuple(options.items()))
            if key not in _kept_copies:
                folder = tmp_path_factory.mktemp("kept")
                copy_migrated(folder)
                made = Pairs(build(Settings(data_dir=folder, database_url="", open_search=True)), vectors)
                result = make(made, *arguments, **options)
                close(made.services)
                _kept_copies[key] = made.services.settings, result
            settings, result = _kept_copies[key]
            folder = tmp_path_factory.mktemp("copied")
            return Pairs(until_ended.enter_context(copy_services(settings, folder)), vectors), result

        yield copy


def train_all(pairs: Pairs, names: str) -> None:
    """Fill and train a collection for each letter: for `copy_of`."""
    for name in names:
        pairs.fill(name)
        pairs.train(name)


def choose_at_any_speed(patch: pytest.MonkeyPatch) -> None:
    """Galleries of a test are too small, and its machine too busy, for a measured speed to decide."""
    patch.setattr(index_tuning, "_MIN_SPEEDUP", 0.0)
    patch.setattr(index_tuning, "_MIN_QUERIES", 10)


@pytest.fixture
def any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_at_any_speed(monkeypatch)


@pytest.fixture
def services(tmp_path: Path, copy_migrated: Callable[[Path], None]) -> Iterator[Services]:
    """Services over an empty database."""
    copy_migrated(tmp_path)
    built = build(Settings(data_dir=tmp_path, database_url=""))
    yield built
    close(built)


@contextlib.contextmanager
def copy_services(kept: Settings, folder: Path, **changed: Any) -> Iterator[Services]:
    """Services over a copy of a data folder and of its database."""
    shutil.copytree(kept.data_dir, folder, dirs_exist_ok=True)
    with contextlib.ExitStack() as until_ended:
        url = kept.database_url
        if url:
            template = str(psycopg_url(url).database)
            made = psycopg_url(until_ended.enter_context(postgres_database(template)))
            url = made.render_as_string(hide_password=False)
        services = build(kept.model_copy(update={"data_dir": folder, "database_url": url, **changed}))
        until_ended.callback(close, services)
        yield services


@contextlib.contextmanager
def keep_trained(
    request: pytest.FixtureRequest,
    folder: Path,
    vectors: SyntheticPairs,
    database: str = "sqlite",
    parameters: Sequence[TrainingParameters] = (PARAMETERS,),
    **others: Any,
) -> Iterator[Settings]:
    """Settings of what others copy: the collection "a" with a version for each of some trainings."""
    with migrated_database(request, database, folder) as url:
        settings = Settings(data_dir=folder, database_url=url, open_search=True, **others)
        pairs = Pairs(build(settings), vectors)
        pairs.fill("a")
        for of_version in parameters:
            pairs.train("a", of_version)
        close(pairs.services)
        yield settings


@contextlib.contextmanager
def keep_approximate(
    request: pytest.FixtureRequest, folder: Path, vectors: SyntheticPairs, **others: Any
) -> Iterator[Settings]:
    """As `keep_trained`, with 60 items for many, which an approximate index searches."""
    with contextlib.ExitStack() as until_ended:
        with pytest.MonkeyPatch.context() as patch:
            choose_at_any_speed(patch)
            trained = keep_trained(request, folder, vectors, approximate_from_items=55, **others)
            settings = until_ended.enter_context(trained)
        yield settings


@pytest.fixture(scope="session")
def _kept_a(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[Settings]:
    with keep_trained(request, tmp_path_factory.mktemp("a"), vectors) as settings:
        yield settings


@pytest.fixture(scope="session")
def _kept_a_in_postgres(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[Settings]:
    with keep_trained(request, tmp_path_factory.mktemp("a"), vectors, "postgres") as settings:
        yield settings


@pytest.fixture
def trained_pairs(_kept_a: Settings, tmp_path: Path, vectors: SyntheticPairs) -> Iterator[Pairs]:
    """As `pairs`, with the collection "a" and its first version."""
    with copy_services(_kept_a, tmp_path) as services:
        yield Pairs(services, vectors)


@pytest.fixture(scope="session")
def _kept_named(
    tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs, copy_migrated: Callable[[Path], None]
) -> Settings:
    folder = tmp_path_factory.mktemp("named")
    copy_migrated(folder)
    services = build(Settings(data_dir=folder, database_url=""))
    fill(services, vectors)
    assert train(services) == 1
    close(services)
    return services.settings


@pytest.fixture
def trained(_kept_named: Settings, tmp_path: Path) -> Iterator[Services]:
    """Services over the collection of `searching` with its first model."""
    with copy_services(_kept_named, tmp_path) as services:
        yield services


@pytest.fixture(scope="module")
def lasting_trained(_kept_named: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """As `trained`, for the tests of a module that only read."""
    with copy_services(_kept_named, tmp_path_factory.mktemp("lasting")) as services:
        yield services


@pytest.fixture(params=EITHER)
def either(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    vectors: SyntheticPairs,
    copy_migrated: Callable[[Path], None],
) -> Iterator[Pairs]:
    """As `pairs`, over SQLite and over PostgreSQL."""
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_postgres_url")
    else:
        copy_migrated(tmp_path)
    services = build(Settings(data_dir=tmp_path, database_url=url, sweep_grace_seconds=0.0))
    yield Pairs(services, vectors)
    close(services)


def kept_trained(request: pytest.FixtureRequest) -> Settings:
    """Settings of the trained collection that a fixture with `EITHER` as its parameters copies."""
    kept: Settings = request.getfixturevalue(
        "_kept_a" if request.param == "sqlite" else "_kept_a_in_postgres"
    )
    return kept


@pytest.fixture(params=EITHER)
def trained_either(
    request: pytest.FixtureRequest, tmp_path: Path, vectors: SyntheticPairs
) -> Iterator[Pairs]:
    """As `trained_pairs`, over SQLite and over PostgreSQL."""
    kept = kept_trained(request)
    with copy_services(kept, tmp_path, open_search=False, sweep_grace_seconds=0.0) as services:
        yield Pairs(services, vectors)


@pytest.fixture
def postgres_url(postgres_url: str) -> str:
    """URL of an empty database of this test's own, with the driver that the service takes."""
    return psycopg_url(postgres_url).render_as_string(hide_password=False)


MODALITIES = (Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"}))


@pytest.fixture(params=EITHER)
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> Iterator[sqlalchemy.Engine]:
    """The engine of an empty database; of one with the current schema where a test has `database`."""
    is_migrated = "database" in request.fixturenames
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_postgres_url" if is_migrated else "postgres_url")
    else:
        url = f"sqlite:///{tmp_path / DATABASE_FILE}"
        if is_migrated:
            copy_migrated(tmp_path)
        else:
            (tmp_path / DATABASE_FILE).touch()
    engine = make_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def database(engine: sqlalchemy.Engine) -> Database:
    return Database(engine)


@pytest.fixture
def collection(database: Database) -> Collection:
    with database.write() as work:
        return work.collections.add("pairs", MODALITIES)


@pytest.fixture
def lrbs(lrbs_inside: LrbsInside) -> LrbsInside:
    """Return a function that runs a command on the database and the store of services."""

    def run(services: Services, *arguments: object) -> subprocess.CompletedProcess[str]:
        folder, url = services.settings.data_dir, services.settings.storage_url
        return lrbs_inside(*map(str, arguments), LRBS_DATA_DIR=str(folder), LRBS_STORAGE_URL=url)

    return run
