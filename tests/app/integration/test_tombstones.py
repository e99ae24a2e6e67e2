"""Tombstones are purged after a while; who did not hear of a deletion in time finds out otherwise."""

from functools import partial
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import build
from app.db.session import Database
from app.domain.entities import Collection, Item
from app.services.storage.collection_lock import writing
from app.services.storage.pacing import Round
from app.services.storage.sweeping import Tombstones
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.in_process import at_work
from tests.app.integration.loading import current
from tests.app.integration.test_saved_galleries import wait
from tests.app.waiting import wait_for


def put(database: Database, collection: Collection, *names: str) -> int:
    with writing(database, collection, 0.0) as (work, current):
        work.items.put(current, [Item(name, "x", text=name) for name in names], current.revision + 1)
        return work.collections.next_revision(current)


def delete(database: Database, collection: Collection, *names: str) -> int:
    with writing(database, collection, 0.0) as (work, current):
        revision = work.collections.next_revision(current)
        work.items.delete(current, names, revision)
        return revision


def tombstones(database: Database) -> list[str]:
    query = sqlalchemy.text("SELECT item_id FROM items WHERE is_deleted ORDER BY id")
    with database.engine.connect() as connection:
        return list(connection.scalars(query))


def found(database: Database) -> Collection:
    with database.read() as work:
        return work.collections.get("pairs")


def purge(database: Database, grace_seconds: float = 0.0) -> None:
    Tombstones(database, grace_seconds).purge(Round())


def test_they_go_once_they_are_older_than_the_grace_period(
    database: Database, collection: Collection
) -> None:
    put(database, collection, "a", "b", "c", "d", "e")
    deleted = delete(database, collection, "a", "b", "d")
    purge(database, 3600.0)
    late = delete(database, collection, "c", "e")
    purge(database, 3600.0)
    assert tombstones(database) == ["a", "b", "c", "d", "e"]
    assert found(database).purged_through == 0
    an_hour_ago = "marked_at = datetime(marked_at, '-1 hour')"
    if database.engine.dialect.name == "postgresql":
        an_hour_ago = "marked_at = marked_at - interval '1 hour'"
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE collections SET {an_hour_ago}")
    purge(database, 3600.0)
    assert tombstones(database) == ["c", "e"], "those were deleted after the time that is known"
    current = found(database)
    assert current.purged_through == deleted
    with database.read() as work:
        assert work.items.count_changes(current, deleted - 1, 100) == 100, "nobody knows"
        assert work.items.count_changes(current, deleted, 100) == 2
        assert work.items.count_changes(current, 0, 100) == 2, "an empty gallery misses nothing"
        assert [(change.item_id, change.revision) for change in work.items.changes_since(current, 0)] == [
            ("c", late),
            ("e", late),
        ]


def test_they_go_in_bounded_steps_and_no_position_is_used_twice(
    database: Database, collection: Collection
) -> None:
    names = [f"i{n}" for n in range(7)]
    put(database, collection, *names)
    with database.read() as work:
        positions = [position for position, _ in work.items.page(collection, None, 0, 100)]
    delete(database, collection, *names)
    counts, may_be_more = [], True
    while may_be_more:
        with writing(database, collection, 0.0) as (work, current):
            may_be_more = work.items.purge_tombstones(current, positions[-1], 0.0, 4)
        counts.append(len(tombstones(database)))
    assert counts == [3, 1, 1]
    purge(database)
    assert tombstones(database) == names[-1:]
    put(database, collection, "new", names[0])
    with database.read() as work:
        page = work.items.page(collection, None, positions[-1], 100)
    assert [item.id for _, item in page] == ["new", names[0]]


def test_a_busy_collection_keeps_no_other_from_its_turn(
    database: Database, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.storage.sweeping.ROWS_PER_STEP", 1)
    with database.write() as work:
        other = work.collections.add("quiet", collection.modalities)
    busy, quiet = [f"b{n}" for n in range(9)], ["q0", "q1"]
    for each, names in ((collection, busy), (other, quiet)):
        put(database, each, *names)
        delete(database, each, *names)
    tidying = Tombstones(database, 0.0)
    for _ in range(2):
        answers = iter([False])
        time_left = Round(should_stop=partial(next, answers, True))
        assert not tidying.purge(time_left), "it was stopped"
    assert tombstones(database) == [*busy[1:], quiet[-1]]
    assert tidying.purge(Round())
    assert tombstones(database) == [busy[-1], quiet[-1]]


def test_an_import_finds_what_it_has_planned_on(database: Database, collection: Collection) -> None:
    put(database, collection, "a", "b", "last")
    delete(database, collection, "a", "b", "last")
    with writing(database, collection, 0.0) as (work, current):
        running = work.imports.begin(current, "b" * 16, 1, 60.0)
    with database.read() as work:
        planned = work.items.plan(current, [Item("a", "x", text="again")], running.revision)
    purge(database)
    assert tombstones(database) == ["a", "b", "last"]
    with database.write() as work:
        work.imports.write(running, planned, 60.0)
        work.imports.publish(running)
    purge(database)
    assert tombstones(database) == ["last"]
    with database.read() as work:
        assert work.items.get(collection, "a").text == "again"


def test_a_server_that_missed_deletions_drops_what_is_gone(trained_either: Any) -> None:
    pairs = trained_either
    other = Pairs(build(pairs.services.settings), pairs.data)
    assert "x03" in other.ids("a")
    catalogue = pairs.services.catalogue
    for name in ("x03", "x05", "x07", "z01", "x59"):
        catalogue.delete_item("a", name)
    catalogue.add_items("a", [pairs.item("x", "new", pairs.data.X[1])])
    with at_work(pairs.services):
        wait_for(lambda: len(tombstones(pairs.services.database)) == 1)
    # One comes back, and is another row by now; one more goes.
    catalogue.add_items("a", [pairs.item("x", "x05", pairs.data.X[5], "back")])
    revision = catalogue.delete_item("a", "x11").revision
    wait_for(lambda: other.search("a").index_revision == revision)
    fresh = Pairs(build(pairs.services.settings), pairs.data)
    expected = [(hit.id, hit.item.labels) for hit in fresh.search("a").hits]
    assert [(hit.id, hit.item.labels) for hit in other.search("a").hits] == expected
    assert [(hit.id, hit.item.labels) for hit in pairs.search("a").hits] == expected
    ids = {item_id for item_id, _ in expected}
    assert {"new", "x05"} <= ids
    assert not {"x03", "x07", "x59", "x11"} & ids
    for one in (other, fresh):
        assert current(one.services.snapshots, "a").galleries["z"].size == 49
        close(one.services)


@pytest.mark.parametrize("purges", [1, 2])
def test_a_gallery_that_was_saved_before_drops_what_is_gone(either: Any, purges: int) -> None:
    saving = Pairs(build(either.services.settings.model_copy(update={"save_after_items": 10})), either.data)
    saving.fill("a")
    saving.train("a")
    items = [saving.item("x", f"new{n}", saving.data.X[n], "new") for n in range(15)]
    saving.services.catalogue.add_items("a", items)
    saving.ids("a")
    wait()
    database = saving.services.database
    with database.read() as work:
        assert work.collections.saved_gallery(work.collections.get("a")) is not None
    for number in range(purges):
        for name in (f"new{number}", f"x0{number}", f"new1{number}"):
            saving.services.catalogue.delete_item("a", name)
        purge(database)  # which may only set the mark
        purge(database)
    assert tombstones(database) == [f"new1{purges - 1}"]
    fresh = Pairs(build(either.services.settings.model_copy(update={"save_after_items": 10**9})), either.data)
    ids = fresh.ids("a")
    assert sorted(ids) == sorted(saving.ids("a"))
    assert len(ids) == 60 + 15 - 3 * purges
    for one in (saving, fresh):
        close(one.services)
