"""Reads of large collections follow an index: they neither look at all items nor sort them."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event

from app.db.session import Database, UnitOfWork, make_engine
from app.domain.entities import Collection
from app.settings import DATABASE_FILE
from tests.app.conftest import migrated_database
from tests.app.integration.conftest import EITHER, MODALITIES

N_ITEMS = 60_000
N_REVISIONS = 5
N_X = 45_000
TEXT = 300 * "a"
Read = Callable[[UnitOfWork, Collection], Any]
READS: dict[str, tuple[Read, str]] = {
    "first page": (lambda work, found: work.items.page(found, None, 0, 50), "ix_items_present"),
    "a page within": (lambda work, found: work.items.page(found, None, N_X // 2, 50), "ix_items_present"),
    "the last modality": (lambda work, found: work.items.page(found, "z", 0, 50), "ix_items_present"),
    "a pair": (
        lambda work, found: work.items.page(found, None, 0, 50, "p7"),
        "ix_items_collection_id_pair_id",
    ),
    "changes": (
        lambda work, found: list(islice(work.items.changes_since(found, 0), 1001)),
        "ix_items_collection_id_revision_id",
    ),
    "recent changes": (
        lambda work, found: list(islice(work.items.changes_since(found, N_REVISIONS - 1), 1001)),
        "ix_items_collection_id_revision_id",
    ),
    "unchanged": (
        lambda work, found: list(islice(work.items.unchanged_since(found, N_REVISIONS - 1), 1001)),
        "ix_items_present",
    ),
    "the last tombstone": (lambda work, found: work.items.newest_tombstone(found), "ix_items_tombstones"),
    "labels": (
        lambda work, found: list(islice(work.items.training_labels(found, "z"), 1001)),
        "ix_items_present",
    ),
}


@pytest.fixture(scope="module", params=EITHER)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database for all tests here, which are in the order in which it is changed."""
    folder = tmp_path_factory.mktemp("large")
    with migrated_database(request, request.param, folder) as url:
        engine = make_engine(url or f"sqlite:///{folder / DATABASE_FILE}")
        yield Database(engine)
        engine.dispose()


def fill(database: Database, name: str, n_items: int) -> Collection:
    """Make a collection whose items lie among those of another one, first those of x, then those of z."""
    with database.write() as work:
        collection, other = (work.collections.add(one, MODALITIES) for one in (name, f"not {name}"))
    n_x = n_items * 3 // 4
    numbers = f"WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {n_items})"
    with database.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO items (collection_id, item_id, modality, text, pair_id, labels, metadata, train, "
            f"revision, is_deleted) {numbers} SELECT CASE WHEN mod(n, 5) = 0 THEN {other.id} ELSE "
            f"{collection.id} END, 'i' || n, CASE WHEN n <= {n_x} THEN 'x' ELSE 'z' END, '{TEXT}', "
            f"'p' || (n / 2), '[\"a\"]', '{{}}', true, 1 + (n - 1) * {N_REVISIONS} / {n_items}, "
            "mod(n, 20) = 1 FROM g"
        )
        connection.exec_driver_sql(f"UPDATE collections SET revision = {N_REVISIONS}")
    with database.read() as work:
        return work.collections.get(name)


@pytest.fixture(scope="module")
def large(database: Database) -> Collection:
    return fill(database, "pairs", N_ITEMS)


def is_postgres(database: Database) -> bool:
    return database.engine.dialect.name == "postgresql"


@contextlib.contextmanager
def plans(engine: sqlalchemy.Engine, table: str = "items") -> Iterator[list[str]]:
    """Collect how the database carries out what is read from a table meanwhile."""
    asked: list[tuple[str, Any]] = []
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if f"FROM {table}" in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
    is_sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        for statement, parameters in asked:
            explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
            rows = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
            found.append("\n".join(row[-1] for row in rows))


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_reads_of_a_large_collection_follow_an_index(
    database: Database, large: Collection, is_analyzed: bool
) -> None:
    engine = database.engine
    if is_analyzed or engine.dialect.name == "postgresql":  # there it comes by itself
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE")
    for name, (read, index) in READS.items():
        with plans(engine) as found, database.read() as work:
            assert read(work, large), name
        assert found, name
        for plan in found:
            assert index in plan, (name, plan)
            assert "Seq Scan on items" not in plan, (name, plan)
            # A pair has few items, which PostgreSQL sorts.
            assert name == "a pair" or not any(word in plan for word in ("Sort", "TEMP B-TREE")), plan


def test_items_are_counted_in_an_index(database: Database, large: Collection) -> None:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE items" if is_postgres(database) else "ANALYZE")
    with plans(database.engine) as found, database.read() as work:
        counted = work.items.counts(large)
    expected = [n for n in range(1, N_ITEMS + 1) if n % 5 and n % 20 != 1]
    n_x = sum(n <= N_X for n in expected)
    assert counted == {"x": n_x, "z": len(expected) - n_x}
    (plan,) = found
    wanted = "Index Only Scan using" if is_postgres(database) else "SEARCH items USING COVERING INDEX"
    assert f"{wanted} ix_items_present" in plan, plan
    assert "Seq Scan on items" not in plan, plan


def begin_import(database: Database, collection: Collection) -> None:
    """Store an import that has replaced two items of three, tombstones too, and is not published."""
    after = N_REVISIONS + 1
    columns = (
        "collection_id, item_id, modality, text, content_hash, content_type, features, labels, pair_id, "
        "metadata, train, revision, is_deleted"
    )
    are_replaced = f"collection_id = {collection.id} AND mod(id, 3) <> 0"
    at = "'2026-01-02 03:04:05'"
    with database.engine.begin() as connection:
        for statement in (
            "INSERT INTO imports (id, collection_id, revision, state, size, started_at, lease_expires_at) "
            f"VALUES ('{collection.id}', {collection.id}, {after}, 'pending', 1, {at}, {at})",
            f"INSERT INTO replaced_items (import_id, position, replaced_at, {columns}) "
            f"SELECT '{collection.id}', id, {after}, {columns} FROM items WHERE {are_replaced}",
            f"UPDATE items SET revision = {after}, is_deleted = false WHERE {are_replaced}",
        ):
            connection.exec_driver_sql(statement)


def test_what_an_import_replaced_is_read_along_an_index(database: Database, large: Collection) -> None:
    begin_import(database, large)
    engine = database.engine
    by_revision, by_modality = (f"ix_replaced_items_by_{name}" for name in ("revision", "modality"))
    if is_postgres(database):
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE")
    for name, index in (
        *((name, by_revision) for name in ("changes", "recent changes")),
        *((name, by_modality) for name in ("a page within", "unchanged", "labels")),
    ):
        read, _ = READS[name]
        with plans(engine, "replaced_items") as before, plans(engine) as current, database.read() as work:
            assert read(work, large), name
        assert before, name
        for plan in before:
            assert index in plan, (name, plan)
            assert not any(word in plan for word in ("Seq Scan on replaced", "Sort", "TEMP B-TREE")), plan
        if index == by_modality:
            # The walk over what is not published ends where that of what it replaced does.
            searches = [
                line for line in "\n".join(current).split("\n") if "Cond:" in line or "SEARCH" in line
            ]
            bound = ", id) <= ROW(" if is_postgres(database) else "AND id>? AND id<?"
            assert any(bound in line for line in searches), (name, current)
    # Few ids are not looked for among all that is replaced.
    with plans(engine) as found, database.read() as work:
        assert work.items.get_many(large, ["i2", "i3", "none"]).keys() == {"i2", "i3"}
    assert "ix_replaced_items_collection_id_item_id" in found[-1], found[-1]


def test_pages_and_long_reads_miss_nothing(database: Database) -> None:
    n_items = 12_000  # several pages of each kind
    n_x, importing = n_items * 3 // 4, fill(database, "few", n_items)
    begin_import(database, importing)
    expected = [n for n in range(1, n_items + 1) if n % 5 and n % 20 != 1]
    with database.read() as work:
        paged: list[str] = []
        after = 0
        while page := work.items.page(importing, None, after, 999):
            paged += [item.id for _, item in page]
            after = page[-1][0]
        of_z = [item.id for _, item in work.items.page(importing, "z", 0, n_items)]
        changes = list(work.items.changes_since(importing, 0))
        unchanged = [item.id for item in work.items.unchanged_since(importing, N_REVISIONS - 1)]
        n_labels = sum(1 for _ in work.items.training_labels(importing, "x"))
    assert paged == [f"i{n}" for n in expected]
    assert of_z == [f"i{n}" for n in expected if n > n_x]
    assert [change.item_id for change in changes] == [f"i{n}" for n in range(1, n_items + 1) if n % 5]
    assert [change.item_id for change in changes if change.item] == [f"i{n}" for n in expected]
    assert unchanged == [f"i{n}" for n in expected if n <= n_items * (N_REVISIONS - 1) // N_REVISIONS]
    assert n_labels == sum(n <= n_x for n in expected)
