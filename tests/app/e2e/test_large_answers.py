"""Answers are bounded in bytes before they are built."""

import time
from collections.abc import Callable
from typing import Any

import httpx

LIMIT = 1 << 20
N_TEXTS, LENGTH = 80, 15_000


def test_answers_are_bounded(create_admin_key: Callable[[], str], start_server: Callable[..., Any]) -> None:
    key = create_admin_key()
    url = start_server(LRBS_MAX_ANSWER_BYTES=str(LIMIT), LRBS_MAX_TEXT_CHARS=str(2 * LIMIT)).url
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0) as client:
        make(client, "a", [LENGTH] * N_TEXTS)
        make(client, "few", [LIMIT // 2, LIMIT // 2, LIMIT // 2, LIMIT + 1000])
        a_search_is_refused_before_its_answer_is_too_large(client)
        fields_that_are_not_asked_for_are_not_shown(client)
        a_page_of_large_items_ends_early_and_the_next_goes_on(client)
        few_results_are_bounded_as_many_are(client)


def make(client: httpx.Client, name: str, lengths: list[int]) -> None:
    """Make a trained collection of pictures' vectors and of texts of so many characters."""
    path = f"/v1/collections/{name}"
    modalities = {"image": {"encoder": {"type": "vector"}}, "text": {"encoder": {"type": "tfidf"}}}
    client.post("/v1/collections", json={"name": name, "modalities": modalities}).raise_for_status()
    items: list[dict[str, Any]] = [
        {
            "id": f"t{n}",
            "modality": "text",
            "text": f"word{n % 2} " * (length // 6),
            "labels": [f"l{n % 2}"],
            "metadata": {"n": n},
        }
        for n, length in enumerate(lengths)
    ]
    items += [
        {"id": f"i{n}", "modality": "image", "vector": [n % 2, 1.0 - n % 2], "labels": [f"l{n % 2}"]}
        for n in range(8)
    ]
    client.post(f"{path}/items", json={"items": items}).raise_for_status()
    wish = {"method": "lrbs", "alpha": 0.01, "scaling": "center"}
    client.post(f"/v1/admin/collections/{name}/retrain", json=wish).raise_for_status()
    deadline = time.monotonic() + 120.0
    while client.get(path).json()["active_version"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def a_search_is_refused_before_its_answer_is_too_large(client: httpx.Client) -> None:
    search = "/v1/collections/a/search/image-to-text"
    for path, body in (
        (search, {"item_id": "i0", "k": N_TEXTS}),
        # Few items, many times: none of them is too much, all together are.
        (f"{search}/batch", {"queries": [{"item_id": "i0"}] * 100, "k": 1}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 413, answer.text[:500]
        assert answer.json()["type"] == "/problems/content-too-large"
        assert answer.json()["field"] == "k"
        enough = {**body, "queries": body["queries"][:20]} if "queries" in body else {**body, "k": 20}
        for wish in ({**body, "include": ["labels"]}, enough):
            answer = client.post(path, json=wish)
            assert answer.status_code == 200
            assert len(answer.content) < LIMIT


def fields_that_are_not_asked_for_are_not_shown(client: httpx.Client) -> None:
    search = "/v1/collections/a/search/image-to-text"
    for include in ([], ["text"], ["labels"], ["metadata", "labels"]):
        (hit,) = client.post(search, json={"item_id": "i0", "k": 1, "include": include}).json()["hits"]
        shown = {name for name in ("labels", "metadata", "text") if hit[name] is not None}
        assert shown == set(include)


def a_page_of_large_items_ends_early_and_the_next_goes_on(client: httpx.Client) -> None:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    pages = 0
    while True:
        answer = client.get("/v1/collections/a/items", params={"limit": 1000, **cursor})
        assert len(answer.content) < 1.1 * LIMIT
        pages += 1
        seen += [item["id"] for item in answer.json()["items"]]
        if answer.json()["next_cursor"] is None:
            break
        cursor = {"cursor": answer.json()["next_cursor"]}
    assert seen == [f"t{n}" for n in range(N_TEXTS)] + [f"i{n}" for n in range(8)]
    assert pages > 1


def few_results_are_bounded_as_many_are(client: httpx.Client) -> None:
    search = "/v1/collections/few/search/image-to-text"
    of_t3 = {"metadata": {"n": [3]}}
    for body in ({"item_id": "i0", "k": 2}, {"item_id": "i0", "k": 1, "filter": of_t3}):
        answer = client.post(search, json=body)
        assert answer.status_code == 413, answer.text[:500]
        assert answer.json()["field"] == "k"
        assert "include" in answer.json()["detail"]
        shown = client.post(search, json={**body, "include": ["labels"]})
        assert len(shown.json()["hits"]) == body["k"]
    # What is too large for the answer of a search can be read by itself.
    assert len(client.get("/v1/collections/few/items/t3").json()["text"]) > LIMIT
    assert client.get("/readyz").json() == {"status": "ready"}
