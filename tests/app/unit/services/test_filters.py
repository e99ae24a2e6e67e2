from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.schemas.filters import read_filter
from app.domain.entities import IndexedItem
from app.domain.errors import InvalidFieldError
from app.domain.filters import ItemFilter, filter_of, keyed_word, keyed_words
from app.services.serving.galleries import Gallery
from app.services.serving.item_columns import ColumnNames
from tests.app.filters import accepts
from tests.app.galleries import gallery_of


def search(gallery: Gallery, item_filter: ItemFilter) -> list[str]:
    (results,) = gallery.search(np.ones((1, 1), np.float32), 100, 0, item_filter)
    return [item.id for item, _ in results]


def is_returned(item_filter: ItemFilter, labels: tuple[str, ...], metadata: dict[str, Any]) -> bool:
    items = [IndexedItem("i", labels, metadata)]
    return search(gallery_of(items, np.ones((1, 1), np.float32)), item_filter) == ["i"]


@pytest.mark.parametrize(
    ("value", "values", "is_match"),
    [
        (1, (1,), True),
        (1, (2, 1.0), True),
        (True, (1,), False),
        (0, (False,), False),
        (True, ("x", True), True),
        ("1", (1,), True),
        (42, ("42",), True),
        ("42.0", (42,), True),
        ("42.00", (42.0,), True),
        ("19.90", (19.9,), True),
        (19.9, ("19.90",), True),
        ("042", (42,), False),
        ("4.20", ("4.2",), False),
        ("1e2", (100,), False),
        (10**50, ("1" + 50 * "0",), False),
        ("True", (True,), True),
        (False, ("false",), True),
        ("yes", (True,), False),
        ("caf\u00e9", ("cafe\u0301",), True),
        ("cafe\u0301", ("caf\u00e9",), True),
        ("cafe", ("caf\u00e9",), False),
        (1, ("true",), False),
        (None, (0, "", False), False),
        ([1], (1,), False),
        ({"a": 1}, ("a",), False),
        (1, (), False),
    ],
)
def test_values_are_equal_when_json_says_so(value: Any, values: tuple[Any, ...], is_match: bool) -> None:
    assert is_returned(ItemFilter.of(metadata={"n": values}), (), {"n": value}) is is_match
    assert is_returned(ItemFilter.of(metadata={"n": values}), (), {"m": value}) is False


@pytest.mark.parametrize("stored", ["caf\u00e9", "cafe\u0301"])
@pytest.mark.parametrize("wanted", ["caf\u00e9", "cafe\u0301"])
def test_labels_are_equal_however_accents_are_composed(stored: str, wanted: str) -> None:
    assert is_returned(ItemFilter.of((wanted,)), (stored,), {})
    assert ItemFilter.of((wanted,)).accepts(IndexedItem("i", (stored,), {}))
    assert not is_returned(ItemFilter.of((wanted,)), ("cafe",), {})


@pytest.mark.parametrize("labels", [(), ("a",)])
def test_any_of_none_is_none(labels: tuple[str, ...]) -> None:
    assert not is_returned(ItemFilter.of(()), labels, {"n": 1})
    assert not is_returned(ItemFilter.of(metadata={"n": ()}), labels, {"n": 1})
    assert not ItemFilter.of(()).is_empty
    assert ItemFilter().is_empty
    assert is_returned(ItemFilter.of(None, {}), labels, {"n": 1})


@pytest.mark.parametrize("labels", [(), ("a",)])
def test_what_is_negated_twice_holds(labels: tuple[str, ...]) -> None:
    nested, item = ItemFilter.of(("a",)), IndexedItem("i", labels, {})
    for number in range(4):
        is_there = (labels == ("a",)) == (number % 2 == 0)
        assert nested.accepts(item) is is_returned(nested, labels, {}) is is_there
        nested = ItemFilter((nested,), "none")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**60, 2**60, 10**30, "", "0", "1", "true", "a"]),
)
DOCUMENTS = st.dictionaries(
    st.sampled_from("mn"), VALUES | st.lists(VALUES, max_size=2) | st.just({"a": 1}), max_size=2
)
LABELS = st.lists(st.sampled_from("abc"), max_size=2).map(tuple)
FILTERS = st.builds(
    ItemFilter.of,
    st.none() | LABELS,
    st.dictionaries(st.sampled_from("mno"), st.lists(VALUES, max_size=3).map(tuple), max_size=2),
)


@given(st.lists(st.tuples(LABELS, DOCUMENTS), max_size=12), st.lists(FILTERS, min_size=1, max_size=4))
def test_a_gallery_returns_the_items_that_the_filter_accepts(
    items: list[tuple[tuple[str, ...], dict[str, Any]]], filters: list[ItemFilter]
) -> None:
    rows = [
        IndexedItem(f"i{number:02d}", labels, metadata) for number, (labels, metadata) in enumerate(items)
    ]
    ones = np.ones((len(rows), 1), np.float32)
    gallery = gallery_of(rows, ones)
    for item_filter in filters:
        accepted = [row.id for row in rows if accepts(item_filter, row.labels, row.metadata)]
        assert search(gallery, item_filter) == accepted


@pytest.mark.parametrize(
    ("conditions", "metadata"),
    [
        (["colour=red", "colour=blue"], {"colour": {"in": ["red", "blue"]}}),
        (["a b = 42"], {"a b": {"in": [42]}}),
        (["code=1E5"], {"code": {"in": [1e5, "1E5"]}}),
        (["size in 41, 42 ,x y"], {"size": {"in": [41, 42, "x y"]}}),
        (["size not in 41,true"], {"size": {"not_in": [41, True]}}),
        (["colour!=black"], {"colour": {"not_in": ["black"]}}),
        (["price<50"], {"price": {"lt": 50}}),
        (["price >= 9.5"], {"price": {"gte": 9.5}}),
        (['release>"1.10"'], {"release": {"gt": "1.10"}}),
        (["day<=2024-05-01"], {"day": {"lte": "2024-05-01"}}),
        (["tags contains new"], {"tags": {"contains": "new"}}),
        (["name text Red 42"], {"name": {"text": "Red 42"}}),
        (['made in = "5"'], {"made in": {"in": ["5"]}}),
        (["gone=null"], {"gone": {"in": [None]}}),
    ],
)
def test_conditions_are_read_as_people_type_them(conditions: list[str], metadata: dict[str, Any]) -> None:
    body = filter_of((), conditions)
    (wanted,) = [one["metadata"] for one in [body, *body.get("all", ())] if "metadata" in one]
    assert wanted == metadata
    assert read_filter(body, "filter") is not None


def test_conditions_hold_together() -> None:
    body = filter_of(["a"], ["price>1", "price<9", "colour=red"])
    assert body == {
        "labels": ["a"],
        "metadata": {"colour": {"in": ["red"]}},
        "all": [{"metadata": {"price": {"gt": 1}}}, {"metadata": {"price": {"lt": 9}}}],
    }
    for wrong in ("colour", "=red", "<5", ""):
        with pytest.raises(InvalidFieldError, match=r"where\.1: expected a condition such as KEY=VALUE"):
            filter_of([], ["a=1", wrong])
    with pytest.raises(
        InvalidFieldError, match=r"where\.all\.0\.metadata\.price\.gt: expected 20\.5 for a number"
    ):
        read_filter(filter_of([], ["a=1,5", "price>20,5"]), "where")
    with pytest.raises(InvalidFieldError, match=r"metadata\.day\.gt: expected 2026-09-01 for a date"):
        read_filter(filter_of([], ["day=1.9.2026", 'day>"1.9.2026"']), "where")


class Counted(int):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def test_a_row_is_not_compared_with_every_value() -> None:
    rows = [IndexedItem(f"i{number:03d}", (), {"n": 999 + number}) for number in range(100)]
    gallery = gallery_of(rows, np.ones((100, 1), np.float32))
    item_filter = ItemFilter.of(metadata={"n": tuple(map(Counted, range(1000)))})
    Counted.comparisons = 0
    assert search(gallery, item_filter) == ["i000"]
    assert Counted.comparisons <= 1000 + 100


class Watched(dict[str, int]):
    """Metadata that counts its reads."""

    reads = 0

    def __getitem__(self, key: str) -> int:
        Watched.reads += 1
        return dict.__getitem__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        Watched.reads += 1
        return dict.get(self, key, default)


def test_metadata_are_read_once_for_any_number_of_filters() -> None:
    rows = [IndexedItem(f"i{number:03d}", (), Watched(n=number, m=number % 2)) for number in range(500)]
    gallery = gallery_of(rows, np.ones((500, 1), np.float32))
    Watched.reads = 0
    for number in range(100):
        item_filter = ItemFilter.of(metadata={"n": (number, number + 2), "m": (number % 2,), "none": (None,)})
        assert search(gallery, item_filter) == [f"i{number:03d}", f"i{number + 2:03d}"]
    assert Watched.reads <= 3 * 500, "once for each key and row"


def test_the_fingerprint_of_a_filter_is_short_and_unique() -> None:
    filters = [
        ItemFilter(),
        ItemFilter.of(()),
        ItemFilter.of(("n",)),
        ItemFilter.of(metadata={"n": ()}),
        ItemFilter.of(metadata={"n": (1,)}),
        ItemFilter.of(metadata={"n": (True,)}),
        ItemFilter.of(metadata={"n": ("x" * 1_000_000,)}),
    ]
    fingerprints = [item_filter.fingerprint for item_filter in filters]
    assert len(set(fingerprints)) == len(filters)
    assert all(len(fingerprint) <= 64 for fingerprint in fingerprints)
    assert ItemFilter.of(("a", "b")).fingerprint == ItemFilter.of(("b", "a")).fingerprint
    # Filters in each other keep it short: texts that quote texts would double with each level.
    nested = ItemFilter.of(("'\"n",))
    prints = set()
    for _ in range(20):
        nested = ItemFilter((nested,), "none")
        prints.add(nested.fingerprint)
    assert {len(fingerprint) for fingerprint in prints} == {32}


def test_what_a_key_never_holds_is_read_once() -> None:
    rows = [IndexedItem(f"i{number}", (), {"n": number}) for number in range(3)]
    gallery = gallery_of(rows, np.ones((3, 1), np.float32))
    for condition in ({"contains": 1}, {"text": "a"}):
        item_filter = read_filter({"metadata": {"n": condition}}, "filter")
        assert search(gallery, item_filter) == []
        assert not any(view.segment.columns.missing(ColumnNames.of(item_filter)) for view in gallery.segments)


@pytest.mark.parametrize("condition", [" " * 1000, "a" + " " * 999, "=3", " text x"])
def test_a_condition_of_spaces_is_refused_in_linear_time(condition: str) -> None:
    with pytest.raises(InvalidFieldError, match="expected a condition such as"):
        filter_of([], [condition])


def test_words_that_no_index_takes_are_looked_for_by_a_digest() -> None:
    (short,), (long,) = keyed_words({"a": "word"}), keyed_words({"a": "f" * 9000})
    assert (short, len(long)) == ("a word", 64)
    assert long == keyed_word("a", "f" * 9000) != keyed_word("b", "f" * 9000)


def test_filters_that_other_items_pass_have_other_fingerprints() -> None:
    parts: list[dict[str, Any]] = [
        {"all": [{"labels": {"any": ["red", "new"]}}]},
        {"labels": {"none": ["red", "new"]}},
        {"not": {"labels": {"none": ["red", "new"]}}, "modality": "x"},
        {"labels": {"any": ["red"]}},
        {"labels": {"all": ["red", "new"]}},
        {"metadata": {"red": {"in": ["new"]}}},
        {"metadata": {"red": {"not_in": ["new"]}}},
        {"metadata": {"new": {"in": ["new"]}}},
        {"metadata": {"red": {"contains": "new"}}},
        {"metadata": {"red": {"text": "new"}}},
        {"metadata": {"red": {"lt": 5}}},
        {"metadata": {"red": {"lte": 5}}},
        {"metadata": {"red": {"in": [True]}}},
        {"metadata": {"red": {"in": [1]}}},
    ]
    filters = [read_filter(part, "filter") for part in parts]
    assert len({one.fingerprint for one in filters}) == len(filters)
    again = read_filter({"all": [{"labels": {"any": ["new", "red"]}}]}, "filter")
    assert again.fingerprint == filters[0].fingerprint, "however its values are ordered"
