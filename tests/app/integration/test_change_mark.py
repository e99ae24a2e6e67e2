"""The mark of what is committed: searches and key checks read the database only after a commit."""

import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.bootstrap import Services, build
from app.db import sqlite_file
from app.db.session import Database, make_engine
from app.domain.entities import Content
from app.domain.names import Scope
from app.services.catalogue.preparation import NewItem
from app.services.serving.search import Query
from tests.app.closing import close
from tests.app.integration.searching import find
from tests.app.refused import refused


@pytest.fixture
def other(trained_pairs: Any) -> Iterator[Services]:
    """Services of another process, as far as the database can tell."""
    services = build(trained_pairs.services.settings)
    yield services
    close(services)


@pytest.fixture
def checked_out(trained_pairs: Any) -> list[str]:
    """One entry for each transaction from now on."""
    transactions: list[str] = []
    event.listen(trained_pairs.services.database.engine, "checkout", lambda *_: transactions.append("one"))
    return transactions


def search(services: Services, vector: Any) -> list[str]:
    query = Query(Content(vector=vector.tolist()))
    (result,) = find(services, "a", "z", "x", [query], 5)
    return [hit.id for hit in result.hits]


def test_a_mark_changes_with_every_commit_and_with_nothing_else(trained_pairs: Any, other: Services) -> None:
    database = trained_pairs.services.database
    marks = [database.change_mark(), database.change_mark()]
    with database.read() as work:
        work.collections.list()
    marks.append(database.change_mark())
    trained_pairs.make("here")
    marks += [database.change_mark(), database.change_mark()]
    other.access.create(Scope.SEARCH)
    marks.append(database.change_mark())
    assert None not in marks
    assert [mark == marks[0] for mark in marks] == [True, True, True, False, False, False]
    assert [mark == marks[-1] for mark in marks] == [False] * 5 + [True]


def test_a_database_that_was_moved_or_is_in_memory_has_no_mark(tmp_path: Path) -> None:
    file = tmp_path / "data.sqlite3"
    file.touch()
    database = Database(make_engine(f"sqlite:///{file}"))
    assert database.change_mark() is not None
    before = database.change_mark()
    file.rename(tmp_path / "moved.sqlite3")
    assert database.change_mark() is None
    (tmp_path / "moved.sqlite3").rename(file)
    assert database.change_mark() == before
    assert database.incarnation() == 0
    database.engine.dispose()
    assert Database(make_engine("sqlite://")).change_mark() is None


def test_a_mark_waits_for_no_copy_of_a_file_that_was_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, copying, copied = tmp_path / "data.sqlite3", threading.Event(), threading.Event()
    file.touch()
    database = Database(make_engine(f"sqlite:///{file}"))
    for name in ("one", "two"):
        with contextlib.closing(sqlite3.connect(file)) as own, sqlite3.connect(tmp_path / "copy") as copy:
            own.backup(copy)
        copy.close()
        with database.engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} (id int)")
        assert database.change_mark() is not None
    usual = sqlite_file._copy_to_place

    def copy_later(path: Path) -> None:
        copying.set()
        assert copied.wait(30.0)
        usual(path)

    monkeypatch.setattr(sqlite_file, "_copy_to_place", copy_later)
    monkeypatch.setattr(sqlite_file, "_SETTLED_SECONDS", 0.0)
    shutil.copyfile(tmp_path / "copy", file)
    assert database.change_mark() is None, "it leaves that to a transaction"
    assert not copying.is_set()
    with ThreadPoolExecutor(1) as threads:
        incarnation = threads.submit(database.incarnation)
        assert copying.wait(30.0)
        assert database.change_mark() is None
        copied.set()
        assert incarnation.result() == 1
    assert database.change_mark() is not None
    database.engine.dispose()


@pytest.mark.postgres
def test_postgresql_has_no_mark(postgres_url: str) -> None:
    database = Database(make_engine(postgres_url))
    assert database.change_mark() is None
    database.engine.dispose()


@pytest.mark.postgres
def test_a_postgresql_database_that_is_made_again_is_another_incarnation(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.db.session._INCARNATION_SECONDS", 0.0)
    database = Database(make_engine(postgres_url))
    incarnations = [database.incarnation()]
    for statement in ("CREATE TABLE collections (id int)", "DROP TABLE collections") * 2:
        with database.engine.begin() as connection:
            connection.exec_driver_sql(statement)
        incarnations += [database.incarnation(), database.incarnation()]
    first, again = incarnations[1], incarnations[5]
    assert incarnations == [None, first, first, None, None, again, again, None, None]
    assert None not in (first, again)
    assert first != again
    database.engine.dispose()


def test_repeated_searches_begin_no_transaction_until_something_is_committed(
    trained_pairs: Any, other: Services, checked_out: list[str]
) -> None:
    pairs = trained_pairs
    query = pairs.data.Z[0]
    before = search(pairs.services, query)
    search(pairs.services, query)
    checked_out.clear()
    assert search(pairs.services, query) == before
    assert checked_out == []
    for writer, first in ((pairs.services, before[0]), (other, before[1])):
        writer.catalogue.delete_item("a", first)
        assert first not in search(pairs.services, query)
    assert checked_out


def test_labels_and_metadata_of_hits_are_those_of_the_database(trained_pairs: Any, other: Services) -> None:
    pairs = trained_pairs
    query = Query(Content(vector=pairs.data.Z[0].tolist()))
    for number in range(3):
        item = pairs.item("x", "x00", pairs.data.X[0], f"class {number}", metadata={"number": number})
        other.catalogue.add_items("a", [item], replace=True)
        for _ in range(3):
            (result,) = find(pairs.services, "a", "z", "x", [query], 100)
            (hit,) = (hit for hit in result.hits if hit.id == "x00")
            assert (hit.item.labels, hit.item.metadata) == ((f"class {number}",), {"number": number})


def test_a_key_is_recalled_until_something_is_committed(
    trained_pairs: Any, other: Services, checked_out: list[str]
) -> None:
    access = trained_pairs.services.access
    key, secret = access.create(Scope.SEARCH)
    assert access.recall(secret, Scope.SEARCH) is None
    access.require(secret, Scope.SEARCH)
    checked_out.clear()
    assert access.recall(secret, Scope.SEARCH) == key
    assert checked_out == []
    other.access.revoke(key.id)
    assert access.recall(secret, Scope.SEARCH) is None
    with refused("unauthenticated"):
        access.require(secret, Scope.SEARCH)
    assert access.recall(secret, Scope.SEARCH) is None


def test_a_database_that_goes_back_in_time_is_served_as_it_is(trained_either: Any) -> None:
    pairs = trained_either
    services, vector = pairs.services, pairs.data.Z[0]
    expected = search(services, vector)
    before = services.catalogue.collection("a")[0].revision
    best = NewItem("x", Content(vector=pairs.data.X[int(expected[0].removeprefix("x"))].tolist()), "late")
    for number in range(3):
        services.catalogue.add_items("a", [replace(best, id=f"late{number}")])
    assert any(found.startswith("late") for found in search(services, vector))
    with services.database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM items WHERE item_id IN ('late0', 'late1', 'late2')")
        connection.exec_driver_sql(f"UPDATE collections SET revision = {before}")
    assert search(services, vector) == expected
    services.health.check()
    services.catalogue.delete_item("a", expected[0])
    assert search(services, vector) == [*expected[1:], *search(services, vector)[4:]]
