"""Searches of several callers that are answered together get what each would get alone."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain.entities import HIT_FIELDS, Content, ItemFilter, SearchResult
from app.domain.errors import CollectionNotFoundError, InvalidFieldError, ItemNotFoundError
from app.main import create_app
from app.services.serving.search import Query, SearchService, SingleSearch

FIELDS = frozenset({*HIT_FIELDS, "content_url"})


def alone(pairs: Any, search: SingleSearch, direction: tuple[str, str] = ("z", "x")) -> Any:
    """Return the result of one search, or its error."""
    try:
        (result,) = pairs.services.search.search(
            "a", *direction, [search.query], search.k, search.offset, ItemFilter(), search.fields
        )
    except Exception as error:
        return type(error), str(error)
    return dataclasses.replace(result, took_ms=0.0)


def together(
    pairs: Any, searches: Sequence[SingleSearch], direction: tuple[str, str] = ("z", "x")
) -> list[Any]:
    answers = pairs.services.search.search_together("a", *direction, searches)
    return [
        dataclasses.replace(answer, took_ms=0.0)
        if isinstance(answer, SearchResult)
        else (type(answer), str(answer))
        for answer in answers
    ]


@pytest.fixture
def searches(pairs: Any) -> list[SingleSearch]:
    """Searches of a trained collection, some of them wrong."""
    pairs.fill("a")
    pairs.train("a")
    pairs.search("a")  # which loads the model
    vectors = [Query(Content(vector=row.tolist())) for row in pairs.data.Z[:12]]
    wrong = [
        Query(Content(vector=[1.0])),
        Query(Content(text="no vector")),
        Query(Content(vector=[1e30] * 6)),
    ]
    items = [Query(item_id="z03"), Query(item_id="x03"), Query(item_id="nobody")]
    return [
        SingleSearch(query, k, offset, FIELDS, None)
        for number, query in enumerate([*vectors, *wrong, *items])
        for k, offset in [(5 + number, number % 3)]
    ]


def test_answers_and_errors_are_those_of_each_search_alone(pairs: Any, searches: list[SingleSearch]) -> None:
    expected = [alone(pairs, search) for search in searches]
    assert repr(together(pairs, searches)) == repr(expected)  # items are equal to themselves only
    assert repr(together(pairs, searches[:12])) == repr(
        expected[:12]
    )  # nothing but vectors, after the last commit
    errors = {answer[0] for answer in expected if isinstance(answer, tuple)}
    assert {InvalidFieldError, ItemNotFoundError} <= errors | {error.__base__ for error in errors}
    assert sum(isinstance(answer, SearchResult) for answer in expected) == 13


def test_equal_scores_are_in_order_of_id_however_many_search_together(
    pairs: Any, searches: list[SingleSearch]
) -> None:
    twins = [pairs.item("x", f"twin{number}", pairs.data.X[0]) for number in range(20)]
    pairs.services.catalogue.add_items("a", twins)
    assert repr(together(pairs, searches)) == repr([alone(pairs, search) for search in searches])


def test_a_write_is_in_the_next_answers(pairs: Any, searches: list[SingleSearch]) -> None:
    (first, *_) = together(pairs, searches)
    gone = first.hits[0].id
    pairs.services.catalogue.delete_item("a", gone)
    for answer in together(pairs, searches[:12]):
        assert gone not in [hit.id for hit in answer.hits]
        assert answer.index_revision > first.index_revision


def test_what_may_have_to_wait_is_left_to_a_search_alone(pairs: Any, searches: list[SingleSearch]) -> None:
    pairs.services.snapshots.evict(pairs.services.snapshots.peek_all())
    assert together(pairs, searches) == [(type(None), "None")] * len(searches)
    (refused,) = pairs.services.search.search_together("missing", "z", "x", searches[:1])
    assert refused is None
    with pytest.raises(CollectionNotFoundError):
        pairs.services.search.search("missing", "z", "x", [searches[0].query], 1, 0, ItemFilter())


def test_requests_that_wait_for_a_place_are_one_call_of_the_service(
    pairs: Any, searches: list[SingleSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    may_answer = threading.Event()
    answer_together = SearchService.search_together

    def slowly(service: SearchService, *arguments: Any) -> Any:
        sizes.append(len(arguments[-1]))
        if len(sizes) == 1:
            may_answer.wait(60.0)
        return answer_together(service, *arguments)

    async def ask_all(bodies: list[dict[str, Any]], first_waits: bool = False) -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(pairs.services), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60.0) as client:
            path = "/v1/collections/a/search/z-to-x"
            asked = [asyncio.create_task(client.post(path, json=body)) for body in bodies]
            while first_waits and not sizes:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            may_answer.set()
            return list(await asyncio.gather(*asked))

    monkeypatch.setattr("app.api.middleware.admission.usable_cores", lambda: 2)
    one_alone = {row: asyncio.run(ask_all([row_body(pairs, row)]))[0] for row in range(8)}
    sizes.clear()
    may_answer.clear()
    monkeypatch.setattr(SearchService, "search_together", slowly)
    bodies = [row_body(pairs, row) for row in range(8)]
    bodies[5] = {"vector": [1.0], "k": 10}
    answers = asyncio.run(ask_all(bodies, first_waits=True))
    assert sizes == [1, 7]
    assert [answer.status_code for answer in answers] == [200] * 5 + [422] + [200] * 2
    assert answers[5].json()["field"] == "vector"
    for row, answer in enumerate(answers):
        if row != 5:
            expected = json.loads(one_alone[row].text) | {"took_ms": answer.json()["took_ms"]}
            assert answer.json() == expected
            assert answer.headers.keys() == one_alone[row].headers.keys()


def row_body(pairs: Any, row: int) -> dict[str, Any]:
    return {"vector": np.asarray(pairs.data.Z[row]).tolist(), "k": 10}
