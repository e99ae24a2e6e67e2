"""Pages of items by label and metadata, and the partners of items."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import app.services.catalogue.service as catalogue
from app.api.schemas.filters import read_filter
from app.bootstrap import Services
from app.domain.entities import Content, Modality
from app.domain.filters import ItemFilter
from app.services.catalogue.service import NewItem
from tests.app.filters import ASKED, ITEMS, accepts, passes
from tests.app.integration.conftest import Pairs

NAME = "shelf"
FILTERS = [
    ItemFilter(),
    ItemFilter.of(("a",)),
    ItemFilter.of(("b", "c")),
    ItemFilter.of(()),
    ItemFilter.of(metadata={"size": (1,)}),
    ItemFilter.of(metadata={"size": (True, "1")}),
    ItemFilter.of(metadata={"size": (None,)}),
    ItemFilter.of(("a",), {"size": (1, 2), "list": (None,)}),
    ItemFilter.of(("none",)),
]


@pytest.fixture
def shelf(services: Services) -> Services:
    sizes = [1, 2, True, "1", None, 1.0]
    items = [
        NewItem(
            "text",
            Content(text=f"text {n}"),
            f"t{n:03d}",
            ("a",) if n % 3 else ("b", "c"),
            f"p{n}",
            {"size": sizes[n % 6], **({"list": [1]} if n % 5 == 0 else {})},
        )
        for n in range(40)
    ]
    pictures = [NewItem("other", Content(text="x"), f"o{n}", (), "p7") for n in range(2)]
    encoders = {"type": "tfidf"}
    services.catalogue.create(NAME, [Modality("text", encoders), Modality("other", encoders)])
    services.catalogue.add_items(NAME, [*items, *pictures])
    return services


@pytest.mark.parametrize("most_read", [1, 10_000])
def test_pages_have_what_the_filter_accepts_in_order(
    shelf: Services, most_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_MOST_READ", most_read)
    monkeypatch.setattr(catalogue, "_ITEMS_PER_FETCH", 7)
    monkeypatch.setattr(catalogue, "_PASSED_AT_ONCE", 1)
    everything = [item for _, item in shelf.catalogue.page(NAME, "text", 0, 1000).rows]
    if most_read > 1:
        assert len(everything) == 40
    for item_filter in FILTERS:
        found: list[str] = []
        after: int | None = 0
        n_pages = 0
        while after is not None:
            page = shelf.catalogue.page(NAME, "text", after, 5, None, item_filter)
            found += [item.id for _, item in page.rows]
            assert len(page.rows) <= 5
            after = page.end
            n_pages += 1
        items = [shelf.catalogue.item(NAME, f"t{n:03d}") for n in range(40)]
        assert found == [item.id for item in items if accepts(item_filter, item.labels, item.metadata)]
        assert most_read > 1 or n_pages >= 40 // 7


def test_a_filter_means_the_same_to_both_databases(either: Pairs) -> None:
    database, catalogue = either.services.database, either.services.catalogue
    either.make(NAME)
    with database.write() as work:
        collection = work.collections.get(NAME)
        work.items.put(collection, ITEMS, work.collections.next_revision(collection))

    @settings(max_examples=30, deadline=None, database=None)
    @given(ASKED, st.sampled_from([{}, {"pair_id": "p1"}, {"modality": "z"}, {"not": {"pair_id": "p2"}}]))
    def compare(asked: dict[str, Any], more: dict[str, Any]) -> None:
        asked = {"all": [asked, more]}
        item_filter = read_filter(asked, "filter")
        passing = [item.id for item in ITEMS if passes(asked, item)]
        page = catalogue.page(NAME, "x", 0, 1000, None, item_filter)
        assert [item.id for _, item in page.rows] == passing
        with database.read() as work:
            narrowed = [item.id for _, item in work.items.page(collection, "x", 0, 1000, None, item_filter)]
        # What a database cannot tell is left to the service: words, and integers of more than 64 bits.
        sizes = [one for of in item_filter.conditions for one in of.values if isinstance(one, int | float)]
        is_exact = all(abs(one) < 2**63 for one in sizes) and "'text'" not in repr(asked)
        assert narrowed == passing if is_exact else set(narrowed) >= set(passing)

    compare()


def test_partners_are_the_first_of_the_other_modality(shelf: Services) -> None:
    found = shelf.catalogue.partners(NAME, ["t007", "t008", "o1", "nobody"])
    assert {own: partner.id for own, partner in found.items()} == {"t007": "o0", "o1": "t007"}


def test_a_label_is_one_however_its_accents_are_composed(shelf: Services) -> None:
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    shelf.catalogue.add_items(
        NAME,
        [NewItem("text", Content(text="x"), "x1", (decomposed,)), NewItem("text", Content(text="y"), "y1")],
    )
    shelf.catalogue.change_labels(NAME, "y1", (decomposed, "b"))
    assert shelf.catalogue.item(NAME, "x1").labels == (composed,)
    assert shelf.catalogue.item(NAME, "y1").labels == (composed, "b")
    for label in (decomposed, composed):
        page = shelf.catalogue.page(NAME, "text", 0, 100, None, ItemFilter.of((label,)))
        assert [item.id for _, item in page.rows] == ["x1", "y1"]
