from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import typer

from app.bootstrap import build
from app.cli.commands import parse_expiry
from app.db.models import KeyRow
from app.domain.entities import KeyBounds
from app.domain.names import Scope
from app.main import create_app
from app.settings import Settings
from tests.app.e2e.refusals import MODALITIES, VECTORS, Api, check_problem, client_of, vector_item


def new_key(api: Api, **fields: Any) -> dict[str, str]:
    answer = api.client.post("/v1/admin/keys", json={"scope": "admin", **fields})
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['secret']}"}


def test_a_bound_key_sees_nothing_of_other_collections(lasting_api: Api) -> None:
    bound = new_key(lasting_api, collections=["vectors"])
    before = lasting_api.state()
    items = {"items": [vector_item()]}
    search = {"vector": [1.0]}
    about = {"source": "text", "target": "image", "item_id": "first", "relevant": True}
    calls: tuple[tuple[str, str, Any], ...] = (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", items),
        ("GET", "/items/first", None),
        ("GET", "/items/first/content", None),
        ("PUT", "/items/first", items["items"][0]),
        ("DELETE", "/items/first", None),
        ("POST", "/feedback", {"feedback": [{**about, "query": search}]}),
        ("GET", "/feedback", None),
        ("DELETE", "/feedback/1", None),
        ("POST", "/search/text-to-image", search),
        ("POST", "/search/text-to-image/batch", {"queries": [search]}),
    )
    for method, path, body in calls:
        told = []
        for name in ("mixed", "nowhere"):
            answer = lasting_api.client.request(
                method, f"/v1/collections/{name}{path}", headers=bound, json=body
            )
            problem = check_problem(answer, 404, f"there is no collection '{name}'")
            told.append({**problem, "detail": "", "instance": ""})
        assert told[0] == told[1], "what is hidden looks like what is not there"
    for path in ("/retrain", "/models", "/models/1", "/models/1/activate", "/jobs"):
        method = "GET" if path in ("/models", "/models/1", "/jobs") else "POST"
        answer = lasting_api.client.request(method, f"/v1/admin/collections/mixed{path}", headers=bound)
        check_problem(answer, 404, "there is no collection 'mixed'")
    assert lasting_api.state() == before


def test_a_bound_key_lists_and_uses_its_own_collections(api: Api) -> None:
    bound = new_key(api, collections=["vectors"])
    listed = api.client.get("/v1/collections", headers=bound).json()["collections"]
    assert [one["name"] for one in listed] == ["vectors"]
    assert api.client.get(VECTORS, headers=bound).status_code == 200
    answer = api.client.post(f"{VECTORS}/items", headers=bound, json={"items": [vector_item()]})
    assert answer.status_code == 201
    assert len(api.client.get("/v1/collections").json()["collections"]) == 2


def test_a_bound_key_can_make_neither_collections_nor_keys(lasting_api: Api) -> None:
    bound = new_key(lasting_api, collections=["vectors"])
    body = {"name": "third", "modalities": MODALITIES}
    check_problem(lasting_api.client.post("/v1/collections", headers=bound, json=body), 403, "bound")
    check_problem(
        lasting_api.client.post("/v1/admin/keys", headers=bound, json={"scope": "admin"}), 403, "bound"
    )
    check_problem(lasting_api.client.get("/v1/admin/keys", headers=bound), 403, "bound")
    key_id = lasting_api.client.get("/v1/admin/keys").json()["keys"][0]["id"]
    check_problem(lasting_api.client.delete(f"/v1/admin/keys/{key_id}", headers=bound), 403, "bound")


def test_a_bound_key_sees_the_jobs_of_its_collections_only(api: Api) -> None:
    more = [vector_item(id=f"x{n}", labels=[label]) for n, label in enumerate(("a", "b", "b"))]
    more += [{"modality": "text", "vector": [1.0], "labels": [label]} for label in ("a", "b", "b")]
    for start in (0, 3):
        items = {"items": more[start : start + 3]}
        api.client.post(f"{VECTORS}/items", json=items).raise_for_status()
    own, other = new_key(api, collections=["vectors"]), new_key(api, collections=["mixed"])
    answer = api.client.post("/v1/admin/collections/vectors/retrain", headers=own)
    job = f"/v1/admin/jobs/{answer.json()['id']}"
    assert api.client.get(job, headers=own).status_code == 200
    hidden = check_problem(api.client.get(job, headers=other), 404, "there is no job")
    absent = check_problem(api.client.get("/v1/admin/jobs/none", headers=other), 404, "there is no job")
    assert hidden["type"] == absent["type"]
    check_problem(api.client.post(f"{job}/cancel", headers=other), 404, "there is no job")
    assert api.client.get(job).json()["state"] == "queued"


def test_the_bounds_of_a_key_are_told(lasting_api: Api) -> None:
    expires = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    fields = {"collections": ["vectors"], "expires_at": expires, "requests_per_minute": 7}
    answer = lasting_api.client.post("/v1/admin/keys", json={"scope": "search", **fields}).json()
    (listed,) = [
        key for key in lasting_api.client.get("/v1/admin/keys").json()["keys"] if key["id"] == answer["id"]
    ]
    for told in (answer, listed):
        assert told["collections"] == ["vectors"]
        assert datetime.fromisoformat(told["expires_at"]) == datetime.fromisoformat(expires)
        assert told["requests_per_minute"] == 7
        assert told["last_used_at"] is None
    assert listed["secret"] is None


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"collections": []}, 422, "collections"),
        ({"collections": ["nowhere"]}, 404, "nowhere"),
        ({"collections": ["a\x00"]}, 422, "collections"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 422, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-23:59"}, 422, "expires_at"),
        ({"expires_at": "9999-12-31T00:00:00Z"}, 422, "expires_at"),
        ({"expires_at": "0001-01-01T00:00:00+23:59"}, 422, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, 422, "expires_at"),
        ({"expires_at": "soon"}, 422, "expires_at"),
        ({"requests_per_minute": 0}, 422, "requests_per_minute"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(
    lasting_api: Api, fields: dict[str, Any], status: int, named: str
) -> None:
    before = lasting_api.client.get("/v1/admin/keys").json()
    check_problem(
        lasting_api.client.post("/v1/admin/keys", json={"scope": "search", **fields}), status, named
    )
    assert lasting_api.client.get("/v1/admin/keys").json() == before


def test_an_expired_key_is_unauthenticated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = build(Settings(data_dir=tmp_path, database_url=""))
    services.schema.upgrade()
    soon = datetime.now(UTC) + timedelta(hours=1)
    _, secret = services.access.create(Scope.ADMIN, bounds=KeyBounds(expires_at=soon))
    with client_of(create_app(services), {"Authorization": f"Bearer {secret}"}) as client:
        assert client.get("/v1/collections").status_code == 200
        past = datetime.now(UTC) - timedelta(seconds=1)
        with services.database.engine.begin() as connection:
            connection.execute(sqlalchemy.update(KeyRow).values(expires_at=past))
        check_problem(client.get("/v1/collections"), 401, "expired")
    services.database.engine.dispose()


def limited(tmp_path: Path, **settings: Any) -> tuple[Any, Any]:
    services = build(Settings(data_dir=tmp_path, database_url="", **settings))
    services.schema.upgrade()
    return services, create_app(services)


def test_a_key_that_calls_too_often_is_told_when_to_call_again(tmp_path: Path) -> None:
    services, application = limited(tmp_path, rate_limit=3)
    _, first = services.access.create(Scope.ADMIN)
    _, second = services.access.create(Scope.ADMIN)
    _, generous = services.access.create(Scope.ADMIN, bounds=KeyBounds(requests_per_minute=5))
    with client_of(application, {}) as client:
        outcomes = {
            secret: [
                client.get("/v1/collections", headers={"Authorization": f"Bearer {secret}"}) for _ in range(7)
            ]
            for secret in (first, second, generous)
        }
        for secret, allowed in ((first, 3), (second, 3), (generous, 5)):
            answers = outcomes[secret]
            assert [answer.status_code for answer in answers] == [200] * allowed + [429] * (7 - allowed)
            problem = check_problem(answers[-1], 429, f"more than {allowed} requests")
            assert problem["type"] == "/problems/rate-limited"
            assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/collections").status_code == 401
    services.database.engine.dispose()


def test_without_keys_addresses_are_counted(tmp_path: Path) -> None:
    services, application = limited(tmp_path, rate_limit=2, open_search=True)
    with client_of(application, {}) as client:
        assert [client.get("/v1/collections").status_code for _ in range(4)] == [200, 200, 429, 429]
    services.database.engine.dispose()


def test_use_is_written_down_later_and_never_backwards(lasting_api: Api) -> None:
    services = build(Settings(data_dir=lasting_api.folder, database_url=""))
    key, secret = services.access.create(Scope.SEARCH)
    services.access.require(secret, Scope.SEARCH)

    def last_used() -> datetime | None:
        (found,) = [one for one in services.access.list_keys() if one.id == key.id]
        return found.last_used_at

    assert last_used() is None, "no request waits for this write"
    services.access.record_use()
    noted = last_used()
    assert noted is not None
    assert abs((datetime.now(UTC) - noted).total_seconds()) < 60
    with services.database.write() as work:
        work.keys.note_use({key.id: noted - timedelta(days=1), "gone": noted})
    assert last_used() == noted
    services.database.engine.dispose()


def test_expiry_is_a_span_or_a_date() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_expiry(None) is None
    assert parse_expiry("30d", now) == now + timedelta(days=30)
    assert parse_expiry("12h", now) == now + timedelta(hours=12)
    assert parse_expiry("15m", now) == now + timedelta(minutes=15)
    assert parse_expiry("2030-01-31") == datetime(2030, 1, 31, tzinfo=UTC)
    assert parse_expiry("2030-01-31T12:00+02:00") == datetime(2030, 1, 31, 10, tzinfo=UTC)
    for wrong in ("soon", "d", "-3d", "2030-13-01"):
        with pytest.raises(typer.BadParameter):
            parse_expiry(wrong, now)
