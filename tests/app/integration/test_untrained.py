"""Before anything is trained a collection is searched by words, labels and likeness."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap import build
from app.domain.entities import Content, Modality
from app.domain.reports import TrainingParameters
from app.services.catalogue.preparation import ItemChange
from app.services.catalogue.service import NewItem
from app.services.models import placement
from app.services.serving import snapshot_loader
from app.services.serving.reloads import THREAD_NAME
from app.services.serving.snapshot import MissedNames
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.loading import pace
from tests.app.onnx_files import WORDS, wait_for_looks, word_model, write_tokenizer
from tests.app.refused import refused
from tests.app.waiting import wait_for

NAME = "shop"
SECONDS = 60.0
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
    items = [item for n, words in enumerate(NAMES) for item in (picture(n), text(n, words))]
    pairs.services.catalogue.add_items(NAME, items)
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
        shop.services.catalogue.add_items(NAME, [text(len(NAMES), "a torch")])
        answer = answer_of(client, "text", "picture", text="torch")
        assert {hit["score"] for hit in answer["hits"]} == {0.0}
        assert answer["notices"][0]["code"] == "weak-match"
        assert answer["notices"][0]["message"].startswith(
            "nothing connects the query with any of these items"
        )
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
    items = []
    for number in range(20, 60):
        words = NAMES[number % 6]
        items += [picture(number, words.split()[1]), text(number, words, labels=(words.split()[1],))]
    catalogue.add_items(NAME, items)
    with shop.client() as client:
        assert answer_of(client, "text", "picture", text="red cap")["model_version"] == 0
        shop.train(NAME, TrainingParameters(method="squared"))
        answer = answer_of(client, "text", "picture", text="red cap")
        assert answer["model_version"] == 1
        assert None not in {hit["probability"] for hit in answer["hits"]}
        assert "not-trained" not in {notice["code"] for notice in answer["notices"]}


def test_names_alone_teach_no_probability(shop: Pairs) -> None:
    items = [item for n in range(20, 50) for item in (picture(n), text(n, NAMES[n % 6]))]
    shop.services.catalogue.add_items(NAME, items)
    shop.train(NAME, TrainingParameters(method="composite"))
    with shop.client() as client:
        version = client.get(f"/v1/admin/collections/{NAME}/models/1").json()
        assert version["report"]["held_out"]["reliability"] is None
        answer = answer_of(client, "text", "picture", text="red cap")
        assert answer["model_version"] == 1
        assert {hit["probability"] for hit in answer["hits"]} == {None}
        assert answer["notices"] == []


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
    monkeypatch.setattr(placement, "_MOST_ITEMS", 3)
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


def has_reloads() -> bool:
    return any(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_words_of_many_items_are_learned_beside_searches_and_once(
    shop: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, snapshots, is_open = shop.services.catalogue, shop.services.snapshots, threading.Event()
    with shop.client() as client:
        assert found(client, "text", "picture", text="red shoe")[0] == "p2"
        monkeypatch.setattr(snapshot_loader, "_MOST_FITTED_AT_ONCE", 0)
        pace(monkeypatch, loading=lambda: is_open.wait(SECONDS))
        for number in range(10, 24):
            catalogue.add_items(NAME, [picture(number), text(number, f"purple umbrella {number}")])
        assert found(client, "text", "picture", text="umbrella")

        def has_learned() -> bool:
            (served,) = snapshots.peek_all().values()
            return "umbrella" in served.model.encoders["text"].state()["terms"]

        assert not has_learned()
        catalogue.add_items(NAME, [picture(30), text(30, "red shoe")])
        assert "p30" in found(client, "text", "picture", text="red shoe")
        is_open.set()
        wait_for(lambda: found(client, "text", "picture", text="umbrella") and has_learned())
        assert "p30" in found(client, "text", "picture", text="red shoe")
        wait_for(lambda: not has_reloads())
        (served,) = snapshots.peek_all().values()
        assert found(client, "text", "picture", text="umbrella")
        assert not has_reloads()
        assert list(snapshots.peek_all().values()) == [served]


def test_what_cannot_be_learned_again_is_refused_and_not_tried_until_something_changes(
    shop: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = shop.services.catalogue
    with shop.client() as client:
        assert found(client, "text", "picture", text="red shoe")[0] == "p2"
        monkeypatch.setattr(snapshot_loader, "_MOST_FITTED_AT_ONCE", 0)
        catalogue.add_items(NAME, [text(number, "!!!") for number in range(len(NAMES))], replace=True)

        def is_refused() -> bool:
            body = {"text": "red shoe"}
            return client.post(f"/v1/collections/{NAME}/search/text-to-picture", json=body).status_code == 409

        wait_for(is_refused)
        wait_for(lambda: not has_reloads())
        assert is_refused()
        assert not has_reloads()
        catalogue.add_items(NAME, [text(2, "green hat")], replace=True)
        assert found(client, "text", "picture", text="hat")[0] == "p2"


def test_topics_are_learned_beside_quick_loads_and_searches(
    shop: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = shop.services.catalogue
    catalogue.create("topics", [Modality("x", {"type": "vector"}), Modality("text", {"type": "lda"})])
    catalogue.add_items("topics", [Pairs.item("x", "x", [1.0], pair_id="pair-0"), text(0, "red shoe")])
    slow: list[threading.Thread] = []
    reached, is_open = threading.Event(), threading.Event()

    def pause() -> None:
        if not slow:
            slow.append(threading.current_thread())
        if threading.current_thread() in slow:
            reached.set()
            is_open.wait(SECONDS)

    pace(monkeypatch, loading=pause)

    def search_topics() -> int:
        body = {"text": "red shoe"}
        return client.post("/v1/collections/topics/search/text-to-x", json=body).status_code

    with shop.client() as client:
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(search_topics()))
        thread.start()
        assert reached.wait(SECONDS)
        assert found(client, "text", "picture", text="red shoe")[0] == "p2"
        assert codes == []
        is_open.set()
        thread.join(SECONDS)
        assert codes == [200]
        for event in (reached, is_open, slow):
            event.clear()
        catalogue.add_items("topics", [text(1, "blue hat")])
        assert search_topics() == 200
        assert reached.wait(SECONDS), "they are learned again in the background"
        assert search_topics() == 200
        is_open.set()


def test_a_collection_that_grows_beyond_the_limit_is_refused_as_after_a_restart(
    shop: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = shop.services.catalogue
    monkeypatch.setattr(placement, "_MOST_ITEMS", len(NAMES))
    monkeypatch.setattr(snapshot_loader, "_MOST_FITTED_AT_ONCE", 0)
    with shop.client() as client:
        assert found(client, "text", "picture", text="red shoe")[0] == "p2"
        catalogue.add_items(NAME, [picture(10), text(10, "red shoe")])
        answer = client.post(f"/v1/collections/{NAME}/search/text-to-picture", json={"text": "shoe"})
        assert answer.status_code == 409
        assert f"no more than {len(NAMES)} items" in answer.json()["detail"]
        catalogue.delete_item(NAME, "p2")
        catalogue.delete_item(NAME, "t2")
        assert found(client, "text", "picture", text="red shoe")[0] == "p10"


def test_nothing_is_left_of_a_collection_that_is_deleted_while_it_is_loaded(
    shop: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, snapshots = shop.services.catalogue, shop.services.snapshots
    catalogue.add_items(NAME, [text(number, "!!!") for number in range(len(NAMES))], replace=True)
    reached, is_open = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        is_open.wait(SECONDS)

    pace(monkeypatch, loading=pause)
    with shop.client() as client:
        body = {"text": "red"}
        search = threading.Thread(
            target=lambda: client.post(f"/v1/collections/{NAME}/search/text-to-picture", json=body)
        )
        search.start()
        assert reached.wait(SECONDS)
        catalogue.delete_collection(NAME)
        snapshots.list_collections(SECONDS)
        is_open.set()
        search.join(SECONDS)
        snapshots.list_collections(SECONDS)
        assert snapshots._loader.known_ids() == set()


@pytest.mark.usefixtures("onnxruntime")
def test_words_that_a_missing_model_could_not_encode_count_once_it_is_back(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tokenizer = tmp_path / "texts.onnx", tmp_path / "tokenizer.json"
    path.write_bytes(word_model(np.eye(len(WORDS)).tolist()))
    write_tokenizer(tokenizer)
    encoder = {"type": "onnx-text", "path": str(path), "tokenizer_path": str(tokenizer)}
    catalogue = pairs.services.catalogue
    catalogue.create(NAME, [Modality("picture", {"type": "vector"}), Modality("text", encoder)])
    catalogue.add_items(NAME, [picture(0, WORDS[4]), picture(1, WORDS[5]), text(0, WORDS[4])])
    path.rename(tmp_path / "away")
    begun = Pairs(build(pairs.services.settings), pairs.data)
    monkeypatch.setattr(MissedNames, "may_retry", True)
    with begun.client() as client:
        assert found(client, "picture", "text", item_id="p0") == ["t0"]
        score = {
            hit["id"]: hit["score"] for hit in answer_of(client, "text", "picture", item_id="t0")["hits"]
        }
        assert score["p1"] == 0.0
        wait_for_looks()
        (tmp_path / "away").rename(path)
        catalogue.change_labels(NAME, "p1", [WORDS[4]])
        wait_for(
            lambda: (
                {
                    hit["id"]: hit["score"]
                    for hit in answer_of(client, "text", "picture", item_id="t0")["hits"]
                }["p1"]
                > 0.5
            )
        )
        answer = answer_of(client, "text", "picture", text=f"a {WORDS[7]} Torch")
        assert (len(answer["hits"]), answer["notices"][0]["words"]) == (2, [WORDS[7], "torch"])
        notice = (
            f"no text, label or value has {WORDS[7]!r} and 'torch': likeness of meaning decides the ranking"
        )
        assert answer["notices"][0]["message"] == notice
        codes = [one["code"] for one in answer_of(client, "text", "picture", text=WORDS[4])["notices"]]
        assert codes == ["not-trained"]
    close(begun.services)


@pytest.mark.parametrize("side", ["picture", "text"])
def test_items_of_one_modality_find_each_other_before_there_are_others(pairs: Pairs, side: str) -> None:
    modalities = [Modality("picture", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create(NAME, modalities)
    make, other = (picture, "text") if side == "picture" else (text, "picture")
    own = [make(n, *([] if side == "picture" else [words])) for n, words in enumerate(NAMES)]
    pairs.services.catalogue.add_items(NAME, own[:4])
    query: dict[str, Any] = {"vector": [1.0] * 5} if side == "picture" else {"text": "red cap"}
    asked = {"text": "red"} if side == "picture" else {"vector": [1.0] * 5}
    with pairs.client() as client:
        assert len(found(client, side, side, item_id=own[1].id)) == 3
        pairs.services.catalogue.add_items(NAME, own[4:])
        assert found(client, side, side, k=6, **query)
        assert client.get(f"/v1/collections/{NAME}/values?modality={side}").json()["items"] == 6
        for source, target, content in ((side, other, query), (other, side, asked), (other, other, asked)):
            answer = client.post(f"/v1/collections/{NAME}/search/{source}-to-{target}", json=content)
            assert answer.status_code == 409, answer.text
            assert "it takes items of both modalities" in answer.json()["detail"]
        first = text(1, NAMES[1]) if side == "picture" else picture(1)
        pairs.services.catalogue.add_items(NAME, [first])
        assert found(client, side, other, item_id=own[1].id) == [first.id]
        pairs.services.catalogue.delete_item(NAME, str(first.id))
        assert found(client, side, side, k=6, **query)


def test_what_is_alike_is_found_within_a_modality_where_nothing_connects_both(pairs: Pairs) -> None:
    pairs.make(NAME)
    rows = np.random.default_rng(0).standard_normal((6, 3))
    catalogue = pairs.services.catalogue
    catalogue.add_items(NAME, [pairs.item("x", f"x{n}", row) for n, row in enumerate(rows)])
    catalogue.add_items(NAME, [pairs.item("z", f"z{n}", row[:2]) for n, row in enumerate(rows)])
    with pairs.client() as client:
        assert found(client, "x", "x", vector=rows[3].tolist())[0] == "x3"
        catalogue.add_items(NAME, [pairs.item("x", "new", rows[3] * 2.0)])
        assert set(found(client, "x", "x", item_id="x3")[:1]) == {"new"}
        refused_ = client.post(f"/v1/collections/{NAME}/search/x-to-z", json={"vector": rows[3].tolist()})
        assert refused_.status_code == 409
        assert "nothing connects 'x' and 'z'" in refused_.json()["detail"]
        for side, width in (("x", 3), ("z", 2)):
            catalogue.add_items(NAME, [pairs.item(side, f"{side}-p", rows[0][:width], pair_id="p")])
        assert found(client, "x", "z", vector=rows[0].tolist())[0] == "z-p"


@pytest.mark.parametrize(("n_pairs", "is_same"), [(0, True), (20, True), (20, False)])
def test_vectors_of_one_length_are_of_one_space_unless_pairs_say_otherwise(
    pairs: Pairs, n_pairs: int, is_same: bool
) -> None:
    pairs.make(NAME)
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((2, 30, 8))
    z = x + 0.5 * other if is_same else other
    for side, rows in (("x", x), ("z", z)):
        items = [
            pairs.item(side, f"{side}{n}", row, pair_id=f"{n}" if n < n_pairs else None)
            for n, row in enumerate(rows)
        ]
        pairs.services.catalogue.add_items(NAME, items)
    with pairs.client() as client:
        answer = answer_of(client, "x", "z", item_id="x29", k=30)
    scores = {hit["id"]: hit["score"] for hit in answer["hits"]}
    assert (scores["z29"] > 0.5) == is_same  # which has no partner
    (notice,) = (notice for notice in answer["notices"] if notice["code"] == "not-trained")
    assert ("one length" in notice["message"]) == (n_pairs == 0)


def test_vectors_of_one_length_are_compared_again_as_pairs_come(pairs: Pairs) -> None:
    pairs.make(NAME)
    rows = np.random.default_rng(0).standard_normal((2, 80, 8))
    pairs.services.catalogue.add_items(NAME, [pairs.item("z", "alone", rows[0][0])])

    def add(numbers: range) -> None:
        for side, of_side in zip("xz", rows, strict=True):
            items = [pairs.item(side, f"{side}{n}", of_side[n], pair_id=f"{n}") for n in numbers]
            pairs.services.catalogue.add_items(NAME, items)

    def compare() -> tuple[bool, bool]:
        """Return whether "alone" is like its own vector as an x, and whether a notice says why."""
        answer = answer_of(client, "x", "z", vector=rows[0][0].tolist(), k=99)
        (score,) = (hit["score"] for hit in answer["hits"] if hit["id"] == "alone")
        return score > 0.5, any("one length" in notice["message"] for notice in answer["notices"])

    with pairs.client() as client:
        add(range(19))
        assert compare() == (True, True)
        add(range(19, 80))
        wait_for(lambda: compare() == (False, False))
