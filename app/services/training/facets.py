"""Which metadata are facets, properties that are learned like labels; and feedback as a training takes it."""
# A metadata key is taken as a facet by itself ("auto") if all its values are categorical: texts of at most
# 100 characters, numbers, true or false, or lists of these; of numbers with a fraction, or of more than four
# digits, there are at most 20; and if at least two values stand on items of both modalities; in neither
# modality there are more values than half as many as items that have one, nor more than 1000; it does not
# divide the items as another facet, or the label, does already; and it is not "source" with the files that
# items came from: those of two tables are no properties. Of more than 16 such keys those are taken that most
# items have.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.entities import Collection, Feedback, Item
from app.domain.errors import not_trainable
from app.domain.reports import Column, Supervision, cut
from app.services.models.placement import categorical, entries_of, facet_name, facet_values

_SOURCE, _FILE = "source", re.compile(r".+\.[A-Za-z0-9]{2,7}")
"""Key of the file that an item came from, which imports write, and the name of a file."""
_LARGEST_NUMBER = 9999  # larger ones are measurements or ids
_MOST_MEASURES = 20  # unless there are a few of them only, as of sizes such as 37.5
_ITEMS_PER_VALUE = 2
"""Fewer items of a value on average, and the key separates items instead of putting them together."""
_MOST_VALUES, _MOST_FACETS = 1000, 16
"""What is learned grows with values and facets; catalogues have far fewer of either."""
_MOST_KEYS = 64  # keys that are looked at, the most frequent first: each takes a walk over all items


Sides = tuple[Sequence[Item], Sequence[Item]]
"""Items of both modalities."""
MetadataSides = tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Metadata of the items of both modalities."""
Labels = Sequence[tuple[str, ...]]
"""Labels of items."""


def columns_of(sides: Sides, supervision: Supervision) -> dict[str, str | None]:
    """Return why each metadata key that is looked at is no facet, None where it is one, the facets first.
    Raises ConflictError if an asked key has no value that stands on items of both modalities."""
    x_items, z_items = sides
    metadata = [item.metadata for item in x_items], [item.metadata for item in z_items]
    if supervision.facets == "auto":
        labels = [item.labels for items in sides for item in items] if supervision.labels else None
        return _judge(metadata, labels)
    for key in supervision.facets:
        x, z = (Counter(_all_values(side, key)) for side in metadata)
        if not x.keys() & z.keys():
            raise not_trainable(
                f"facet {key!r}: no value of this metadata key stands on training items of both modalities"
            )
    return dict.fromkeys(supervision.facets)


def categorical_keys(sides: MetadataSides, labels: Labels | None) -> list[str]:
    """Return the metadata keys that are facets by themselves, sorted; not one that divides all items as their
    labels do (those of the first modality first)."""
    return [key for key, reason in _judge(sides, labels).items() if reason is None]


def weigh(
    columns: Sequence[Column], weights: Mapping[str, float], unused: Mapping[str, str]
) -> tuple[Column, ...]:
    """Return columns of `columns_of` with the weights of their terms, if there are any; `unused` says why a
    facet has none. Long names are cut."""

    def judge(column: Column) -> Column:
        facet = facet_name(column.name)
        weight, reason = weights.get(f"facet:{facet}", 0.0), column.reason
        if not reason and not weights:
            reason = "only the method 'composite' learns from columns"
        elif not reason and weight == 0.0:
            reason = unused.get(facet, "with it, held-out items are not ranked better")
        if reason:
            return Column(cut(column.name), None, reason)
        return Column(cut(column.name), weight, "held-out items are ranked better with it")

    return tuple(map(judge, columns))


def _judge(sides: MetadataSides, labels: Labels | None) -> dict[str, str | None]:
    """Return why each key is no facet by itself, None where it is one: these first, sorted."""
    counts = Counter(key for side in sides for metadata in side for key in metadata)
    if all(_FILE.fullmatch(value) for side in sides for value in _all_values(side, _SOURCE)):
        counts.pop(_SOURCE, None)
    partitions = {} if labels is None else {_partition(labels): "the labels do"}
    taken: list[str] = []
    reasons: dict[str, str | None] = {}
    for key, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_KEYS]:
        reasons[key] = _why_not_categorical(sides, key)
        if reasons[key] is None:
            partition = _partition([facet_values(metadata, key) for side in sides for metadata in side])
            if partition in partitions:
                reasons[key] = f"it divides the items as {partitions[partition]}"
            elif len(taken) == _MOST_FACETS:
                reasons[key] = f"{_MOST_FACETS} columns that more items have are learned from"
            else:
                partitions[partition] = f"the column {cut(key)!r} does"
                taken.append(key)
    return dict.fromkeys(sorted(taken)) | reasons


def _why_not_categorical(sides: MetadataSides, key: str) -> str | None:
    counters: list[Counter[str]] = []
    for side in sides:
        entries = [value for metadata in side for value in entries_of(metadata.get(key))]
        if any(categorical(value) is None for value in entries):
            return "some of its values are long texts or no plain values"
        counts = Counter(_all_values(side, key))
        most = _MOST_MEASURES if any(map(_is_measure, entries)) else _MOST_VALUES
        if len(counts) > counts.total() // _ITEMS_PER_VALUE:
            return "most items have a value of their own, as of an id, a file name or a row number"
        if len(counts) > most:
            return (
                f"it has more than {most} {'measures or large numbers' if most < _MOST_VALUES else 'values'}"
            )
        counters.append(counts)
    if not all(counters):
        return "only items of one modality have it"
    n_shared = len(counters[0].keys() & counters[1].keys())
    return None if n_shared > 1 else "fewer than two of its values stand on items of both modalities"


def _partition(values: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return a number for each item, equal where the values are; numbered in the order of the items."""
    numbers: dict[tuple[str, ...], int] = {(): 0}
    return tuple(numbers.setdefault(entry, len(numbers)) for entry in values)


def _all_values(side: Sequence[Mapping[str, Any]], key: str) -> Iterator[str]:
    for metadata in side:
        yield from facet_values(metadata, key)


def _is_measure(value: Any) -> bool:
    """Return whether a number measures something, or numbers things, rather than being one of a few."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (abs(value) > _LARGEST_NUMBER or not float(value).is_integer())


Judgements = Mapping[tuple[str, str], int]
"""+1 or -1 for an item of the first and one of the second modality, by their ids."""


def judgements_of(
    collection: Collection, feedback: Iterable[Feedback]
) -> tuple[dict[tuple[str, str], int], list[Item]]:
    """Return what was judged, later feedback on a pair in place of earlier (in the order given), and queries
    as items. A query with content of its own becomes an item with an id that no item has."""
    # That within one modality is left out.
    judgements: dict[tuple[str, str], int] = {}
    queries: list[Item] = []
    for entry in feedback:
        query_id = entry.query_item_id
        if entry.source == entry.target:
            continue
        if entry.query is not None and query_id is None:
            query_id = f"query {entry.id}"
            queries.append(replace(entry.query, id=query_id, train=True))
        if query_id is not None:
            is_from_x = entry.source == collection.modality_names[0]
            pair = (query_id, entry.item_id) if is_from_x else (entry.item_id, query_id)
            judgements[pair] = 1 if entry.is_relevant else -1
    return judgements, queries


def suffices(judgements: Judgements) -> bool:
    """Return whether something was judged relevant, and something not relevant."""
    return {1, -1} <= set(judgements.values())
