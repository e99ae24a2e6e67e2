"""Ids and revisions beyond 31 bits, and numbers from clients beyond any column."""

from typing import Any

import sqlalchemy

from app.db.session import Database
from app.domain.entities import Item, ModelVersion
from app.domain.reports import TrainingReport
from tests.app.integration.test_database import migrate

BEYOND = 2**31 + 7


def go_beyond_31_bits(engine: sqlalchemy.Engine) -> None:
    """Bring the next id of every table, and every collection's revision, beyond 31 bits."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE collections SET revision = {BEYOND}")
        for table in ("collections", "items", "model_versions", "activations", "feedback"):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {BEYOND})"
                )
            elif table == "collections":  # AUTOINCREMENT keeps its own count
                connection.exec_driver_sql(
                    f"UPDATE sqlite_sequence SET seq = {BEYOND} WHERE name = 'collections'"
                )


def test_an_older_database_keeps_its_rows_and_goes_on_beyond_31_bits(engine: sqlalchemy.Engine) -> None:
    migrate(engine, "0005")
    now = "'2026-01-02 03:04:05'"
    with engine.begin() as connection:
        modalities = '[{"name": "x", "encoder": {}}, {"name": "z", "encoder": {}}]'
        connection.exec_driver_sql(
            "INSERT INTO collections (name, modalities, revision, active_version, created_at) "
            f"VALUES ('old', '{modalities}', 3, 1, {now})"
        )
        connection.exec_driver_sql(
            "INSERT INTO items (collection_id, item_id, modality, labels, metadata, train, revision, "
            "is_deleted) SELECT id, 'a', 'x', '[]', '{}', true, 3, false FROM collections"
        )
        connection.exec_driver_sql(
            "INSERT INTO model_versions (collection_id, version, bundle, manifest_hash, index_revision, "
            f"facts, created_at) SELECT id, 1, 'b', 'h', 3, '{{}}', {now} FROM collections"
        )
    migrate(engine, "head")
    go_beyond_31_bits(engine)
    database = Database(engine)
    with database.write() as work:
        old = work.collections.get("old")
        assert work.items.get(old, "a").revision == 3
        revision = work.collections.next_revision(old)
        work.items.put(old, [Item("b", "x")], revision)
        found = work.models.get(old, 1)
        work.models.add(
            old, ModelVersion(2, "b2", "h", revision, TrainingReport.from_json({}), found.created_at, False)
        )
        new = work.collections.add("new", old.modalities)
        work.items.put(new, [Item("c", "x")], work.collections.next_revision(new))
    with database.read() as work:
        assert work.items.get(old, "b").revision == revision == BEYOND + 1
        assert [change.item_id for change in work.items.changes_since(old, BEYOND)] == ["b"]
        assert work.models.get(old, 2).index_revision == revision
        assert new.id > BEYOND
        assert [item.id for _, item in work.items.page(new, None, 0, 5)] == ["c"]


def test_a_collection_beyond_31_bits_is_trained_searched_and_paged(either: Any) -> None:
    either.fill("pairs")
    go_beyond_31_bits(either.services.database.engine)
    either.train("pairs")
    with either.client(raise_errors=True) as client:
        vector = either.data.X[0].tolist()
        body = {"items": [{"id": "late", "modality": "x", "vector": vector}]}
        written = client.post("/v1/collections/pairs/items", json=body)
        assert written.json() == {"ids": ["late"], "revision": BEYOND + 1}
        found = client.post("/v1/collections/pairs/search/z-to-x", json={"item_id": "z00", "k": 100}).json()
        assert found["index_revision"] == BEYOND + 1
        assert "late" in {hit["id"] for hit in found["hits"]}
        seen, cursor = [], "0"
        while cursor is not None:
            page = client.get(f"/v1/collections/pairs/items?limit=50&cursor={cursor}").json()
            seen += [item["id"] for item in page["items"]]
            cursor = page["next_cursor"]
        assert len(seen) == len(set(seen)) == 111


def test_no_number_is_too_large_to_be_answered(either: Any) -> None:
    either.make("pairs")
    admin = "/v1/admin/collections/pairs"
    with either.client() as client:
        for number in (2**31 - 1, 2**31, 2**32, 10**18 - 1, 10**18, 2**63, 2**64, 10**40):
            page = client.get(f"/v1/collections/pairs/items?cursor={number}")
            if number < 10**18:
                assert page.status_code == 200
                assert page.json() == {"items": [], "next_cursor": None, "notices": []}
            else:
                assert (page.status_code, page.json()["field"]) == (422, "cursor")
            seen = {"Last-Event-ID": str(number)}
            for field, answer in {
                "limit": client.get(f"/v1/collections/pairs/items?limit={number}"),
                "expected_version": client.post(f"{admin}/rollback", json={"expected_version": number}),
                "version": client.get(f"{admin}/models/{number}"),
                "Last-Event-ID": client.get("/v1/admin/jobs/none/events", headers=seen),
                "k": client.post("/v1/collections/pairs/search/x-to-z", json={"item_id": "a", "k": number}),
                "seed": client.post(f"{admin}/retrain", json={"seed": number}),
            }.items():
                assert answer.status_code in (404, 409, 422), (field, answer.text)
                assert answer.status_code != 422 or answer.json()["field"] == field, answer.text
                assert answer.status_code == 422 or number < 2**32, (field, answer.text)
