import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import Pairs

SEARCH = "/v1/collections/shop/search/text-to-x"


def shop(pairs: Pairs, characters: int | None = None) -> None:
    """A trained collection of vectors and texts; without `characters` as the service decides."""
    options = {"type": "tfidf"} if characters is None else {"type": "tfidf", "characters": characters}
    modalities = [Modality("x", {"type": "vector"}), Modality("text", options)]
    pairs.services.catalogue.create("shop", modalities)
    items = []
    for number, row in enumerate(pairs.data.X[:24]):
        label, colour = ("handbag", "shoe")[number % 2], ("red", "blue", "grey")[number % 3]
        items.append(pairs.item("x", f"x{number}", row, label))
        items.append(NewItem("text", Content(text=f"a {colour} {label}"), f"t{number}", (label,)))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(alpha=1e-3, scaling="center", max_iter=10))


def test_a_query_is_answered_by_the_words_that_are_known_and_names_the_others(pairs: Pairs) -> None:
    shop(pairs)
    client = pairs.client()

    def search(**query: object) -> tuple[int, list[dict[str, object]]]:
        answer = client.post(SEARCH, json=query).json()
        return len(answer["hits"]), answer["notices"]

    for text in ("red handbag", "Handbags", "red RED shoes"):
        assert search(text=text) == (10, [])
    nothing = {
        "code": "unknown-words",
        "message": "the model knows no word of the query, so nothing is ranked: 'xyzzy' and 'sneakers'",
        "words": ["xyzzy", "sneakers"],
    }
    assert search(text="Xyzzy sneakers, xyzzy!") == (0, [nothing])
    n_hits, (notice,) = search(text="a red xyzzy")
    assert (n_hits, notice["code"], notice["words"]) == (10, "unknown-words", ["xyzzy"])
    assert notice["message"] == "the model does not know 'xyzzy': the other words decide the ranking"
    n_hits, (notice,) = search(text="a ?")
    assert (n_hits, notice["code"], notice["words"]) == (0, "no-words", [])
    n_hits, (notice,) = search(text=" ".join(f"xy{number}zzy" for number in range(500)))
    assert (n_hits, len(notice["words"])) == (0, 20)

    texts = ["xyzzy", "red", "red xyzzy"]
    batch = client.post(f"{SEARCH}/batch", json={"queries": [{"text": text} for text in texts]}).json()
    assert [(len(result["hits"]), len(result["notices"])) for result in batch["results"]] == [
        (0, 1),
        (10, 0),
        (10, 1),
    ]
    vector = {"vector": pairs.data.X[0].tolist()}
    assert client.post("/v1/collections/shop/search/x-to-text", json=vector).json()["notices"] == []


def test_a_stored_item_is_searched_by_whatever_its_words(pairs: Pairs) -> None:
    shop(pairs)
    pairs.services.catalogue.add_items("shop", [NewItem("text", Content(text="xyzzy"), "odd")])
    answer = pairs.client().post(SEARCH, json={"item_id": "odd"}).json()
    assert (len(answer["hits"]), answer["notices"]) == (10, [])


@pytest.mark.parametrize(("characters", "n_hits"), [(0, 0), (5, 10)])
def test_a_plural_finds_what_its_singular_does_where_parts_of_words_are_learned(
    pairs: Pairs, characters: int, n_hits: int
) -> None:
    shop(pairs, characters)
    ids = [
        [hit["id"] for hit in pairs.client().post(SEARCH, json={"text": text}).json()["hits"]]
        for text in ("handbag", "handbags")
    ]
    assert len(ids[1]) == n_hits
    assert set(ids[1]) <= set(ids[0])


def test_a_text_that_no_result_matches_is_named(pairs: Pairs) -> None:
    modalities = [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create("shop", modalities)
    rng = np.random.default_rng(0)
    items = []
    for number in range(60):
        label, colour = ("handbag", "shoe")[number % 2], ("red", "blue", "grey")[number % 3]
        row = np.concatenate([3 * np.eye(2)[number % 2], 3 * np.eye(3)[number % 3], rng.standard_normal(4)])
        metadata = {"colour": colour}
        items.append(pairs.item("x", f"x{number}", row, label, metadata=metadata))
        text = Content(text=f"a {colour} {label}")
        items.append(NewItem("text", text, f"t{number}", (label,), metadata=metadata))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))

    def codes(**query: object) -> list[str]:
        answer = pairs.client().post(SEARCH, json=query).json()
        assert answer["hits"]
        return [notice["code"] for notice in answer["notices"]]

    handbags = {"labels": ["handbag"]}
    assert codes(text="red shoe") == []
    assert codes(text="red shoe", filter=handbags) == ["weak-match"]
    assert codes(text="red xyzzy shoe", filter=handbags) == ["weak-match", "unknown-words"]
    assert codes(item_id="t1", filter=handbags) == []
