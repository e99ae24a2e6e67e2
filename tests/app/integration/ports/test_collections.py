"""The contract of CollectionRepository, for every database."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.db.session import Database
from app.domain.entities import Collection, Modality
from app.domain.errors import CollectionNotFoundError, ConflictError
from app.domain.names import Scope
from tests.app.integration.conftest import MODALITIES

AWKWARD = ("a", "A", "a%", "a_", "a'b", 'a"b', "a\\b", "a b", "a;--", "é", "e\u0301", "名前", "🚂")


def add(database: Database, name: str) -> Collection:
    with database.write() as work:
        return work.collections.add(name, MODALITIES)


def test_a_name_is_only_its_own(database: Database) -> None:
    made = {name: add(database, name) for name in AWKWARD}
    with database.read() as work:
        assert {name: work.collections.get(name) for name in AWKWARD} == made
        assert {found.name for found in work.collections.list()} == set(AWKWARD)
        for name in ("", "a%%", "a__", "%", "_", "B"):
            with pytest.raises(CollectionNotFoundError):
                work.collections.get(name)
    for name in AWKWARD:
        with database.write() as work:
            work.collections.delete(name)
        with database.read() as work, pytest.raises(CollectionNotFoundError):
            work.collections.get(name)
    with database.read() as work:
        assert work.collections.list() == []


def test_a_new_one_is_empty_inactive_and_has_what_it_was_given(database: Database) -> None:
    encoders = {"type": "onnx", "path": "ü.onnx", "mean": [0.5, 1], "nested": {"deep": None}}
    modalities = (Modality("picture", encoders), Modality("z", {"type": "vector"}))
    with database.write() as work:
        made = work.collections.add("own", modalities)
    with database.read() as work:
        assert work.collections.get("own") == made
        assert work.items.counts(made) == {}
    assert made.modalities == modalities
    assert (made.revision, made.active_version) == (0, None)
    assert made.created_at.utcoffset() is not None


def test_they_are_listed_by_name(database: Database) -> None:
    for name in ("b", "c", "a"):
        add(database, name)
    with database.read() as work:
        assert [found.name for found in work.collections.list()] == ["a", "b", "c"]


def test_a_name_taken_again_is_another_identity(database: Database) -> None:
    first = add(database, "again")
    with database.write() as work:
        work.collections.delete("again")
    second = add(database, "again")
    assert second.id != first.id
    with pytest.raises(CollectionNotFoundError), database.write() as work:
        work.collections.next_revision(first)
    with database.read() as work:
        assert work.collections.get("again").revision == 0


def test_a_name_is_given_once_to_many_who_ask_at_the_same_time(database: Database) -> None:
    def ask(_: int) -> str:
        try:
            add(database, "wanted")
        except ConflictError as error:
            return error.code
        return "made"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(ask, range(6))) == ["collection-exists"] * 5 + ["made"]


def test_revisions_have_no_gap_and_a_write_that_failed_takes_none(database: Database) -> None:
    made, other = add(database, "a"), add(database, "b")

    def fail() -> None:
        with database.write() as work:
            assert work.collections.next_revision(made) == 2
            raise KeyError("refused")

    with database.write() as work:
        assert work.collections.next_revision(made) == 1
    with pytest.raises(KeyError):
        fail()
    with database.write() as work:
        assert work.collections.next_revision(made) == 2
        assert work.collections.next_revision(other) == 1


def test_what_each_key_wrote_last_is_noted_until_the_key_or_the_collection_goes(
    database: Database,
) -> None:
    made, other = add(database, "a"), add(database, "b")
    with database.write() as work:
        keys = [work.keys.add(f"{number:064}", Scope.WRITE).id for number in range(3)]
        for key in (keys[0], keys[1], keys[0]):
            work.collections.next_revision(made)
            work.collections.note_write(made, key)
        work.collections.note_write(made, "revoked meanwhile")

    def last(collection: Collection, *key_ids: str) -> int:
        with database.read() as work:
            return work.collections.last_write(collection, key_ids)

    assert [last(made, key) for key in (*keys, "revoked meanwhile")] == [3, 2, 0, 0]
    assert (last(made), last(made, keys[1], keys[2]), last(other)) == (3, 2, 0)
    with database.write() as work:
        work.keys.delete(keys[0])
    assert (last(made, keys[0]), last(made)) == (0, 2)
    with database.write() as work:
        work.collections.delete("a")
        assert work.collections.remove_some(made.id, 10, 1000) is None
    assert last(made) == 0


def test_an_unknown_one_cannot_be_deleted(database: Database) -> None:
    with pytest.raises(CollectionNotFoundError), database.write() as work:
        work.collections.delete("none")
