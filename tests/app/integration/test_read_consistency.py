"""A search sees one state: its snapshot, and the rows of that revision, which are read once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from tests.app.integration.conftest import EITHER, FINE, Pairs, copy_services, kept_trained
from tests.app.integration.loading import current

READERS = 4
WRITES = 25


@pytest.fixture(params=EITHER)
def trained(request: pytest.FixtureRequest, tmp_path: Path, vectors: Any) -> Iterator[Any]:
    """A trained collection "a"; everything written to it belongs to no class."""
    with copy_services(kept_trained(request), tmp_path) as services:
        yield Pairs(services, vectors)


def put(trained: Any, item_id: str, generation: int) -> int:
    row = [float(generation)] * 8
    item = trained.item("x", item_id, row, metadata={"generation": generation})
    revision: int = trained.services.catalogue.add_items("a", [item], replace=True).revision
    return revision


def test_what_is_read_beside_a_snapshot_belongs_to_it(trained: Any) -> None:
    put(trained, "changes", 1)
    put(trained, "goes", 1)
    with trained.services.snapshots.open("a") as (snapshot, work):
        put(trained, "changes", 2)
        trained.services.catalogue.delete_item("a", "goes")
        put(trained, "comes", 1)
        # Another search meanwhile makes the process hold a newer snapshot.
        assert {"changes", "comes"} <= set(trained.ids("a"))
        items = work.items.get_many(snapshot.collection, ["changes", "goes", "comes"])
        assert work.collections.get("a") == snapshot.collection
    assert {item_id: item.metadata["generation"] for item_id, item in items.items()} == {
        "changes": 1,
        "goes": 1,
    }


def test_a_snapshot_and_its_transaction_are_of_one_revision_whatever_is_written(trained: Any) -> None:
    closing = threading.Event()

    def read(_: int) -> int:
        last = count = 0
        while not closing.is_set():
            with trained.services.snapshots.open("a") as (snapshot, work):
                assert work.collections.get("a") == snapshot.collection
                revision = snapshot.collection.revision
            assert revision >= last
            last, count = revision, count + 1
        return count

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read, number) for number in range(READERS)]
        try:
            for number in range(WRITES):
                revision = put(trained, f"i{number % 5}", number)
                # Acknowledged, so that the very next search has it.
                assert current(trained.services.snapshots, "a").collection.revision >= revision
        finally:
            closing.set()
        assert all(reader.result() > 0 for reader in readers)


def test_hits_are_shown_with_the_content_that_was_scored(trained: Any) -> None:
    """Two writers of one item: a hit's score and metadata must be of the same write."""
    closing = threading.Event()
    scores: dict[int, float] = {}
    for generation in (1, 2):
        put(trained, "changes", generation)
        (hit,) = (hit for hit in trained.search("a").hits if hit.id == "changes")
        scores[generation] = hit.score
    assert scores[1] != scores[2]

    def write() -> None:
        generation = 0
        while not closing.is_set():
            put(trained, "changes", 1 + generation % 2)
            generation += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            (hit,) = (hit for hit in trained.search("a").hits if hit.id == "changes")
            assert hit.score == pytest.approx(scores[hit.item.metadata["generation"]], rel=1e-5)
    finally:
        closing.set()
        writer.join()


PATH = "/v1/collections/a/search/x-to-text"


@contextmanager
def rows_read(engine: sqlalchemy.Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM items" in statement:
            statements.append(statement)

    sqlalchemy.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", note)


def test_the_rows_of_hits_are_read_once_for_a_revision_and_show_what_was_written_since(pairs: Pairs) -> None:
    catalogue, rng = pairs.services.catalogue, np.random.default_rng(0)
    catalogue.create("a", [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})])
    rows = rng.normal(size=(30, 4)) + 3.0 * np.eye(4)[np.arange(30) % 3]
    vectors = [pairs.item("x", f"x{n}", row, str(n % 3)) for n, row in enumerate(rows)]
    texts = [
        NewItem("text", Content(text=f"kind{n % 3} word{n}"), f"t{n}", (str(n % 3),), metadata={"n": n})
        for n in range(30)
    ]
    catalogue.add_items("a", [*vectors, *texts])
    pairs.train("a", FINE)
    with pairs.client(raise_errors=True) as client:

        def ask(**options: object) -> list[dict[str, object]]:
            body = {"vector": rows[0].tolist(), "k": 30, **options}
            hits: list[dict[str, object]] = client.post(PATH, json=body).raise_for_status().json()["hits"]
            return hits

        database = pairs.services.database
        is_settled = False
        while not is_settled:  # what is committed in the background sends a search to the rows
            mark, first = database.change_mark(), ask()
            with rows_read(database.engine) as statements:
                assert ask() == first
                assert ask(k=5) == first[:5]
            is_settled = database.change_mark() == mark
        assert statements == []
        assert {hit["id"]: hit["text"] for hit in first} == {
            f"t{n}": f"kind{n % 3} word{n}" for n in range(30)
        }
        bare = ask(include=["metadata"])
        assert [hit["metadata"] for hit in bare] == [hit["metadata"] for hit in first]
        assert {hit["text"] for hit in bare} == {None}
        changed = NewItem("text", Content(text="kind0 changed"), "t0", ("0",), metadata={"n": -1})
        catalogue.add_items("a", [changed], replace=True)
        catalogue.delete_item("a", "t1")
        now = {hit["id"]: hit for hit in ask()}
        assert (now["t0"]["text"], now["t0"]["metadata"]) == ("kind0 changed", {"n": -1})
        assert "t1" not in now
