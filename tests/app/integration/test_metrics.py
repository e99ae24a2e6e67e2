import re
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread

from app.bootstrap import build
from app.domain.entities import KeyBounds, Modality
from app.domain.names import Scope
from app.main import create_app
from app.settings import Settings
from tests.app.closing import close
from tests.app.e2e.refusals import check_problem, client_of


def read(client: Any) -> dict[str, float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_tell_what_is_served(pairs: Any) -> None:
    pairs.fill("a")
    client = pairs.client()
    before = read(client)
    assert before["lrbs_collections"] == 1
    assert not any("active_version" in name for name in before)

    pairs.train("a")
    pairs.search("a")
    found = read(client)
    for name, value in (
        ('lrbs_active_version{collection="a"}', 1),
        ('lrbs_served_version{collection="a"}', 1),
        ('lrbs_revision_lag{collection="a"}', 0),
        ('lrbs_index_items{collection="a",modality="x"}', 60),
        ('lrbs_index_items{collection="a",modality="z"}', 50),
        ('lrbs_jobs{state="succeeded"}', 1),
        ('lrbs_jobs{state="queued"}', 0),
        ("lrbs_database_up", 1),
    ):
        assert found[name] == value, name
    assert {f'lrbs_index_recall{{collection="a",modality="{name}"}}' for name in "xz"} <= found.keys()

    for number in range(3):
        pairs.services.catalogue.add_items("a", [pairs.item("x", f"new{number}", pairs.data.X[0])])
    assert read(client)['lrbs_revision_lag{collection="a"}'] == 3
    pairs.search("a")
    found = read(client)
    assert found['lrbs_revision_lag{collection="a"}'] == 0
    assert found['lrbs_index_items{collection="a",modality="x"}'] == 63

    pairs.services.catalogue.delete_collection("a")
    assert not any('"a"' in name for name in read(client))


def test_requests_are_counted_by_route_never_by_what_clients_chose(pairs: Any) -> None:
    pairs.make("a")
    client = pairs.client()
    for number in range(20):
        assert client.get(f"/v1/collections/a/items/nothing{number}").status_code == 404
        assert client.get(f"/nowhere/{number}").status_code == 404
        assert client.request(f"METHOD{number}", "/healthz").status_code == 405
    found = read(client)
    item = "/v1/collections/{collection}/items/{item_id}"
    assert found[f'lrbs_http_requests_total{{method="GET",route="{item}",status="404"}}'] == 20
    assert found['lrbs_http_requests_total{method="GET",route="unmatched",status="404"}'] == 20
    assert found[f'lrbs_http_request_seconds_count{{method="GET",route="{item}"}}'] == 20
    assert found["lrbs_http_requests_in_progress"] == 1, "the one that asks"
    counted = [name for name in found if name.startswith("lrbs_http_requests_total")]
    assert len(counted) <= 4
    assert not any(re.search(r"nothing\d|nowhere|METHOD\d", name) for name in found)


def test_every_application_counts_for_itself(pairs: Any) -> None:
    first, second = pairs.client(), pairs.client()
    first.get("/v1/collections")
    name = 'lrbs_http_requests_total{method="GET",route="/v1/collections",status="200"}'
    assert read(first)[name] == 1
    assert name not in read(second)


def test_metrics_can_be_kept_from_strangers(tmp_path: Path) -> None:
    services = build(Settings(data_dir=tmp_path, database_url="", open_metrics=False))
    services.schema.upgrade()
    keys = {scope: services.access.create(scope)[1] for scope in Scope}
    services.catalogue.create("pairs", [Modality(name, {"type": "vector"}) for name in "xz"])
    bound = services.access.create(Scope.METRICS, bounds=KeyBounds(collections=("pairs",)))[1]
    with client_of(create_app(services), {}) as client:
        check_problem(client.get("/metrics"), 401, "key")
        for refused, why in (
            (keys[Scope.SEARCH], "metrics"),
            (keys[Scope.WRITE], "metrics"),
            (bound, "bound"),
        ):
            client.headers["Authorization"] = f"Bearer {refused}"
            check_problem(client.get("/metrics"), 403, why)
        for scope in (Scope.ADMIN, Scope.METRICS):
            client.headers["Authorization"] = f"Bearer {keys[scope]}"
            assert read(client)["lrbs_database_up"] == 1
        # It opens nothing else.
        for method, path in (
            ("GET", "/v1/collections"),
            ("POST", "/v1/collections"),
            ("GET", "/v1/admin/keys"),
        ):
            check_problem(client.request(method, path, json={"name": "a"}), 403, "scope")
    close(services)


def test_a_database_that_is_away_is_told_not_an_error(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pairs.client()
    with pairs.services.database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs RENAME TO elsewhere")
    found = read(client)
    assert found["lrbs_database_up"] == 0
    assert "lrbs_collections" not in found


def test_whoever_asks_for_metrics_without_end_keeps_nobody_from_readiness(
    pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = create_app(pairs.services)
    asked, may_answer = threading.Semaphore(0), threading.Event()

    def wait_and_generate(registry: Any) -> bytes:
        asked.release()
        may_answer.wait(60.0)
        return b""

    monkeypatch.setattr("app.api.metrics.generate_latest", wait_and_generate)

    async def scenario() -> None:
        transport = httpx.ASGITransport(application)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(4):
                tasks.start_soon(client.get, "/metrics")
            for _ in range(2):
                assert await to_thread.run_sync(partial(asked.acquire, timeout=60.0))
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (200, "ready")
            may_answer.set()

    anyio.run(scenario)
