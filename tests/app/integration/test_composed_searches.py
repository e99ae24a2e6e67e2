"""Searches by several contents and items at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import Pairs

SEARCH = "/v1/collections/shop/search/x"
KINDS, COLOURS = ("handbag", "shoe"), ("red", "blue", "grey")
RED_HANDBAG, REDDISH_HANDBAG = [3.0, 0, 3, 0, 0, 0, 0, 0, 0], [3.0, 0, 1.6, 1.2, 0, 0, 0, 0, 0]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask(lasting_pairs: Pairs) -> Ask:
    """Search vectors of things of two kinds and three colours, where texts name both."""
    pairs = lasting_pairs
    modalities = [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create("shop", modalities)
    rng = np.random.default_rng(0)
    items = []
    for number in range(60):
        kind, colour = KINDS[number % 2], COLOURS[number % 3]
        row = np.concatenate([3 * np.eye(2)[number % 2], 3 * np.eye(3)[number % 3], rng.standard_normal(4)])
        facts: Any = {"metadata": {"colour": colour}, "pair_id": f"p{number}"}
        items.append(pairs.item("x", f"x{number}", row, kind, **facts))
        items.append(NewItem("text", Content(text=f"a {colour} {kind}"), f"t{number}", (kind,), **facts))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))
    unclear = pairs.item("x", "x60", REDDISH_HANDBAG, "handbag", metadata={"colour": "blue"})
    pairs.services.catalogue.add_items("shop", [unclear])
    client = pairs.client()

    def search(*queries: Any, path: str = SEARCH, **options: Any) -> Any:
        return client.post(path, json={"queries": list(queries), **options})

    return search


def things(answer: Any) -> set[tuple[str, str]]:
    """Return kinds and colours of hits."""
    assert answer.status_code == 200, answer.text
    return {(hit["labels"][0], hit["metadata"]["colour"]) for hit in answer.json()["hits"]}


def test_a_word_replaces_what_it_names_of_an_item_and_leaves_the_rest(ask: Ask) -> None:
    red_handbag, blue_shoe = {"item_id": "x0"}, {"item_id": "t1"}
    for like in (red_handbag, {"item_id": "t0"}, {"vector": RED_HANDBAG}, {"text": "a red handbag"}):
        for text in ("blue", "in blue", "blue instead", "not red, blue", "blue instead of red"):
            assert things(ask(like, {"text": text}, k=5)) == {("handbag", "blue")}, (like, text)
    assert things(ask(red_handbag, {"text": "shoe"}, k=5)) == {("shoe", "red")}
    away = {"text": "red", "weight": -1}
    assert all(colour != "red" for _, colour in things(ask(red_handbag, away, k=5)))
    assert things(ask(red_handbag, blue_shoe, {"text": "grey handbag", "weight": 5}, k=5)) == {
        ("handbag", "grey")
    }
    texts = ask(red_handbag, {"text": "blue"}, k=5, path="/v1/collections/shop/search/text")
    assert things(texts) == {("handbag", "blue")}


def test_an_item_is_what_it_carries_and_a_picture_what_it_shows(ask: Ask) -> None:
    for like, colour in (({"item_id": "x60"}, "blue"), ({"vector": REDDISH_HANDBAG}, "red")):
        assert things(ask(like, k=5)) == {("handbag", colour)}, like
        assert things(ask(like, {"text": "grey"}, k=5)) == {("handbag", "grey")}, like
    assert things(ask({"item_id": "x60"}, {"text": "shoe"}, k=5)) == {("shoe", "blue")}


def test_a_typed_text_is_turned_away_from_what_it_negates(ask: Ask, lasting_pairs: Pairs) -> None:
    client = lasting_pairs.client()

    def typed(text: str) -> Any:
        return client.post("/v1/collections/shop/search/text-to-x", json={"text": text, "k": 20})

    assert things(typed("handbag not red")) == {("handbag", "blue"), ("handbag", "grey")}
    answer = typed("handbag without red").json()
    assert answer["hits"] == ask({"text": "handbag"}, {"text": "red", "weight": -1}, k=20).json()["hits"]
    assert answer["notices"] == []
    assert ask({"text": "handbag without red"}, k=20).json()["hits"] == answer["hits"]
    assert things(typed("not only red handbag")) >= {("handbag", "red")}


def test_what_a_text_negates_is_that_text_with_a_negative_weight(ask: Ask) -> None:
    grey_handbag, away = {"item_id": "x2"}, {"text": "grey", "weight": -1}
    for text, parts in (
        ("not grey", [away]),
        ("not grey, red", [{"text": "red"}, away]),
        ("not blue but red", [{"text": "red"}, {"text": "blue", "weight": -1}]),
    ):
        answer = ask(grey_handbag, {"text": text}, k=5).json()
        assert answer["hits"] == ask(grey_handbag, *parts, k=5).json()["hits"], text
    long = ask(grey_handbag, {"text": "not grey" + " " * 500}, k=5).json()
    assert long["hits"] == ask(grey_handbag, {"text": "grey"}, k=5).json()["hits"]
    twice = ask(grey_handbag, {"text": "not grey", "weight": -1}, k=5).json()
    assert twice["hits"] == ask(grey_handbag, {"text": "grey"}, k=5).json()["hits"]
    misspelt = ask(grey_handbag, {"text": "not graye, red"}, k=5).json()
    assert [(one["words"], one["did_you_mean"]) for one in misspelt["notices"]] == [(["graye"], [])]


def test_one_query_ranks_as_alone_and_its_items_are_no_hits_unless_they_may_be(ask: Ask) -> None:
    alone = ask({"text": "red handbag"}, k=10).json()
    assert things(ask({"text": "red handbag"}, k=10)) == {("handbag", "red")}
    assert [hit["probability"] for hit in alone["hits"]] == [None] * 10

    def ids(**options: Any) -> list[str]:
        given = {"item_id": "x0"}, {"item_id": "x6"}, {"text": "red handbag"}
        return [hit["id"] for hit in ask(*given, **options).json()["hits"]]

    whole = ids(k=61, include_given=True)
    assert sorted(whole) == sorted(f"x{number}" for number in range(61))
    rest = [item for item in whole if item not in ("x0", "x6")]
    assert ids(k=61) == rest
    assert ids(k=5, offset=5) == rest[5:10]
    assert ids(k=5, filter={"metadata": {"colour": "grey"}}) == [n for n in rest if int(n[1:]) % 3 == 2][:5]


def test_a_part_without_a_known_word_says_nothing_and_is_named(ask: Ask) -> None:
    answer = ask({"item_id": "x0"}, {"text": "xyzzy"}, k=5).json()
    assert [notice["words"] for notice in answer["notices"]] == [["xyzzy"]]
    assert answer["hits"] == ask({"item_id": "x0"}, k=5).json()["hits"] != []
    answer = ask({"text": "xyzzy"}, {"text": "plugh", "weight": -1}).json()
    assert (answer["hits"], len(answer["notices"])) == ([], 2)


@pytest.mark.parametrize(
    ("queries", "status", "field"),
    [
        ([], 422, "queries"),
        ([{"text": "red"}] * 17, 422, "queries"),
        ([{"text": "red"}, {"text": "a", "item_id": "x0"}], 422, "queries.1.text"),
        ([{"text": "red"}, {}], 422, "queries.1"),
        ([{"text": "red", "weight": 101}], 422, "queries.0.weight"),
        ([{"text": "red", "weight": 0}], 422, "queries"),
        ([{"text": "red", "modality": "sound"}], 422, "queries.0.modality"),
        ([{"text": "red", "modality": "x"}], 422, "queries.0.text"),
        ([{"text": "red"}, {"vector": [1.0, 2.0]}], 422, "queries.1.vector"),
        ([{"image_base64": "AAAA"}], 422, "queries.0.image_base64"),
        ([{"item_id": "nothing"}], 404, ""),
    ],
)
def test_what_is_wrong_with_a_part_is_named(ask: Ask, queries: list[Any], status: int, field: str) -> None:
    answer = ask(*queries)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"].startswith(f"{field}: " if field else "collection 'shop' has no item")


def test_a_gallery_that_is_none_is_named(ask: Ask) -> None:
    answer = ask({"text": "red"}, path="/v1/collections/shop/search/sound")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "target: unknown modality 'sound', the collection has x and text",
    )


def test_nothing_needs_to_be_trained_or_labelled(pairs: Pairs) -> None:
    modalities = [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create("shop", modalities)
    items = []
    for number in range(40):
        name = f"{COLOURS[number % 3]} {KINDS[number % 2]}"
        items.append(pairs.item("x", f"x{number}", pairs.data.X[number % 24], pair_id=f"p{number}"))
        items.append(NewItem("text", Content(text=name), f"t{number}", pair_id=f"p{number}"))
    pairs.services.catalogue.add_items("shop", items)
    body = {"queries": [{"item_id": "x0"}, {"text": "blue"}, {"text": "red", "weight": -1}]}
    for _ in range(2):  # by words alone, and by what pairs taught
        answer = pairs.client().post(SEARCH, json=body)
        assert answer.status_code == 200, answer.text
        assert int(answer.json()["hits"][0]["id"][1:]) % 3 == 1
        pairs.train("shop", TrainingParameters(method="composite"))


def test_of_two_modalities_of_vectors_a_part_says_which(pairs: Pairs) -> None:
    pairs.fill("two")
    pairs.train("two", TrainingParameters(alpha=1e-3, scaling="center", max_iter=10))
    path, row = "/v1/collections/two/search/x", pairs.data.X[0].tolist()
    answer = pairs.client().post(path, json={"queries": [{"vector": row}]})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("queries.0.modality: has to be named")
    answer = pairs.client().post(path, json={"queries": [{"vector": row, "modality": "x"}]})
    assert len(answer.json()["hits"]) == 10
