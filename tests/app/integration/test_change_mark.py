"""The mark of what is committed: searches and key checks read the database only after a commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event

from app.bootstrap import Services, build
from app.db.session import SqlDatabase, make_engine
from app.domain.entities import Content, ItemFilter, Scope
from app.domain.errors import UnauthenticatedError
from app.services.serving.search import Query
from tests.app.closing import close


@pytest.fixture
def other(pairs: Any) -> Iterator[Services]:
    """Services of another process, as far as the database can tell."""
    services = build(pairs.services.settings)
    yield services
    close(services)


@pytest.fixture
def checked_out(pairs: Any) -> list[str]:
    """One entry for each transaction from now on."""
    transactions: list[str] = []
    event.listen(pairs.services.database.engine, "checkout", lambda *_: transactions.append("one"))
    return transactions


def search(services: Services, vector: Any) -> list[str]:
    query = Query(Content(vector=vector.tolist()))
    (result,) = services.search.search("a", "z", "x", [query], 5, 0, ItemFilter())
    return [hit.id for hit in result.hits]


def test_a_mark_changes_with_every_commit_and_with_nothing_else(pairs: Any, other: Services) -> None:
    database = pairs.services.database
    marks = [database.change_mark(), database.change_mark()]
    with database.read() as work:
        work.collections.list()
    marks.append(database.change_mark())
    pairs.make("here")
    marks += [database.change_mark(), database.change_mark()]
    other.access.create(Scope.SEARCH)
    marks.append(database.change_mark())
    assert None not in marks
    assert [mark == marks[0] for mark in marks] == [True, True, True, False, False, False]
    assert [mark == marks[-1] for mark in marks] == [False] * 5 + [True]


def test_a_database_that_was_moved_or_is_in_memory_has_no_mark(tmp_path: Path) -> None:
    file = tmp_path / "data.sqlite3"
    file.touch()
    database = SqlDatabase(make_engine(f"sqlite:///{file}"))
    assert database.change_mark() is not None
    before = database.change_mark()
    file.rename(tmp_path / "moved.sqlite3")
    assert database.change_mark() is None
    (tmp_path / "moved.sqlite3").rename(file)
    assert database.change_mark() not in (None, before)
    database.engine.dispose()
    assert SqlDatabase(make_engine("sqlite://")).change_mark() is None


@pytest.mark.postgres
def test_postgresql_has_no_mark(postgres_url: str) -> None:
    url = sqlalchemy.make_url(postgres_url).set(drivername="postgresql+psycopg")
    database = SqlDatabase(make_engine(url.render_as_string(hide_password=False)))
    assert database.change_mark() is None
    database.engine.dispose()


def test_repeated_searches_begin_no_transaction_until_something_is_committed(
    pairs: Any, other: Services, checked_out: list[str]
) -> None:
    pairs.fill("a")
    pairs.train("a")
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


def test_labels_and_metadata_of_hits_are_those_of_the_database(pairs: Any, other: Services) -> None:
    pairs.fill("a")
    pairs.train("a")
    query = Query(Content(vector=pairs.data.Z[0].tolist()))
    for number in range(3):
        item = pairs.item("x", "x00", pairs.data.X[0], f"class {number}", metadata={"number": number})
        other.catalogue.add_items("a", [item], replace=True)
        for _ in range(3):
            (result,) = pairs.services.search.search("a", "z", "x", [query], 100, 0, ItemFilter())
            (hit,) = (hit for hit in result.hits if hit.id == "x00")
            assert (hit.item.labels, hit.item.metadata) == ((f"class {number}",), {"number": number})


def test_a_key_is_recalled_until_something_is_committed(
    pairs: Any, other: Services, checked_out: list[str]
) -> None:
    access = pairs.services.access
    key, secret = access.create(Scope.SEARCH)
    assert access.recall(secret, Scope.SEARCH) is None
    access.require(secret, Scope.SEARCH)
    checked_out.clear()
    assert access.recall(secret, Scope.SEARCH) == key
    assert checked_out == []
    other.access.revoke(key.id)
    assert access.recall(secret, Scope.SEARCH) is None
    with pytest.raises(UnauthenticatedError):
        access.require(secret, Scope.SEARCH)
    assert access.recall(secret, Scope.SEARCH) is None
