"""The rows of a gallery, as they stand in its collection at a moment: conditions, ranking, and changes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from pymilvus import MilvusClient

from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.filters import RANGES, Condition, ItemFilter, is_ordered, keyed_words
from app.domain.ports import EngineHit
from app.engines.milvus.server import PIECE, SECONDS, call_loaded, read_rows, split
from app.index.inverted_lists import Balance

FOREVER = 2**62
"""The end of a row that is alive."""
_SIGNS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_COMPLEMENTS = {"lt": "gte", "lte": "gt", "gt": "lte", "gte": "lt"}
_ORDERED_BYTES, _MOST_ORDERED_BYTES, _QUOTES = 401, 60_000, 6
"""Bytes of a text by which it is ordered, more than any bound has, and of all that is ordered in a row."""
MOST_FACETS, DIGEST = 4096, 24
"""Of a row, and characters of each: labels, keys and values that can be filtered by."""
ROWS_AT_ONCE = 500
"""Rows of a request, whose size is bounded by 64 MB."""
ITEM_FIELDS = ["item_id", "text"]
"""From which an item is read."""
_NO_FILTER = ItemFilter()
_MOST_HITS = 16_384  # the longest answer to one search
_CANDIDATES, _TIED = 4, 32
"""Candidates of the graph for each result, and results beyond a page, to put equal scores in order."""
_LEAST_WIDTH = 200  # nodes that a search visits at least


def digest_of(*parts: str) -> str:
    """Return some digits for texts, which need no quotes in a condition."""
    return sha256("\0".join(parts).encode()).hexdigest()[:DIGEST]


def _value_digest(kind: str, key: str, value: Hashable) -> str:
    """Return the same for values that are equal in JSON, such as 3 and 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return digest_of(kind, key, json.dumps(value))


def facets_of(item: IndexedItem) -> list[str]:
    """Return what filters ask for: the labels, the keys that have a value, the values, the elements of lists,
    whether ranges compare numbers or texts, and the words of texts."""
    facets: list[str] = [digest_of("label", label) for label in item.labels]
    elements: list[str] = []
    for key, value in item.metadata.items():
        if value is not None:
            facets.append(digest_of("key", key))
        if isinstance(value, str | int | float | bool):
            facets.append(_value_digest("value", key, value))
        if isinstance(value, list):
            scalars = (one for one in value if isinstance(one, str | int | float | bool))
            elements += dict.fromkeys(_value_digest("element", key, one) for one in scalars)
    facets += (digest_of(*name) for name in (_ordered_of(item.metadata)))
    words = (digest_of("word", word) for word in keyed_words(item.metadata))
    return [*facets, *elements, *words][:MOST_FACETS]  # the longest come last


def values_of(item: IndexedItem) -> dict[str, int | float | str]:
    """Return the values that ranges compare."""
    return {digest_of("key", key): _sortable(item.metadata[key]) for _, key in _ordered_of(item.metadata)}


def _ordered_of(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys of numbers and texts, with which of them they are; not more than a row may hold."""
    n_bytes = 0
    for key, value in metadata.items():
        if is_ordered(value, "") or is_ordered(value, 0):
            n_bytes += DIGEST + len(str(_sortable(value))) + _QUOTES
            if n_bytes > _MOST_ORDERED_BYTES:
                return
            yield "text" if isinstance(value, str) else "number", key


def _sortable(value: Any) -> int | float | str:
    """Return a value as Milvus orders it: a text by its first bytes, a number within its range."""
    if isinstance(value, str):
        return value.encode()[:_ORDERED_BYTES].hex()
    if isinstance(value, int) and abs(value) >= FOREVER:
        return math.copysign(min(abs(value), int(sys.float_info.max)), value)
    number: int | float = value
    return number


def condition_of(revision: int, item_filter: ItemFilter) -> str:
    """Return the rows of a revision that match a filter, in Milvus's language."""
    parts = [alive_at(revision), "is_ranked == true"]
    if not item_filter.is_empty:
        parts.append(item_filter.fold(_read, _join))
    return " and ".join(parts)


def _join(is_all: bool, conditions: Iterable[str]) -> str:
    joined = (" and " if is_all else " or ").join(conditions)
    return f"({joined})" if joined else "since >= 0" if is_all else "since < 0"


def _read(condition: Condition, negated: bool) -> str:
    """Return the rows that meet a condition, or do not."""
    key, values = condition.key, condition.values
    if condition.operator in RANGES:
        kind = "text" if isinstance(values[0], str) else "number"
        sign = _SIGNS[_COMPLEMENTS[condition.operator] if negated else condition.operator]
        compared = f'values["{digest_of("key", key)}"] {sign} {json.dumps(_sortable(values[0]))}'
        return f"({compared} or not {_any_of([digest_of(kind, key)])})" if negated else f"({compared})"
    if condition.subject == "id":
        written = f"item in {json.dumps([digest_of(item_id) for item_id in values])}"
    elif condition.subject == "labels":
        written = _any_of([digest_of("label", label) for label in condition.equal])
    elif condition.operator == "exists":
        written = _any_of([digest_of("key", key)])
    elif condition.operator == "text":
        words = [digest_of("word", f"{key} {word}") for word in sorted(condition.words)]
        written = f"array_contains_all(facets, {json.dumps(words)})"
    else:
        kind = "value" if condition.operator == "in" else "element"
        written = _any_of([_value_digest(kind, key, one) for one in condition.equal if one is not None])
        if None in values:
            written += f" or not {_any_of([digest_of('key', key)])}"
    return f"not ({written})" if negated else f"({written})"


def _any_of(facets: Sequence[str]) -> str:
    """Return the rows that have one of some facets; none of none."""
    return f"array_contains_any(facets, {json.dumps(list(facets) or ['none'])})"


def alive_at(revision: int) -> str:
    """Return the condition of the rows of a revision."""
    return f"since <= {revision} and until > {revision}"


class GalleryRows(NamedTuple):
    """The rows that stand under the name of a gallery at a moment."""

    client: MilvusClient
    collection: str
    earliest: int
    rank: int
    revision: int
    written_at: int

    @classmethod
    def of(cls, client: MilvusClient, entry: dict[str, Any]) -> GalleryRows:
        """Return the rows of an entry."""
        return cls(client, *(entry[name] for name in cls._fields[1:]))

    def at(self, revision: int) -> int:
        """Return a revision, or the earliest that was not purged."""
        return max(revision, self.earliest)

    def condition(self, revision: int, item_filter: ItemFilter = _NO_FILTER) -> str:
        """Return the condition of those of a revision that can be ranked and match a filter."""
        return condition_of(self.at(revision), item_filter)

    @property
    def visibility(self) -> dict[str, Any]:
        """Arguments of a read that sees them."""
        # Milvus Lite returns no times and shows every write at once; zero would ask for all writes up to now.
        return {"consistency_level": "Customized", "guarantee_timestamp": max(self.written_at, 1)}

    def read(self, condition: str, field: str, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a field of those that match a condition."""
        return read_rows(self.client, self.collection, condition, [field], limit, self.visibility)

    def count(self, condition: str) -> int:
        """Return how many of them match a condition."""
        (row,) = self.read(condition, "count(*)")
        return int(row["count(*)"])

    def scan(self, condition: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Yield those that match a condition, in the order of their keys."""
        begin = partial(
            self.client.query_iterator,
            self.collection,
            batch_size=ROWS_AT_ONCE,
            timeout=SECONDS,
            filter=condition,
            output_fields=fields,
            consistency_level="Strong",
        )
        rows = call_loaded(self.client, self.collection, begin)
        try:
            while batch := rows.next():
                yield from map(dict, batch)
        finally:
            rows.close()

    def search_graph(self, maps: Balance, condition: str, query: Vector, depth: int) -> list[EngineHit]:
        """Return all that the graph finds, some candidates for each of `depth` results, by inner products."""
        n_candidates, mapped = depth * _CANDIDATES, maps.map_query(query)[0]
        width = {"ef": max(n_candidates, _LEAST_WIDTH)}
        answer = self._find("mapped", condition, mapped, n_candidates, [*ITEM_FIELDS, "raw"], width)
        if not answer:
            return []
        vectors = np.array([row["entity"]["raw"] for row in answer], np.float32)[:, : len(query)]
        return _rank(answer, (vectors * query).sum(axis=1))  # equal rows score alike wherever they are

    def compare(self, field: str, condition: str, query: Vector, k: int, offset: int) -> list[EngineHit]:
        """Return a page of the exact ranking by the inner products with a field."""
        depth = offset + k
        limit = depth + _TIED
        while limit <= _MOST_HITS:
            answer = self._find(field, condition, query, limit, ITEM_FIELDS, {})
            scores = np.array([row["distance"] for row in answer], np.float32)
            is_cut = len(answer) == limit and scores[-1] == scores[depth - 1]
            if not is_cut:
                return _rank(answer, scores)[offset:depth]
            limit *= 2  # more equal scores than were asked for
        return self._compare_here(field, condition, query, depth)[offset:]

    def _compare_here(self, field: str, condition: str, query: Vector, depth: int) -> list[EngineHit]:
        """Return the start of the exact ranking where it is longer than an answer of Milvus may be."""
        matching = self.scan(condition, [*ITEM_FIELDS, field])
        best: list[EngineHit] = []
        while batch := list(islice(matching, ROWS_AT_ONCE)):
            vectors = np.array([row[field] for row in batch], np.float64)[:, : len(query)]
            # A sum of each row for itself: equal rows score alike wherever they are.
            scores = (vectors * query).sum(axis=1).astype(np.float32)
            best += _hits(batch, scores)
            if len(best) > 2 * depth + ROWS_AT_ONCE:  # seldom: sorting every batch would take far longer
                best = sorted(best, key=_order)[:depth]
        return sorted(best, key=_order)[:depth]

    def _find(
        self,
        field: str,
        condition: str,
        query: Vector,
        limit: int,
        fields: list[str],
        parameters: dict[str, Any],
    ) -> list[Any]:
        search = partial(
            self.client.search,
            self.collection,
            data=[numbers(np.asarray(query, np.float32))],
            anns_field=field,
            filter=condition,
            limit=limit,
            output_fields=fields,
            search_params={"metric_type": "IP", "params": parameters},
            timeout=SECONDS,
            **self.visibility,
        )
        (answer,) = call_loaded(self.client, self.collection, search)
        return list(answer)


def item_of(row: dict[str, Any]) -> IndexedItem:
    """Return the item of a row."""
    labels, metadata = json.loads("".join(row["text"]))
    return IndexedItem(row["item_id"], tuple(labels), metadata)


def numbers(vector: Vector) -> list[float]:
    """Return a vector as Milvus takes it, which has two numbers at least."""
    values: list[float] = vector.tolist()
    return values if len(values) > 1 else [*values, 0.0]


def can_search_graph(depth: int) -> bool:
    """Return whether the graph can be asked for `depth` results."""
    return depth * _CANDIDATES <= _MOST_HITS


def _rank(answer: Sequence[Any], scores: Iterable[float]) -> list[EngineHit]:
    """Return hits by falling scores, equal ones by id."""
    return sorted(_hits([row["entity"] for row in answer], scores), key=_order)


def _hits(rows: Iterable[Any], scores: Iterable[float]) -> list[EngineHit]:
    return [EngineHit(item_of(row), float(score)) for row, score in zip(rows, scores, strict=True)]


def _order(hit: EngineHit) -> tuple[float, str]:
    return -hit.score, hit.item.id


@dataclass(slots=True, eq=False)
class Writing:
    """The rows of one revision, on their way into a collection. `check_lock` is called before each part:
    raises if another writer may be at work, who must not be overwritten."""

    client: MilvusClient
    collection: str
    revision: int
    check_lock: Callable[[], None]
    written_at: int = 0  # when the last part was, by the server's time

    def end(self, item_ids: Collection[str]) -> None:
        """End the rows of some items."""
        revision = self.revision
        for ids in split(sorted(item_ids), ROWS_AT_ONCE):
            items = json.dumps([digest_of(item_id) for item_id in ids])
            condition = f"item in {items} and since < {revision} and until > {revision}"
            # Also what a writer wrote that was killed before it named the revision: an end of the same rows.
            ending = read_rows(self.client, self.collection, condition, ["*"])
            if ending:
                self._upsert([{**row, "until": revision} for row in ending])

    def insert(self, balance: Balance | None, items: Sequence[IndexedItem], vectors: Matrix) -> None:
        """Add rows, in the place of those of the same revision."""
        for start in range(0, len(items), ROWS_AT_ONCE):
            step = slice(start, start + ROWS_AT_ONCE)
            mapped = np.zeros_like(vectors[step]) if balance is None else balance.map_rows(vectors[step])
            norms = np.linalg.norm(vectors[step], axis=1, keepdims=True)
            units = np.divide(vectors[step], norms, where=norms > 0, out=np.zeros_like(vectors[step]))
            self._upsert(
                [
                    self._row(item, True, *of_item)
                    for item, *of_item in zip(items[step], vectors[step], mapped, units, strict=True)
                ]
            )

    def insert_unranked(self, unranked: Collection[str], rank: int) -> None:
        """Add items that the model cannot place."""
        nowhere = np.zeros(rank, np.float32)
        rows = [
            self._row(IndexedItem(item_id, (), {}), False, nowhere, nowhere, nowhere)
            for item_id in sorted(unranked)
        ]
        for part in split(rows, ROWS_AT_ONCE):
            self._upsert(part)

    def _row(
        self, item: IndexedItem, is_ranked: bool, raw: Vector, mapped: Vector, unit: Vector
    ) -> dict[str, Any]:
        text = json.dumps([item.labels, item.metadata], ensure_ascii=False)
        return {
            "row": f"{digest_of(item.id)}/{self.revision}",
            "item": digest_of(item.id),
            "item_id": item.id,
            "since": self.revision,
            "until": FOREVER,
            "is_ranked": is_ranked,
            "facets": facets_of(item),
            "values": values_of(item),
            "text": list(split(text, PIECE)),
            "raw": numbers(raw),
            "mapped": numbers(mapped),
            "unit": numbers(unit),
        }

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self.check_lock()
        # The client's own `upsert` does the same, and keeps the time to itself.
        connection = self.client._get_connection()
        context = self.client._generate_call_context()
        answer = connection.upsert_rows(self.collection, rows, timeout=SECONDS, context=context)
        self.written_at = max(self.written_at, int(answer.timestamp))
