"""Searches of several callers that are answered together get what each would get alone."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.domain.errors import CollectionNotFoundError, InvalidFieldError
from app.domain.filters import ItemFilter
from app.domain.searches import HIT_FIELDS
from app.services.catalogue.preparation import NewItem
from app.services.models.model_bundles import ProjectedQuery, RecentTexts
from app.services.serving.search import Outcome, Query, Search
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import FINE

WORDS = ("red shoe", "blue hat", "green bag")


def shown(outcome: Outcome) -> str:
    """Return everything of an answer but its time; items are equal to themselves only."""
    if isinstance(outcome, Exception):
        return repr((type(outcome), getattr(outcome, "code", ""), str(outcome)))
    return repr([dataclasses.replace(result, took_ms=0.0) for result in outcome])


def ask(pairs: Any, searches: Sequence[Search], *direction: str, **options: bool) -> list[str]:
    outcomes = pairs.services.search.search("a", *(direction or ("z", "x")), searches, **options)
    return [shown(outcome) for outcome in outcomes]


def ask_at_once(pairs: Any, searches: Sequence[Search], *direction: str) -> list[str] | None:
    """Return what the event loop would get; None where it has to leave all of it to a thread."""
    service = pairs.services.search
    ranking = service.begin("a", *(direction or ("z", "x")), searches)
    if ranking is None:
        return None
    service.rank(ranking)
    outcomes = service.finish(ranking)
    return None if outcomes is None else [shown(outcome) for outcome in outcomes]


def check_together(pairs: Any, searches: Sequence[Search], *direction: str) -> list[str]:
    """Compare searches answered together with each of them alone; return the answers."""
    alone = [answer for search in searches for answer in ask(pairs, [search], *direction)]
    assert ask(pairs, searches, *direction) == alone
    return alone


@pytest.fixture
def searches(trained_pairs: Any) -> list[Search]:
    """Searches of a trained collection, some of them wrong."""
    trained_pairs.search("a")  # which loads the model
    vectors = [Query(Content(vector=row.tolist())) for row in trained_pairs.data.Z[:12]]
    wrong = [
        Query(Content(vector=[1.0])),
        Query(Content(text="no vector")),
        Query(Content(vector=[1e30] * 6)),
    ]
    items = [Query(item_id="z03"), Query(item_id="x03"), Query(item_id="nobody")]
    filters = [
        ItemFilter(),
        ItemFilter.of(("class 1",)),
        ItemFilter.of(("nowhere",)),
        ItemFilter.of((), {"a": (1,)}),
    ]
    return [
        *(
            Search(
                [query],
                5 + number,
                number % 3,
                filters[max(number - 8, 0) % 4] if number < 12 else ItemFilter(),
            )
            for number, query in enumerate([*vectors, *wrong, *items])
        ),
        Search(vectors[:3], 2),
        Search(vectors[:1], 1000, 3),
        Search(vectors[:1], 10_000_000),
    ]


def test_answers_and_errors_are_those_of_each_search_alone(
    trained_pairs: Any, searches: list[Search]
) -> None:
    answers = check_together(trained_pairs, searches)
    check_together(trained_pairs, searches[:8])  # nothing but vectors, after the last commit
    check_together(trained_pairs, [search for search in searches if not search.is_stored], "z", "z")
    check_together(trained_pairs, searches, "z", "nothing")
    errors = [answer for answer in answers if "Error" in answer]
    assert len(errors) == 7
    assert any("item-not-found" in error for error in errors)


def test_equal_scores_are_in_order_of_id_however_many_search_together(
    trained_pairs: Any, searches: list[Search]
) -> None:
    twins = [trained_pairs.item("x", f"twin{number}", trained_pairs.data.X[0]) for number in range(20)]
    trained_pairs.services.catalogue.add_items("a", twins)
    check_together(trained_pairs, searches)


def test_a_write_is_in_the_next_answers(trained_pairs: Any, searches: list[Search]) -> None:
    ((first, *_),) = trained_pairs.services.search.search("a", "z", "x", searches[:1])
    gone = first.hits[0].id
    trained_pairs.services.catalogue.delete_item("a", gone)
    for outcome in trained_pairs.services.search.search("a", "z", "x", searches[:8]):
        (answer,) = outcome
        assert gone not in [hit.id for hit in answer.hits]
        assert answer.index_revision > first.index_revision


def test_what_may_have_to_wait_is_left_to_a_search_alone(trained_pairs: Any, searches: list[Search]) -> None:
    trained_pairs.services.snapshots.evict(trained_pairs.services.snapshots.peek_all())
    waits = shown(BlockingIOError())
    assert ask(trained_pairs, searches[:8], may_wait=False) == [waits] * 8
    assert ask(trained_pairs, searches[:1], may_wait=False) == [waits]
    assert ask_at_once(trained_pairs, searches[:8]) is None
    assert ask_at_once(trained_pairs, searches[:1]) is None
    (alone,) = ask(trained_pairs, searches[:1])
    assert "Error" not in alone
    for several in (searches[:1], searches[:2]):
        with pytest.raises(CollectionNotFoundError):
            trained_pairs.services.search.search("missing", "z", "x", several)


def test_what_takes_longer_than_a_moment_is_not_done_at_once(
    trained_pairs: Any, searches: list[Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained_pairs.services.search.numbers_per_search("nowhere", "x", ItemFilter()) == np.inf
    numbers = trained_pairs.services.search.numbers_per_search("a", "x", ItemFilter())
    assert numbers > 1
    with monkeypatch.context() as patch:
        patch.setattr("app.services.serving.search.MOMENT_NUMBERS", numbers - 1)
        assert ask_at_once(trained_pairs, searches[:8]) is None
        patch.setattr("app.services.serving.search.MOMENT_NUMBERS", numbers)  # each by itself counts
        assert ask_at_once(trained_pairs, searches[:8]) == ask(trained_pairs, searches[:8])
    row = [Query(Content(vector=trained_pairs.data.Z[0].tolist()))]
    for search in (
        Search(row, 101),
        Search(row, 10, 95),
        Search(row * 2, 1),
        Search([Query(item_id="z03")], 1),
        Search(row, 10, 0, ItemFilter.of(("class 1",), {"new": (1,)})),
    ):
        assert ask_at_once(trained_pairs, [search]) is None
    assert ask_at_once(trained_pairs, searches[:1], "z", "z") is None


@pytest.fixture
def texts(pairs: Any) -> Any:
    """Texts beside vectors: what is shown of them are rows."""
    modalities = Modality("x", {"type": "vector"}), Modality("t", {"type": "tfidf"})
    pairs.services.catalogue.create("a", modalities)
    rows = [pairs.item("x", f"x{n:02d}", pairs.data.X[n], f"{n % 3}") for n in range(54)]
    items = [NewItem("t", Content(text=f"{WORDS[n % 3]} {n}"), f"t{n:02d}", (f"{n % 3}",)) for n in range(54)]
    pairs.services.catalogue.add_items("a", [*rows, *items])
    pairs.train("a", FINE)
    ask(pairs, [Search([Query(Content(text="red"))], 1)], "t", "x")
    return pairs


def test_typed_texts_and_shown_rows_are_the_same_together_alone_at_once_and_again(texts: Any) -> None:
    typed = ["red", "blue hat", "red qqq", "qqq", "", "  ", "red", "green bag red shoe", "red\x00"]
    by_text = [Search([Query(Content(text=text))], 5) for text in typed]
    first = check_together(texts, by_text, "t", "x")
    assert ask_at_once(texts, by_text, "t", "x") == first
    by_row = [Search([Query(Content(vector=row.tolist()))], 5, fields=HIT_FIELDS) for row in texts.data.X[:9]]
    rows = check_together(texts, by_row, "x", "t")
    assert ask_at_once(texts, by_row, "x", "t") == rows
    assert "red shoe" in str(rows)


def test_a_remembered_text_is_that_of_its_version(texts: Any) -> None:
    search = [Search([Query(Content(text="red shoe"))], 5)]
    first = ask(texts, search, "t", "x")
    assert ask(texts, search, "t", "x") == first
    texts.services.catalogue.add_items("a", [NewItem("t", Content(text="red shoe red"), "more", ("1",))])
    texts.train("a", TrainingParameters(alpha=1e-2, scaling="center", max_iter=5))
    ((answer,),) = texts.services.search.search("a", "t", "x", search)
    assert answer.model_version == 2
    (snapshot,) = texts.services.snapshots.peek_all().values()
    encoder, gallery = snapshot.model.encoders["t"], snapshot.galleries["x"]
    row = snapshot.model.project("t", encoder.encode([Content(text="red shoe")]))
    (page,) = gallery.search(row, 5, 0, ItemFilter())
    assert [(hit.id, hit.score) for hit in answer.hits] == [(item.id, score) for item, score in page]


def test_the_texts_remembered_are_few_and_short() -> None:
    asked, query = RecentTexts(), ProjectedQuery(np.zeros((1, 2), np.float32))
    for number in range(600):
        asked.put(("t", "x", str(number)), query)
        assert asked.get(("t", "x", "0"), number) is query  # it is asked again and again
    assert asked.get(("t", "x", "1"), 1) is None
    assert asked.get(("t", "x", "599"), 1) is query
    assert asked.get(("x", "t", "599"), 1) is None
    assert asked.get(("t", "t", "599"), 1) is None
    asked.put(("t", "x", "a" * 2000), query)
    assert asked.get(("t", "x", "a" * 2000), 1) is None
    asked.put(("t", "x", "brand"), query, 1)
    assert asked.get(("t", "x", "brand"), 1) is query
    assert asked.get(("t", "x", "brand"), 2) is None


def test_a_write_that_comes_before_the_rows_are_read_is_in_the_answer(
    texts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(Content(vector=texts.data.X[0].tolist()))
    ((before,),) = texts.services.search.search("a", "x", "t", [Search([query], 3)])
    best = before.hits[0].id
    read, written = texts.services.snapshots.read, []

    def write_first() -> Any:
        if not written:
            written.append(best)
            texts.services.catalogue.delete_item("a", best)
        return read()

    monkeypatch.setattr(texts.services.snapshots, "read", write_first)
    ((after,),) = texts.services.search.search("a", "x", "t", [Search([query], 4)])
    assert written
    assert best not in [hit.id for hit in after.hits]
    assert after.index_revision > before.index_revision
    assert all(hit.item.text for hit in after.hits)


def test_errors_name_the_field_whoever_else_searches(trained_pairs: Any, searches: list[Search]) -> None:
    (wrong,) = trained_pairs.services.search.search("a", "z", "x", [searches[12]])
    assert isinstance(wrong, InvalidFieldError)
    assert wrong.field == "vector"
