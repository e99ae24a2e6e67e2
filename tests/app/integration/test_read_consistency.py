"""A search sees one state: its snapshot, and what it reads from the database with it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.app.integration.conftest import EITHER, Pairs, copy_services, kept_trained
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
