"""Before anything is trained a collection is searched by words, labels and likeness."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.domain.reports import TrainingParameters
from app.services.catalogue.preparation import ItemChange
from app.services.catalogue.service import NewItem
from app.services.models import untrained
from app.services.serving import snapshot_loader
from tests.app.integration.conftest import Pairs
from tests.app.refused import refused

NAME = "shop"
NAMES = ("red shirt", "blue shirt", "red shoe", "blue shoe", "green cap", "red cap")


def picture(number: int, *labels: str, **facts: Any) -> NewItem:
    row = np.random.default_rng(number).random(5)
    return Pairs.item("picture", f"p{number}", row, *labels, pair_id=f"pair-{number}", **facts)


def text(number: int, words: str, **facts: Any) -> NewItem:
    return NewItem("text", Content(text=words), f"t{number}", pair_id=f"pair-{number}", **facts)


@pytest.fixture
def shop(pairs: Pairs) -> Pairs:
    """Pictures with their names, of which nothing was learned."""
    modalities = [Modality("picture", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create(NAME, modalities)
    for number, words in enumerate(NAMES):
        pairs.services.catalogue.add_items(NAME, [picture(number), text(number, words)])
    return pairs


def answer_of(client: httpx.Client, source: str, target: str, **query: Any) -> Any:
    answer = client.post(f"/v1/collections/{NAME}/search/{source}-to-{target}", json={"k": 3, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def found(client: httpx.Client, source: str, target: str, **query: Any) -> list[str]:
    return [hit["id"] for hit in answer_of(client, source, target, **query)["hits"]]


def test_words_find_pictures_and_pictures_find_texts_before_any_training(shop: Pairs) -> None:
    with shop.client() as client:
        answer = answer_of(client, "text", "picture", text="blue shoe")
        assert next(hit["id"] for hit in answer["hits"]) == "p3"
        assert answer["model_version"] == 0
        assert {hit["probability"] for hit in answer["hits"]} == {None}
        assert [notice["code"] for notice in answer["notices"]] == ["not-trained"]
        like_third = np.random.default_rng(2).random(5) + 0.01
        assert found(client, "picture", "text", vector=like_third.tolist())[0] == "t2"
        assert found(client, "picture", "picture", item_id="p4")
        assert found(client, "text", "text", text="green")[0] == "t4"
        assert client.get(f"/v1/collections/{NAME}").json()["active_version"] is None
        assert client.get(f"/v1/admin/collections/{NAME}/models").json()["models"] == []
        assert client.get(f"/v1/collections/{NAME}/values?modality=picture").status_code == 200
        assert client.get(f"/v1/collections/{NAME}/map").json()["model_version"] == 0


@pytest.mark.parametrize("most_at_once", [600, 0])
def test_what_is_written_is_found_by_the_next_search(
    shop: Pairs, most_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_loader, "_MOST_FITTED_AT_ONCE", most_at_once)
    catalogue = shop.services.catalogue
    with shop.client() as client:
        assert found(client, "text", "picture", text="red shoe")[0] == "p2"
        catalogue.add_items(NAME, [picture(10), text(10, "red shoe shoe red")])
        assert "p10" in found(client, "text", "picture", text="red shoe")[:2]
        catalogue.delete_item(NAME, "p2")
        assert found(client, "text", "picture", text="red shoe")[0] == "p10"
        catalogue.add_items(NAME, [picture(11), text(11, "purple umbrella")])
        if most_at_once:
            assert found(client, "text", "picture", text="umbrella")[0] == "p11"
        else:  # new words are learned once half of the items are new
            assert found(client, "text", "picture", text="umbrella") == []
            for number in range(12, 25):
                catalogue.add_items(NAME, [text(number, "plain sock")])
            assert found(client, "text", "picture", text="umbrella")[0] == "p11"


def test_labels_and_values_count_as_words(shop: Pairs) -> None:
    catalogue = shop.services.catalogue
    with shop.client() as client:
        assert found(client, "text", "picture", text="velvet") == []
        catalogue.change_labels(NAME, "p1", ["velvet"])
        assert found(client, "text", "picture", text="velvet")[0] == "p1"
        catalogue.change_items(NAME, [ItemChange(("t4",), metadata={"fabric": "linen", "price": 12})])
        assert found(client, "text", "picture", text="linen")[0] == "p4"
        assert found(client, "text", "picture", text="linen", filter={"labels": ["velvet"]}) == ["p1"]


def test_a_training_replaces_it(shop: Pairs) -> None:
    catalogue = shop.services.catalogue
    for number in range(20, 60):
        words = NAMES[number % 6]
        catalogue.add_items(
            NAME, [picture(number, words.split()[1]), text(number, words, labels=(words.split()[1],))]
        )
    with shop.client() as client:
        assert answer_of(client, "text", "picture", text="red cap")["model_version"] == 0
        shop.train(NAME, TrainingParameters(method="squared"))
        answer = answer_of(client, "text", "picture", text="red cap")
        assert answer["model_version"] == 1
        assert None not in {hit["probability"] for hit in answer["hits"]}
        assert "not-trained" not in {notice["code"] for notice in answer["notices"]}


def test_what_nothing_connects_is_refused_with_what_is_missing(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.make(NAME)
    items = [
        pairs.item(side, f"{side}{n}", [1.0, n, 2.0][:width])
        for side, width in (("x", 2), ("z", 3))
        for n in range(3)
    ]
    with pairs.client() as client:
        pairs.services.catalogue.add_items(NAME, items[:3])

        def refusal() -> str:
            answer = client.post(f"/v1/collections/{NAME}/search/x-to-z", json={"vector": [1.0, 2.0]})
            assert answer.status_code == 409
            assert answer.json()["type"] == "/problems/model-not-trained"
            return str(answer.json()["detail"])

        assert "it takes items of both modalities" in refusal()
        pairs.services.catalogue.add_items(NAME, items[3:])
        assert "nothing connects 'x' and 'z'" in refusal()
        assert "nothing connects 'x' and 'z'" in refusal()
        pairs.services.catalogue.add_items(
            NAME,
            [
                pairs.item("x", "paired", [1.0, 1.0], pair_id="p"),
                pairs.item("z", "partner", [1.0, 1.0, 1.0], pair_id="p"),
            ],
        )
        assert (
            client.post(f"/v1/collections/{NAME}/search/x-to-z", json={"vector": [1.0, 2.0]}).status_code
            == 200
        )
    monkeypatch.setattr(untrained, "_MOST_ITEMS", 3)
    pairs.services.snapshots.evict([pairs.services.catalogue.collection(NAME)[0].id])
    with refused("model-not-trained") as too_many:
        pairs.search(NAME)
    assert "no more than 3 items" in str(too_many.value)


@pytest.mark.parametrize(
    ("n_pairs", "labels", "alpha", "missing"),
    [
        (3, (), None, "3 pairs and no metadata"),
        (2, ("a", "b"), 1e-3, "too few items of 'picture' and 'text': there are 2 items of 'picture'"),
        (6, ("a",), None, "pairs (the same pair_id on two items) that do not all have one label"),
    ],
)
def test_few_pairs_and_those_of_one_label_are_no_training(
    pairs: Pairs, n_pairs: int, labels: tuple[str, ...], alpha: float | None, missing: str
) -> None:
    modalities = [Modality("picture", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create(NAME, modalities)
    for number, words in enumerate(NAMES[:n_pairs]):
        own = labels[number % 2 : number % 2 + 1] or labels[:1]
        items = [picture(number, *own), text(number, words, labels=own)]
        pairs.services.catalogue.add_items(NAME, items)
    with pairs.client() as client:
        answer = client.post(f"/v1/admin/collections/{NAME}/retrain", json={"alpha": alpha} if alpha else {})
        assert answer.status_code == 409
        assert missing in answer.json()["detail"]
        assert "typed queries are compared with the words of 'text'" in answer.json()["detail"]
        assert "that suffices" not in answer.json()["detail"]
        assert found(client, "text", "picture", text=NAMES[1])[0] == "p1"
