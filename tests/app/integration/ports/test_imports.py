"""The contract of ImportRepository and of what readers see meanwhile, for every database."""

import dataclasses
import secrets
import time
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from app.db.session import Database
from app.domain.entities import Collection, Item, RunningImport
from app.domain.errors import CollectionNotFoundError
from app.services.storage.collection_lock import clean_up, writing
from app.services.storage.pacing import Round
from tests.app.refused import refused
from tests.app.waiting import wait_for

PICTURE = "a" * 64


def item(name: str, **facts: Any) -> Item:
    vector = np.arange(3, dtype=np.float32)
    return Item(name, "x", features=vector, labels=("old",), metadata={"n": 1}, **facts)


OLD = [item("same"), item("changed", content_hash=PICTURE, pair_id="p"), item("gone"), item("last")]
NEW = [
    item("new-1"),
    item("same"),
    Item("changed", "z", text="changed", labels=("new",), pair_id="q", train=False),
    item("gone", pair_id="again"),
    item("new-2"),
]


def small_write(database: Database, collection: Collection, *items: Item, wait_seconds: float = 0.0) -> int:
    with writing(database, collection, wait_seconds) as (work, current):
        work.items.put(current, items, current.revision + 1)
        return work.collections.next_revision(current)


@pytest.fixture
def filled(database: Database, collection: Collection) -> Collection:
    small_write(database, collection, *OLD)
    with writing(database, collection, 0.0) as (work, current):
        work.items.delete(current, ["gone"], work.collections.next_revision(current))
    with database.read() as work:
        return work.collections.get("pairs")


def begun(database: Database, collection: Collection, lease_seconds: float = 60.0) -> RunningImport:
    with writing(database, collection, 0.0) as (work, current):
        return work.imports.begin(current, secrets.token_hex(8), len(NEW), lease_seconds)


def write(
    database: Database,
    collection: Collection,
    running: RunningImport,
    items: list[Item],
    lease_seconds: float = 60.0,
) -> Any:
    with database.read() as work:
        planned = work.items.plan(collection, items, running.revision)
    with database.write() as work:
        work.imports.write(running, planned, lease_seconds)
    return planned.counts


def seen(database: Database) -> dict[str, Any]:
    """Return everything that readers can learn of the collection's items."""
    with database.read() as work:
        found = work.collections.get("pairs")
        ids = [entry.id for entry in (*OLD, *NEW)]

        def plain(entry: Item) -> tuple[Any, ...]:
            vector = None if entry.features is None else entry.features.tolist()
            return (*dataclasses.astuple(dataclasses.replace(entry, features=None)), vector)

        return {
            "revision": found.revision,
            "page": [(place, plain(entry)) for place, entry in work.items.page(found, None, 0, 100)],
            "of x": [entry.id for _, entry in work.items.page(found, "x", 0, 100)],
            "of p": [entry.id for _, entry in work.items.page(found, None, 0, 100, "p")],
            "many": {name: plain(entry) for name, entry in work.items.get_many(found, ids).items()},
            "one": plain(work.items.get(found, "changed")),
            "existing": work.items.existing(found, ids),
            "changes": [
                (change.item_id, change.modality, change.revision, change.item and plain(change.item))
                for change in work.items.changes_since(found, 0)
            ],
            "unchanged": [entry.id for entry in work.items.unchanged_since(found, found.revision)],
            "counts": work.items.counts(found),
            "labels": list(work.items.training_labels(found, "x")),
        }


def left_over(database: Database) -> tuple[int, ...]:
    """Return how many rows there are that a finished import must not leave."""
    beyond = "items i JOIN collections c ON c.id = i.collection_id WHERE i.revision > c.revision"
    with database.engine.connect() as connection:
        return tuple(
            connection.scalar(text(f"SELECT count(*) FROM {rows}")) or 0
            for rows in ("imports", "replaced_items", beyond)
        )


def test_nothing_is_seen_before_it_is_published_and_then_all(database: Database, filled: Collection) -> None:
    before = seen(database)
    running = begun(database, filled)
    assert running.revision == filled.revision + 1
    counts = write(database, filled, running, NEW[:2])
    assert seen(database) == before
    counts += write(database, filled, running, NEW[2:])
    assert (counts.created, counts.updated, counts.unchanged) == (3, 1, 1)
    assert seen(database) == before
    with database.read() as work:
        assert work.items.used_content([PICTURE]) == {PICTURE}
    with database.write() as work:
        work.collections.lock("pairs")
        work.imports.publish(running)
    after = seen(database)
    places = {entry[0]: place for place, entry in before["page"]}
    assert after["revision"] == running.revision
    assert [entry[0] for _, entry in after["page"]] == ["same", "changed", "gone", "last", "new-1", "new-2"]
    assert all(place == places[entry[0]] for place, entry in after["page"] if entry[0] in places)
    assert after["one"][2] == "changed"
    assert after["counts"] == {"x": 5, "z": 1}
    revisions = {change[0]: change[2] for change in after["changes"]}
    assert {name for name, found in revisions.items() if found == running.revision} == {
        *("new-1", "changed", "gone", "new-2")
    }
    assert clean_up(database, running.id, Round())
    assert seen(database) == after
    assert left_over(database) == (0, 0, 0)


def test_an_abandoned_import_leaves_nothing(database: Database, filled: Collection) -> None:
    before = seen(database)
    for max_rows, max_bytes, least in ((1, 1 << 20, 5), (2, 1 << 20, 3), (100, 1 << 20, 2), (100, 1, 5)):
        running = begun(database, filled)
        write(database, filled, running, NEW)
        with database.write() as work:
            work.imports.abandon(running)
        is_clean, steps = False, 0
        while not is_clean:
            with database.write() as work:
                is_clean = work.imports.clean(running.id, max_rows, max_bytes)
            assert seen(database) == before
            steps += 1
            assert steps < 20
        assert steps >= least
        assert left_over(database) == (0, 0, 0)
    assert small_write(database, filled, item("other")) == running.revision


def test_other_writers_wait_for_an_import_and_then_say_so(database: Database, filled: Collection) -> None:
    running = begun(database, filled)
    with refused("import-running", match=r"5 items .* 'pairs'"):
        small_write(database, filled, item("other"), wait_seconds=0.2)
    with refused("import-running"):
        begun(database, filled)
    with database.write() as work:
        work.collections.lock("pairs")
        work.imports.publish(running)
    assert small_write(database, filled, item("other")) == running.revision + 1
    assert clean_up(database, running.id, Round())


def test_the_next_writer_removes_what_a_silent_import_left(database: Database, filled: Collection) -> None:
    before = seen(database)
    running = begun(database, filled)
    write(database, filled, running, NEW, lease_seconds=0.05)
    time.sleep(0.1)
    assert seen(database) == before
    with database.read() as work:
        assert work.imports.leftover_ids() == [running.id]
    assert small_write(database, filled, item("other"), wait_seconds=5.0) == running.revision
    assert left_over(database) == (0, 0, 0)
    with refused("import-lost"):  # it comes back too late
        write(database, filled, running, [item("late")])
    with refused("import-lost"), database.write() as work:
        work.imports.publish(running)
    assert {entry[0] for _, entry in seen(database)["page"]} == {"same", "changed", "last", "other"}


def test_a_late_import_that_nobody_removed_goes_on(database: Database, filled: Collection) -> None:
    running = begun(database, filled, lease_seconds=0.0)
    time.sleep(0.01)
    write(database, filled, running, NEW)
    with database.write() as work:
        work.imports.publish(running)
    assert seen(database)["counts"] == {"x": 5, "z": 1}


def test_a_published_import_tells_so_as_long_as_its_lease_lasts(
    database: Database, filled: Collection
) -> None:
    running = begun(database, filled)
    write(database, filled, running, NEW)
    with database.write() as work:
        assert not work.imports.renew(running, 2.0)
        work.imports.publish(running)
    with database.write() as work:
        assert work.imports.leftover_ids() == []  # its process may not know yet
        assert work.imports.renew(running, 3600.0)
        work.imports.abandon(running)
    assert seen(database)["counts"] == {"x": 5, "z": 1}

    def leftovers() -> list[str]:
        with database.read() as work:
            return work.imports.leftover_ids()

    wait_for(lambda: leftovers() == [running.id])


def test_a_running_import_is_not_removed(database: Database, filled: Collection) -> None:
    running = begun(database, filled)
    write(database, filled, running, NEW)
    assert clean_up(database, running.id, Round())
    with database.read() as work:
        assert work.imports.leftover_ids() == []
    with database.write() as work:
        work.imports.publish(running)
    assert seen(database)["counts"] == {"x": 5, "z": 1}


def test_a_collection_is_deleted_under_an_import(database: Database, filled: Collection) -> None:
    running = begun(database, filled)
    write(database, filled, running, NEW)
    with database.write() as work:
        work.collections.delete("pairs")
    with pytest.raises(CollectionNotFoundError):
        write(database, filled, running, [item("late")])
    with pytest.raises(CollectionNotFoundError), database.write() as work:
        work.imports.publish(running)
    assert clean_up(database, running.id, Round())
    pictures = set()
    with database.write() as work:
        while (removed := work.collections.remove_some(filled.id, 2, 1 << 20)) is not None:
            pictures |= removed
    assert pictures == {PICTURE}
    assert left_over(database) == (0, 0, 0)
