"""Pages of items by label and metadata, and the partners of items."""

import pytest

import app.services.catalogue.service as catalogue
from app.bootstrap import Services
from app.domain.entities import Content, Modality
from app.domain.searches import ItemFilter
from app.services.catalogue.service import NewItem
from tests.app.filters import accepts

NAME = "shelf"
FILTERS = [
    ItemFilter(),
    ItemFilter(("a",)),
    ItemFilter(("b", "c")),
    ItemFilter(()),
    ItemFilter(metadata={"size": (1,)}),
    ItemFilter(metadata={"size": (True, "1")}),
    ItemFilter(metadata={"size": (None,)}),
    ItemFilter(("a",), {"size": (1, 2), "list": (None,)}),
    ItemFilter(("none",)),
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
        page = shelf.catalogue.page(NAME, "text", 0, 100, None, ItemFilter((label,)))
        assert [item.id for _, item in page.rows] == ["x1", "y1"]
