import pytest

from app.domain.names import Scope
from tests.app.e2e.refusals import VECTORS, Api, check_problem, vector_item

STRANGE = ("nothing", "x", "lrbs_short", "lrbs_" + "a" * 44, "lrbs_" + "\xe4" * 43, "a b", "\xe9")


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Basic bm86cGU=", *(f"Bearer {secret}" for secret in STRANGE)]
)
def test_no_key_is_unauthenticated(lasting_api: Api, authorization: str | None) -> None:
    before = lasting_api.state()
    del lasting_api.client.headers["Authorization"]
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    calls = (("GET", VECTORS), ("DELETE", VECTORS), ("POST", f"{VECTORS}/items"), ("GET", "/v1/admin/keys"))
    for method, path in calls:
        body = {"items": [vector_item()]} if method == "POST" else None
        answer = lasting_api.client.request(method, path, headers=headers, json=body)
        check_problem(answer, 401, "key")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    lasting_api.client.headers["Authorization"] = f"Bearer {lasting_api.keys[Scope.ADMIN]}"
    assert lasting_api.state() == before


def test_a_key_of_too_small_a_scope_is_forbidden(lasting_api: Api) -> None:
    before = lasting_api.state()
    for scope, method, path in (
        (Scope.SEARCH, "POST", f"{VECTORS}/items"),
        (Scope.SEARCH, "DELETE", f"{VECTORS}/items/first"),
        (Scope.SEARCH, "DELETE", VECTORS),
        (Scope.WRITE, "DELETE", VECTORS),
        (Scope.WRITE, "GET", "/v1/admin/keys"),
        (Scope.WRITE, "POST", "/v1/admin/collections/vectors/retrain"),
    ):
        body = {"items": [vector_item()]} if path.endswith("/items") else None
        headers = {"Authorization": f"Bearer {lasting_api.keys[scope]}"}
        check_problem(lasting_api.client.request(method, path, headers=headers, json=body), 403, "scope")
    assert lasting_api.state() == before
