"""A service whose galleries are in PostgreSQL answers as one that has them in memory."""

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from pymilvus import MilvusClient
from typer.testing import CliRunner

from app.api.metrics import Metrics
from app.bootstrap import Services, build, open_vector_engine
from app.db.schema import DatabaseSchema
from app.db.session import make_engine
from app.domain.entities import Content, IndexedItem, Modality
from app.domain.errors import (
    CollectionNotFoundError,
    DatabaseUnavailableError,
    InvalidFieldError,
    VectorEngineUnavailableError,
)
from app.domain.filters import ItemFilter
from app.domain.ports import GalleryKey, GalleryWrite, NewGallery
from app.domain.searches import SearchResult
from app.engines.common import lock_file, name_of
from app.services.catalogue.preparation import NewItem
from app.services.serving.refinement import Refinement
from app.services.serving.search import Query, Search, results_of
from app.services.storage.pacing import Round
from app.services.storage.sweeping import Tombstones
from app.services.training.requests import TrainingParameters
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.conftest import psycopg_url
from tests.app.integration.searching import NAME, fill, find, ids, search, train, vector_item
from tests.app.refused import refused
from tests.app.waiting import wait_for
from tests.benchmarks.__main__ import benchmarks
from tests.conftest import postgres_database
from tests.milvus import MilvusServer
from tests.pgvector import PgvectorServer

Open = Callable[..., Services]
OF_THE_SERVICE = pytest.mark.parametrize("kind", ["postgresql"])
"""For what the service does, whichever engine it asks; `ports/test_gallery_engines` tries each of them."""


@pytest.fixture(params=["postgresql", "milvus"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name of an engine; with PostgreSQL's the database is there, too, with Milvus it is SQLite."""
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> PgvectorServer | MilvusServer:
    name = "pgvector_server" if kind == "postgresql" else "milvus_server"
    started: PgvectorServer | MilvusServer = request.getfixturevalue(name)
    return started


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs, copy_migrated: Callable[[Path], None]
) -> Settings:
    """Settings of a trained collection, of which no gallery was made yet."""
    folder = tmp_path_factory.mktemp("trained")
    copy_migrated(folder)
    return train_for_good(Settings(data_dir=folder, database_url=""), vectors)


@pytest.fixture(scope="module")
def kept_in_postgresql(
    pgvector_server: PgvectorServer, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[Settings]:
    with postgres_database(server=pgvector_server.url) as url:
        database = make_engine(url)
        DatabaseSchema(database).upgrade()
        database.dispose()
        yield train_for_good(Settings(data_dir=tmp_path_factory.mktemp("trained"), database_url=url), vectors)


def train_for_good(settings: Settings, vectors: SyntheticPairs) -> Settings:
    services = build(settings)
    fill(services, vectors)
    assert train(services) == 1
    close(services)
    return settings


@pytest.fixture
def settings(
    kind: str, server: PgvectorServer | MilvusServer, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Settings]:
    """Settings of a service whose galleries are in the engine, on a copy of a trained collection."""
    copied: Settings = request.getfixturevalue("kept" if kind == "milvus" else "kept_in_postgresql")
    shutil.copytree(copied.data_dir, tmp_path, dirs_exist_ok=True)
    with contextlib.ExitStack() as until_ended:
        url = ""
        if kind == "postgresql":
            template = str(psycopg_url(copied.database_url).database)
            url = until_ended.enter_context(postgres_database(template, server.url))
        yield Settings(
            data_dir=tmp_path,
            database_url=url,
            vector_engine=kind,  # type: ignore[arg-type]
            milvus_uri=server.url,
        )


@pytest.fixture
def open_services(settings: Settings, kind: str) -> Iterator[Open]:
    """Return a function that opens services on one database and one data folder."""
    opened = []

    def open_one(*, in_memory: bool = False, **changed: Any) -> Services:
        if in_memory:
            changed["vector_engine"] = "faiss"
        services = build(settings.model_copy(update=changed))
        opened.append(services)
        return services

    yield open_one
    if not opened:
        return
    first = opened[0]
    assert first.engine_sweeper is not None
    with contextlib.suppress(CollectionNotFoundError):
        first.catalogue.delete_collection(NAME)
        assert first.removal.go_on(Round())
    first.engine_sweeper.sweep()
    if kind == "milvus":
        client = MilvusClient(settings.milvus_uri)
        client.delete("lrbs_galleries", ids=["owner"])
        client.close()
    for services in opened:
        close(services)


@pytest.fixture
def sabotage(kind: str, server: PgvectorServer | MilvusServer, settings: Settings) -> Callable[[bool], None]:
    """Return a function that damages the rows of all galleries, or, if asked to, removes the galleries."""

    def in_postgresql(entirely: bool) -> None:
        database = make_engine(settings.resolved_database_url)
        with database.begin() as connection:
            if entirely:
                connection.exec_driver_sql("DROP SCHEMA lrbs_engine CASCADE")
            else:
                tables = connection.exec_driver_sql("SELECT table_name FROM lrbs_engine.galleries")
                for table in tables.scalars().all():
                    connection.exec_driver_sql(
                        f"UPDATE lrbs_engine.{table} SET raw = mapped, labels = '{{}}'"
                    )
        database.dispose()

    def in_milvus(entirely: bool) -> None:
        client = MilvusClient(server.url)
        for name in client.list_collections():
            if entirely and name.startswith("gallery_"):
                client.drop_collection(name)
            elif entirely:
                client.delete(name, filter='name != ""')
            elif name.startswith("gallery_"):
                client.delete(name, filter='item_id != ""')
        client.close()

    return in_postgresql if kind == "postgresql" else in_milvus


class Score(float):
    """A number that is equal to another up to the rounding of single precision."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-5, abs_tol=1e-5)

    def __ne__(self, other: object) -> bool:
        return not self == other


def shown(result: SearchResult) -> list[tuple[str, float, Any, Any]]:
    return [(hit.id, Score(hit.score), hit.item.labels, hit.item.metadata) for hit in result.hits]


def test_it_answers_as_in_memory_through_writes_and_another_version(
    open_services: Open, vectors: SyntheticPairs
) -> None:
    here, there, memory = open_services(), open_services(), open_services(in_memory=True)

    def compare(*item_filters: ItemFilter) -> None:
        for row in vectors.Z[:5]:
            for item_filter in (ItemFilter(), *item_filters):
                expected = search(memory, row, 60, item_filter=item_filter)
                for services in (here, there):
                    found = search(services, row, 60, item_filter=item_filter)
                    assert shown(found) == shown(expected)
                    assert found.model_version == expected.model_version
                    assert found.index_revision == expected.index_revision

    odd = ItemFilter.of(metadata={"odd": (True,)})
    of_class = ItemFilter.of(labels=("class 1",), metadata={"odd": (False, None)})
    compare(odd, of_class)
    with refused("unknown-label"):
        search(there, vectors.Z[0], item_filter=ItemFilter.of(labels=("none",)))
    assert here.overviews.count_values(NAME, "x", 10) == memory.overviews.count_values(NAME, "x", 10)
    drawn, expected_map = (
        {point.id for points in services.overviews.draw_map(NAME, 100).points.values() for point in points}
        for services in (there, memory)
    )
    assert drawn == expected_map
    (similar,) = find(there, NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    (expected,) = find(memory, NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    assert ids(similar) == ids(expected)

    refinements = (
        Refinement(explains=True, group_by="label", group_size=2, emphasis={"similarity": 2.0}),
        Refinement(explains=True, group_by="odd", group_size=9, diversity=0.5, min_probability=0.01),
    )
    for refinement in refinements:
        asked = Search([Query(Content(vector=vectors.Z[0].tolist()))], refinement=refinement)
        (refined,), (expected_result,) = (
            results_of(services.search.search(NAME, "z", "x", [asked])[0]) for services in (there, memory)
        )
        assert shown(refined) == shown(expected_result) != []
        for hit in refined.hits:
            (reason,) = hit.explanation or ()
            assert reason.score == Score(hit.score)

    here.catalogue.add_items(NAME, [vector_item("x", "new", 3.0 * vectors.X[0], "class new")])
    there.catalogue.add_items(
        NAME, [vector_item("x", "x01", 2.0 * vectors.X[2], "class 1", metadata={"odd": True})], replace=True
    )
    here.catalogue.delete_item(NAME, "x02")
    compare(odd, of_class, ItemFilter.of(labels=("class new",)))
    assert "x02" not in ids(search(there, vectors.Z[0], 100))

    assert train(there) == 2
    compare(odd)
    old = here.search.search_version(NAME, 1, ("z", "x"), single(vectors.Z[0]))
    assert ids(old) == ids(memory.search.search_version(NAME, 1, ("z", "x"), single(vectors.Z[0])))


def single(row: Any) -> Any:
    return Search([Query(Content(vector=np.asarray(row).tolist()))], 60, fields=frozenset({"labels"}))


def test_galleries_of_versions_that_are_gone_are_removed(
    open_services: Open, vectors: SyntheticPairs
) -> None:
    services = open_services()
    search(services, vectors.Z[0])
    assert services.engine_sweeper is not None
    assert services.engine_sweeper.sweep() == 0
    services.catalogue.delete_collection(NAME)
    assert services.removal.go_on(Round())
    assert services.engine_sweeper.sweep() == 2


def test_what_is_busy_does_not_keep_the_rest_from_being_removed(
    settings: Settings, kind: str, open_services: Open
) -> None:
    services = open_services(lock_wait_seconds=0.2)
    engine = open_vector_engine(settings)
    assert services.engine_sweeper is not None
    assert engine is not None
    keys = [GalleryKey(7, "of another", modality) for modality in ("x", "y", "z")]
    vectors = np.eye(3, dtype=np.float32)
    for key in keys:
        engine.create(NewGallery(key, 1, iter([]), vectors[:0], vectors, ()))
    busy = engine.keys()[0]
    with contextlib.ExitStack() as until_free:
        if kind == "milvus":
            until_free.enter_context(lock_file(settings.data_dir / "locks", 0.0, name_of(busy)))
        else:
            connection = until_free.enter_context(services.database.engine.begin())
            connection.exec_driver_sql(f"SELECT count(*) FROM lrbs_engine.{name_of(busy)}")
        assert services.engine_sweeper.sweep() == 2
    assert engine.keys() == [busy]
    assert services.engine_sweeper.sweep() == 1
    engine.close()


@OF_THE_SERVICE
def test_galleries_that_another_process_is_making_are_not_made_twice(
    open_services: Open, vectors: SyntheticPairs, settings: Settings
) -> None:
    services = open_services(lock_wait_seconds=0.2)
    with services.database.read() as work:
        collection = work.collections.get(NAME)
        bundle = work.models.get(collection, 1).bundle
    engine = open_vector_engine(settings)
    assert engine is not None
    with contextlib.ExitStack() as until_made:
        for modality in ("x", "z"):
            until_made.enter_context(engine.claim(GalleryKey(collection.id, bundle, modality)))
        with pytest.raises(VectorEngineUnavailableError, match="another process is making"):
            search(services, vectors.Z[0])
        assert engine.keys() == []
    engine.close()
    assert wait_for(lambda: found_again(services, vectors.Z[0]))


@OF_THE_SERVICE
def test_a_collection_whose_galleries_are_being_made_delays_no_other(
    open_services: Open, vectors: SyntheticPairs, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = open_services(), open_services(lock_wait_seconds=20.0)
    monkeypatch.setattr("tests.app.integration.searching.NAME", "others")
    fill(here, vectors)
    train(here)
    monkeypatch.setattr("tests.app.integration.searching.NAME", NAME)
    with here.database.read() as work:
        collection = work.collections.get(NAME)
        bundle = work.models.get(collection, 1).bundle
    engine = open_vector_engine(settings)
    assert engine is not None
    with ThreadPoolExecutor(1) as apart:
        with contextlib.ExitStack() as until_made:
            for modality in ("x", "z"):
                until_made.enter_context(engine.claim(GalleryKey(collection.id, bundle, modality)))
            waiting = apart.submit(search, there, vectors.Z[0])
            time.sleep(0.3)
            monkeypatch.setattr("tests.app.integration.searching.NAME", "others")
            assert ids(search(there, vectors.Z[0]))
            assert not waiting.done()
        assert ids(waiting.result())
    engine.close()
    here.catalogue.delete_collection("others")
    assert here.removal.go_on(Round())


@OF_THE_SERVICE
def test_what_is_known_of_an_item_moves_it_as_it_does_in_memory(
    open_services: Open, vectors: SyntheticPairs
) -> None:
    services = open_services()
    for name, row, label in (("x", vectors.X, vectors.x_labels), ("z", vectors.Z, vectors.z_labels)):
        items = [
            vector_item(name, f"{name}{n:02d}", row[n], f"class {label[n]}", pair_id=f"pair-{n}")
            for n in range(50)
        ]
        services.catalogue.add_items(NAME, items, replace=True)
    version = train(services, TrainingParameters(method="composite"))
    services.versions.activate(NAME, version, "a test")
    search(services, vectors.Z[0])
    in_memory = open_services(in_memory=True)

    def both() -> list[list[tuple[str, float]]]:
        answers = [search(one, vectors.Z[0], 60) for one in (services, in_memory)]
        return [[(hit.id, round(hit.score, 3)) for hit in sorted(answer.hits)] for answer in answers]

    before, same = both()
    assert before == same
    asked = vectors.z_labels[0]
    other = next(n for n in range(50) if vectors.x_labels[n] != asked)
    services.catalogue.change_labels(NAME, f"x{other:02d}", [f"class {asked}"])
    of_label, same = both()
    assert of_label == same
    assert dict(of_label)[f"x{other:02d}"] > dict(before)[f"x{other:02d}"]
    services.catalogue.delete_item(NAME, "z09")
    of_partner, same = both()
    assert of_partner == same
    moved = {item_id for (item_id, old), (_, new) in zip(of_label, of_partner, strict=True) if old != new}
    assert moved == {"x09"}


@OF_THE_SERVICE
def test_words_that_name_no_value_find_what_they_find_in_memory(open_services: Open) -> None:
    services, rng = open_services(), np.random.default_rng(0)
    services.catalogue.delete_collection(NAME)
    assert services.removal.go_on(Round())
    services.catalogue.create(NAME, [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})])

    def items_of(number: int, brand: str) -> list[NewItem]:
        label = ("shoe", "bag", "belt")[number % 3]
        row = np.append(3 * np.eye(3)[number % 3], rng.standard_normal(3))
        facts: dict[str, Any] = {"labels": (label,), "pair_id": f"p{number}"}
        text = NewItem("text", Content(text=f"{brand} {label}"), f"t{number:02d}", **facts)
        shown = vector_item("x", f"x{number:02d}", row, label, pair_id=f"p{number}")
        return [shown, text]

    brands = [f"{start}{end}" for start in ("arfex", "gomi", "hulda") for end in ("lon", "mar", "tis")]
    services.catalogue.add_items(NAME, [item for n in range(54) for item in items_of(n, brands[n // 6])])
    version = train(services, TrainingParameters(method="composite"))
    services.versions.activate(NAME, version, "a test")
    services.catalogue.add_items(NAME, items_of(54, "gomimar"))
    in_memory = open_services(in_memory=True)
    for text, best in [("gomimar", {24, 25, 26, 27, 28, 29, 54}), ("gomimar shoe", {24, 27, 54})]:
        here, there = (
            find(one, NAME, "text", "x", [Query(Content(text=text))], 20)[0] for one in (services, in_memory)
        )
        assert sorted(shown(here)) == sorted(shown(there))
        assert {hit.id for hit in here.hits[: len(best)]} == {f"x{number:02d}" for number in best}


def test_rows_that_ended_long_ago_are_removed(
    open_services: Open, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, engine = open_services(), open_vector_engine(settings)
    assert services.engine_sweeper is not None
    assert engine is not None
    keys = [GalleryKey(7, "of another", modality) for modality in ("x", "y", "z")]
    rows = [IndexedItem(item_id, (), {}) for item_id in ("a", "b", "c")]
    vectors = np.eye(3, dtype=np.float32)
    galleries = [
        engine.create(NewGallery(key, 1, iter([(rows, vectors)]), vectors, vectors, ())) for key in keys
    ]
    for gallery in galleries:
        gallery.write(GalleryWrite(2, 1, ["a"], [], vectors[:0], ()))
        gallery.write(GalleryWrite(1500, 2, ["b"], [], vectors[:0], ()))
    monkeypatch.setattr("app.engines.milvus._LOOK_SECONDS", 0.0)
    assert sum(services.engine_sweeper.purge() for _ in range(3)) == 3
    assert [galleries[0].count(revision, ItemFilter()) for revision in (1, 2, 1500)] == [2, 2, 1]
    assert services.engine_sweeper.purge() == 0
    assert services.engine_sweeper.sweep() == 3
    engine.close()


def test_galleries_are_built_again_from_the_database_while_services_go_on(
    open_services: Open, vectors: SyntheticPairs, sabotage: Callable[[bool], None]
) -> None:
    services = open_services()
    other = open_services()
    expected = shown(search(other, vectors.Z[0], 60))
    sabotage(False)
    assert shown(search(other, vectors.Z[0], 60)) != expected
    assert services.rebuild_galleries is not None
    assert services.rebuild_galleries(NAME) == {"x": 60, "z": 50}
    assert shown(search(other, vectors.Z[0], 60)) == expected
    other.catalogue.delete_item(NAME, expected[0][0])
    assert shown(search(services, vectors.Z[0], 60)) == expected[1:]

    sabotage(True)
    with pytest.raises(VectorEngineUnavailableError, match="its galleries are gone, and are made again"):
        search(services, vectors.Z[0])
    assert open_services().rebuild_galleries(NAME) == {"x": 59, "z": 50}  # type: ignore[union-attr]
    assert shown(search(services, vectors.Z[0], 60)) == expected[1:]


@pytest.mark.parametrize("entirely", [False, True])
def test_galleries_that_somebody_removed_are_made_again_by_those_who_miss_them(
    open_services: Open,
    vectors: SyntheticPairs,
    settings: Settings,
    sabotage: Callable[[bool], None],
    entirely: bool,
) -> None:
    here, there = open_services(), open_services()
    expected = shown(search(here, vectors.Z[0], 60))
    old = single(vectors.Z[1])
    assert shown(search(there, vectors.Z[0], 60)) == expected
    if entirely:
        sabotage(True)
    else:
        engine = open_vector_engine(settings)
        assert engine is not None
        for key in engine.keys():  # noqa: SIM118
            engine.drop(key)
        engine.close()
    with refused("galleries-gone"):
        search(here, vectors.Z[0])
    assert shown(search(here, vectors.Z[0], 60)) == expected
    there.catalogue.delete_item(NAME, expected[0][0])
    assert wait_for(lambda: found_again(there, vectors.Z[0])) == expected[1:]
    assert wait_for(lambda: found_again(here, vectors.Z[0])) == expected[1:]
    assert here.search.search_version(NAME, 1, ("z", "x"), old).hits


def test_a_model_of_rank_0_answers_as_in_memory(open_services: Open, vectors: SyntheticPairs) -> None:
    services, memory = open_services(), open_services(in_memory=True)
    services.versions.activate(NAME, train(services, TrainingParameters(method="lrbs", alpha=1e5)), "a test")
    for one in (services, memory):
        one.catalogue.add_items(NAME, [vector_item("x", f"new-{one is memory}", vectors.X[0], "class 1")])
    of_class = ItemFilter.of(labels=("class 1",))
    for item_filter in (ItemFilter(), of_class):
        expected = search(memory, vectors.Z[0], 70, item_filter=item_filter)
        assert shown(search(services, vectors.Z[0], 70, item_filter=item_filter)) == shown(expected)
        assert {hit.score for hit in expected.hits} == {0.0}
    drawn, expected_map = (one.overviews.draw_map(NAME, 100) for one in (services, memory))
    assert drawn.points.keys() == expected_map.points.keys()
    (similar,) = find(services, NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    (expected,) = find(memory, NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    assert ids(similar) == ids(expected)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_what_was_deleted_while_nobody_searched_is_gone_once_its_tombstone_is(
    open_services: Open, vectors: SyntheticPairs, kind: str
) -> None:
    services = open_services()
    assert "x02" in ids(search(services, vectors.Z[0], 60))
    for item_id in ("x02", "x03"):  # the last tombstone stays
        services.catalogue.delete_item(NAME, item_id)
    Tombstones(services.database, 0.0).purge(Round())
    assert {"x02", "x03"}.isdisjoint(ids(search(open_services(), vectors.Z[0], 60)))


@pytest.mark.parametrize("kind", ["postgresql"])
def test_galleries_of_another_history_than_the_database_are_built_again(
    open_services: Open,
    vectors: SyntheticPairs,
    settings: Settings,
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    services = open_services()
    expected = shown(search(services, vectors.Z[0], 60))
    engine = open_vector_engine(settings)
    assert engine is not None
    keys = engine.keys()
    for key in keys:  # another process is about to make lost ones again
        gallery = engine.open(key)
        assert gallery is not None
        ((_, vector),) = gallery.sample(100, 1)
        nothing = np.zeros((0, len(vector)), np.float32)
        engine.drop(key)
        engine.create(NewGallery(key, 0, iter([]), nothing, nothing, ()))
    services.catalogue.delete_item(NAME, expected[0][0])
    assert shown(search(services, vectors.Z[0], 60)) == expected[1:]

    for key in keys:  # as if the database were a copy of an earlier state
        gallery = engine.open(key)
        assert gallery is not None
        gallery.write(GalleryWrite(1000, 1, [expected[1][0]], [], nothing, ()))
    assert services.rebuild_galleries is not None
    assert services.rebuild_galleries(NAME) == {"x": 59, "z": 50}
    assert shown(search(open_services(), vectors.Z[0], 60)) == expected[1:]

    copy = tmp_path_factory.mktemp("copies") / "copy"
    services.backup.make(copy)
    with services.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    restored = open_services()
    restored.backup.restore(copy)
    assert engine.keys() == []
    engine.close()
    assert shown(search(restored, vectors.Z[0], 60)) == expected[1:]


@pytest.mark.parametrize("kind", ["milvus"])
def test_another_installation_removes_no_galleries_unless_it_is_asked_to(
    open_services: Open, vectors: SyntheticPairs, settings: Settings, kind: str, tmp_path_factory: Any
) -> None:
    services = open_services()
    expected = shown(search(services, vectors.Z[0], 60))
    assert services.engine_sweeper is not None
    assert services.engine_sweeper.sweep() == 0
    copy = tmp_path_factory.mktemp("copies") / "copy"
    services.backup.make(copy)

    strangers = build(settings.model_copy(update={"data_dir": tmp_path_factory.mktemp("strangers")}))
    strangers.schema.upgrade()
    assert strangers.engine_sweeper is not None
    assert strangers.engine_sweeper.sweep() == 0
    with pytest.raises(InvalidFieldError, match="the Milvus server has galleries, which a service may be"):
        strangers.backup.restore(copy)
    assert shown(search(services, vectors.Z[0], 60)) == expected

    strangers.backup.restore(copy, remove_galleries=True)
    assert shown(search(strangers, vectors.Z[0], 60)) == expected
    assert wait_for(lambda: found_again(services, vectors.Z[0])) == expected
    close(strangers)


def test_settings_say_what_an_engine_needs(tmp_path: Path) -> None:
    with pytest.raises(
        ValidationError, match="LRBS_VECTOR_ENGINE is postgresql: LRBS_DATABASE_URL has to be"
    ):
        Settings(data_dir=tmp_path, database_url="", vector_engine="postgresql")
    with pytest.raises(ValidationError, match="LRBS_MILVUS_URI has to begin with http:// or https://"):
        Settings(data_dir=tmp_path, vector_engine="milvus", milvus_uri="milvus.db")


def read_sizes(services: Services) -> dict[str, int | None]:
    (status,) = services.health.collections(10)[1]
    return {name: index.n_items for name, index in status.indexes.items()}


def test_what_was_written_is_found_once_a_killed_engine_is_back(
    open_services: Open, vectors: SyntheticPairs, kind: str, server: PgvectorServer | MilvusServer
) -> None:
    services = open_services()
    services.catalogue.delete_item(NAME, "x03")
    before = shown(search(services, vectors.Z[0], 60))
    sizes = wait_for(lambda: None if None in (sizes := read_sizes(services)).values() else sizes)
    assert sizes == {"x": 59, "z": 50}
    metrics = Metrics(services.health, lambda: 0, lambda: 0)
    server.kill()
    try:
        for _ in range(2):
            with pytest.raises((DatabaseUnavailableError, VectorEngineUnavailableError)):
                search(services, vectors.Z[0], 60)
        with pytest.raises(DatabaseUnavailableError) if kind == "postgresql" else contextlib.nullcontext():
            services.catalogue.delete_item(NAME, "x04")
        if kind == "milvus":  # the database is there, and so are the last counts
            with pytest.raises(VectorEngineUnavailableError):
                search(services, vectors.Z[0])
            assert read_sizes(services) == sizes
            assert f'lrbs_index_items{{collection="{NAME}",modality="x"}} 59.0' in metrics.text().decode()
            down = 'lrbs_backend_up{backend="vector-engine"} 0.0'
            assert wait_for(lambda: down in metrics.text().decode())
            readiness = services.health.check()
            assert readiness.is_ready
            assert "the Milvus server does not answer" in (readiness.reason or "")
    finally:
        server.start()
    if kind == "milvus":
        before = [hit for hit in before if hit[0] != "x04"]
    assert wait_for(lambda: found_again(services, vectors.Z[0])) == before
    services.catalogue.delete_item(NAME, before[0][0])
    assert shown(search(services, vectors.Z[0], 60)) == before[1:]


def found_again(services: Services, row: Any) -> list[tuple[str, float, Any, Any]] | None:
    """Return results, None while the client of the engine has not connected again."""
    try:
        return shown(search(services, row, 60))
    except VectorEngineUnavailableError:
        return None


@pytest.mark.parametrize("engine", ["faiss", "postgresql"])
def test_its_speed_is_measured_beside_galleries_in_memory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("LRBS_VECTOR_ENGINE", engine)
    if engine == "postgresql":
        monkeypatch.setenv("LRBS_DATABASE_URL", request.getfixturevalue("pgvector_url"))
    result = CliRunner().invoke(benchmarks, ["engine", "--items", "2000", "--seconds", "0", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["results"]
    assert {row["gallery"] for row in figures} >= {"memory, exact", *({engine} - {"faiss"})}
    assert all(row["per_second"] > 0 for row in figures)
    assert min(row["recall_at_10"] for row in figures) > 0.9
