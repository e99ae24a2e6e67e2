"""Items that stay text in memory, compared with the same items as objects."""

import json
from typing import Any

import numpy as np
import pytest

from app.domain.entities import IndexedItem
from app.domain.filters import ItemFilter
from app.index import ExactIndex
from app.services.serving.segments import Segment, SegmentView
from app.services.serving.stored_items import ItemIds, StoredItems
from tests.app.galleries import gallery_of

ORDINARY: list[dict[str, Any]] = [{"n": n % 7, "title": f'"{n}",\n', 'é\\"\t': [n]} for n in range(9000)]
REFUSED: list[dict[str, Any]] = [{"n": 3}, {"n": float("inf")}, {"s": "\ud800"}, {"n": 10**400}, {}]
FILTERS = (
    ItemFilter.of(("odd",)),
    ItemFilter.of(("every", "odd"), {"n": (3,)}),
    ItemFilter.of(None, {"n": (3, None)}),
    ItemFilter.of(None, {"n": (10**400, float("inf"))}),
    ItemFilter.of(None, {"s": ("\ud800",)}),
    ItemFilter.of(None, {'é\\"\t': (None,)}),
    ItemFilter.of(None, {"absent": (1,)}),
    ItemFilter.of(None, {"absent too": (None,)}),
    ItemFilter.of(None, {"title": ('"4097",\n',)}),
)


def items_of(documents: list[dict[str, Any]]) -> list[IndexedItem]:
    return [
        IndexedItem(f"i,{n}", ("every", "odd")[: 1 + n % 2] if n % 3 else (), document)
        for n, document in enumerate(documents)
    ]


def stored(items: list[IndexedItem]) -> StoredItems:
    lines = (json.dumps([item.id, item.labels, item.metadata]) for item in items)
    return StoredItems(("[\n" + ",\n".join(lines) + "\n]").encode())


@pytest.mark.parametrize("documents", [ORDINARY, REFUSED, [{}]], ids=["ordinary", "refused", "one"])
def test_text_gives_the_items_and_filters_of_objects(documents: list[dict[str, Any]]) -> None:
    items = items_of(documents)
    table = stored(items)
    assert len(table) == len(items)
    assert list(table) == items
    assert [table[row] for row in range(len(items))] == items
    assert table[-1] == items[-1]
    assert table[::3] == items[::3]
    with pytest.raises(IndexError):
        table[len(items)]
    vectors = np.ones((len(items), 2), np.float32)
    plain, texts = (Segment(kind, ExactIndex(vectors)) for kind in (items, table))
    wanted = ItemIds([*(item.id for item in items[::7]), "absent"])
    assert texts.rows_of(wanted) == plain.rows_of(wanted) == list(range(0, len(items), 7))
    for item_filter in FILTERS * 2:
        np.testing.assert_array_equal(texts.matches(item_filter), plain.matches(item_filter))
    assert texts.columns.rows_by_label.keys() == plain.columns.rows_by_label.keys()


def test_a_gallery_of_text_takes_writes_and_merges() -> None:
    items = items_of(ORDINARY)
    vectors = np.random.default_rng(0).integers(-1, 2, (len(items), 3)).astype(np.float32)
    galleries = [gallery_of(kind, vectors) for kind in (items, stored(items))]
    for start in (0, 3000, 6000):
        written = [IndexedItem(f"i,{n}", ("new",), {"n": "new"}) for n in range(start, start + 900)]
        gone = {item.id for item in written} | {f"i,{n}" for n in range(start, start + 1900)}
        galleries = [gallery.apply_write(gone, written, vectors[:900]) for gallery in galleries]
        plain, texts = galleries
        plain, texts = (
            gallery.with_merged(due, SegmentView.merge(due)) if (due := gallery.due_merge()) else gallery
            for gallery in (plain, texts)
        )
        galleries = [plain, texts]
        assert isinstance(texts.segments[0].segment.items, StoredItems)
        assert list(texts.item_ids()) == list(plain.item_ids())
        for item_filter in (*FILTERS, ItemFilter.of(("new",)), ItemFilter()):
            query = vectors[5:6]
            assert texts.search(query, 30, 2, item_filter) == plain.search(query, 30, 2, item_filter)


def test_text_takes_a_fraction_of_the_memory_of_objects() -> None:
    items = items_of(ORDINARY)
    table, vectors = stored(items), np.ones((len(items), 2), np.float32)
    plain, texts = (Segment(kind, ExactIndex(vectors)) for kind in (items, table))
    assert table.n_bytes < (plain.estimated_bytes - plain.index.n_bytes - plain.prepared_bytes) / 4
    # What a segment counts is also for finding items by their ids, from the first write on.
    assert table.n_bytes < texts.estimated_bytes < plain.estimated_bytes


@pytest.mark.parametrize("documents", [ORDINARY, REFUSED], ids=["ordinary", "refused"])
@pytest.mark.parametrize("n_dead", [0, 1, 3])
def test_a_merge_keeps_text(documents: list[dict[str, Any]], n_dead: int) -> None:
    items = items_of(documents)
    new = [IndexedItem(f"new{n}", ("new",), document) for n, document in enumerate(REFUSED)]
    parts = [(kind, np.ones((len(kind), 2), np.float32)) for kind in (stored(items), new, stored(new))]
    views = [SegmentView.of_all(Segment(kind, ExactIndex(vectors))) for kind, vectors in parts]
    gone = {"i,0", "i,2", "i,3"} if n_dead == 3 else {f"i,{len(items) - 1}"} if n_dead else set()
    merged = SegmentView.merge([views[0].without(ItemIds(gone)), *views[1:]])
    assert isinstance(merged.segment.items, StoredItems)
    expected = [item for item in items if item.id not in gone] + new + new
    assert list(merged.segment.items) == expected
    assert [merged.segment.items[row] for row in range(len(expected))] == expected


def test_a_segment_without_live_items_is_merged_into_nothing() -> None:
    items = items_of([{}])
    view = SegmentView.of_all(Segment(stored(items), ExactIndex(np.ones((1, 2), np.float32))))
    merged = SegmentView.merge([view.without(ItemIds({"i,0"}))])
    assert (len(merged.segment.items), merged.n_live) == (0, 0)
