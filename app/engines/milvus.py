"""Galleries in Milvus: calls of the server, rows, a gallery, and the engine."""
# Each gallery is a collection of its own, named by an entry of a list, so that one can take the place of
# another in one step. Rows are found by a graph (HNSW; Malkov and Yashunin, 2018) over vectors that were
# centred and balanced (`Balance`), which changes no ranking, and are ranked again by their own
# inner products; exact searches compare all rows.
#
# Milvus has no transactions: rows carry the revisions from which to which they are true, are written under
# keys that a repetition finds again, and what a revision holds is complete before its number is written. A
# read that is to see all writes before it (consistency level "Strong") waits for the server's next tick of
# 200 ms. The entry of a gallery therefore holds the server's time of its last write; who has read the entry
# once sees the rows of its revision by that time, and does not wait.

from __future__ import annotations

import base64
import json
import logging
import math
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import grpc
import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException, MilvusUnavailableException

from app.db.statements import in_chunks
from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.errors import VectorEngineUnavailableError, galleries_gone
from app.domain.filters import NO_FILTER, RANGES, Condition, ItemFilter, comparable, is_ordered, keyed_words
from app.domain.ports import EngineHits, GalleryKey, GalleryWrite, NewGallery, PageQuery
from app.engines import common
from app.index import Balance

_logger = logging.getLogger(__name__)

GALLERIES = "lrbs_galleries"
"""The collection that lists the others."""
FORMAT = 2
"""Of galleries: others are made again."""
MAPS = "maps_"
"""Begins the names of its entries that hold the maps of a collection."""
PIECE, MOST_PIECES = 16_000, 4096
"""Characters of a part of a text, which takes 65,535 bytes at most, and parts: as many as Milvus allows, of
which the largest maps take two thirds."""
SECONDS = 30.0
"""An answer that takes longer is a failure."""
AWAY = "the Milvus server does not answer (LRBS_MILVUS_URI)"
"""Why an engine that does not answer cannot be used."""
_UNREACHABLE, _MISSING, _RELEASED = 2, 100, 101
"""Codes for a server that is away, for a collection that is not there, and for one that is not in the
server's memory, as after its restart."""
_STRONG = {"consistency_level": "Strong"}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the service's error in place of the client's."""
    try:
        yield
    except MilvusException as error:
        if error.code == _UNREACHABLE or isinstance(error, MilvusUnavailableException):
            raise VectorEngineUnavailableError(AWAY) from error
        if is_missing(error):
            raise galleries_gone() from error
        _logger.error("Milvus refuses what it is asked: %s", error)
        raise VectorEngineUnavailableError("Milvus refuses what it is asked; its log says why") from error
    except grpc.RpcError as error:
        raise VectorEngineUnavailableError(AWAY) from error


def is_missing(error: MilvusException) -> bool:
    """Return whether an error says that a collection is not there."""
    return error.code == _MISSING or "not found" in error.message


def call_loaded(client: MilvusClient, collection: str, call: Callable[..., Any], **options: Any) -> Any:
    """Return what a call for a collection returns, after it was loaded if the server has released it."""
    try:
        return call(collection, timeout=SECONDS, **options)
    except MilvusException as error:
        if error.code != _RELEASED:
            raise
        client.load_collection(collection, timeout=SECONDS)
        return call(collection, timeout=SECONDS, **options)


def read_rows(
    client: MilvusClient,
    collection: str,
    condition: str,
    fields: list[str],
    limit: int | None = None,
    visibility: Mapping[str, Any] = _STRONG,
) -> list[dict[str, Any]]:
    """Return the rows of a collection that match a condition, as a client's `query` does."""
    options = {"filter": condition, "output_fields": fields, "limit": limit, **visibility}
    return [dict(row) for row in call_loaded(client, collection, client.query, **options)]


def find_text(client: MilvusClient, name: str) -> str | None:
    """Return a text of the list of galleries; None where there is none of that name."""
    rows = read_rows(client, GALLERIES, f"name == {json.dumps(name)}", ["text"])
    return "".join(rows[0]["text"]) if rows else None


def find_entry(client: MilvusClient, name: str) -> dict[str, Any] | None:
    """Return the entry of a gallery; None where there is none of this format."""
    text = find_text(client, name)
    entry = None if text is None else json.loads(text)
    return entry if entry is not None and entry.get("format") == FORMAT else None


def get_entry(client: MilvusClient, name: str) -> dict[str, Any]:
    """Return the entry of a gallery; raises VectorEngineUnavailableError."""
    entry = find_entry(client, name)
    if entry is None:
        raise galleries_gone()
    return entry


def store_entry(client: MilvusClient, entry: dict[str, Any]) -> None:
    """Put an entry in the place of the one of the same name."""
    store_text(client, entry["name"], json.dumps(entry))


def store_text(client: MilvusClient, name: str, text: str) -> None:
    """Put a text in the place of the one of the same name."""
    row = {"name": name, "text": list(in_chunks(text, PIECE)), "nowhere": [0.0, 0.0]}
    client.upsert(GALLERIES, [row], timeout=SECONDS)


def add_list(schema: Any, name: str, length: int, capacity: int) -> None:
    """Add a field for a list of texts."""
    kind, of = DataType.ARRAY, DataType.VARCHAR
    schema.add_field(name, kind, element_type=of, max_length=length, max_capacity=capacity)


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

    def condition(self, revision: int, item_filter: ItemFilter = NO_FILTER) -> str:
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
        options = {"filter": condition, "output_fields": fields, "batch_size": ROWS_AT_ONCE, **_STRONG}
        rows = call_loaded(self.client, self.collection, self.client.query_iterator, **options)
        try:
            while batch := rows.next():
                yield from map(dict, batch)
        finally:
            rows.close()

    def search_graph(self, maps: Balance, condition: str, query: Vector, depth: int) -> EngineHits:
        """Return all that the graph finds, some candidates for each of `depth` results, by inner products."""
        n_candidates, mapped = depth * _CANDIDATES, maps.map_query(query)[0]
        width = {"ef": max(n_candidates, _LEAST_WIDTH)}
        answer = self._find("mapped", condition, mapped, n_candidates, [*ITEM_FIELDS, "raw"], width)
        if not answer:
            return []
        vectors = np.array([row["entity"]["raw"] for row in answer], np.float32)[:, : len(query)]
        return _rank(answer, (vectors * query).sum(axis=1))  # equal rows score alike wherever they are

    def compare(self, field: str, condition: str, page: PageQuery) -> EngineHits:
        """Return a page of the exact ranking by the inner products with a field."""
        query, offset, depth = page.query, page.offset, page.offset + page.k
        limit = depth + _TIED
        while limit <= _MOST_HITS:
            answer = self._find(field, condition, query, limit, ITEM_FIELDS, {})
            scores = np.array([row["distance"] for row in answer], np.float32)
            is_cut = len(answer) == limit and scores[-1] == scores[depth - 1]
            if not is_cut:
                return _rank(answer, scores)[offset:depth]
            limit *= 2  # more equal scores than were asked for
        return self._compare_here(field, condition, query, depth)[offset:]

    def _compare_here(self, field: str, condition: str, query: Vector, depth: int) -> EngineHits:
        """Return the start of the exact ranking where it is longer than an answer of Milvus may be."""
        matching = self.scan(condition, [*ITEM_FIELDS, field])
        best: EngineHits = []
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
        (answer,) = call_loaded(
            self.client,
            self.collection,
            self.client.search,
            data=[numbers(np.asarray(query, np.float32))],
            anns_field=field,
            filter=condition,
            limit=limit,
            output_fields=fields,
            search_params={"metric_type": "IP", "params": parameters},
            **self.visibility,
        )
        return list(answer)


def item_of(row: dict[str, Any]) -> IndexedItem:
    """Return the item of a row."""
    labels, metadata = json.loads("".join(row["text"]))
    return IndexedItem(row["item_id"], tuple(labels), metadata)


def numbers(vector: Vector) -> list[float]:
    """Return a vector as Milvus takes it, which has two numbers at least."""
    values: list[float] = vector.tolist()
    return values if len(values) > 1 else [*values, 0.0]


def _rank(answer: Sequence[Any], scores: Iterable[float]) -> EngineHits:
    """Return hits by falling scores, equal ones by id."""
    return sorted(_hits([row["entity"] for row in answer], scores), key=_order)


def _hits(rows: Iterable[Any], scores: Iterable[float]) -> EngineHits:
    return [(item_of(row), float(score)) for row, score in zip(rows, scores, strict=True)]


def _order(hit: tuple[IndexedItem, float]) -> tuple[float, str]:
    item, score = hit
    return -score, item.id


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
        for ids in in_chunks(sorted(item_ids), ROWS_AT_ONCE):
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
        for part in in_chunks(rows, ROWS_AT_ONCE):
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
            "text": list(in_chunks(text, PIECE)),
            "raw": numbers(raw),
            "mapped": numbers(mapped),
            "unit": numbers(unit),
        }

    def _upsert(self, rows: Sequence[dict[str, Any]]) -> None:
        self.check_lock()
        # The client's own `upsert` does the same, and keeps the time to itself.
        connection = self.client._get_connection()
        context = self.client._generate_call_context()
        answer = connection.upsert_rows(self.collection, rows, timeout=SECONDS, context=context)
        self.written_at = max(self.written_at, int(answer.timestamp))


_Answer = TypeVar("_Answer")
_LEAST_SHARE = 0.15
"""Of the rows that have to match a filter, so that the graph is asked: of a tenth it found .91."""
_MOST_COUNTS = 1000  # filters of whose rows the number is known
_LOOK_SECONDS = 10.0
"""How long an entry that was read is good enough. Rows of earlier revisions are removed only once everybody
has looked again since the entry said so."""


@dataclass(eq=False)
class MilvusGallery:
    """A gallery in a collection, which the entry of its name names; a writer holds its lock. `announced`, by
    gallery: the earliest revision that its entry has, and since when at least, for `purge`."""

    _client: MilvusClient
    _name: str
    _hold_lock: common.HoldLock
    _announced: dict[str, tuple[int, float]]
    is_gone: bool = field(default=False, init=False)
    _seen: GalleryRows | None = field(default=None, init=False)  # as of the last look at the entry
    _seen_at: float = field(default=0.0, init=False)  # when that was, on the monotonic clock
    _maps: tuple[str, Balance] | None = field(default=None, init=False)
    """Into the space of the graph, with the collection that they are for."""
    _counted: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """Number of rows that match a condition, and of which revision."""

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the service's errors, and remember that there is nothing to ask any more."""
        try:
            with translate_errors():
                yield
        except VectorEngineUnavailableError as error:
            self.is_gone = self.is_gone or error.code == "galleries-gone"
            raise

    def write(self, change: GalleryWrite) -> int:
        with self._hold_lock(self._name) as check_lock, self._translate_errors():
            entry = get_entry(self._client, self._name)
            if entry["revision"] >= change.revision:
                return int(entry["revision"])
            if entry["revision"] < change.since:
                raise VectorEngineUnavailableError(common.BEHIND)
            collection = entry["collection"]
            writing = Writing(self._client, collection, change.revision, check_lock)
            writing.end(change.item_ids)
            if change.items:
                writing.insert(self._read_maps(collection), change.items, change.vectors)
            writing.insert_unranked(change.unranked, change.vectors.shape[1])
            check_lock()
            written_at = max(int(entry["written_at"]), writing.written_at)
            entry = {**entry, "revision": change.revision, "written_at": written_at}
            store_entry(self._client, entry)
            self._see(entry)
        return change.revision

    def _read_maps(self, collection: str) -> Balance | None:
        """Return the maps of a collection; None where its rows are too long for a graph."""
        maps = self._maps
        if maps is None or maps[0] != collection:
            packed = find_text(self._client, MAPS + collection)
            if packed is None:
                return None
            maps = self._maps = collection, common.unpack_balance(base64.b64decode(packed))
        return maps[1]

    def _look(self) -> GalleryRows:
        """Return the rows that stand there now."""
        return self._see(get_entry(self._client, self._name))

    def _see(self, entry: dict[str, Any]) -> GalleryRows:
        self._seen, self._seen_at = GalleryRows.of(self._client, entry), time.monotonic()
        return self._seen

    def _rows_at(self, revision: int) -> GalleryRows:
        """Return rows among which those of a revision are."""
        seen = self._seen
        is_old = time.monotonic() - self._seen_at > _LOOK_SECONDS
        return self._look() if seen is None or is_old or seen.revision < revision else seen

    def _ask(self, revision: int, ask: Callable[[GalleryRows], _Answer]) -> _Answer:
        """Return what is answered of the rows, or of those that take their place meanwhile."""
        with self._translate_errors():
            rows = self._rows_at(revision)
            try:
                return ask(rows)
            except MilvusException as error:
                if not is_missing(error) or (now := self._look()).collection == rows.collection:
                    raise
                return ask(now)

    def latest_revision(self) -> int:
        with self._translate_errors():
            return self._look().revision

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        return self._ask(revision, lambda rows: rows.count(rows.condition(revision, item_filter)))

    def find_unranked(self, revision: int) -> frozenset[str]:
        def find(rows: GalleryRows) -> frozenset[str]:
            condition = f"{alive_at(rows.at(revision))} and is_ranked == false"
            return frozenset(str(row["item_id"]) for row in rows.scan(condition, ["item_id"]))

        return self._ask(revision, find)

    def search(self, page: PageQuery, compares_all: bool = False) -> tuple[EngineHits, bool]:
        def find(rows: GalleryRows) -> tuple[EngineHits, bool]:
            condition, depth = rows.condition(page.revision, page.item_filter), page.offset + page.k
            may_ask_graph = not compares_all and depth * _CANDIDATES <= _MOST_HITS
            if may_ask_graph and not self._has_few(rows, rows.at(page.revision), page.item_filter):
                maps = self._read_maps(rows.collection)
                if maps is not None:
                    hits = rows.search_graph(maps, condition, page.query, depth)
                    if len(hits) >= depth:
                        return hits[page.offset : depth], False
            return rows.compare("raw", condition, page), True

        return self._ask(page.revision, find)

    def _has_few(self, rows: GalleryRows, revision: int, item_filter: ItemFilter) -> bool:
        """Return whether few rows are there or match, so that they are compared one by one."""
        n_rows = self._estimate(rows, revision, NO_FILTER)
        return n_rows < common.ROWS_COMPARED or (
            not item_filter.is_empty and self._estimate(rows, revision, item_filter) < _LEAST_SHARE * n_rows
        )

    def _estimate(self, rows: GalleryRows, revision: int, item_filter: ItemFilter) -> int:
        """Return how many rows match a filter; where they are many, as of some revisions before."""
        condition = condition_of(0, item_filter)
        counted, count = self._counted.get(condition, (revision + 1, 0))
        window = common.REVISIONS_BETWEEN_COUNTS if count >= common.ROWS_COMPARED else 1
        if not 0 <= revision - counted < window:
            count = rows.count(condition_of(revision, item_filter))
            if len(self._counted) >= _MOST_COUNTS:
                self._counted.clear()
            self._counted[condition] = revision, count
        return count

    def search_similar(self, page: PageQuery, left_out: str | None) -> EngineHits:
        def find(rows: GalleryRows) -> EngineHits:
            condition = rows.condition(page.revision, page.item_filter)
            if left_out is not None:
                condition += f" and item != {json.dumps(digest_of(left_out))}"
            length = float(np.linalg.norm(page.query))
            return rows.compare("unit", condition, page._replace(query=page.query / (length or 1.0)))

        return self._ask(page.revision, find)

    def has_label(self, revision: int, label: str) -> bool:
        carrying = ItemFilter.of((label,))
        return self._ask(revision, lambda rows: bool(rows.read(rows.condition(revision, carrying), "row", 1)))

    def count_labels(self, revision: int, item_filter: ItemFilter) -> dict[str, int]:
        return Counter(label for item in self._items(revision, item_filter) for label in item.labels)

    def count_values(self, revision: int, key: str, item_filter: ItemFilter) -> dict[Hashable, int]:
        values = (item.metadata.get(key) for item in self._items(revision, item_filter))
        return Counter(comparable(one) for one in values if isinstance(one, str | int | float | bool))

    def _items(self, revision: int, item_filter: ItemFilter) -> Iterator[IndexedItem]:
        with self._translate_errors():
            rows = self._look()
            for row in rows.scan(rows.condition(revision, item_filter), ITEM_FIELDS):
                yield item_of(row)

    def sample(
        self, revision: int, count: int, item_filter: ItemFilter = NO_FILTER
    ) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield some items that match a filter with their projections: those whose keys, which are digests,
        come first."""
        with self._translate_errors():
            rows = self._look()
            fields = [*ITEM_FIELDS, "row", "raw"]
            for row in islice(rows.scan(rows.condition(revision, item_filter), fields), count):
                yield item_of(row), np.asarray(row["raw"], np.float32)[: rows.rank]

    def item_ids(self, revision: int) -> Iterator[str]:
        with self._translate_errors():
            rows = self._look()
            for row in rows.scan(alive_at(rows.at(revision)), ["item_id"]):
                yield str(row["item_id"])

    def purge(self, before: int) -> int:
        """Remove rows that ended; see `EngineGallery.purge`.
        Those of which an earlier call said so: others may still be looking for them."""
        with self._translate_errors():
            with self._hold_lock(self._name):
                entry, now = get_entry(self._client, self._name), time.monotonic()
                earliest = int(entry["earliest"])
                announced, standing_since = self._announced.get(self._name, (None, now))
                if announced != earliest:
                    self._announced[self._name] = earliest, now
                    return 0
                if now - standing_since < 2 * _LOOK_SECONDS:
                    return 0
                if earliest < before:
                    store_entry(self._client, {**entry, "earliest": before})
                    self._announced[self._name] = before, now
            # Without the lock: no writer touches these rows.
            condition = f"until <= {earliest}"
            n_ended = GalleryRows.of(self._client, entry).count(condition)
            if n_ended:
                call_loaded(self._client, entry["collection"], self._client.delete, filter=condition)
            return n_ended


_OWNER = "owner"  # its entry that holds the identity of the installation whose galleries they are
_NEIGHBOURS, _BUILD_WIDTH = 32, 128
"""Of a node, and nodes that its insertion visits."""
_CHANNEL = {"grpc.keepalive_permit_without_calls": 0}
"""Without pings while no call is under way: a server with gRPC's own rules, like that of Milvus Lite, ends
the connection of a client that pings every 10 s. The next call notices a lost connection."""
_PATIENCE_SECONDS = 5.0  # how long a caller waits for another one to connect


class MilvusEngine:
    """Galleries in a Milvus server, or in a file of Milvus Lite, which one process can open; no token where
    none is needed."""

    def __init__(
        self, uri: str, token: str, hold_lock: common.HoldLock, close_locks: Callable[[], None] = lambda: None
    ) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints what it raises, with the filters
        self._uri = uri
        self._token = token
        self._hold_lock, self._close_locks = hold_lock, close_locks
        self._announced: dict[str, tuple[int, float]] = {}  # as of `MilvusGallery`
        self._connected: MilvusClient | None = None
        self._connecting = threading.Lock()

    @property
    def _client(self) -> MilvusClient:
        """A connection, made when it is first needed, with the list of galleries."""
        if self._connected is None:
            # While the server takes long to answer one caller, the others need not wait as long.
            if not self._connecting.acquire(timeout=_PATIENCE_SECONDS):
                raise VectorEngineUnavailableError(AWAY)
            try:
                if self._connected is None:
                    self._connected = self._connect()
            finally:
                self._connecting.release()
        return self._connected

    def _connect(self) -> MilvusClient:
        client = MilvusClient(self._uri, token=self._token, timeout=SECONDS, grpc_options=_CHANNEL)
        if not client.has_collection(GALLERIES, timeout=SECONDS):
            self._create_list(client)
        return client

    def _create_list(self, client: MilvusClient) -> None:
        """Make the list of galleries, unless another process has."""
        with self._hold_lock(GALLERIES):
            if client.has_collection(GALLERIES, timeout=SECONDS):
                return
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=100)
            add_list(schema, "text", 65_535, MOST_PIECES)
            schema.add_field("nowhere", DataType.FLOAT_VECTOR, dim=2)  # each collection has to have vectors
            indexes = client.prepare_index_params()
            indexes.add_index("nowhere", index_type="FLAT", metric_type="IP")
            client.create_collection(
                GALLERIES, schema=schema, index_params=indexes, consistency_level="Strong", timeout=SECONDS
            )

    def open(self, key: GalleryKey) -> MilvusGallery | None:
        with translate_errors():
            entry = find_entry(self._client, common.name_of(key))
            return None if entry is None else self._gallery(entry["name"])

    def _gallery(self, name: str) -> MilvusGallery:
        return MilvusGallery(self._client, name, self._hold_lock, self._announced)

    def claim(self, key: GalleryKey) -> AbstractContextManager[object]:
        return self._hold_lock(f"making_{common.name_of(key)}")

    def create(self, new: NewGallery) -> MilvusGallery:
        """Make a gallery, which others find once it is complete."""
        name, rank, balance = common.name_of(new.key), new.vectors.shape[1], common.balance_of(new)
        with self._hold_lock(name) as check_lock, translate_errors():
            gallery = self._gallery(name)
            if find_entry(self._client, name) is not None:
                return gallery
            self._remove_unfinished(name)
            collection = f"{name}_{uuid.uuid4().hex[:8]}"
            self._create_collection(collection, rank)
            writing = Writing(self._client, collection, new.revision, check_lock)
            for items, part in new.batches:
                writing.insert(balance, items, part)
            writing.insert_unranked(new.unranked, rank)
            if balance is not None:
                store_text(
                    self._client, MAPS + collection, base64.b64encode(common.pack_balance(balance)).decode()
                )
            check_lock()
            entry = {
                **new.key._asdict(),
                "format": FORMAT,
                "name": name,
                "collection": collection,
                "revision": new.revision,
                "earliest": new.revision,
                "rank": rank,
                "written_at": writing.written_at,
            }
            store_entry(self._client, entry)
        return gallery

    def _create_collection(self, collection: str, rank: int) -> None:
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("item", DataType.VARCHAR, max_length=DIGEST)  # whose characters need no quotes
        schema.add_field("item_id", DataType.VARCHAR, max_length=1024)
        schema.add_field("since", DataType.INT64)
        schema.add_field("until", DataType.INT64)
        schema.add_field("is_ranked", DataType.BOOL)
        add_list(schema, "facets", DIGEST, MOST_FACETS)
        schema.add_field("values", DataType.JSON)
        add_list(schema, "text", 65_535, MOST_PIECES)
        indexes = self._client.prepare_index_params()
        for name in ("raw", "mapped", "unit"):
            schema.add_field(name, DataType.FLOAT_VECTOR, dim=max(rank, 2))
            graph = {"M": _NEIGHBOURS, "efConstruction": _BUILD_WIDTH}
            kind, parameters = ("HNSW", graph) if name == "mapped" else ("FLAT", {})
            indexes.add_index(name, index_type=kind, metric_type="IP", params=parameters)
        self._client.create_collection(
            collection, schema=schema, index_params=indexes, consistency_level="Strong", timeout=SECONDS
        )

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        old, new = common.name_of(key), common.name_of(by)
        with self._hold_lock(old) as check_lock, self._hold_lock(new), translate_errors():
            entry, earlier = get_entry(self._client, new), find_entry(self._client, old)
            if earlier is not None and earlier["revision"] > entry["revision"]:
                return False
            check_lock()
            # At no moment do two entries name the collection: dropping one would drop the other's rows.
            self._client.delete(GALLERIES, ids=[new], timeout=SECONDS)
            store_entry(self._client, {**entry, **key._asdict(), "name": old})
            if earlier is not None:
                self._remove(earlier["collection"])
        return True

    def belongs_to(self, installation: str) -> bool:
        with self._hold_lock(_OWNER), translate_errors():
            owner = find_text(self._client, _OWNER)
            if owner is None:
                store_text(self._client, _OWNER, installation)
            return owner in (None, installation)

    def keys(self) -> list[GalleryKey]:
        with translate_errors():
            entries = sorted(self._entries(), key=lambda entry: str(entry["name"]))
            return [
                GalleryKey(entry["collection_id"], entry["bundle"], entry["modality"]) for entry in entries
            ]

    def _entries(self) -> list[dict[str, Any]]:
        rows = read_rows(self._client, GALLERIES, 'name like "gallery%"', ["text"])
        return [json.loads("".join(row["text"])) for row in rows]

    def drop(self, key: GalleryKey) -> None:
        name = common.name_of(key)
        with self._hold_lock(name), translate_errors():
            if (entry := find_entry(self._client, name)) is not None:
                self._client.delete(GALLERIES, ids=[name], timeout=SECONDS)
                self._remove(entry["collection"])
            self._remove_unfinished(name)

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        self._close_locks()

    def remove_unfinished(self) -> int:
        n_removed = 0
        with translate_errors():
            maps = read_rows(self._client, GALLERIES, f'name like "{MAPS}%"', ["name"])
            collections = set(self._client.list_collections(timeout=SECONDS))
            unfinished = self._find_unfinished("gallery_")
            for name in sorted({collection.rpartition("_")[0] for collection in unfinished}):
                try:
                    with self._hold_lock(name):  # which one that is being made has
                        n_removed += self._remove_unfinished(name)
                except VectorEngineUnavailableError as error:
                    _logger.info("what is unfinished of %s stays: %s", name, error)
            orphans = [row["name"] for row in maps if row["name"].removeprefix(MAPS) not in collections]
            if orphans:
                self._client.delete(GALLERIES, ids=orphans, timeout=SECONDS)
        return n_removed

    def _remove_unfinished(self, name: str) -> int:
        """Remove collections that were made for a gallery, and that no entry names; return how many."""
        collections = self._find_unfinished(f"{name}_")
        for collection in collections:
            self._remove(collection)
        return len(collections)

    def _find_unfinished(self, prefix: str) -> list[str]:
        made = [
            collection
            for collection in self._client.list_collections(timeout=SECONDS)
            if collection.startswith(prefix)
        ]
        # Afterwards, so that what was finished meanwhile is among them.
        in_use = {entry["collection"] for entry in self._entries()}
        return [collection for collection in made if collection not in in_use]

    def _remove(self, collection: str) -> None:
        self._client.drop_collection(collection, timeout=SECONDS)
        self._client.delete(GALLERIES, ids=[MAPS + collection], timeout=SECONDS)
