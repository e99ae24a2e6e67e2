"""Hosts that share a database and an object store, and no folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.bootstrap import Services, build
from app.db.schema import DatabaseSchema
from app.db.session import make_engine
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.integration.searching import NAME, fill, ids, search, train
from tests.app.integration.test_files import picture, png
from tests.app.integration.test_ownership import ALBUM
from tests.app.refused import refused
from tests.app.waiting import wait_for
from tests.object_store import ObjectStore

Open = Callable[..., Services]
AWAY = "it does not answer (AWS_ENDPOINT_URL)"


@pytest.fixture
def open_host(object_store: ObjectStore, postgres_url: str, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens services with a data folder of their own."""
    engine = make_engine(postgres_url)
    DatabaseSchema(engine).upgrade()
    engine.dispose()
    opened: list[Services] = []
    url = object_store.make_place()

    def open_one(name: str, **others: str) -> Services:
        facts = {"database_url": postgres_url, "storage_url": url, **others}
        services = build(Settings(data_dir=tmp_path / name, **facts))  # type: ignore[arg-type]
        opened.append(services)
        return services

    yield open_one
    for services in opened:
        close(services)


def test_what_one_host_stores_and_trains_the_other_serves(
    open_host: Open, vectors: SyntheticPairs, tmp_path: Path
) -> None:
    first, second = open_host("first"), open_host("second")
    first.schema.set_up()
    fill(first, vectors)
    with refused("model-not-trained"):
        search(second, vectors.Z[0])
    assert train(first) == 1
    assert ids(search(second, vectors.Z[0])) == ids(search(first, vectors.Z[0]))
    second.catalogue.delete_item(NAME, "x01")
    assert "x01" not in ids(search(first, vectors.Z[0], 60))

    first.catalogue.create("album", ALBUM)
    first.catalogue.add_items("album", [picture("one", 1)])
    shown = second.catalogue.content("album", "one")
    assert shown == first.catalogue.content("album", "one")

    copy = tmp_path / "copy"
    assert second.backup.make(copy) >= 2
    assert {path.parent.parent.name for path in copy.rglob("*") if len(path.name) == 64} == {"pictures"}


def test_searches_go_on_while_the_object_store_is_away(
    open_host: Open, vectors: SyntheticPairs, object_store: ObjectStore
) -> None:
    services = open_host("only")
    services.schema.set_up()
    fill(services, vectors)
    train(services)
    services.catalogue.create("album", ALBUM)
    before = ids(search(services, vectors.Z[0]))
    object_store.kill()
    with refused("storage-unavailable", match="it does not answer"):
        services.catalogue.add_items("album", [picture("one", 1)])
    readiness = services.health.check()
    assert readiness.is_ready
    assert readiness.reason == f"the storage of LRBS_STORAGE_URL cannot be used: {AWAY}"
    services.catalogue.delete_item(NAME, before[0])
    assert ids(search(services, vectors.Z[0], 9)) == before[1:]
    object_store.recover()
    wait_for(lambda: services.health.check().reason is None)
    services.catalogue.add_items("album", [picture("one", 1)])
    assert services.catalogue.content("album", "one")[0] == png(1)


def test_a_database_that_the_files_do_not_belong_to_is_refused(open_host: Open) -> None:
    first = open_host("first")
    first.schema.set_up()
    first.catalogue.create("album", ALBUM)
    first.catalogue.add_items("album", [picture("one", 1)])
    with refused("wrong-database", match="there is no database, or an empty one"):
        open_host("other", database_url="").schema.set_up()
