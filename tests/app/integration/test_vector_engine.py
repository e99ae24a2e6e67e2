"""A service whose galleries are in PostgreSQL answers as one that has them in memory."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from app.bootstrap import Services, build
from app.cli.bench import bench
from app.db.migrate import upgrade
from app.db.session import make_engine
from app.domain.entities import Content, ItemFilter, SearchResult
from app.domain.errors import DatabaseUnavailableError, UnknownLabelError, VectorEngineUnavailableError
from app.services.serving.search import Query, SingleSearch
from app.services.storage.rounds import Round
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.integration.searching import NAME, fill, ids, search, train, vector_item
from tests.pgvector import PgvectorServer

Open = Callable[[str], Services]


@pytest.fixture
def open_services(pgvector_url: str, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens services on one database and one data folder."""
    engine = make_engine(pgvector_url)
    upgrade(engine)
    engine.dispose()
    opened = []

    def open_one(vector_engine: str) -> Services:
        services = build(Settings(data_dir=tmp_path, database_url=pgvector_url, vector_engine=vector_engine))  # type: ignore[arg-type]
        opened.append(services)
        return services

    yield open_one
    for services in opened:
        close(services)


def shown(result: SearchResult) -> list[tuple[str, float, Any, Any]]:
    return [(hit.id, round(hit.score, 4), hit.item.labels, hit.item.metadata) for hit in result.hits]


def test_it_answers_as_in_memory_through_writes_and_another_version(
    open_services: Open, vectors: SyntheticPairs
) -> None:
    here, there, memory = (open_services(engine) for engine in ("postgresql", "postgresql", "faiss"))
    fill(here, vectors)
    assert train(here) == 1

    def compare(*item_filters: ItemFilter) -> None:
        for row in vectors.Z[:5]:
            for item_filter in (ItemFilter(), *item_filters):
                expected = search(memory, row, 60, item_filter=item_filter)
                for services in (here, there):
                    found = search(services, row, 60, item_filter=item_filter)
                    assert shown(found) == shown(expected)
                    assert found.model_version == expected.model_version
                    assert found.index_revision == expected.index_revision

    odd = ItemFilter(metadata={"odd": (True,)})
    of_class = ItemFilter(labels=("class 1",), metadata={"odd": (False, None)})
    compare(odd, of_class)
    with pytest.raises(UnknownLabelError):
        search(there, vectors.Z[0], item_filter=ItemFilter(labels=("none",)))
    assert here.values.count(NAME, "x", 10) == memory.values.count(NAME, "x", 10)
    drawn, expected_map = (
        {point.item.id for points in services.maps.draw(NAME, 100).points.values() for point in points}
        for services in (there, memory)
    )
    assert drawn == expected_map
    (similar,) = there.search.search(NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    (expected,) = memory.search.search(NAME, "x", "x", [Query(item_id="x00")], 5, 0, ItemFilter())
    assert ids(similar) == ids(expected)

    here.catalogue.add_items(NAME, [vector_item("x", "new", 3.0 * vectors.X[0], "class new")])
    there.catalogue.add_items(
        NAME, [vector_item("x", "x01", 2.0 * vectors.X[2], "class 1", metadata={"odd": True})], replace=True
    )
    here.catalogue.delete_item(NAME, "x02")
    compare(odd, of_class, ItemFilter(labels=("class new",)))
    assert "x02" not in ids(search(there, vectors.Z[0], 100))

    assert train(there) == 2
    compare(odd)
    old = here.search.search_version(NAME, 1, ("z", "x"), single(vectors.Z[0]))
    assert ids(old) == ids(memory.search.search_version(NAME, 1, ("z", "x"), single(vectors.Z[0])))


def single(row: Any) -> Any:
    return SingleSearch(Query(Content(vector=np.asarray(row).tolist())), 60, 0, frozenset({"labels"}), None)


def test_galleries_of_versions_that_are_gone_are_removed(
    open_services: Open, vectors: SyntheticPairs
) -> None:
    services = open_services("postgresql")
    fill(services, vectors)
    train(services)
    search(services, vectors.Z[0])
    assert services.engine_sweeper is not None
    assert services.engine_sweeper.sweep() == 0
    services.catalogue.delete_collection(NAME)
    assert services.removal.go_on(Round())
    assert services.engine_sweeper.sweep() == 2


def test_galleries_are_built_again_from_the_database_while_services_go_on(
    open_services: Open, vectors: SyntheticPairs, pgvector_url: str
) -> None:
    services = open_services("postgresql")
    fill(services, vectors)
    train(services)
    other = open_services("postgresql")
    expected = shown(search(other, vectors.Z[0], 60))
    engine = make_engine(pgvector_url)
    with engine.begin() as connection:
        tables = connection.exec_driver_sql("SELECT table_name FROM lrbs_engine.galleries").scalars().all()
        for table in tables:  # as a damaged disk would
            connection.exec_driver_sql(f"UPDATE lrbs_engine.{table} SET raw = mapped, labels = '{{}}'")
    assert shown(search(other, vectors.Z[0], 60)) != expected
    assert services.gallery_rebuild is not None
    assert services.gallery_rebuild.run(NAME) == {"x": 60, "z": 50}
    assert shown(search(other, vectors.Z[0], 60)) == expected
    other.catalogue.delete_item(NAME, expected[0][0])
    assert shown(search(services, vectors.Z[0], 60)) == expected[1:]

    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA lrbs_engine CASCADE")
    engine.dispose()
    with pytest.raises(VectorEngineUnavailableError, match="`lrbs db reindex` makes them again"):
        search(services, vectors.Z[0])
    assert open_services("postgresql").gallery_rebuild.run(NAME) == {"x": 59, "z": 50}  # type: ignore[union-attr]
    assert shown(search(services, vectors.Z[0], 60)) == expected[1:]


def test_the_engine_needs_postgresql(tmp_path: Path) -> None:
    with pytest.raises(
        ValidationError, match="LRBS_VECTOR_ENGINE is postgresql: LRBS_DATABASE_URL has to be"
    ):
        Settings(data_dir=tmp_path, database_url="", vector_engine="postgresql")


def test_what_was_written_is_found_once_a_killed_engine_is_back(
    open_services: Open, vectors: SyntheticPairs, pgvector_server: PgvectorServer
) -> None:
    services = open_services("postgresql")
    fill(services, vectors)
    train(services)
    services.catalogue.delete_item(NAME, "x03")
    before = shown(search(services, vectors.Z[0], 60))
    pgvector_server.kill()
    try:
        for _ in range(2):
            with pytest.raises((DatabaseUnavailableError, VectorEngineUnavailableError)):
                search(services, vectors.Z[0], 60)
        with pytest.raises(DatabaseUnavailableError):
            services.catalogue.delete_item(NAME, "x04")
    finally:
        pgvector_server.start()
    assert shown(search(services, vectors.Z[0], 60)) == before
    services.catalogue.delete_item(NAME, before[0][0])
    assert shown(search(services, vectors.Z[0], 60)) == before[1:]


@pytest.mark.parametrize("engine", ["faiss", "postgresql"])
def test_its_speed_is_measured_beside_galleries_in_memory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("LRBS_VECTOR_ENGINE", engine)
    if engine == "postgresql":
        monkeypatch.setenv("LRBS_DATABASE_URL", request.getfixturevalue("pgvector_url"))
    result = CliRunner().invoke(bench, ["engine", "--items", "2000", "--seconds", "0.01", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["results"]
    assert {row["gallery"] for row in figures} >= {"memory, exact", *({engine} - {"faiss"})}
    assert all(row["per_second"] > 0 for row in figures)
    assert min(row["recall_at_10"] for row in figures) > 0.9
