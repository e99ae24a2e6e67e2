"""The contract of ItemRepository, for every database."""

from collections.abc import Sequence

from app.db.session import Database
from app.domain.entities import Collection, Item
from tests.app.integration.conftest import MODALITIES
from tests.app.integration.ports.test_collections import AWKWARD as NAMES
from tests.app.refused import refused

AWKWARD = (*NAMES, "a/b", " a")


def put(database: Database, collection: Collection, *items: Item) -> int:
    with database.write() as work:
        revision = work.collections.next_revision(collection)
        work.items.put(collection, items, revision)
        return revision


def delete(database: Database, collection: Collection, *item_ids: str) -> int:
    with database.write() as work:
        revision = work.collections.next_revision(collection)
        work.items.delete(collection, item_ids, revision)
        return revision


def pages(database: Database, collection: Collection, after: int, limit: int) -> list[tuple[int, str]]:
    with database.read() as work:
        return [(position, item.id) for position, item in work.items.page(collection, None, after, limit)]


def test_an_id_is_only_its_own(database: Database, collection: Collection) -> None:
    put(database, collection, *(Item(item_id, "x", text=item_id) for item_id in AWKWARD))
    with database.read() as work:
        assert work.items.existing(collection, [*AWKWARD, "a%%", "%", "B"]) == set(AWKWARD)
        assert [item_id for item_id in AWKWARD if work.items.get(collection, item_id).text != item_id] == []
        assert {name: item.text for name, item in work.items.get_many(collection, AWKWARD).items()} == {
            name: name for name in AWKWARD
        }
        for item_id in ("", "a%%", "%", "B"):
            with refused("item-not-found"):
                work.items.get(collection, item_id)
    left = set(AWKWARD)
    for item_id in AWKWARD:
        delete(database, collection, item_id)
        left.discard(item_id)
        assert {found for _, found in pages(database, collection, 0, 100)} == left


def test_a_cursor_stays_true_while_others_write(database: Database, collection: Collection) -> None:
    """What is there all the time is seen once; nothing is seen twice."""
    put(database, collection, *(Item(f"i{number:02d}", "x") for number in range(20)))
    page = pages(database, collection, 0, 4)
    seen = [item_id for _, item_id in page]
    for number in range(4):
        # Before the cursor, at it and behind it: items go, change, come back and are added.
        delete(database, collection, page[-1][1], f"i{19 - number}")
        put(database, collection, Item(f"i{number:02d}", "z", text="changed"), Item(f"new{number}", "x"))
        if number % 2:
            put(database, collection, Item(page[-1][1], "x", text="back"))
        page = pages(database, collection, page[-1][0], 4)
        seen += [item_id for _, item_id in page]
    seen += [item_id for _, item_id in pages(database, collection, page[-1][0], 100)]
    assert len(seen) == len(set(seen))
    assert set(seen) >= {f"i{number:02d}" for number in range(16)}
    assert "new3" in seen


def test_a_page_holds_no_more_than_asked_for(database: Database, collection: Collection) -> None:
    put(database, collection, *(Item(f"i{number}", "x") for number in range(5)))
    assert [len(pages(database, collection, 0, limit)) for limit in (1, 4, 5, 6)] == [1, 4, 5, 5]
    last = pages(database, collection, 0, 5)[-1][0]
    assert pages(database, collection, last, 5) == []


def test_collections_do_not_see_each_others_items(database: Database, collection: Collection) -> None:
    with database.write() as work:
        other = work.collections.add("other", MODALITIES)
    put(database, collection, Item("a", "x", text="one"))
    put(database, other, Item("a", "z", text="two"), Item("b", "z"))
    delete(database, other, "b")
    with database.read() as work:
        assert work.items.get(collection, "a").text == "one"
        assert work.items.get(other, "a").text == "two"
        assert work.items.counts(collection) == {"x": 1}
        assert work.items.counts(other) == {"z": 1}
        assert [change.item_id for change in work.items.changes_since(collection, 0)] == ["a"]


def test_a_deletion_of_many_is_whole_or_not_at_all(database: Database, collection: Collection) -> None:
    put(database, collection, Item("a", "x"), Item("b", "x"))
    with refused("item-not-found"):
        delete(database, collection, "a", "none")
    assert [item_id for _, item_id in pages(database, collection, 0, 9)] == ["a", "b"]


def test_only_what_may_be_trained_on_gives_labels(database: Database, collection: Collection) -> None:
    put(
        database,
        collection,
        Item("a", "x", labels=("one", "two")),
        Item("b", "x", labels=("one",), train=False),
        Item("c", "x"),
        Item("d", "z", labels=("three",)),
        Item("e", "x", labels=("gone",)),
    )
    delete(database, collection, "e")
    with database.read() as work:
        assert list(work.items.training_labels(collection, "x")) == [("one", "two")]
        assert list(work.items.training_labels(collection, "z")) == [("three",)]


def test_pictures_are_used_as_long_as_one_item_has_them(database: Database, collection: Collection) -> None:
    hashes = [f"{number:064d}" for number in range(1100)]
    put(
        database,
        collection,
        *(Item(f"i{number}", "x", content_hash=hashes[number]) for number in range(1050)),
        Item("twin", "x", content_hash=hashes[0]),
    )

    def used(asked: Sequence[str]) -> set[str]:
        with database.read() as work:
            return work.items.used_content(asked)

    assert used(hashes) == set(hashes[:1050])
    delete(database, collection, "i0", "i1")
    assert used(hashes[:3]) == {hashes[0], hashes[2]}
    assert used([]) == set()
