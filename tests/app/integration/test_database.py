import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.db.models import Base, ModelRow
from app.db.schema import REVISION, DatabaseSchema
from app.db.session import Database, make_engine
from app.domain.entities import Collection, Counts, Item, KeyBounds, ModelVersion
from app.domain.errors import CollectionNotFoundError
from app.domain.names import Scope
from app.domain.reports import TrainingReport
from tests.app.integration.conftest import MODALITIES
from tests.app.refused import refused

ROOT = Path(__file__).parents[3]


def put(database: Database, collection: Collection, *items: Item) -> int:
    with database.write() as work:
        revision = work.collections.next_revision(collection)
        work.items.put(collection, items, revision)
        return revision


def version(number: int) -> ModelVersion:
    return ModelVersion(
        number,
        f"bundle-{number}",
        "0" * 64,
        3,
        TrainingReport.from_json({"rank": 2}),
        datetime.now(UTC),
        False,
    )


def migrate(
    engine: sqlalchemy.Engine, revision: str, act: Callable[[Config, str], None] = command.upgrade
) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        act(config, revision)


def tables_of(engine: sqlalchemy.Engine) -> set[str]:
    return set(sqlalchemy.inspect(engine).get_table_names()) - {"alembic_version"}


def test_migrations_give_the_schema_of_the_models(engine: sqlalchemy.Engine) -> None:
    assert not DatabaseSchema(engine).is_current()
    DatabaseSchema(engine).upgrade()
    assert DatabaseSchema(engine).is_current()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_schema_that_is_asked_for_is_the_latest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_an_upgrade_can_be_repeated_and_taken_back(engine: sqlalchemy.Engine) -> None:
    DatabaseSchema(engine).upgrade()
    DatabaseSchema(engine).upgrade()
    assert tables_of(engine) == set(Base.metadata.tables)
    migrate(engine, "base", command.downgrade)
    assert tables_of(engine) == set()
    assert not DatabaseSchema(engine).is_current()
    DatabaseSchema(engine).upgrade()
    assert tables_of(engine) == set(Base.metadata.tables)


def test_the_version_that_serves_opens_the_history_of_an_older_database(engine: sqlalchemy.Engine) -> None:
    migrate(engine, "0002")
    with engine.begin() as connection:
        now = "'2026-01-02 03:04:05'"
        connection.exec_driver_sql(
            "INSERT INTO collections (name, modalities, revision, active_version, created_at) "
            f"VALUES ('a', '[]', 1, 2, {now}), ('b', '[]', 1, NULL, {now})"
        )
        for number in (1, 2):
            connection.exec_driver_sql(
                "INSERT INTO model_versions (collection_id, version, bundle, manifest_hash, index_revision, "
                f"facts, created_at) SELECT id, {number}, 'b', 'h', 1, '{{}}', {now} "
                "FROM collections WHERE name = 'a'"
            )
    migrate(engine, "head")
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT version, previous, actor FROM activations").all()
    assert [tuple(row) for row in found] == [(2, None, "migration")]


def test_an_older_schema_has_no_keys_that_older_code_would_take_for_unbound_ones(
    engine: sqlalchemy.Engine,
) -> None:
    DatabaseSchema(engine).upgrade()
    with Database(engine).write() as work:
        work.collections.add("a", MODALITIES)
        for name, bounds in (
            ("unbound", KeyBounds()),
            ("with a rate", KeyBounds(requests_per_minute=5)),
            ("of a collection", KeyBounds(collections=("a",))),
            ("for a while", KeyBounds(expires_at=datetime(2100, 1, 1, tzinfo=UTC))),
        ):
            work.keys.add(sha256(name.encode()).hexdigest(), Scope.SEARCH, name, bounds)
    migrate(engine, "0003", command.downgrade)
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT name FROM api_keys ORDER BY name").scalars().all()
    assert left == ["unbound", "with a rate"]


def test_versions_of_an_older_database_have_the_encoders_of_their_collection(
    engine: sqlalchemy.Engine,
) -> None:
    migrate(engine, "0013")
    names = ["a", "b", "c"]
    with engine.begin() as connection:
        now = "'2026-01-02 03:04:05'"
        for name in names:
            connection.exec_driver_sql(
                "INSERT INTO collections (name, modalities, revision, created_at) "
                f"VALUES ('{name}', '[\"{name}\"]', 1, {now})"
            )
        for name in reversed(names):
            connection.exec_driver_sql(
                "INSERT INTO model_versions (collection_id, version, bundle, manifest_hash, index_revision, "
                f"facts, created_at) SELECT id, 1, '{name}', 'h', 1, '{{}}', {now} "
                f"FROM collections WHERE name = '{name}'"
            )
    migrate(engine, "head")
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.select(ModelRow.bundle, ModelRow.modalities)).all()
    assert sorted(map(tuple, rows)) == [(name, [name]) for name in names]


def test_an_option_that_became_known_is_kept(database: Database, collection: Collection) -> None:
    with database.write() as work:
        work.collections.set_encoder_option(collection, "z", "dim", 7)
    with database.read() as work:
        encoders = [modality.encoder for modality in work.collections.get("pairs").modalities]
    assert encoders == [{"type": "vector"}, {"type": "vector", "dim": 7}]


def test_an_item_comes_back_as_it_was_put(database: Database, collection: Collection) -> None:
    features = np.array([1.5, -2.0, 1e-30], np.float32)
    item = Item(
        "a:1",
        "x",
        text="Straße 🚂",
        content_hash="f" * 64,
        content_type="image/png",
        features=features,
        labels=("b", "a"),
        pair_id="p",
        metadata={"n": 1, "deep": {"list": [1.5, None, True, "é"]}},
        train=False,
    )
    revision = put(database, collection, item)
    with database.read() as work:
        found = work.items.get(collection, "a:1")
        light = work.items.get_many(collection, ["a:1", "none"])
    assert found.features is not None
    np.testing.assert_array_equal(found.features, features)
    for name in (
        "id",
        "modality",
        "text",
        "content_hash",
        "content_type",
        "labels",
        "pair_id",
        "metadata",
        "train",
    ):
        assert getattr(found, name) == getattr(item, name)
    assert found.revision == revision
    assert list(light) == ["a:1"]
    assert light["a:1"].features is None


def test_items_that_are_the_same_are_left_alone(database: Database, collection: Collection) -> None:
    features = np.array([1.5, -0.0], np.float32)
    items = [
        Item(
            "a", "x", features=features, labels=("é", "b"), metadata={"n": 1, "deep": {"b": [1], "a": None}}
        ),
        Item("b", "z", text="Straße 🚂", pair_id="p", train=False),
    ]
    first = put(database, collection, *items)
    reordered = replace(items[0], metadata={"deep": {"a": None, "b": [1]}, "n": 1})
    with database.write() as work:
        assert work.items.put(collection, items, first + 1) == Counts(unchanged=2)
        assert work.items.put(collection, [reordered], first + 1) == Counts(unchanged=1)
    different = [
        replace(items[0], features=np.array([1.5, 0.0], np.float32)),
        replace(items[0], metadata={**items[0].metadata, "n": 1.0}),
        replace(items[0], metadata={**items[0].metadata, "n": True}),
        replace(items[0], labels=("b", "é")),
        replace(items[1], text=None),
        replace(items[1], pair_id=None),
        replace(items[1], train=True),
        replace(items[1], modality="x"),
        replace(items[1], features=features),
        replace(items[1], content_hash="0" * 64, content_type="image/png"),
    ]
    for revision, item in enumerate(different, first + 1):
        with database.write() as work:
            new = Item(f"new{revision}", "x")
            assert work.collections.next_revision(collection) == revision
            assert work.items.put(collection, [item, new], revision) == Counts(created=1, updated=1)
            assert work.items.put(collection, [item, new], revision + 100) == Counts(unchanged=2)
        with database.read() as work:
            found = work.items.get(collection, item.id)
        assert found.revision == revision
        assert (found.labels, found.metadata, found.train) == (item.labels, item.metadata, item.train)
        assert found.modality == item.modality
    with database.write() as work:
        work.items.delete(collection, ["a"], 50)
        assert work.items.put(collection, different[-1:] + items[:1], 51) == Counts(created=1, unchanged=1)


def test_items_are_found_by_their_pair(database: Database, collection: Collection) -> None:
    put(
        database,
        collection,
        *(Item(f"{side}{n}", side, pair_id=f"p{n % 2}") for n in range(4) for side in "xz"),
    )
    with database.read() as work:
        pages = {
            (modality, pair): [item.id for _, item in work.items.page(collection, modality, 0, 100, pair)]
            for modality in (None, "x")
            for pair in ("p1", "p2")
        }
    assert pages == {
        (None, "p1"): ["x1", "z1", "x3", "z3"],
        ("x", "p1"): ["x1", "x3"],
        (None, "p2"): [],
        ("x", "p2"): [],
    }


def test_a_locked_collection_is_as_others_left_it(database: Database, collection: Collection) -> None:
    with database.write() as work:
        work.collections.next_revision(collection)
    with database.write() as work:
        assert work.collections.get("pairs").revision == 1
        assert work.collections.lock("pairs").revision == 1
        assert work.collections.next_revision(collection) == 2
        assert work.collections.lock("pairs").revision == 2
    with pytest.raises(CollectionNotFoundError), database.write() as work:
        work.collections.lock("none")


def test_deleted_items_leave_a_tombstone_and_can_come_back(
    database: Database, collection: Collection
) -> None:
    put(database, collection, Item("a", "x", text="secret", labels=("one",)), Item("b", "z"))
    with database.write() as work:
        revision = work.collections.next_revision(collection)
        work.items.delete(collection, ["a"], revision)
    with database.read() as work:
        with refused("item-not-found"):
            work.items.get(collection, "a")
        assert work.items.existing(collection, ["a", "b"]) == {"b"}
        assert work.items.counts(collection) == {"z": 1}
        assert [item.id for _, item in work.items.page(collection, None, 0, 10)] == ["b"]
        (change,) = work.items.changes_since(collection, revision - 1)
        assert (change.item_id, change.modality, change.item, change.revision) == ("a", "x", None, revision)
    with database.engine.connect() as connection:
        text = connection.scalar(sqlalchemy.text("SELECT text FROM items WHERE item_id = 'a'"))
    assert text is None
    with refused("item-not-found"), database.write() as work:
        work.items.delete(collection, ["a"], revision)
    put(database, collection, Item("a", "x", text="again"))
    with database.read() as work:
        assert work.items.get(collection, "a").text == "again"
        assert work.items.counts(collection) == {"x": 1, "z": 1}


def test_changes_come_in_order_of_revision(database: Database, collection: Collection) -> None:
    first = put(database, collection, *(Item(f"i{number}", "x") for number in range(1200)))
    second = put(database, collection, Item("i5", "x", text="changed"))
    with database.read() as work:
        everything = list(work.items.changes_since(collection, 0))
        later = list(work.items.changes_since(collection, first))
        nothing = list(work.items.changes_since(collection, second))
        asked = [f"i{number}" for number in range(1300)]
        assert work.items.existing(collection, asked) == set(asked[:1200])
        assert {name: item.text for name, item in work.items.get_many(collection, asked).items()} == {
            name: "changed" if name == "i5" else None for name in asked[:1200]
        }
    assert [change.revision for change in everything] == [first] * 1199 + [second]
    assert [change.item_id for change in later] == ["i5"]
    assert nothing == []


def test_a_failed_write_leaves_nothing(database: Database, collection: Collection) -> None:
    def fail() -> None:
        with database.write() as work:
            work.items.put(collection, [Item("a", "x")], work.collections.next_revision(collection))
            work.models.add(collection, version(1))
            work.models.replace_active(collection, 1, None)
            work.jobs.enqueue(collection, {})
            raise KeyError("something went wrong")

    with pytest.raises(KeyError):
        fail()
    with database.read() as work:
        assert work.collections.get("pairs") == collection
        assert work.items.counts(collection) == {}
        assert list(work.items.changes_since(collection, 0)) == []
        assert work.models.list(collection) == []
        assert work.jobs.claim("nobody", 1.0, 3) is None


def test_an_id_that_cannot_be_is_not_found(database: Database, collection: Collection) -> None:
    for item_id in ("a\x00b", "é", "a" * 5000):
        with database.read() as work, refused("item-not-found"):
            work.items.get(collection, item_id)
        with database.read() as work, pytest.raises(CollectionNotFoundError):
            work.collections.get(item_id)
        with database.read() as work, refused("job-not-found"):
            work.jobs.get(item_id)


def test_a_read_sees_one_state(database: Database, collection: Collection) -> None:
    put(database, collection, Item("a", "x"))
    with database.read() as work:
        before = work.collections.get("pairs").revision
        put(database, collection, Item("b", "x"))
        assert [change.revision for change in work.items.changes_since(collection, 0)] == [before]
        assert work.items.counts(collection) == {"x": 1}


def test_writers_wait_for_each_other(database: Database, collection: Collection) -> None:
    def write(number: int) -> list[int]:
        return [put(database, collection, Item(f"{number}-{part}", "x")) for part in range(15)]

    with ThreadPoolExecutor(6) as pool:
        revisions = [revision for found in pool.map(write, range(6)) for revision in found]
    assert sorted(revisions) == list(range(1, 91))
    with database.read() as work:
        assert work.items.counts(collection) == {"x": 90}
        assert work.collections.get("pairs").revision == 90


@pytest.mark.parametrize(
    "text", ["NaN", "-1e400", '"\\ud800"', "[1.5, 123456789012345678901234567890]", '{"a": "ä"}']
)
def test_json_is_read_as_python_reads_it(text: str) -> None:
    stored = sqlalchemy.literal_column(f"'{text}'", sqlalchemy.JSON)
    with make_engine("sqlite://").connect() as connection:
        assert repr(connection.scalar(sqlalchemy.select(stored))) == repr(json.loads(text))
