"""Reasons, emphasis, groups, least probabilities and diversity of hits."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content
from app.domain.searches import SearchResult
from app.services.catalogue.service import NewItem
from app.services.serving.refinement import Refinement
from app.services.serving.search import Query, Search, results_of
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import Pairs

KINDS, COLOURS = ("handbag", "shoe"), ("red", "blue", "grey")
TO_X, SIMILAR, BOTH = "text-to-x", "x-to-x", "x"
Ask = Callable[..., Any]


def facts(number: int) -> dict[str, Any]:
    shelves = {} if number % 4 == 0 else {"shelf": [number % 5, f"s{number % 3}"] if number % 2 else 1.0}
    return {"colour": COLOURS[number % 3], "maker": f"m{number % 7}", **shelves}


@pytest.fixture(scope="module")
def shop(lasting_pairs: Pairs) -> Pairs:
    """Two collections: things of two kinds and three colours, where texts name both, and plain vectors."""
    pairs = lasting_pairs
    pairs.make("shop", x="vector", text="tfidf")
    rng = np.random.default_rng(0)
    items = []
    for number in range(60):
        kind, more = KINDS[number % 2], {"metadata": facts(number), "pair_id": f"p{number // 2}"}
        row = np.concatenate([3 * np.eye(2)[number % 2], 3 * np.eye(3)[number % 3], rng.standard_normal(4)])
        items.append(pairs.item("x", f"x{number}", row, kind, **more))
        text = Content(text=f"a {COLOURS[number % 3]} {kind}")
        items.append(NewItem("text", text, f"t{number}", (kind,), **more))
    pairs.services.catalogue.add_items("shop", items)
    pairs.train("shop", TrainingParameters(method="composite"))
    pairs.fill("plain")
    pairs.train("plain")
    pairs.make("untrained")
    for side, rows in (("x", pairs.data.X), ("z", pairs.data.Z)):
        some = [pairs.item(side, f"{side}{n}", row, pair_id=f"p{n}") for n, row in enumerate(rows[:9])]
        pairs.services.catalogue.add_items("untrained", some)
    return pairs


@pytest.fixture(scope="module")
def ask(shop: Pairs) -> Ask:
    client = shop.client()

    def search(path: str, **body: Any) -> Any:
        name, _, direction = path.rpartition(" ")
        return client.post(f"/v1/collections/{name or 'shop'}/search/{direction}", json=body)

    return search


def hits(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["hits"]
    return found


def ids(answer: Any) -> list[str]:
    return [hit["id"] for hit in hits(answer)]


QUERIES: list[tuple[str, dict[str, Any]]] = [
    (TO_X, {"text": "a red handbag"}),
    (SIMILAR, {"item_id": "x1"}),
    ("x-to-text", {"item_id": "x1"}),
    (BOTH, {"queries": [{"item_id": "x0"}, {"text": "blue"}, {"text": "grey", "weight": -0.5}]}),
]


@pytest.mark.parametrize(("path", "query"), QUERIES)
def test_a_score_is_the_sum_of_its_parts_also_under_emphasis(ask: Ask, path: str, query: Any) -> None:
    explained = hits(ask(path, **query, k=60, include=["explanation"]))
    plain = hits(ask(path, **query, k=60, include=[]))
    assert [{**hit, "explanation": None} for hit in explained] == [
        {**hit, "explanation": None} for hit in plain
    ]
    assert all("explanation" not in hit for hit in plain)
    parts = {hit["id"]: {one["name"]: one["score"] for one in hit["explanation"]} for hit in explained}
    assert {"label", "colour", "words"} <= set(parts["x3" if path != "x-to-text" else "t3"])
    for hit in plain:
        assert sum(parts[hit["id"]].values()) == pytest.approx(hit["score"], abs=2e-6)

    emphasis = {"colour": 3, "words": 0.5, "label": 0}
    emphasised = hits(ask(path, **query, k=60, emphasis=emphasis))
    assert [hit["probability"] for hit in emphasised] == [None] * len(plain)
    expected = {
        item: sum(emphasis.get(name, 1) * score for name, score in of_item.items())
        for item, of_item in parts.items()
    }
    scores = {hit["id"]: hit["score"] for hit in emphasised}
    if path == SIMILAR:  # a cosine is by the length of the query, too
        ratio = np.array([expected[item] for item in scores]) / list(scores.values())
        assert ratio == pytest.approx(ratio[0], rel=1e-4)
    else:
        assert scores == pytest.approx(expected, abs=5e-6)


def test_emphasis_of_a_measure_takes_the_weights_that_were_best_for_it(ask: Ask, shop: Pairs) -> None:
    fit = shop.services.versions.model("shop", 1).report.fit
    explained = hits(ask(TO_X, text="red handbag", k=60, include=["explanation"]))
    assert fit.emphases.keys() >= {"ndcg", "map"}
    for measure, best in fit.emphases.items():
        ratios = {
            term.removeprefix("facet:"): best[term] / fit.weights[term] for term in best if fit.weights[term]
        }
        for share in (1.0, 0.5):
            scores = {
                hit["id"]: sum(
                    one["score"] * (1.0 + share * (ratios.get(one["name"], 1.0) - 1.0))
                    for one in hit["explanation"]
                )
                for hit in explained
            }
            emphasised = hits(ask(TO_X, text="red handbag", k=60, emphasis={measure: share}))
            assert {hit["id"]: hit["score"] for hit in emphasised} == pytest.approx(scores, abs=5e-6)
    assert any(dict(best) != fit.weights for best in fit.emphases.values())
    answer = ask(TO_X, text="red", emphasis={"map": 2})
    assert answer.json()["detail"] == "emphasis.map: expected 0 to 1: how far to go to the weights for it"


def test_values_that_agree_and_known_words_are_named(ask: Ask) -> None:
    for hit in hits(ask(TO_X, text="red handbag", k=60, include=["explanation", "metadata", "labels"])):
        agrees = {one["name"]: one["agrees"] for one in hit["explanation"]}
        colour, kind = hit["metadata"]["colour"], hit["labels"][0]
        assert agrees["colour"] == ["red"] * (colour == "red")
        assert agrees["label"] == ["handbag"] * (kind == "handbag")
        assert agrees["words"] == []
    unknown = ask(TO_X, text="a red xyzzy Handbag", include=["explanation"])
    assert unknown.json()["known_words"] == ["red", "handbag"]
    assert unknown.json()["measures"] == ["ndcg", "map", "recall"]
    composed = ask(BOTH, queries=[{"item_id": "x0"}, {"text": "blue"}], include=["explanation"])
    assert composed.json()["known_words"] == ["blue"]
    batch = ask(TO_X + "/batch", queries=[{"text": "grey"}, {"text": "xyzzy"}], include=["explanation"])
    assert [result["known_words"] for result in batch.json()["results"]] == [["grey"], []]
    vector = ask("plain z-to-x", vector=[1.0] * 6, include=["explanation"])
    assert "known_words" not in vector.json()
    assert vector.json()["measures"] == []
    for hit in hits(vector):
        (whole,) = hit["explanation"]
        assert (whole["name"], whole["agrees"]) == ("similarity", [])
        assert whole["score"] == pytest.approx(hit["score"], abs=2e-6)


@pytest.mark.parametrize("by", ["label", "pair_id", "colour", "maker", "shelf"])
@pytest.mark.parametrize(("path", "query"), QUERIES)
def test_groups_are_those_of_the_whole_ranking(ask: Ask, path: str, query: Any, by: str) -> None:
    def groups(hit: dict[str, Any]) -> set[Any]:
        if by == "label":
            return set(hit["labels"])
        number = int(hit["id"][1:])
        value = f"p{number // 2}" if by == "pair_id" else facts(number).get(by, [])
        return set(value) if isinstance(value, list) else {value}

    ranked = hits(ask(path, **query, k=60))
    for size in (1, 2, 5):
        counts: Counter[Any] = Counter()
        expected = []
        for hit in ranked:
            if all(counts[group] < size for group in groups(hit)):
                counts.update(groups(hit))
                expected.append(hit["id"])
        options = {"group_by": by, "group_size": size}
        assert ids(ask(path, **query, **options, k=60)) == expected
        assert ids(ask(path, **query, **options, k=3, offset=2)) == expected[2:5]


def test_a_key_that_nothing_has_is_named(ask: Ask) -> None:
    answer = ask(TO_X, text="red", group_by="color")
    (message,) = [one["message"] for one in answer.json()["notices"] if one["code"] == "not-grouped"]
    assert len(hits(answer)) == 10
    assert message.startswith("no result has 'color' (did you mean 'colour'?); keys are")


def test_less_probable_hits_are_left_out_where_probabilities_are(ask: Ask) -> None:
    ranked = hits(ask(TO_X, text="red handbag", k=60))
    least = ranked[7]["probability"]
    expected = [hit["id"] for hit in ranked if hit["probability"] >= least]
    assert 8 <= len(expected) < 60
    assert ids(ask(TO_X, text="red handbag", k=60, min_probability=least)) == expected
    assert ids(ask(TO_X, text="red handbag", k=60, min_probability=1.0)) == []
    few = hits(ask(TO_X, text="red handbag", k=60, min_probability=least, diversity=0.5))
    assert sorted(hit["id"] for hit in few) == sorted(expected)
    grouped = ask(TO_X, text="red handbag", min_probability=least, group_by="maker")
    makers = [facts(int(item[1:]))["maker"] for item in expected]
    firsts = [item for n, item in enumerate(expected) if makers[n] not in makers[:n]]
    assert ids(grouped) == firsts[:10]
    for options in ({}, {"group_by": "maker"}, {"diversity": 0.5}):
        turned = ids(ask(TO_X, text="handbag not red", **options))  # which have no probability
        assert len(turned) > 5
        assert ids(ask(TO_X, text="handbag not red", min_probability=0.9, **options)) == turned
    for path, query, reason in (
        (*QUERIES[1], "within one modality scores are cosines"),
        (*QUERIES[3], "the query is composed"),
        (TO_X, {"text": "red", "emphasis": {"colour": 2}}, "the parts of the query are emphasised"),
        ("untrained z-to-x", {"item_id": "z1"}, "nothing has been trained yet"),
    ):
        answer = ask(path, **query, min_probability=0.5)
        assert answer.status_code == 422
        detail = f"min_probability: there are no probabilities here: {reason}"
        assert answer.json()["detail"] == detail


def test_groups_are_filled_by_probable_hits_alone(shop: Pairs) -> None:
    query = Query(Content(text="red handbag"))
    service = replace(shop.services.search, _max_hits=60)  # all that there are

    def ask_for(**options: Any) -> SearchResult:
        search = Search([query], k=60, refinement=Refinement(**options))
        (result,) = results_of(service.search("shop", "text", "x", [search])[0])
        return result

    ranked = ask_for().hits
    assert [one.code for one in ask_for(group_by="colour").notices][-1] == "not-grouped"
    probable = ask_for(group_by="colour", min_probability=ranked[7].probability)
    assert probable.hits
    assert "not-grouped" not in [one.code for one in probable.notices]


@pytest.mark.parametrize(("path", "query"), QUERIES)
def test_diverse_hits_are_in_one_order_on_all_pages(ask: Ask, path: str, query: Any) -> None:
    ranked = ids(ask(path, **query, k=60))
    assert ids(ask(path, **query, k=60, diversity=0.0)) == ranked
    diverse = ids(ask(path, **query, k=60, diversity=0.8))
    assert diverse[0] == ranked[0]
    assert diverse != ranked
    assert sorted(diverse) == sorted(ranked)
    assert ids(ask(path, **query, k=5, offset=5, diversity=0.8)) == diverse[5:10]
    looks = [{(int(item[1:]) % 2, int(item[1:]) % 3) for item in one[:6]} for one in (ranked, diverse)]
    assert len(looks[1]) > len(looks[0])
    both = hits(ask(path, **query, k=6, diversity=0.8, group_by="maker", include=["metadata"]))
    assert len({hit["metadata"]["maker"] for hit in both}) == 6


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        (
            {"emphasis": {"color": 2}},
            "emphasis.color: version 1 has no such part; its parts are ",
        ),
        ({"emphasis": {"colour": -1}}, "emphasis.colour: "),
        ({"min_probability": 1.5}, "min_probability: "),
        ({"group_by": ""}, "group_by: "),
        ({"group_by": "colour", "group_size": 0}, "group_size: "),
        ({"diversity": 2}, "diversity: "),
        ({"diversity": 0.5, "k": 501}, "diversity: chooses among the first 500 results"),
        ({"group_by": "colour", "offset": 99_991}, "offset: 1 queries with 100001 ranked results"),
        ({"include": ["explanation"], "k": 1001}, "include: explanation is of 1000 results at most"),
        ({"include": ["reasons"]}, "include.0: "),
    ],
)
def test_what_is_wrong_is_named(ask: Ask, options: Any, detail: str) -> None:
    answer = ask(TO_X, text="red", **options)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)


def test_what_is_ranked_for_diversity_counts_as_results_of_a_call(ask: Ask) -> None:
    body = {"queries": [{"text": "red"}] * 201, "k": 1, "diversity": 0.5, "include": []}
    answer = ask(TO_X + "/batch", **body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(
        "diversity: 201 queries with 500 ranked results each are 100500"
    )
    assert ask(TO_X + "/batch", **{**body, "queries": body["queries"][:2]}).status_code == 200
