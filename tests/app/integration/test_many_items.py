"""Many items at once: out of a collection and back, and what is done to all that pass a filter."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import app.services.catalogue.service as catalogue
from app.client import Client
from app.domain.entities import Content, Modality
from app.main import create_app
from app.services.catalogue.service import NewFeedback, NewItem
from tests.app.contract.material import picture
from tests.app.integration.conftest import Pairs

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_FACTS = st.fixed_dictionaries(
    {
        "labels": st.lists(_TEXTS, max_size=3).map(tuple),
        "metadata": st.dictionaries(_TEXTS, _VALUES, max_size=3),
        "pair_id": st.none() | st.sampled_from(["p1", "p2"]),
        "train": st.booleans(),
    }
)
_VECTORS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3)


@pytest.fixture
def shop(either: Pairs) -> Iterator[tuple[Pairs, httpx.Client]]:
    with either.client() as client:
        yield either, client


def stored(pairs: Pairs, name: str) -> list[tuple[Any, ...]]:
    """What a collection has, in order."""
    services = pairs.services
    rows = services.catalogue.page(name, None, 0, 10_000).rows
    whole = (services.catalogue.item(name, item.id) for _, item in rows)
    return [
        (
            *(item.id, item.modality, item.text, item.content_hash, item.content_type, item.labels),
            *(item.pair_id, json.dumps(item.metadata), item.train),
            None if item.features is None else item.features.tobytes(),
        )
        for item in whole
    ]


def test_what_is_exported_is_imported_as_it_was(shop: tuple[Pairs, httpx.Client]) -> None:
    pairs, http = shop
    client, numbers = Client("http://testserver", http=http), itertools.count()

    @settings(max_examples=3, deadline=None, database=None)
    @given(st.lists(st.tuples(_FACTS, _VECTORS, _TEXTS.filter(str.strip)), min_size=1, max_size=6))
    def check(drawn: list[tuple[dict[str, Any], list[float], str]]) -> None:
        name = f"a{next(numbers)}"
        for one in (name, f"{name}-again"):
            described = [Modality("image", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
            pairs.services.catalogue.create(one, described)
        items = [
            new
            for number, (facts, vector, text) in enumerate(drawn)
            for new in (
                NewItem("image", Content(vector=vector), f"i{number}", **facts),
                NewItem("text", Content(text=text), f"t{number}", **facts),
            )
        ]
        pairs.services.catalogue.add_items(name, items)
        imported = client.import_items(f"{name}-again", list(client.iter_export(name)))
        assert imported.created == len(items)
        assert stored(pairs, f"{name}-again") == stored(pairs, name)

    check()


def test_files_are_exported_and_what_is_lost_is_named(
    shop: tuple[Pairs, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, http = shop
    monkeypatch.setattr(catalogue, "_ITEMS_PER_STEP", 3)
    for name in ("shelf", "again"):
        described = [Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"})]
        pairs.services.catalogue.create(name, described)
    pictures = [picture("shoes", number, form) for number, form in enumerate(("PNG", "JPEG") * 4)]
    items = [
        NewItem("image", Content(picture=file), f"i{number}", ("a", "b")[number % 2 :], f"p{number}")
        for number, file in enumerate(pictures)
    ]
    pairs.services.catalogue.add_items("shelf", items)
    export, load = "/v1/collections/shelf/items:export", "/v1/collections/again/items:import"
    exported = http.get(export)
    assert exported.headers["Content-Type"].startswith("application/x-ndjson")
    assert http.head(export).status_code == 200
    assert http.post(load, content=exported.content).json()["created"] == len(items)
    assert stored(pairs, "again") == stored(pairs, "shelf")
    some = http.get(export, params={"label": "a", "filter": json.dumps({"not": {"ids": ["i0"]}})})
    assert [json.loads(line)["id"] for line in some.text.splitlines()] == ["i2", "i4", "i6"]
    assert http.get("/v1/collections/none/items:export").status_code == 404
    assert http.get(export, params={"where": "a"}).json()["field"] == "where.0"
    listed = http.get("/v1/collections/shelf/items").json()["items"]
    refused = http.post(load, content=json.dumps(listed[0]))
    assert (refused.status_code, refused.json()["field"]) == (422, "content_url")
    assert "items:export has lines to import" in refused.json()["detail"]

    def lose(name: str) -> None:
        (file,) = pairs.services.settings.data_dir.rglob(
            f"{pairs.services.catalogue.item('shelf', name).content_hash}*"
        )
        file.unlink()

    lines = pairs.services.catalogue.originals("shelf")
    next(lines)
    lose("i1")
    lose("i2")
    other = NewItem("image", Content(picture=pictures[0]), "i1")
    pairs.services.catalogue.add_items("shelf", [other], replace=True)
    pairs.services.catalogue.delete_item("shelf", "i2")
    (replaced, content), (following, _), *_ = lines
    assert (replaced.id, content, following.id) == ("i1", other.content, "i3")
    lose("i5")
    again = http.get(export)
    http.delete("/v1/collections/again")
    pairs.services.catalogue.create("again", described)
    refused = http.post(load, content=again.content)
    assert (refused.json()["line"], "no item 'i5' to change" in refused.json()["detail"]) == (5, True)


@pytest.fixture
def filled(shop: tuple[Pairs, httpx.Client], monkeypatch: pytest.MonkeyPatch) -> tuple[Pairs, httpx.Client]:
    """Two collections of the same twelve items each, of which each transaction takes five."""
    pairs, http = shop
    monkeypatch.setattr(catalogue, "_ITEMS_PER_STEP", 5)
    for name in ("shop", "other"):
        pairs.make(name)
        items = [
            pairs.item(
                "xz"[number % 2],
                f"i{number:02d}",
                row[:6],
                "old",
                pair_id=f"p{number // 2}",
                metadata={"n": number},
            )
            for number, row in enumerate(pairs.data.X[:12])
        ]
        pairs.services.catalogue.add_items(name, items)
    return pairs, http


def test_items_are_deleted_by_a_filter(filled: tuple[Pairs, httpx.Client]) -> None:
    pairs, http = filled
    about = NewFeedback("x", "z", "i01", is_relevant=True, query_item_id="i02")
    pairs.services.feedback.add("shop", [about])
    before, others = stored(pairs, "shop"), stored(pairs, "other")
    address = "/v1/collections/shop/items:delete"
    for body, said in (
        ({}, "expected a filter"),
        ({"filter": {}}, "lets every item through"),
        ({"filter": {"all": [{}]}, "dry_run": True}, "lets every item through"),
        ({"filter": {"ids": ["i01"]}, "all": True}, "expected a filter"),
        ({"filter": {"pair": "p1"}}, "do you mean pair_id"),
    ):
        refused = http.post(address, json=body)
        assert refused.status_code == 422
        assert said in refused.json()["detail"]
    asked = {"filter": {"metadata": {"n": {"gte": 1, "lt": 10}}}}
    dry = http.post(address, json=asked | {"dry_run": True}).json()
    assert (dry["matched"], dry["changed"], dry["ids"][0], dry["revision"]) == (9, 9, "i01", 1)
    assert stored(pairs, "shop") == before
    assert len(pairs.ids("shop")) == 6
    done = http.post(address, json=asked).json()
    assert done == dry | {"revision": 3}
    assert [row[0] for row in stored(pairs, "shop")] == ["i00", "i10", "i11"]
    found = pairs.search("shop")
    assert (sorted(hit.id for hit in found.hits), found.index_revision) == (["i00", "i10"], 3)
    # The partner that is left is placed again, as after any write.
    assert [pairs.services.catalogue.item("shop", name).revision for name in ("i00", "i10")] == [2, 1]
    assert http.get("/v1/collections/shop/feedback").json()["feedback"] == []
    assert http.post(address, json=asked).json() == {"matched": 0, "changed": 0, "ids": [], "revision": 3}
    assert http.post(address, json={"all": True}).json()["changed"] == 3
    assert (stored(pairs, "shop"), stored(pairs, "other")) == ([], others)


@pytest.mark.parametrize(("verb", "change"), [("delete", {}), ("update", {"labels": ["new"]})])
def test_a_client_that_goes_away_stops_the_rest(
    filled: tuple[Pairs, httpx.Client], verb: str, change: dict[str, Any]
) -> None:
    pairs, http = filled
    body = json.dumps({"all": True} | change).encode()
    app, sent = create_app(pairs.services), list[Any]()
    # The body, and that the client is gone as soon as something is deleted or changed.
    began = pairs.services.catalogue.collection("shop")[0].revision

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append("body")
            return {"type": "http.request", "body": body, "more_body": False}
        while pairs.services.catalogue.collection("shop")[0].revision == began:
            await asyncio.sleep(10.0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [
        *((name.lower(), value) for name, value in http.headers.raw),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/v1/collections/shop/items:{verb}",
        "headers": headers,
    }
    asyncio.run(app(scope | {"query_string": b"", "root_path": "", "http_version": "1.1"}, receive, send))
    assert sent[1]["status"] == 200
    left = [row for row in stored(pairs, "shop") if row[5] == ("old",)]
    assert len(left) == 7
    done = http.post(f"/v1/collections/shop/items:{verb}", json={"all": True} | change).json()
    assert done["changed"] == 7


def test_an_export_in_which_little_passes_sends_blank_lines(
    filled: tuple[Pairs, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, http = filled
    for name, value in (("_MOST_READ", 1), ("_ITEMS_PER_FETCH", 1), ("_PASSED_AT_ONCE", 1)):
        monkeypatch.setattr(catalogue, name, value)
    asked = {"where": "n in 5,11"}
    exported = http.get("/v1/collections/shop/items:export", params=asked).content
    assert exported.startswith(b"\n")
    items = list(Client("http://testserver", http=http).iter_export("shop", where=["n in 5,11"]))
    assert [item["id"] for item in items] == ["i05", "i11"]
    assert http.post("/v1/collections/other/items:import", content=exported).json()["unchanged"] == 2


def test_items_are_changed_by_a_filter(filled: tuple[Pairs, httpx.Client]) -> None:
    pairs, http = filled
    others = stored(pairs, "other")
    address = "/v1/collections/shop/items:update"
    # An item that has passed does so no longer once it is written; all that passed are written once.
    change = {
        "filter": {"labels": ["old"], "metadata": {"n": {"gte": 3}}},
        "add_labels": ["new", "cafe\u0301"],
    }
    change |= {"remove_labels": ["old"], "metadata": {"n": None, "seen": [1, True]}}
    dry = http.post(address, json=change | {"dry_run": True}).json()
    assert (dry["matched"], dry["changed"], dry["revision"]) == (9, 9, 1)
    assert pairs.search("shop").index_revision == 1
    done = http.post(address, json=change).json()
    assert done == dry | {"revision": 3}
    query = {"vector": pairs.data.Z[0].tolist(), "filter": {"labels": ["new"]}}
    hits = http.post("/v1/collections/shop/search/z-to-x", json=query).json()["hits"]
    assert sorted(hit["id"] for hit in hits) == ["i04", "i06", "i08", "i10"]
    assert hits[0]["labels"] == ["new", "caf\u00e9"]
    rows = [pairs.services.catalogue.item("shop", f"i{number:02d}") for number in range(12)]
    assert [row.labels for row in rows] == [("old",)] * 3 + [("new", "caf\u00e9")] * 9
    assert [row.metadata for row in rows[2:4]] == [{"n": 2}, {"seen": [1, True]}]
    same = {"filter": {"labels": ["new"]}, "add_labels": ["new"], "metadata": {"seen": [1, True]}}
    assert http.post(address, json=same).json()["changed"] == 0
    empty = {"id": "i00", "modality": "x", "vector": [1.0] * 6, "labels": ["new"], "metadata": {"of": None}}
    assert http.post("/v1/collections/shop/items:import", json=empty).status_code == 201
    assert http.post(address, json={"filter": {"ids": ["i00"]}, "add_labels": ["new"]}).json()["changed"] == 0
    http.put("/v1/collections/shop/items/i11/labels", json={"labels": [f"l{n}" for n in range(99)]})
    for body in ({"add_labels": [f"m{n}" for n in range(99)]}, {"metadata": {"long": "x" * 19_990}}):
        before = stored(pairs, "shop")
        refused = http.post(address, json={"all": True} | body)
        assert (refused.status_code, "(item 'i" in refused.json()["detail"]) == (422, True)
        assert stored(pairs, "shop") == before
    assert http.post(address, json={"all": True, "labels": []}).json()["changed"] == 12
    assert stored(pairs, "other") == others
