"""What people want of a ranking besides its first results: few of one group, and results that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.answers import Notice
from app.domain.entities import IndexedItem, Matrix
from app.domain.filters import NO_FILTER, Condition, ItemFilter, comparable
from app.domain.searches import describe_others
from app.services.serving.galleries import Page
from app.services.serving.item_columns import ColumnNames

LABEL, PAIR = "label", "pair_id"
"""What results are grouped by, beside metadata keys."""
MOST_DIVERSE = 500
"""Results among which those that differ are chosen: always as many, so that pages are of one order."""
_GROWTH = 4
"""Results are ranked again to this many times the depth until groups are filled. So all rankings together are
a third deeper than the last one, which is at most this many times as deep as had to be."""
_MOST_FULL = 1000
"""Full groups whose members are left out when results are ranked again: those with the most."""
GroupsOf = Callable[[Sequence[IndexedItem]], Sequence[Iterable[Hashable]]]


@dataclass(frozen=True, slots=True)
class Refinement:
    """What a search asks for beside the first results of a ranking."""

    explains: bool = False
    min_probability: float | None = None
    group_by: str | None = None  # a metadata key, or one of the others
    group_size: int = 1
    diversity: float = 0.0  # from 0 to 1
    emphasis: Mapping[str, float] = field(default_factory=dict)  # by name of a part of the common space

    @property
    def looks_deeper(self) -> bool:
        """Whether more has to be ranked than is shown."""
        return self.group_by is not None or self.diversity > 0.0

    @property
    def columns(self) -> ColumnNames:
        """What full groups are left out by; lists are read where that has to be."""
        keys = frozenset({self.group_by} if self.group_by is not None else ()) - {LABEL, PAIR}
        return ColumnNames(labels=self.group_by == LABEL, keys=keys)


def groups_of(items: Sequence[IndexedItem], name: str) -> list[Iterable[Hashable]]:
    """Return the groups of items, by labels or a metadata key; none where they lack it."""
    if name == LABEL:
        return [item.labels for item in items]
    values = (item.metadata.get(name) for item in items)
    entries = (value if isinstance(value, list) else [value] for value in values)
    return [{comparable(one) for one in listed if isinstance(one, str | int | float)} for listed in entries]


def members_of(name: str, groups: Sequence[Hashable], looks_into: bool) -> ItemFilter:
    """Return the filter that members of some groups pass, or of none; whether lists are looked into."""
    if name in (LABEL, PAIR):
        subject: Literal["labels", "pair_id"] = "labels" if name == LABEL else "pair_id"
        return ItemFilter((Condition(subject, "in", tuple(groups), is_literal=True),))
    values = tuple(group[1] if isinstance(group, tuple) else group for group in groups)
    operators = ("in", "contains") if looks_into else ("in",)
    return ItemFilter(tuple(Condition("metadata", one, values, name, "", True) for one in operators), "any")


def find_grouped(
    find: Callable[[int, ItemFilter], Page],
    of_items: GroupsOf,
    refinement: Refinement,
    depth: int,
    most: int,
    fewest: int | None = None,
) -> Page:
    """Return the first `depth` results of which no group has more than its size, from `most` of a ranking
    at most, with a notice of fewer than `fewest` (`depth`); results without a group are not limited."""
    # `find` returns the first results of the ranking that pass a filter: members of full groups do not.
    by, n_ranked, is_exact, rest = refinement.group_by or "", depth, True, NO_FILTER
    results: list[tuple[IndexedItem, float]] = []
    full: list[Hashable] = []
    while True:
        n_ranked = min(n_ranked * _GROWTH, max(most, depth))
        page = find(n_ranked, rest)
        ranked = {item.id: (item, score) for item, score in (*results, *page)}
        in_order = sorted(ranked.values(), key=lambda hit: (-hit[1], hit[0].id))
        results, is_grouped, crowded = _keep(in_order, of_items, refinement.group_size)
        is_exact = is_exact and page.is_exact
        is_whole = len(page) < n_ranked
        if len(results) >= depth or is_whole or n_ranked >= most:
            break
        full += [group for group, _ in crowded.most_common(_MOST_FULL - len(full))]
        has_lists = any(isinstance(item.metadata.get(by), list) for item, _ in in_order)
        rest = ItemFilter((members_of(by, full, has_lists),), "none")
    result = Page(results[:depth], is_exact)
    if results and not is_grouped:
        names = (key for item, _ in results for key in item.metadata)
        others = describe_others(by, names, "keys")
        result.notices = (Notice("not-grouped", f"no result has {by!r}{others}", ()),)
    elif len(results) < (depth if fewest is None else fewest) and not is_whole:
        message = f"the first {n_ranked} results are of fewer groups than were asked for"
        result.notices = (Notice("not-grouped", message, ()),)
    return result


def _keep(
    ranked: Sequence[tuple[IndexedItem, float]], of_items: GroupsOf, group_size: int
) -> tuple[list[tuple[IndexedItem, float]], bool, Counter[Hashable]]:
    """Return the results all of whose groups have room, whether any has a group, and how many others each
    full group has."""
    counts, crowded = Counter[Hashable](), Counter[Hashable]()
    results = []
    for hit, groups in zip(ranked, of_items([item for item, _ in ranked]), strict=True):
        full = [group for group in groups if counts[group] >= group_size]
        crowded.update(full)
        if not full:
            counts.update(groups)
            results.append(hit)
    return results, bool(counts), crowded


def diversify(page: Page, vectors: Matrix, diversity: float, depth: int) -> Page:
    """Return the `depth` results that maximal marginal relevance chooses: each time the one with the largest
    score, less its largest cosine to those before it, weighted by 1 - `diversity` and `diversity`."""
    # Carbonell and Goldstein, "The Use of MMR", SIGIR 1998. Scores are brought to 0 to 1 within the page.
    scores = np.array([score for _, score in page], np.float64)
    spread = float(np.ptp(scores)) if len(scores) else 0.0
    relevance = (scores - scores.min(initial=np.inf)) / spread if spread else np.ones(len(scores))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(lengths > 0.0, lengths, 1.0)
    nearest, chosen = np.full(len(scores), -1.0), list[int]()
    values = relevance
    while len(chosen) < min(depth, len(scores)):
        best = int(np.argmax(values))
        chosen.append(best)
        nearest = np.maximum(nearest, units @ units[best])
        values = (1.0 - diversity) * relevance - diversity * nearest
        values[chosen] = -np.inf
    result = Page([page[number] for number in chosen], page.is_exact)
    result.notices = page.notices
    return result
