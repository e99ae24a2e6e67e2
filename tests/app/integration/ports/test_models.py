"""The contract of ModelRepository, for every database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import sqlalchemy

from app.db.session import Database
from app.domain.entities import Collection, ModelVersion
from app.domain.reports import TrainingReport
from tests.app.integration.conftest import MODALITIES
from tests.app.refused import refused


def version(number: int, bundle: str = "") -> ModelVersion:
    # As a version before formats wrote it.
    report = TrainingReport.from_json(
        {"rank": 2, "classes": ["Straße"], "alpha": 1e-300, "singular_values": [1.5, 0.1]}
    )
    created = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    return ModelVersion(number, bundle or f"bundle-{number}", "0" * 64, 3, report, created, False)


def add(database: Database, collection: Collection, *models: ModelVersion) -> None:
    with database.write() as work:
        for model in models:
            work.models.add(collection, model)


def active(database: Database, collection: Collection) -> list[int]:
    with database.read() as work:
        models = work.models.list(collection)
        versions = [model.version for model in models if model.is_active]
        assert versions == [
            model.version for model in models if work.models.get(collection, model.version).is_active
        ]
        assert (versions or [None]) == [work.collections.get(collection.name).active_version]
    return versions


def replace(database: Database, collection: Collection, number: int, expected: int | None) -> bool:
    with database.write() as work:
        return work.models.replace_active(collection, number, expected)


def test_a_version_comes_back_as_it_was_recorded(database: Database, collection: Collection) -> None:
    add(database, collection, version(1))
    with database.read() as work:
        assert work.models.get(collection, 1) == version(1)
        assert work.models.list(collection) == [version(1)]
        with refused("model-not-found"):
            work.models.get(collection, 2)
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        add(database, collection, version(1))


def test_long_lists_of_bundles_are_looked_up(database: Database, collection: Collection) -> None:
    add(database, collection, version(1), version(2))
    unknown = [f"unknown-{number}" for number in range(1000)]  # more than one query's
    with database.read() as work:
        assert work.models.used_bundles(["bundle-1", *unknown, "bundle-2"]) == {"bundle-1", "bundle-2"}
        assert work.collections.used_galleries(unknown) == set()


def test_numbers_are_each_collections_own(database: Database, collection: Collection) -> None:
    with database.write() as work:
        other = work.collections.add("other", MODALITIES)
    add(database, collection, version(1), version(2))
    with database.read() as work:
        assert work.models.next_version(collection) == 3
        assert work.models.next_version(other) == 1
        assert work.models.list(other) == []
    add(database, other, version(1, "of-other"))
    assert replace(database, other, 1, None)
    assert active(database, collection) == []
    assert active(database, other) == [1]
    with database.read() as work:
        asked = ["bundle-1", "bundle-2", "of-other", "nobodys"]
        assert work.models.used_bundles(asked) == set(asked[:3])
        assert work.models.used_bundles([]) == set()


def test_the_active_version_changes_only_from_what_was_expected(
    database: Database, collection: Collection
) -> None:
    add(database, collection, *(version(number) for number in (1, 2, 3)))
    steps = [(1, 2, False), (1, None, True), (2, None, False), (2, 1, True), (3, 1, False), (1, 2, True)]
    now: list[int] = []
    for number, expected, succeeds in steps:
        assert replace(database, collection, number, expected) is succeeds
        now = [number] if succeeds else now
        assert active(database, collection) == now


def test_of_many_who_expect_the_same_one_activates(database: Database, collection: Collection) -> None:
    add(database, collection, *(version(number) for number in range(1, 10)))
    assert replace(database, collection, 9, None)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: replace(database, collection, number, 9), range(1, 9)))
    assert sum(done) == 1
    assert active(database, collection) == [done.index(True) + 1]
