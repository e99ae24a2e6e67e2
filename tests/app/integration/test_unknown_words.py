import base64
import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from app.services.serving.reasons import follow_names
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import CopyOf, Pairs

SEARCH = "/v1/collections/shop/search/text-to-x"


def shop(pairs: Pairs, characters: int | None = None, alpha: float = 1e-3) -> None:
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
    pairs.train("shop", TrainingParameters(alpha=alpha, scaling="center", max_iter=10))


def test_a_query_is_answered_by_the_words_that_are_known_and_names_the_others(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(shop)
    client = pairs.client()

    def search(**query: object) -> tuple[int, list[dict[str, object]]]:
        answer = client.post(SEARCH, json=query).json()
        return len(answer["hits"]), answer["notices"]

    for text in ("red handbag", "Handbags", "red RED shoes", "the same red with your shoes"):
        assert search(text=text) == (10, [])
    nothing = {
        "code": "unknown-words",
        "message": "the model knows no word of the query, so nothing is ranked by it: 'xyzzy' and 'sneakers'"
        "; a training learns the words of newer items",
        "words": ["xyzzy", "sneakers"],
        "did_you_mean": [],
    }
    assert search(text="Xyzzy sneakers, xyzzy!") == (0, [nothing])
    n_hits, (notice,) = search(text="the red xyzzy")
    assert (n_hits, notice["code"], notice["words"]) == (10, "unknown-words", ["xyzzy"])
    assert notice["message"] == (
        "the model does not know 'xyzzy': the other words decide the ranking"
        "; a training learns the words of newer items"
    )
    n_hits, (notice,) = search(text="red handbagged")
    assert (n_hits, notice["code"], notice["did_you_mean"]) == (10, "unknown-words", ["red handbag"])
    assert notice["message"] == "no text has 'handbagged': words that are spelled alike decide the ranking"
    n_hits, (notice,) = search(text="- ?")
    assert (n_hits, notice["code"], notice["words"]) == (0, "no-words", [])
    n_hits, (notice,) = search(text="red handbag -xyzzy")
    assert (n_hits, notice["words"]) == (10, ["xyzzy"])
    assert notice["message"] == "a part of the query does not count: the model knows no word of 'xyzzy'"
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


def test_the_number_of_an_article_finds_it_and_a_value_is_offered_as_a_filter(pairs: Pairs) -> None:
    pairs.make("shop", x="vector", text="tfidf")
    new = []
    for number in range(12):
        of_both = {"pair_id": f"QX-{number}", "metadata": {"size": 40 + number % 2, "fit": "XL"}}
        new.append(pairs.item("x", f"x{number}", pairs.data.X[number], **of_both))
        text = Content(text=f"a {('red', 'blue', 'grey')[number % 3]} shoe x3")
        new.append(NewItem("text", text, f"t{number}", **of_both))
    pairs.services.catalogue.add_items("shop", new)
    client = pairs.client()

    def search(text: str, path: str = SEARCH, **options: object) -> tuple[list[str], list[dict[str, Any]]]:
        answer = client.post(path, json={"text": text, **options}).json()
        notices = [notice for notice in answer["notices"] if notice["code"] != "not-trained"]
        if "named-items" in [notice["code"] for notice in notices]:
            assert {(hit["probability"], hit["score"]) for hit in answer["hits"]} <= {(None, 0.0)}
        return [hit["id"] for hit in answer["hits"]], notices

    for is_trained in (False, True):
        if is_trained:
            pairs.train("shop", TrainingParameters(method="composite"))
        hits, (notice,) = search(" qx-7\n")
        assert (hits, notice["code"], notice["words"]) == (["x7"], "named-items", ["qx-7"])
        assert notice["message"] == "'qx-7' is the id of an item, or of its pair"
        assert search("QX-7", "/v1/collections/shop/search/text-to-text")[0] == ["t7"]
        assert search("x4")[0] == ["x4"]
        assert len(search("x3")[0]) == 10  # a word of texts
        by_filter = {"filter": {"metadata": {"size": 40}}}
        assert (search("QX-8", **by_filter)[0], search("QX-7", **by_filter)[0]) == (["x8"], [])
        assert search("QX-7", include=["explanation"], min_probability=0.5 if is_trained else None)[0] == [
            "x7"
        ]
        hits, (notice,) = search("shoe 41")
        assert len(hits) == 10
        assert "; filters find size=41" in notice["message"]
        assert "filters" not in search("shoe 43")[1][0]["message"]
        for text in ("the", "with your"):
            hits, (notice,) = search(text)
            assert (hits, notice["code"], notice["did_you_mean"]) == ([], "no-words", [])
        assert search("no red shoe")[0] == search("shoe -red")[0]
        beside = [{"item_id": "x0"}, {"text": "no red shoe"}], [{"item_id": "x0"}, {"text": "-red, -shoe"}]
        first, second = (
            client.post(SEARCH.replace("text-to-x", "x"), json={"queries": queries}).json()["hits"]
            for queries in beside
        )
        assert [hit["id"] for hit in first] == [hit["id"] for hit in second]
    pairs.services.catalogue.delete_item("shop", "x7")
    assert search("QX-7")[0] == []


def test_a_filter_that_a_notice_offers_is_of_the_present_items(pairs: Pairs) -> None:
    shop(pairs)  # by a method for which texts are kept
    client = pairs.client()

    def message() -> str:
        (notice,) = client.post(SEARCH, json={"text": "shoe 47"}).json()["notices"]
        return str(notice["message"])

    assert "filters" not in message()
    pairs.services.catalogue.add_items(
        "shop", [pairs.item("x", "new", pairs.data.X[0], metadata={"size": 47})]
    )
    assert message().endswith("; filters find size=47")
    pairs.services.catalogue.delete_item("shop", "new")
    assert "filters" not in message()


def test_a_model_that_learned_nothing_answers_a_text(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(shop, alpha=1e5)
    assert pairs.services.versions.model("shop", 1).report.fit.rank == 0
    answer = pairs.client().post(SEARCH, json={"text": "red handbag", "k": 24})
    assert answer.status_code == 200, answer.text
    assert [hit["score"] for hit in answer.json()["hits"]] == [0.0] * 24


def test_a_misspelt_word_gets_the_nearest_known_ones(pairs: Pairs) -> None:
    items = [
        ("Rouge CAFÉ-Handtasche Sailors", "sailing boats"),
        ("Chaussure noire, Café Grün", "Chaussures"),
    ] * 6
    pairs.make("shop", x="vector", text="tfidf")
    new = []
    for number, (text, label) in enumerate(items):
        new.append(pairs.item("x", f"x{number}", pairs.data.X[number], label))
        new.append(NewItem("text", Content(text=f"{text} Handbag"), f"t{number}", (label,)))
    pairs.services.catalogue.add_items("shop", new)
    client = pairs.client()

    def offers(text: str) -> list[str]:
        notices = client.post(SEARCH, json={"text": text}).json()["notices"]
        return [offer for notice in notices for offer in notice["did_you_mean"]]

    assert offers("hanbag") == ["Handbag"]  # before any training
    pairs.train("shop", TrainingParameters(alpha=1e-3, scaling="center", max_iter=10))
    assert offers("hanbag") == ["Handbag"]
    assert offers("«Hanbag», cfaé!") == ["«Handbag», Café!"]
    assert offers("une casure hanbag") == ["une Chaussure Handbag"]
    answer = client.post(SEARCH, json={"text": "xyzzy hanbag"}).json()  # of which one alone is like a word
    assert (answer["hits"], [notice["did_you_mean"] for notice in answer["notices"]]) == ([], [[]])
    assert offers("sacz" + " hanbag" * 200) == []
    assert offers("xyzzy") == offers("Handbag") == []
    # Nothing is near: German vowels as they are typed without their keys, and words that begin alike.
    assert offers("gruener") == ["Grün"]
    assert offers("Sailboat!") == ["sailing boats!", "Sailors!", "sailing!"]

    def batch(*texts: str) -> list[dict[str, Any]]:
        queries = [{"text": text} for text in texts]
        return client.post(f"{SEARCH}/batch", json={"queries": queries}).json()["results"]

    results = batch(*("hanbag" + "!" * number for number in range(25)))
    right = client.post(SEARCH, json={"text": "handbag"}).json()["hits"]
    assert [result["hits"] for result in results] == [right] * 25
    results = batch(*("noire casure" + "!" * number for number in range(25)))
    assert [len(result["notices"][0]["did_you_mean"]) for result in results] == [1] * 20 + [0] * 5
    assert len({str(result["hits"]) for result in results}) == 1


@pytest.mark.parametrize("characters", [0, 5], ids=["words", "parts of words"])
def test_a_slip_beside_words_that_are_known_is_corrected(copy_of: CopyOf, characters: int) -> None:
    client = copy_of(shop, characters)[0].client()

    def search(text: str) -> tuple[list[tuple[str, float]], list[str]]:
        answer = client.post(SEARCH, json={"text": text, "k": 24}).json()
        hits = [(hit["id"], hit["score"]) for hit in answer["hits"]]
        return hits, [notice["message"].partition(";")[0] for notice in answer["notices"]]

    right, _ = search("red handbag")
    for slip in ("hadnbag", "handba", "handbaag", "hamdbag", "Handbug"):
        told = f"no text or name has {slip.lower()!r}: ranked by 'red handbag' instead"
        assert search(f"red {slip}") == (right, [told])
    # Two slips, too short, a code, one of two, and a part of a word.
    for kept in ("hnadbga", "ren", "handbag7", "hadnbag xyzzy", "slim-hadnbag", "handbaag slim-hadnbag"):
        hits, messages = search(f"red {kept}")
        assert hits
        assert messages or (characters and kept in ("ren", "handbag7"))
        assert not any("instead" in message for message in messages)


def test_a_stored_item_is_searched_by_whatever_its_words(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(shop)
    pairs.services.catalogue.add_items("shop", [NewItem("text", Content(text="xyzzy"), "odd")])
    answer = pairs.client().post(SEARCH, json={"item_id": "odd"}).json()
    assert (len(answer["hits"]), answer["notices"]) == (10, [])


@pytest.mark.parametrize(("characters", "is_replaced"), [(0, True), (5, False)])
def test_a_plural_finds_what_its_singular_does_by_its_parts_or_by_the_nearest_word(
    copy_of: CopyOf, characters: int, is_replaced: bool
) -> None:
    client = copy_of(shop, characters)[0].client()
    one, many, odd = (
        client.post(SEARCH, json={"text": text}).json() for text in ("handbag", "handbags", "xyzzy")
    )
    assert odd["hits"] == [] != one["hits"]
    assert {hit["id"] for hit in many["hits"]} == {hit["id"] for hit in one["hits"]}
    assert one["notices"] == []
    assert [notice["message"] for notice in many["notices"]] == [
        "the model knows no word of the query, 'handbags': ranked by 'handbag' instead; "
        "a training learns the words of newer items"
    ] * is_replaced


def fill_with_colours(pairs: Pairs, with_partners: bool = False) -> None:
    """A trained shop whose items have labels and colours that vectors show and texts name."""
    pairs.make("shop", x="vector", text="tfidf")
    rng = np.random.default_rng(0)
    items = []
    for number in range(60):
        label, colour = ("handbag", "shoe")[number % 2], ("red", "blue", "grey")[number % 3]
        row = np.concatenate([3 * np.eye(2)[number % 2], 3 * np.eye(3)[number % 3], rng.standard_normal(4)])
        facts: Any = {"metadata": {"colour": colour}, "pair_id": f"{number}" if with_partners else None}
        items.append(pairs.item("x", f"x{number}", row, label, **facts))
        text = Content(text=f"a {colour} {label}")
        items.append(NewItem("text", text, f"t{number}", (label,), **facts))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))


def test_a_text_that_no_result_matches_is_named(copy_of: CopyOf) -> None:
    client = copy_of(fill_with_colours)[0].client()

    def codes(**query: object) -> list[str]:
        answer = client.post(SEARCH, json=query).json()
        assert answer["hits"]
        return [notice["code"] for notice in answer["notices"]]

    handbags = {"labels": ["handbag"]}
    assert codes(text="red shoe") == []
    assert codes(text="red shoe", filter=handbags) == ["weak-match"]
    assert codes(text="red xyzzy shoe", filter=handbags) == ["weak-match", "unknown-words"]
    assert codes(item_id="t1", filter=handbags) == []


def test_words_of_later_items_find_them_until_these_items_go(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_colours, with_partners=True)
    client = pairs.client()

    def search(text: str, k: int = 3) -> tuple[list[str], list[str]]:
        answer = client.post(SEARCH, json={"text": text, "k": k}).json()
        return [hit["id"] for hit in answer["hits"]], [notice["code"] for notice in answer["notices"]]

    assert search("sunglasses") == ([], ["unknown-words"])
    assert search("red shose") == (search("red shoe")[0], ["unknown-words"])
    shown = pairs.item("x", "worn", np.zeros(9), "sunglasses", pair_id="worn")
    words = NewItem("text", Content(text="purple aviator sunglasses shose"), "words", pair_id="worn")
    alone = pairs.item("x", "alone", np.zeros(9), metadata={"colour": "purple"})
    pairs.services.catalogue.add_items("shop", [words, shown, alone])
    assert search("sunglasses", 1) == (["worn"], [])
    assert search("Aviator", 1) == search("shose", 1) == (["worn"], [])
    assert search("red shose")[1] == []
    assert set(search("purple", 2)[0]) == {"worn", "alone"}
    assert search("sunglasses xyzzy", 1) == (["worn"], ["unknown-words"])
    assert search("sunglasses hadnbag", 9)[0] == search("sunglasses handbag", 9)[0]
    hits, notices = search("red sunglasses")  # of words that were learned and others both say something
    assert (hits[0], notices) == ("worn", [])
    (hit,) = client.post(SEARCH, json={"text": "sunglasses", "k": 1}).json()["hits"]
    assert hit["probability"] is None
    pairs.services.catalogue.delete_item("shop", "words")
    pairs.services.catalogue.change_labels("shop", "worn", ["shoe"])
    assert search("sunglasses") == ([], ["unknown-words"])


BRANDS = [f"{start}{end}" for start in ("ar", "bel", "cor", "dun") for end in ("fex", "gomi", "hul", "jask")]


COLOURS, LABELS = ("red", "blue", "grey", "green"), ("handbag", "shoe", "watch", "belt")


def png(pixels: np.ndarray) -> bytes:
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


def picture_of(row: np.ndarray) -> bytes:
    """A picture of three by four squares, each as bright as a number is large."""
    levels = np.clip(100 + 30 * row, 0, 255).astype(np.uint8)
    return png(np.kron(levels.reshape(3, 4), np.ones((8, 8), np.uint8)))


def fill_with_brands(
    pairs: Pairs,
    colours: Sequence[str] = COLOURS,
    labels: Sequence[str] = LABELS,
    n_unpaired: int = 0,
    x: str = "vector",
) -> list[tuple[str, str, str]]:
    """Train a collection in which every brand has four items; return brand, colour and label of each. If some
    have no partner, none carries a label or colour."""
    pairs.make("shop", x=x, text="tfidf")
    rng, items, shown = np.random.default_rng(0), [], []
    for number in range(64 + n_unpaired):
        kind, shade = rng.integers(4), rng.integers(4)
        row = np.concatenate([3 * np.eye(4)[kind], 2 * np.eye(4)[shade], rng.standard_normal(4)])
        label, colour = labels[kind], colours[shade]
        carried, metadata = ((), {}) if n_unpaired else ((label,), {"colour": colour})
        facts: dict[str, Any] = {"metadata": metadata, "pair_id": f"p{number}"}
        content = Content(vector=row.tolist()) if x == "vector" else Content(picture=picture_of(row))
        items.append(NewItem("x", content, f"x{number}", carried, **facts))
        if number < 64:
            text = Content(text=f"{BRANDS[number % 16]} men {colour} {label}")
            items.append(NewItem("text", text, f"t{number}", carried, **facts))
        shown.append((BRANDS[number % 16], colour, label))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))
    return shown


def test_brands_of_few_items_stand_out(copy_of: CopyOf) -> None:
    pairs, shown = copy_of(fill_with_brands)
    client = pairs.client()
    for brand in BRANDS:
        answer = client.post(SEARCH, json={"text": brand, "k": 4}).json()
        ids = {f"x{number}" for number, (of_item, _, _) in enumerate(shown) if of_item == brand}
        assert {hit["id"] for hit in answer["hits"]} == ids
        assert {hit["probability"] for hit in answer["hits"]} == {None}  # nothing was learned of it
        assert answer["notices"] == []
        # Nor is it of what no item has, which says nothing beside it.
        for text in (f"{brand} xqzvyk", f"xqzvyk for {brand} xqzvyk"):
            beside = client.post(SEARCH, json={"text": text, "k": 4}).json()
            assert [hit["id"] for hit in beside["hits"]] == [hit["id"] for hit in answer["hits"]]
            assert {hit["probability"] for hit in beside["hits"]} == {None}
            assert [notice["words"] for notice in beside["notices"]] == [["xqzvyk"]]


@pytest.mark.parametrize("slip", ["belfx", "corhl", "dnugomi", "arjassk"])
def test_a_slip_of_a_brand_alone_finds_what_the_brand_does(copy_of: CopyOf, slip: str) -> None:
    pairs, _ = copy_of(fill_with_brands)
    answer = pairs.client().post(SEARCH, json={"text": slip, "k": 4}).json()
    (notice,) = answer["notices"]
    brand = notice["did_you_mean"][0]
    assert brand in BRANDS
    assert f"ranked by {brand!r} instead" in notice["message"]
    assert answer["hits"] == pairs.client().post(SEARCH, json={"text": brand, "k": 4}).json()["hits"]


def test_words_are_asked_for_while_there_are_no_pictures(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands)
    client = pairs.client()
    pictures = [Content(vector=list(np.ones(12) * number)) for number in range(4)]
    for number in range(64):
        pairs.services.catalogue.delete_item("shop", f"x{number}")
    for text in ("arfex", "qwzzk", "arfex shoe", "corhl qwzzk"):
        assert client.post(SEARCH, json={"text": text}).json()["hits"] == []
    again = [NewItem("x", one, f"x{n}", pair_id=f"p{n}") for n, one in enumerate(pictures)]
    pairs.services.catalogue.add_items("shop", again)
    (hit,) = client.post(SEARCH, json={"text": "arfex", "k": 1}).json()["hits"]
    assert (hit["id"], hit["probability"]) == ("x0", None)  # by the word, which its text has


def test_a_slip_beside_a_word_of_a_later_item_keeps_that_word(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands)
    text, shape = Content(text="zyzzyva men blue belt"), Content(vector=[0.0] * 12)
    later = [NewItem("text", text, "t99", pair_id="p99"), NewItem("x", shape, "x99", pair_id="p99")]
    pairs.services.catalogue.add_items("shop", later)
    answers = [
        pairs.client().post(SEARCH, json={"text": f"{brand} zyzzyva", "k": 3}).json()
        for brand in ("corhl", "corhul")
    ]
    assert answers[0]["hits"] == answers[1]["hits"]
    assert answers[0]["notices"][0]["did_you_mean"][0] == "corhul zyzzyva"


def test_a_brand_counts_as_long_as_an_item_has_it(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands)
    client = pairs.client()

    def first(text: str) -> tuple[str, bool]:
        hit = client.post(SEARCH, json={"text": text, "k": 1}).json()["hits"][0]
        return hit["id"], hit["probability"] is None

    assert first("arfex") == first("arfex")
    assert first("arfex")[1]
    assert first("arfex corhul") in {(f"x{number}", True) for number in range(0, 64, 16)} | {
        (f"x{number}", True) for number in range(10, 64, 16)
    }
    for number in range(0, 64, 16):
        pairs.services.catalogue.delete_item("shop", f"x{number}")
        pairs.services.catalogue.delete_item("shop", f"t{number}")
    assert not first("arfex")[1]  # as it was learned
    assert first("arfex corhul") in {(f"x{number}", True) for number in range(10, 64, 16)}


def test_a_text_of_nothing_but_what_is_not_meant_turns_away_from_it(copy_of: CopyOf) -> None:
    pairs, shown = copy_of(fill_with_brands)
    client = pairs.client()
    for text in ("-red", "not red", "\u2212red"):
        answer = client.post(SEARCH, json={"text": text, "k": 20}).json()
        assert len(answer["hits"]) == 20
        assert "red" not in {shown[int(hit["id"][1:])][1] for hit in answer["hits"]}


def test_a_named_value_counts_unless_what_was_learned_says_another_one_firmly(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands, labels=("cats", "sailing boats", "sports shoes", "deserts"))
    with pairs.services.snapshots.open("shop") as (snapshot, _):
        model = snapshot.model
    start = 0
    for part in model.projector.parts:
        if part.name == "facet:label":
            break
        start += part.width

    def follow(text: str, learned: str, posterior: float) -> dict[str, float]:
        """Return the posteriors of a text, of which one was learned."""
        posteriors = np.full(part.width, (1.0 - posterior) / (part.width - 1))
        posteriors[part.values.index(learned)] = posterior
        projected = np.ones((1, model.projector.rank), np.float32)
        projected[0, start : start + part.width] = part.scale * posteriors
        followed = follow_names(model, text, projected)
        of_part = followed[0, start : start + part.width] / part.scale
        followed[0, start : start + part.width] = projected[0, start : start + part.width]
        assert np.array_equal(followed, projected)  # nothing else changes
        return {
            name: round(float(share), 2) for name, share in zip(part.values, of_part, strict=True) if share
        }

    boats = {"sailing boats": 1.0}
    for text in ("boats", "a red boat", "the sailing boat by arfex"):
        assert follow(text, "cats", 0.7) == boats
    assert follow("boats and shoes", "cats", 0.7) == {"sailing boats": 0.5, "sports shoes": 0.5}
    assert follow("sports boats sailing", "cats", 0.7) == boats  # more of whose name is there
    for text, learned, posterior in (
        ("boats", "cats", 0.91),
        ("boats", "sailing boats", 0.55),
        ("arfex", "cats", 0.7),
        ("boats of four more telling words", "cats", 0.7),
    ):
        assert follow(text, learned, posterior)[learned] == pytest.approx(posterior, abs=0.01)


def test_items_that_have_both_a_value_and_a_brand_come_first(copy_of: CopyOf) -> None:
    pairs, shown = copy_of(fill_with_brands)
    client, forms = pairs.client(), ("{brand} {label}s", "{label} by {brand}", "{colour} {brand}")
    for form, (brand, colour, label) in itertools.product(forms, dict.fromkeys(shown)):
        text = form.format(brand=brand, colour=colour, label=label)
        both = {
            f"x{number}"
            for number, item in enumerate(shown)
            if item[0] == brand and (item[1] == colour if "{colour}" in form else item[2] == label)
        }
        answer = client.post(SEARCH, json={"text": text, "k": len(both), "include": ["explanation"]}).json()
        assert {hit["id"] for hit in answer["hits"]} == both
        for hit in answer["hits"]:
            assert hit["probability"] > 0.5  # of what has the value
            assert sum(reason["score"] for reason in hit["explanation"]) == pytest.approx(hit["score"], 1e-4)


@pytest.mark.parametrize("encoder", ["vector", "hog-color"])
def test_a_value_comes_before_a_brand_that_no_item_of_it_has(copy_of: CopyOf, encoder: str) -> None:
    pairs, shown = copy_of(fill_with_brands, x=encoder)
    client, weights = pairs.client(), pairs.services.versions.model("shop", 1).report.fit.weights
    assert ("content:x" in weights) == (encoder == "hog-color")  # what few pictures are like, and no text is
    there = {(brand, label) for brand, _, label in shown}
    for brand, label in set(itertools.product(BRANDS, LABELS)) - there:
        best = client.post(SEARCH, json={"text": f"{brand} {label}", "k": 1}).json()["hits"][0]
        assert (shown[int(best["id"][1:])][2], best["probability"] > 0.5) == (label, True)


def test_words_of_longer_texts_count_as_they_were_learned(copy_of: CopyOf) -> None:
    client = copy_of(fill_with_brands)[0].client()

    def scores(text: str) -> list[float]:
        answer = client.post(SEARCH, json={"text": text, "k": 64}).json()
        return [hit["score"] for hit in answer["hits"]]

    text = "arfex men red handbag belgomi"
    assert scores(f"{text}, by the") == scores(text)
    assert max(scores(text)) < max(scores("arfex red handbag"))


def test_values_of_a_letter_a_measure_or_pairs_of_characters_count_beside_a_brand(copy_of: CopyOf) -> None:
    colours = ("M", "20kg", "US", "蓝色")
    pairs, shown = copy_of(fill_with_brands, colours, ("手提包", "运动鞋", "手表", "腰带"))
    client = pairs.client()
    for colour in colours:
        brand = next(of_item for of_item, other, _ in shown if other == colour)
        text = f"{brand} {colour.lower()}"
        best = client.post(SEARCH, json={"text": text, "k": 1}).json()["hits"][0]
        assert (*shown[int(best["id"][1:])][:2], best["probability"] is None) == (brand, colour, False)


def test_what_was_learned_counts_where_there_are_no_values(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands, n_unpaired=40)
    answer = pairs.client().post(SEARCH, json={"text": "red handbag", "k": 104}).json()
    unpaired = [hit["score"] for hit in answer["hits"] if int(hit["id"][1:]) >= 64]
    assert len(set(unpaired)) > 10


def test_words_of_items_that_come_later_count_at_once(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands)
    client, numbers = pairs.client(), range(0, 64, 16)

    def scores(text: str) -> list[float]:
        return [hit["score"] for hit in client.post(SEARCH, json={"text": text, "k": 8}).json()["hits"]]

    pairs.services.catalogue.delete_items("shop", [f"{side}{number}" for number in numbers for side in "xt"])
    without = scores("arfex")
    text, items = Content(text="arfex red handbag"), []
    for number in numbers:
        items.append(pairs.item("x", f"x{number}", np.ones(12), pair_id=f"p{number}"))
        items.append(NewItem("text", text, f"t{number}", (), pair_id=f"p{number}"))
    pairs.services.catalogue.add_items("shop", items)
    assert scores("arfex") == scores("ARFEX") != without


def test_parts_of_a_brand_are_weighed_as_they_were_learned(copy_of: CopyOf) -> None:
    client = copy_of(fill_with_brands)[0].client()

    def best(emphasis: dict[str, float]) -> list[float]:
        sent = {"text": "arfex", "k": 64, "emphasis": emphasis}
        return [hit["score"] for hit in client.post(SEARCH, json=sent).json()["hits"]]

    assert len(set(best({"words": 0}))) > 1
    assert best({"colour": 9}) != best({"colour": 1})


def test_pages_of_probable_results_are_full(copy_of: CopyOf) -> None:
    client = copy_of(fill_with_brands)[0].client()

    def search(k: int, **refinement: object) -> list[dict[str, Any]]:
        hits: list[dict[str, Any]]
        hits = client.post(SEARCH, json={"text": "arfex red", "k": k, **refinement}).json()["hits"]
        return hits

    least = sorted(hit["probability"] for hit in search(64))[-10]

    def ids(k: int, offset: int = 0) -> list[str]:
        return [hit["id"] for hit in search(k, offset=offset, min_probability=least)]

    whole = ids(64)
    assert len(whole) > len(ids(4)) == 4
    assert [one for offset in range(0, 64, 4) for one in ids(4, offset)] == whole


def test_results_of_unknown_probability_stay_where_one_is_asked_for(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_with_brands)
    answer = pairs.client().post(SEARCH, json={"text": "arfex", "k": 4, "min_probability": 0.9}).json()
    assert len(answer["hits"]) == 4


def test_a_picture_that_no_result_matches_is_named(pairs: Pairs) -> None:
    def picture(number: int, is_red: bool) -> bytes:
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 80, (32, 32, 3), np.uint8)
        pixels[..., 0 if is_red else 2] += 150
        return png(pixels)

    pairs.make("shop", image="hog-color", text="tfidf")
    items = []
    for number in range(40):
        colour = ("red", "blue")[number % 2]
        items.append(
            NewItem("image", Content(picture=picture(number, number % 2 == 0)), f"i{number}", (colour,))
        )
        items.append(NewItem("text", Content(text=f"a {colour} thing"), f"t{number}", (colour,)))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))
    asked = {"image_base64": base64.b64encode(picture(99, is_red=True)).decode()}
    for label, messages in (("red", 0), ("blue", 1)):
        body = {**asked, "filter": {"labels": [label]}}
        answer = pairs.client().post("/v1/collections/shop/search/image-to-text", json=body).json()
        assert len(answer["hits"]) == 10
        assert [notice["code"] for notice in answer["notices"]] == ["weak-match"] * messages
        assert all(notice["message"].endswith("may have been learned from") for notice in answer["notices"])


def test_a_query_unlike_all_items_has_the_least_probability(pairs: Pairs) -> None:
    pairs.make("shop", x="vector", text="tfidf")
    rows, items = np.random.default_rng(0).uniform(-1.0, 1.0, (120, 2)), []
    for number, row in enumerate(rows):
        label = ("odd", "even")[int(row[0] * row[1] > 0.0)]
        items.append(pairs.item("x", f"x{number}", [*row, 1.0], label))
        items.append(NewItem("text", Content(text=f"an {label} thing"), f"t{number}", (label,)))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))
    path, probabilities = "/v1/collections/shop/search/x-to-text", []
    for vector in ([0.6, 0.7, 1.0], [0.0, 0.0, -1.0]):
        answer = pairs.client().post(path, json={"vector": vector, "k": 1}).json()
        probabilities.append(answer["hits"][0]["probability"])
    assert probabilities[0] > 0.8
    assert probabilities[1] < 0.05


@pytest.mark.parametrize("with_labels", [True, False], ids=["labels and pairs", "facet alone"])
def test_names_of_labels_and_values_find_their_items_though_no_text_holds_them(
    pairs: Pairs, with_labels: bool
) -> None:
    kinds, colours = {"boat": "sailing_vessels", "dog": "Pets"}, ("Black", "Teal Green", "白")
    pairs.make("shop", x="vector", text="tfidf")
    rng = np.random.default_rng(0)
    items = []
    for number in range(90):
        kind, colour = list(kinds)[number % 2], colours[number % 3]
        row = np.concatenate(
            [2 * np.eye(2)[number % 2], 2 * np.eye(3)[number % 3], 0.5 * rng.standard_normal(4)]
        )
        metadata = {"colour": colour, "harbour": f"Port{number}"}  # the second is no facet: each has its own
        facts = {"metadata": metadata, "pair_id": f"p{number}" if with_labels else None}
        labels = (kinds[kind],) if with_labels else ()
        items.append(pairs.item("x", f"x{number}-{kind}-{number % 3}", row, *labels, **facts))
        text = f"{('fine', 'small', 'old')[number % 7 % 3]} {kind} no {number % 5}"
        items.append(NewItem("text", Content(text=text), f"t{number}", labels, **facts))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))

    expected = {"black": "-0", "teal green": "-1", "白": "-2"}
    if with_labels:
        expected |= {"sailing vessels": "-boat-", "PETS": "-dog-", "black pets": "-dog-0"}
    client = pairs.client()
    for text, part in expected.items():
        answer = client.post(SEARCH, json={"text": text}).json()
        assert [hit["id"] for hit in answer["hits"] if part not in hit["id"]] == [], text
        assert len(answer["hits"]) == 10
        assert answer["notices"] == []
    if with_labels:
        assert client.post(SEARCH, json={"text": "port7"}).json()["hits"][0]["id"].startswith("x7-")
