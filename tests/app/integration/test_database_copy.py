"""Rows copied into another database serve the same answers there, beside the same data folder."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event

from app.bootstrap import Services, build
from app.db import copies
from app.db.copies import DatabaseCopies
from app.db.models import Base
from app.db.session import make_engine
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError, UnavailableError
from app.domain.names import Scope
from app.services.catalogue.service import NewFeedback
from tests.app.closing import close
from tests.app.conftest import LrbsInside
from tests.app.integration.conftest import PARAMETERS, Pairs
from tests.app.integration.test_backup import answers
from tests.app.waiting import wait_for

pytestmark = pytest.mark.postgres


@pytest.fixture
def source(trained_pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """A trained collection with feedback, another one, a key, and one collection that is gone."""
    monkeypatch.setattr(copies, "_ROWS", 7)
    services, data = trained_pairs.services, trained_pairs.data
    services.feedback.add("a", [NewFeedback("z", "x", "x01", True, Content(vector=data.Z[0].tolist()))])
    services.catalogue.delete_item("a", "x02")
    services.access.create(Scope.SEARCH, "till")
    trained_pairs.fill("b", "of-b-")
    services.ownership.note_progress()
    return trained_pairs


def rows(engine: sqlalchemy.Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(sqlalchemy.select(table))), key=str)
            for table in Base.metadata.sorted_tables
            if table.name != "call_counts"
        }


@contextlib.contextmanager
def opened(services: Services, url: str) -> Iterator[Services]:
    other = build(services.settings.model_copy(update={"database_url": url}))
    yield other
    close(other)


def test_a_round_trip_keeps_all_rows_and_answers(source: Pairs, postgres_url: str) -> None:
    first, queries = source.services, source.data.Z[:5]
    before = rows(first.database.engine), answers(first, queries)
    copied = first.copy_to(postgres_url.replace("postgresql+psycopg", "postgres"), [])
    assert copied[0] == copied[1]
    assert copied[0]["items"] == {"a": 110, "b": 110}
    assert copied[0]["api_keys"] == {"": 1}
    with opened(first, postgres_url) as second:
        assert (rows(second.database.engine), answers(second, queries)) == before
        assert second.ownership.is_current()
        third = f"sqlite:///{first.settings.data_dir / 'third.sqlite3'}"
        second.copy_to(third, [])
        assert rows(second.database.engine) == before[0]
        Pairs(second, source.data).fill("c")
        second.feedback.add("a", [NewFeedback("z", "x", "x03", True, query_item_id="z01")])
        second.ownership.note_progress()
        wait_for(lambda: not first.ownership.is_current())
    with opened(first, third) as last:
        assert (rows(last.database.engine), answers(last, queries)) == before


def writes_into(engine: sqlalchemy.Engine) -> list[str]:
    """Return what is written from now on, as the words of the statements."""
    written: list[str] = []

    @event.listens_for(engine, "after_cursor_execute")
    def note(*call: Any) -> None:
        if call[2].startswith(("INSERT INTO", "DELETE FROM")) and "sqlite_sequence" not in call[2]:
            written.append(call[2].split()[2])

    return written


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path, copy_migrated: Callable[[Path], None]) -> Any:
    if request.param == "sqlite":
        copy_migrated(tmp_path / "other")
        engine = make_engine(f"sqlite:///{tmp_path / 'other' / 'lrbs.sqlite3'}")
    else:
        engine = make_engine(request.getfixturevalue("migrated_postgres_url"))
    yield engine
    engine.dispose()


class Killed(BaseException):
    """What ends a copy as a signal does: between two transactions, or within one."""


def test_a_killed_copy_goes_on_and_a_second_one_writes_nothing(
    source: Pairs, target: sqlalchemy.Engine
) -> None:
    copy = DatabaseCopies(source.services.database.engine, "")

    def kill(*call: Any) -> None:
        if len(written) == 12:
            raise Killed

    written = writes_into(target)
    event.listen(target, "before_cursor_execute", kill)
    with pytest.raises(Killed):
        copy.copy_to(target)
    event.remove(target, "before_cursor_execute", kill)
    there = rows(target)
    assert 0 < len(there["items"]) < 220
    with opened(source.services, target.url.render_as_string(hide_password=False)) as half:
        assert half.ownership.status().belongs
        assert not half.ownership.is_current()
    written.clear()
    copy.copy_to(target)
    assert "collections" not in written
    assert written.count("items") == -(-(220 - len(there["items"])) // 7)
    assert rows(target) == rows(source.services.database.engine)
    written.clear()
    steps: list[tuple[str, int, int]] = []
    counts = copy.copy_to(target, note=lambda *step: steps.append(step))
    assert (written, counts[0]) == ([], counts[1])
    total = sum(sum(of_table.values()) for of_table in counts[0].values())
    assert {step[-1] for step in steps} == {total}
    assert steps[0][1] == 0
    assert steps[-1][1] == total
    assert len([step for step in steps if step[0] == "items"]) == 1 + -(-220 // 7)


def test_what_changed_since_is_copied_again(source: Pairs, target: sqlalchemy.Engine) -> None:
    services = source.services
    copy = DatabaseCopies(services.database.engine, "")
    copy.copy_to(target)
    services.catalogue.delete_collection("b")
    source.make("b")
    services.catalogue.delete_item("a", "x05")
    services.access.create(Scope.SEARCH)
    services.ownership.note_progress()
    copy.copy_to(target)
    assert rows(target) == rows(services.database.engine)


def test_a_copy_beside_writes_is_refused_and_then_made(source: Pairs, target: sqlalchemy.Engine) -> None:
    services = source.services
    deleted = ["x07"]

    def write(*_: Any) -> None:
        if deleted:
            services.catalogue.delete_item("a", deleted.pop())

    event.listen(target, "commit", write)
    copy = DatabaseCopies(services.database.engine, "")
    with pytest.raises(UnavailableError, match="run this again"):
        copy.copy_to(target)
    copy.copy_to(target)
    assert rows(target) == rows(services.database.engine)
    services.training.request("a", PARAMETERS)
    with services.database.write() as work:
        job = work.jobs.claim("worker", 60.0, 3)
        assert job is not None
    with pytest.raises(UnavailableError, match="is at work"):
        copy.copy_to(target)
    assert copy.copy_to(target, ["b"])


def test_one_collection_alone(source: Pairs, postgres_url: str) -> None:
    services = source.services
    counts, copied = services.copy_to(postgres_url, ["a"])
    assert counts == copied
    assert (counts["items"], counts["collections"]) == ({"a": 110}, {"a": 1})
    with opened(services, postgres_url) as other:
        assert answers(other, source.data.Z[:5]) == answers(services, source.data.Z[:5])
        assert [one.name for one in other.catalogue.collections()] == ["a"]
        assert other.garbage_collector.sweep(any_share=True) == 0, "the files of b stay"
        services.copy_to(postgres_url, ["b"])
        assert len(rows(other.database.engine)["items"]) == 220
        services.copy_to(postgres_url, [])
        assert rows(other.database.engine) == rows(services.database.engine)
        services.catalogue.delete_collection("b")
        source.make("b")
        with pytest.raises(InvalidFieldError, match="another collection of that name"):
            services.copy_to(postgres_url, ["b"])


def test_a_database_that_must_not_be_overwritten_is_refused(
    source: Pairs, postgres_url: str, tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> None:
    services = source.services
    with pytest.raises(InvalidFieldError, match="is the database that is copied"):
        services.copy_to(services.settings.resolved_database_url, [])
    services.copy_to(postgres_url, [])
    with opened(services, postgres_url) as served:
        with pytest.raises(InvalidFieldError, match="is the database that is copied"):
            served.copy_to(postgres_url, [])
        served.catalogue.delete_item("a", "x09")
        with pytest.raises(InvalidFieldError, match="written since"):
            services.copy_to(postgres_url, [])
        served.ownership.note_progress()
        with pytest.raises(InvalidFieldError, match="written since"):
            services.copy_to(postgres_url, ["b"])
    copy_migrated(tmp_path / "other")
    other = build(services.settings.model_copy(update={"data_dir": tmp_path / "other"}))
    Pairs(other, source.data).make("a")
    with pytest.raises(InvalidFieldError, match="another installation"):
        services.copy_to(other.settings.resolved_database_url, [])
    close(other)


def test_the_command_compares_counts(source: Pairs, tmp_path: Path, lrbs: LrbsInside) -> None:
    services, file = source.services, tmp_path / "other.sqlite3"
    done = lrbs(services, "db", "copy", f"sqlite:///{file}")
    assert done.returncode == 0, done.stderr
    assert "items: 110 of a, 110 of b\n" in done.stdout
    total = sum(int(count) for count in re.findall(r"(?:: |, )(\d+)", done.stdout))
    began, first, *_, ended = done.stderr.splitlines()
    assert (began, ended[:7]) == ("Copying all collections.", "done in")
    assert re.fullmatch(rf" +\d+ s  rows 0 of {total}, [a-z_]+", first), first
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        other.execute("DELETE FROM items WHERE item_id = 'x03'")
        other.execute("CREATE TRIGGER lose BEFORE INSERT ON items BEGIN SELECT raise(ignore); END")
    done = lrbs(services, "db", "copy", f"sqlite:///{file}", "--collection", "a", "--json")
    assert (done.returncode, "items: 109 of a" in done.stderr) == (1, True), done.stderr
    counts = json.loads(done.stdout)
    assert (counts["source"]["items"], counts["target"]["items"]) == ({"a": 110}, {"a": 109})
    done = lrbs(services, "db", "copy", "mysql://host/name")
    assert (done.returncode, "names mysql" in done.stderr) == (2, True), done.stderr
