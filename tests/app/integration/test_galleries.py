"""Galleries after many writes, compared with a list that is sorted for each search."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from app.domain.entities import IndexedItem
from app.domain.filters import ItemFilter
from app.services.serving.galleries import Gallery
from app.services.serving.segments import SegmentView
from tests.app.filters import accepts
from tests.app.galleries import gallery_of

RANK = 3
FILTERS = (
    ItemFilter(),
    ItemFilter.of(labels=("a",)),
    ItemFilter.of(labels=("b", "c")),
    ItemFilter.of(metadata={"split": ("test",)}),
    ItemFilter.of(("a", "c"), {"split": ("train", "test"), "n": (1, 2)}),
    ItemFilter.of(("absent",)),
)


@dataclass
class Reference:
    """What a gallery should contain: an item and a vector for each id."""

    entries: dict[str, tuple[IndexedItem, np.ndarray]]

    def search(self, query: Any, k: int, offset: int, item_filter: ItemFilter) -> list[tuple[str, float]]:
        scores = [
            (row.id, float(vector @ query))  # exact: small whole numbers
            for row, vector in self.entries.values()
            if accepts(item_filter, row.labels, row.metadata)
        ]
        return sorted(scores, key=lambda pair: (-pair[1], pair[0]))[offset : offset + k]


def search(
    gallery: Gallery, query: np.ndarray, k: int, offset: int, item_filter: ItemFilter
) -> list[tuple[str, float]]:
    (results,) = gallery.search(query[None], k, offset, item_filter)
    return [(row.id, score) for row, score in results]


def merged(gallery: Gallery) -> Gallery:
    """Return the gallery after the merges that are due."""
    while due := gallery.due_merge():
        gallery = gallery.with_merged(due, SegmentView.merge(due))
    return gallery


def random_item(rng: np.random.Generator, item_id: str) -> IndexedItem:
    labels = tuple(label for label in "abc" if rng.random() < 0.4)
    metadata: Mapping[str, Any] = {
        "split": str(rng.choice(["train", "test"])),
        "n": int(rng.integers(4)),
    }
    return IndexedItem(item_id, labels, metadata)


def writes(seed: int, count: int) -> Iterator[tuple[Gallery, Reference]]:
    """Yield a gallery and its reference after each of many random writes."""
    rng = np.random.default_rng(seed)
    entries: dict[str, tuple[IndexedItem, np.ndarray]] = {}
    gallery = gallery_of([], np.zeros((0, RANK), np.float32))
    for _ in range(count):
        size = int(rng.choice([1, 1, 1, 2, 5, 40]))
        ids = sorted({f"i{n}" for n in rng.integers(0, 120, size)})
        deleted = {item_id for item_id in ids if rng.random() < 0.3}
        written = [item_id for item_id in ids if item_id not in deleted]
        # Few different numbers, so that many scores are equal.
        vectors = rng.integers(-1, 2, (len(written), RANK)).astype(np.float32)
        rows = [random_item(rng, item_id) for item_id in written]
        gallery = gallery.apply_write(set(ids), rows, vectors)
        for item_id in deleted:
            entries.pop(item_id, None)
        entries |= {row.id: (row, vector) for row, vector in zip(rows, vectors, strict=True)}
        yield gallery, Reference(dict(entries))


@pytest.mark.parametrize("seed", range(6))
def test_a_search_is_that_of_all_items_sorted(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for gallery, reference in writes(seed, 60):
        assert gallery.size == len(reference.entries)
        query = rng.integers(-1, 2, RANK).astype(np.float32)
        for item_filter in FILTERS:
            k, offset = int(rng.integers(1, 30)), int(rng.choice([0, 0, 3, 50, 500]))
            results = [
                (row.id, score) for row, score in gallery.search(query[None], k, offset, item_filter)[0]
            ]
            assert results == reference.search(query, k, offset, item_filter)
        for label in ("a", "c", "absent"):
            assert gallery.has_label(label) == any(
                label in row.labels for row, _ in reference.entries.values()
            )


def test_many_filters_take_bounded_memory() -> None:
    items = [IndexedItem(f"i{n}", (f"tenth{n % 10}",), {"n": n // 10}) for n in range(2000)]
    vectors = np.random.default_rng(0).integers(-1, 2, (2000, 32)).astype(np.float32)
    gallery = gallery_of(items, vectors)
    (view,) = gallery.segments
    reference = Reference({item.id: (item, vector) for item, vector in zip(items, vectors, strict=True)})
    query = np.ones(32, np.float32)
    for number in range(200):
        for item_filter in (ItemFilter.of((f"tenth{number % 10}",)), ItemFilter.of(None, {"n": (number,)})):
            assert search(gallery, query, 5, 0, item_filter) == reference.search(query, 5, 0, item_filter)
            kept = view.prepared_searches()
            assert sum(prepared.n_bytes for prepared in kept) <= vectors.nbytes / 4
            assert len(kept) <= 64
    assert search(gallery, query, 5, 0, item_filter) == reference.search(query, 5, 0, item_filter)
    assert view.prepared_searches()[-1] is kept[-1], "the search was prepared once"


def test_a_gallery_is_not_changed_by_writes_after_it() -> None:
    query = np.ones(RANK, np.float32)
    seen = [(gallery, reference.search(query, 200, 0, ItemFilter())) for gallery, reference in writes(7, 80)]
    for gallery, expected in seen:
        assert [
            (row.id, score) for row, score in gallery.search(query[None], 200, 0, ItemFilter())[0]
        ] == expected


def test_many_writes_leave_few_segments_and_share_the_large_one() -> None:
    base = [IndexedItem(f"base{n}", ("a",), {}) for n in range(5000)]
    vectors = np.random.default_rng(0).standard_normal((5000, RANK)).astype(np.float32)
    gallery = gallery_of(base, vectors)
    large = gallery.segments[0].segment
    for number in range(1000):
        item_id = f"base{number}" if number % 3 == 0 else f"new{number}"
        gallery = gallery.apply_write({item_id}, [IndexedItem(item_id, ("b",), {})], vectors[:1])
        gallery = merged(gallery)
        assert gallery.segments[0].segment is large
        assert len(gallery.segments) <= 8
    assert gallery.size == 5000 + 666
    for number in range(4000):
        gallery = merged(gallery.apply_write({f"base{number}"}, [], vectors[:0]))
        rows = sum(len(view.segment.items) for view in gallery.segments)
        assert rows <= 1.4 * gallery.size + 10
    assert not gallery.has_label("absent")
    assert gallery.size == 1000 + 666


def test_a_write_merges_a_few_rows_and_leaves_the_large_segments_as_they_are() -> None:
    base = [IndexedItem(f"base{n}", ("a",), {}) for n in range(5000)]
    vectors = np.random.default_rng(0).standard_normal((5000, RANK)).astype(np.float32)
    gallery = gallery_of(base, vectors)
    large = gallery.segments[0].segment
    for number in range(500):
        ids = [f"new{number}-{n}" for n in range(10)]
        items = [IndexedItem(item_id, ("b",), {}) for item_id in ids]
        gallery = gallery.apply_write({*ids, f"base{number * 9}"}, items, vectors[:10])
        assert gallery.segments[0].segment is large
    rows = [len(view.segment.items) for view in gallery.segments]
    assert gallery.size == 5000 - 500 + 5000
    assert len(rows) <= 20
    assert max(rows[1:]) <= 1000
    assert gallery.due_merge()
    once = merged(gallery)
    assert len(once.segments) <= 3
    assert sorted(once.item_ids()) == sorted(gallery.item_ids())


@pytest.mark.parametrize("seed", range(6))
def test_writes_go_on_while_segments_are_merged(seed: int) -> None:
    """A merge that was begun some writes ago is put into the gallery of now, in which it belongs to."""
    rng = np.random.default_rng(seed)
    begun: list[tuple[tuple[SegmentView, ...], SegmentView]] = []
    n_merged = 0
    states = list(writes(200 + seed, 60))
    # The same writes once more, with the merges.
    gallery = gallery_of([], np.zeros((0, RANK), np.float32))
    for before, (_, reference) in zip([None, *states], states, strict=False):
        known = {} if before is None else before[1].entries
        gone = known.keys() - reference.entries.keys()
        new = {key: entry for key, entry in reference.entries.items() if known.get(key) is not entry}
        items = [item for item, _ in new.values()]
        vectors = np.asarray([vector for _, vector in new.values()], np.float32).reshape(-1, RANK)
        gallery = gallery.apply_write({*gone, *new}, items, vectors)
        if gallery.segments:
            start = int(rng.integers(len(gallery.segments)))
            sources = gallery.segments[start : start + 3]
            begun.append((sources, SegmentView.merge(sources)))
        if len(begun) > rng.integers(4):
            n_merged += (after := gallery.with_merged(*begun.pop(0))) is not gallery
            gallery = after
        assert sorted(gallery.item_ids()) == sorted(reference.entries)
        query = rng.integers(-1, 2, RANK).astype(np.float32)
        for item_filter in FILTERS:
            assert search(gallery, query, 40, 0, item_filter) == reference.search(query, 40, 0, item_filter)
    assert n_merged > 5


def test_a_write_of_what_is_not_there_leaves_the_gallery_as_it_is() -> None:
    gallery, _ = next(writes(1, 1))
    assert gallery.apply_write({"never", "seen"}, [], np.zeros((0, RANK), np.float32)) is gallery


@pytest.mark.parametrize("rank", [0, 2])
def test_all_items_may_go_and_come_back(rank: int) -> None:
    vectors = np.ones((3, rank), np.float32)
    rows = [IndexedItem(name, ("a",), {}) for name in "xyz"]
    gallery = gallery_of(rows, vectors)
    gone = gallery.apply_write({"x", "y", "z"}, [], vectors[:0])
    query = np.ones((1, rank), np.float32)
    assert gone.size == 0
    assert gone.search(query, 5, 0, ItemFilter()) == [[]]
    assert not gone.has_label("a")
    back = gone.apply_write({"y"}, rows[1:2], vectors[:1])
    assert [row.id for row, _ in back.search(query, 5, 0, ItemFilter())[0]] == ["y"]
