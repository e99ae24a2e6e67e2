"""The contract of FeedbackRepository, for every database."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from app.db.session import Database
from app.domain.entities import Collection, Feedback, Item
from tests.app.refused import refused

PICTURE = "a" * 64
VECTOR = np.array([0.5, -2.0], np.float32)


def about(item_id: str, **facts: object) -> Feedback:
    """Return feedback of an x item on a z item."""
    return Feedback("x", "z", item_id, **{"is_relevant": True, "query_item_id": "q", **facts})  # type: ignore[arg-type]


def asked(query: Item) -> Feedback:
    return about("i", query_item_id=None, query=query)


def add(database: Database, collection: Collection, *feedback: Feedback) -> list[int]:
    with database.write() as work:
        return list(work.feedback.add(collection, feedback))


def stored(database: Database, collection: Collection) -> list[Feedback]:
    with database.read() as work:
        return list(work.feedback.all(collection))


def test_what_is_stored_is_read_back_in_the_order_of_its_ids(
    database: Database, collection: Collection
) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    ids = add(
        database,
        collection,
        about("i", is_relevant=False),
        asked(Item("", "x", text="a red 🚲")),
        asked(Item("", "x", content_hash=PICTURE, content_type="image/png", features=VECTOR)),
    )
    ids += add(database, collection, Feedback("z", "x", "j", True, "k"))
    assert ids == sorted(set(ids))
    item, text, picture, last = stored(database, collection)
    assert [entry.id for entry in (item, text, picture, last)] == ids
    assert (item.source, item.target, item.item_id, item.is_relevant) == ("x", "z", "i", False)
    assert (item.query_item_id, item.query) == ("q", None)
    assert (last.source, last.target, last.item_id, last.is_relevant) == ("z", "x", "j", True)
    assert text.query is not None
    assert (text.query.modality, text.query.text, text.query.features) == ("x", "a red 🚲", None)
    assert picture.query is not None
    assert (picture.query.content_hash, picture.query.content_type) == (PICTURE, "image/png")
    np.testing.assert_array_equal(picture.query.features, VECTOR)
    assert all(before < entry.created_at < datetime.now(UTC) + timedelta(minutes=1) for entry in (item, last))


def test_pages_follow_each_other_and_end(
    database: Database, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = asked(Item("", "x", text="t", features=VECTOR))
    ids = add(database, collection, query, *(about(f"i{n}") for n in range(4)))
    with database.read() as work:
        assert [entry.id for entry in work.feedback.page(collection, 0, 2)] == ids[:2]
        assert [entry.id for entry in work.feedback.page(collection, ids[1], 10)] == ids[2:]
        assert work.feedback.page(collection, ids[-1], 10) == []
        (paged,) = work.feedback.page(collection, 0, 1)
        assert paged.query is not None
        assert (paged.query.text, paged.query.features) == ("t", None)
    monkeypatch.setattr("app.db.feedback._ROWS_PER_PAGE", 2)
    assert [entry.id for entry in stored(database, collection)] == ids


def test_a_deleted_one_is_gone_and_its_id_is_not_used_again(
    database: Database, collection: Collection
) -> None:
    query = asked(Item("", "x", content_hash=PICTURE))
    first, last = add(database, collection, about("i"), query)
    with database.write() as work:
        assert work.feedback.delete(collection, last) == {PICTURE}
    for missing in (last, 0, 2**62):
        with refused("feedback-not-found"), database.write() as work:
            work.feedback.delete(collection, missing)
    (again,) = add(database, collection, query)
    assert again > last
    assert [entry.id for entry in stored(database, collection)] == [first, again]


def test_feedback_goes_with_the_item_that_it_names(database: Database, collection: Collection) -> None:
    picture = asked(Item("", "x", content_hash=PICTURE))
    add(database, collection, picture, about("j", query_item_id="i"), about("j"), about("I"))
    with database.write() as work:
        assert work.feedback.delete_of_items(collection, ["i"]) == {PICTURE}
        assert work.feedback.delete_of_items(collection, ["i"]) == set()
    assert [entry.item_id for entry in stored(database, collection)] == ["j", "I"]


def test_the_newest_are_kept(database: Database, collection: Collection) -> None:
    ids = add(database, collection, asked(Item("", "x", content_hash=PICTURE)), about("j"), about("k"))
    with database.write() as work:
        assert work.feedback.keep_newest(collection, 3) == set()
        assert work.feedback.keep_newest(collection, 1) == {PICTURE}
    assert [entry.id for entry in stored(database, collection)] == ids[2:]


def test_collections_do_not_see_each_others(database: Database, collection: Collection) -> None:
    with database.write() as work:
        other = work.collections.add("other", collection.modalities)
    (mine,) = add(database, collection, about("i"))
    (others,) = add(database, other, about("i"))
    with refused("feedback-not-found"), database.write() as work:
        work.feedback.delete(other, mine)
    with database.write() as work:
        work.feedback.delete_of_items(other, ["q"])
        work.feedback.keep_newest(other, 0)
    assert [entry.id for entry in stored(database, collection)] == [mine]
    assert stored(database, other) == []
    with database.write() as work, refused("feedback-not-found"):
        work.feedback.delete(collection, others)


def test_pictures_of_queries_are_in_use_and_recording_them_is_progress(
    database: Database, collection: Collection
) -> None:
    with database.read() as work:
        progress = work.installation.progress()
        assert work.items.used_content([PICTURE]) == set()
    add(database, collection, asked(Item("", "x", content_hash=PICTURE)))
    with database.read() as work:
        assert work.installation.progress() != progress
        assert work.items.used_content([PICTURE, "b" * 64]) == {PICTURE}


def test_feedback_of_a_deleted_collection_is_removed_in_bounded_steps(
    database: Database, collection: Collection
) -> None:
    add(database, collection, *(asked(Item("", "x", content_hash=f"{n:064d}")) for n in range(5)))
    with database.write() as work:
        other = work.collections.add("other", collection.modalities)
    add(database, other, about("i"))
    with database.write() as work:
        work.collections.delete("pairs")
    pictures, left = [], []
    for _ in range(3):
        with database.write() as work:
            pictures.append(work.collections.remove_some(collection.id, 2, 1 << 20))
        left.append(len(stored(database, collection)))
    assert left == [3, 1, 0]
    assert set().union(*(hashes or set() for hashes in pictures)) == {f"{n:064d}" for n in range(5)}
    with database.write() as work:
        assert work.collections.remove_some(collection.id, 2, 1 << 20) is None
    assert len(stored(database, other)) == 1
