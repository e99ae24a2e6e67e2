"""Grouping ranks no more than it has to, and diversity is maximal marginal relevance."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import pytest

from app.domain.entities import IndexedItem
from app.domain.filters import ItemFilter
from app.index import ExactIndex
from app.services.serving.galleries import Gallery, Page
from app.services.serving.refinement import Refinement, diversify, find_grouped, groups_of
from app.services.serving.segments import Segment


@pytest.mark.parametrize(("n_first", "depth"), [(0, 10), (30, 10), (500, 3), (5000, 1), (5000, 5)])
def test_ranking_again_costs_little_more_than_one_ranking_that_is_deep_enough(
    n_first: int, depth: int
) -> None:
    ranking = [
        (IndexedItem(f"i{n}", (), {"maker": 0 if n <= n_first else n}), -float(n)) for n in range(6000)
    ]
    depths: list[int] = []

    def find(k: int, rest: ItemFilter) -> Page:
        depths.append(k)
        return Page(ranking[:k])

    def makers(items: list[IndexedItem]) -> list[set[int]]:
        return groups_of(items, "maker")  # type: ignore[return-value]

    wanted = Refinement(group_by="maker")
    page = find_grouped(find, makers, wanted, depth, 100_000)  # type: ignore[arg-type]
    assert [item.metadata["maker"] for item, _ in page] == [0, *range(n_first + 1, n_first + depth)]
    assert sum(depths) <= 4 / 3 * max(depths)
    assert max(depths) <= 4 * (n_first + depth)
    short = find_grouped(find, makers, wanted, depth, 20)  # type: ignore[arg-type]
    assert max(depths[-1], depth) <= 40
    assert [notice.code for notice in short.notices] == ["not-grouped"] * (len(short) < depth)
    enough = find_grouped(find, makers, wanted, depth, 20, len(short))  # type: ignore[arg-type]
    assert (enough, enough.notices) == (short, ())


@pytest.mark.parametrize("inexact", [None, 0, 1])
def test_groups_are_exact_where_every_ranking_for_them_was(inexact: int | None) -> None:
    ranking = [(IndexedItem(f"i{n}", (), {"maker": max(n - 50, 0)}), -float(n)) for n in range(100)]
    depths: list[int] = []

    def find(k: int, rest: ItemFilter) -> Page:
        depths.append(k)
        return Page([hit for hit in ranking if rest.accepts(hit[0])][:k], is_exact=len(depths) - 1 != inexact)

    def makers(items: Sequence[IndexedItem]) -> list[Iterable[Hashable]]:
        return groups_of(items, "maker")

    page = find_grouped(find, makers, Refinement(group_by="maker"), 3, 1000)
    assert [item.metadata["maker"] for item, _ in page] == [0, 1, 2]
    assert len(depths) == 2
    assert page.is_exact == (inexact is None)


@pytest.mark.parametrize(
    ("n_items", "by", "size"), [(100_000, "colour", 5), (3000, "mixed", 2), (3000, "label", 9)]
)
def test_members_of_full_groups_are_left_out_when_results_are_ranked_again(
    n_items: int, by: str, size: int
) -> None:
    rng = np.random.default_rng(2)
    mixed = [1, "1", True, "1.0", 2.5, [1, "2.5"], [True, "é"], "é", "e\u0301", None]
    kinds = rng.integers(0, len(mixed), n_items).tolist()
    metadata = [{"colour": kind % 3, "mixed": mixed[kind]} for kind in kinds]
    items = [
        IndexedItem(f"i{n}", ("a",) if n % 3 else ("a", f"b{n % 7}"), one) for n, one in enumerate(metadata)
    ]
    rows = rng.standard_normal((n_items, 3)).astype(np.float32)
    gallery = Gallery.of_segment(Segment(items, ExactIndex(rows)))
    query, depths = np.ones((1, 3), np.float32), list[int]()

    def find(k: int, rest: ItemFilter) -> Page:
        depths.append(k)
        return gallery.search(query, k, 0, rest)[0]

    def groups(items: Sequence[IndexedItem]) -> list[Iterable[Hashable]]:
        return groups_of(items, by)

    page = find_grouped(find, groups, Refinement(group_by=by, group_size=size), 40, 100_000)
    assert sum(depths) < 1000
    (whole,) = gallery.search(query, n_items, 0, ItemFilter())
    counts: Counter[Hashable] = Counter()
    expected = []
    for item, score in whole:
        (of_item,) = groups([item])
        if all(counts[group] < size for group in of_item):
            counts.update(of_item)
            expected.append((item.id, score))
    assert [(item.id, score) for item, score in page] == expected[:40]
    assert page.notices == ()


def test_items_without_a_value_are_not_limited_and_true_is_not_one() -> None:
    metadata = [{"a": 1}, {"a": True}, {"a": 1.0}, {}, {"a": None}, {"a": {"b": 1}}, {"a": [1, [2], "1"]}]
    items = [IndexedItem(str(number), ("l", "m"), one) for number, one in enumerate(metadata)]
    groups = [set(one) for one in groups_of(items, "a")]
    assert groups == [{1}, {(bool, True)}, {1}, set(), set(), set(), {1, "1"}]
    assert [set(one) for one in groups_of(items[:1], "label")] == [{"l", "m"}]


@pytest.mark.parametrize("diversity", [0.1, 0.5, 1.0])
def test_each_result_is_the_one_with_the_largest_marginal_relevance(diversity: float) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 6)).astype(np.float32)
    scores = np.sort(rng.standard_normal(40))[::-1]
    page = Page([(IndexedItem(str(n), (), {}), float(score)) for n, score in enumerate(scores)])
    chosen = [int(item.id) for item, _ in diversify(page, vectors, diversity, 15)]
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, relevance = units @ units.T, (scores - scores.min()) / np.ptp(scores)
    expected = [0]
    while len(expected) < 15:
        rest = [n for n in range(40) if n not in expected]
        marginal = [(1 - diversity) * relevance[n] - diversity * cosines[n, expected].max() for n in rest]
        expected.append(rest[int(np.argmax(marginal))])
    assert chosen == expected
    assert diversify(Page(), vectors[:0], diversity, 5) == []
