from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.main import create_app
from app.settings import Settings
from tests.app.e2e.refusals import VECTORS, Api, client_of

PATHS = (
    "/",
    "/docs",
    "/collection",
    "/models",
    "/model",
    "/static/app.js",
    "/healthz",
    "/openapi.json",
    "/v1/collections",
    "/v1/nothing",
    VECTORS,
)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_tells_browsers_to_be_careful(lasting_api: Api, path: str) -> None:
    headers = lasting_api.client.get(path).headers
    policy = headers["Content-Security-Policy"]
    for rule in ("default-src 'self'", "frame-ancestors 'none'", "object-src 'none'", "base-uri 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Strict-Transport-Security" not in headers


def broken(api_client: Any) -> Any:
    @api_client.app.get("/v1/broken")
    def fail() -> None:
        raise ZeroDivisionError("secret")

    return api_client.get("/v1/broken", headers={"X-Request-ID": "broken-by-hand"})


def test_an_unexpected_error_has_them_too_and_its_id(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    answer = broken(api.client)
    assert answer.status_code == 500
    assert answer.json()["correlation_id"] == "broken-by-hand"
    assert answer.headers["X-Request-ID"] == "broken-by-hand"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "secret" not in answer.text
    assert "unexpected error broken-by-hand" in caplog.text


def test_an_id_is_taken_over_if_it_is_sane(api: Api) -> None:
    assert api.client.get("/healthz", headers={"X-Request-ID": "trace-1234"}).headers["X-Request-ID"] == (
        "trace-1234"
    )
    made = set()
    for strange in ("", "short", "x" * 65, "with space", "line%0abreak", '"quoted-quoted"'):
        answer = api.client.get("/healthz", headers={"X-Request-ID": strange})
        made.add(answer.headers["X-Request-ID"])
    assert len(made) == 6
    assert all(len(request_id) == 16 for request_id in made)


ORIGIN = "https://shop.example"


def asked(tmp_path: Path, origins: str) -> tuple[Any, Any]:
    services = build(Settings(data_dir=tmp_path, database_url="", cors_origins=origins))
    services.schema.upgrade()
    _, secret = services.access.create(Scope.SEARCH)
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with client_of(create_app(services), {"Origin": ORIGIN}) as client:
        preflight = client.options("/v1/collections", headers=wanted)
        answer = client.get("/v1/collections", headers={"Authorization": f"Bearer {secret}"})
    services.database.engine.dispose()
    return preflight, answer


def test_other_sites_pages_may_not_call_unless_they_are_named(tmp_path: Path) -> None:
    for origins in ("", "https://other.example"):
        preflight, answer = asked(tmp_path, origins)
        assert preflight.status_code in (400, 405)
        assert answer.status_code == 200
        for found in (preflight, answer):
            assert "Access-Control-Allow-Origin" not in found.headers
    preflight, answer = asked(tmp_path, f"https://other.example, {ORIGIN}/")
    assert preflight.status_code == 200
    for found in (preflight, answer):
        assert found.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "Access-Control-Allow-Credentials" not in found.headers
