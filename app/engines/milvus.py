"""Galleries in Milvus.

Each gallery is a collection of its own, named by an entry of a list, so that one can take the place of
another in one step. Rows are found by a graph (HNSW; Malkov and Yashunin, 2018) over vectors that were
centred and balanced (`app.index.balance`), which changes no ranking, and are ranked again by their own
inner products; exact searches compare all rows. Milvus has no transactions: rows carry the revisions from
which to which they are true, are written under keys that a repetition finds again, and what a revision
holds is complete before its number is written.

A read that is to see all writes before it (consistency level "Strong") waits for the server's next tick of
200 ms. The entry of a gallery therefore holds the server's time of its last write; who has read the entry
once sees the rows of its revision by that time, and does not wait.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import grpc
import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException, MilvusUnavailableException

from app.domain.entities import ItemFilter, Matrix, Vector, comparable
from app.domain.errors import GalleriesGoneError, VectorEngineUnavailableError
from app.domain.ports.engine import EngineHit, EngineItem, GalleryKey
from app.engines.packing import (
    BEHIND,
    LARGEST_RANK_OF_A_GRAPH,
    REVISIONS_BETWEEN_COUNTS,
    ROWS_COMPARED,
    balance_of,
    name_of,
    pack_balance,
    unpack_balance,
)
from app.engines.write_locks import WriteLocks
from app.index.balance import Balance

_GALLERIES = "lrbs_galleries"
"""The collection that lists the others."""
_OWNER = "owner"
"""Its entry that holds the identity of the installation whose galleries they are."""
_MAPS = "maps_"
"""Begins the names of its entries that hold the maps of a collection."""
_Sliced = TypeVar("_Sliced", str, list[Any])
_Answer = TypeVar("_Answer")
_FOREVER = 2**62
"""The end of a row that is alive."""
_MOST_HITS = 16_384
"""The longest answer to one search."""
_ROWS_AT_ONCE = 500
"""Rows of a request, whose size is bounded by 64 MB."""
_CANDIDATES, _TIED = 4, 32
"""Candidates of the graph for each result, and results beyond a page, to put equal scores in order."""
_NEIGHBOURS, _BUILD_WIDTH, _LEAST_WIDTH = 32, 128, 200
"""Of a node, and nodes that its insertion and a search visit at least."""
_LEAST_SHARE = 0.15
"""Of the rows that have to match a filter, so that the graph is asked: of a tenth it found .91."""
_MOST_COUNTS = 1000
"""Filters of whose rows the number is known."""
_MOST_FACETS, _DIGEST = 4096, 24
"""Of a row, and characters of each: labels, keys and values that can be filtered by."""
_PIECE, _MOST_PIECES = 16_000, 4096
"""Characters of a part of a text, which takes 65,535 bytes at most, and parts: as many as Milvus allows, of
which the largest maps take two thirds."""
_SECONDS = 30.0
"""An answer that takes longer is a failure."""
_LOOK_SECONDS = 10.0
"""How long an entry that was read is good enough. Rows of earlier revisions are removed only once everybody
has looked again since the entry said so."""
_PATIENCE_SECONDS = 5.0
"""How long a caller waits for another one to connect."""
_AWAY = "the Milvus server does not answer"
_UNREACHABLE, _MISSING, _RELEASED = 2, 100, 101
"""Codes for a server that is away, for a collection that is not there, and for one that is not in the
server's memory, as after its restart."""
_STRONG = {"consistency_level": "Strong"}
_logger = logging.getLogger(__name__)
_ITEM_FIELDS = ["item_id", "text"]


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the service's error in place of the client's."""
    try:
        yield
    except MilvusException as error:
        if error.code == _UNREACHABLE or isinstance(error, MilvusUnavailableException):
            raise VectorEngineUnavailableError(_AWAY) from error
        if _is_missing(error):
            raise GalleriesGoneError from error
        _logger.error("Milvus refuses what it is asked: %s", error)
        raise VectorEngineUnavailableError("Milvus refuses what it is asked; its log says why") from error
    except grpc.RpcError as error:
        raise VectorEngineUnavailableError(_AWAY) from error


def _is_missing(error: MilvusException) -> bool:
    return error.code == _MISSING or "not found" in error.message


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST]


def _value_digest(key: str, value: Hashable) -> str:
    """Return the same for values that are equal in JSON, such as 3 and 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _digest("value", key, json.dumps(value))


def _facets_of(item: EngineItem) -> list[str]:
    """Return what filters ask for: the labels, the keys that have a value, and the values."""
    facets = [_digest("label", label) for label in item.labels]
    for key, value in item.metadata.items():
        if value is not None:
            facets.append(_digest("key", key))
        if isinstance(value, str | int | float | bool):
            facets.append(_value_digest(key, value))
    return facets[:_MOST_FACETS]


def _condition(revision: int, item_filter: ItemFilter) -> str:
    """Return the rows of a revision that match a filter, in Milvus's language."""
    parts = [_alive_at(revision), "is_ranked == true"]
    if item_filter.labels is not None:
        parts.append(_any_of([_digest("label", label) for label in item_filter.labels]))
    for key, values in item_filter.metadata.items():
        accepted = [_any_of([_value_digest(key, value) for value in values if value is not None])]
        if None in values:
            accepted.append(f"not {_any_of([_digest('key', key)])}")
        parts.append(f"({' or '.join(accepted)})")
    return " and ".join(parts)


def _any_of(facets: Sequence[str]) -> str:
    """Return the rows that have one of some facets; none of none."""
    return f"array_contains_any(facets, {json.dumps(list(facets) or ['none'])})"


def _alive_at(revision: int) -> str:
    return f"since <= {revision} and until > {revision}"


class _Rows(NamedTuple):
    """The rows that stand under the name of a gallery at a moment."""

    collection: str
    earliest: int
    rank: int
    revision: int
    written_at: int

    @classmethod
    def of(cls, entry: dict[str, Any]) -> _Rows:
        """Return the rows of an entry."""
        return cls(*(entry[name] for name in cls._fields))

    def at(self, revision: int) -> int:
        """Return a revision, or the earliest that was not purged."""
        return max(revision, self.earliest)

    @property
    def visibility(self) -> dict[str, Any]:
        """Arguments of a read that sees them."""
        # Milvus Lite returns no times and shows every write at once; zero would ask for all writes up to now.
        return {"consistency_level": "Customized", "guarantee_timestamp": max(self.written_at, 1)}


class _Writing:
    """The rows of one revision, on their way into a collection.

    Parameters
    ----------
    client : MilvusClient
        Of the server.
    collection : str
        Which one.
    revision : int
        From which on they are true.
    check_lock : callable
        Called before each part: raises if another writer may be at work, who must not be overwritten.
    """

    def __init__(
        self, client: MilvusClient, collection: str, revision: int, check_lock: Callable[[], None]
    ) -> None:
        self._client = client
        self._collection = collection
        self._revision = revision
        self._check_lock = check_lock
        self.written_at = 0
        """When the last part was written, by the server's time."""

    def end(self, item_ids: Collection[str]) -> None:
        """End the rows of some items."""
        revision = self._revision
        for ids in _parts(sorted(item_ids), _ROWS_AT_ONCE):
            items = json.dumps([_digest(item_id) for item_id in ids])
            condition = f"item in {items} and since < {revision} and until > {revision}"
            # Also what a writer wrote that was killed before it named the revision: an end of the same rows.
            ending = _query(self._client, self._collection, condition, ["*"])
            if ending:
                self._upsert([{**row, "until": revision} for row in ending])

    def insert(self, balance: Balance | None, items: Sequence[EngineItem], vectors: Matrix) -> None:
        """Add rows, in the place of those of the same revision."""
        for start in range(0, len(items), _ROWS_AT_ONCE):
            step = slice(start, start + _ROWS_AT_ONCE)
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
            self._row(EngineItem(item_id, (), {}), False, nowhere, nowhere, nowhere)
            for item_id in sorted(unranked)
        ]
        for part in _parts(rows, _ROWS_AT_ONCE):
            self._upsert(part)

    def _row(
        self, item: EngineItem, is_ranked: bool, raw: Vector, mapped: Vector, unit: Vector
    ) -> dict[str, Any]:
        text = json.dumps([item.labels, item.metadata], ensure_ascii=False)
        return {
            "row": f"{_digest(item.id)}/{self._revision}",
            "item": _digest(item.id),
            "item_id": item.id,
            "since": self._revision,
            "until": _FOREVER,
            "is_ranked": is_ranked,
            "facets": _facets_of(item),
            "text": list(_parts(text, _PIECE)),
            "raw": _numbers(raw),
            "mapped": _numbers(mapped),
            "unit": _numbers(unit),
        }

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._check_lock()
        # The client's own `upsert` does the same, and keeps the time to itself.
        connection = self._client._get_connection()
        context = self._client._generate_call_context()
        answer = connection.upsert_rows(self._collection, rows, timeout=_SECONDS, context=context)
        self.written_at = max(self.written_at, int(answer.timestamp))


class MilvusGallery:
    """A gallery in a collection.

    Parameters
    ----------
    client : MilvusClient
        Of the server.
    name : str
        Of the entry that names the collection.
    locks : WriteLocks
        Of which a writer holds that of a gallery.
    announced : dict of str to tuple
        By gallery, the earliest revision that its entry has, and since when at least, for `purge`.
    """

    def __init__(
        self, client: MilvusClient, name: str, locks: WriteLocks, announced: dict[str, tuple[int, float]]
    ) -> None:
        self._client = client
        self._name = name
        self._locks = locks
        self._announced = announced
        self._seen: _Rows | None = None
        """As of the last look at the entry."""
        self._seen_at = 0.0
        """When that was, on the monotonic clock."""
        self._maps: tuple[str, Balance] | None = None
        """Into the space of the graph, with the collection that they are for."""
        self.is_gone = False
        self._counted: dict[str, tuple[int, int]] = {}
        """Number of rows that match a condition, and of which revision."""

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the service's errors, and remember that there is nothing to ask any more."""
        try:
            with _translate_errors():
                yield
        except GalleriesGoneError:
            self.is_gone = True
            raise

    def write(
        self,
        revision: int,
        since: int,
        item_ids: Collection[str],
        items: Sequence[EngineItem],
        vectors: Matrix,
        unranked: Collection[str],
    ) -> int:
        """Write the changes of a revision; see `EngineGallery.write`."""
        with self._locks.hold(self._name) as check_lock, self._translate_errors():
            entry = _get_entry(self._client, self._name)
            if entry["revision"] >= revision:
                return int(entry["revision"])
            if entry["revision"] < since:
                raise VectorEngineUnavailableError(BEHIND)
            rows, rank = _Rows.of(entry), vectors.shape[1]
            writing = _Writing(self._client, rows.collection, revision, check_lock)
            writing.end(item_ids)
            if items:
                writing.insert(self._read_maps(rows.collection), items, vectors)
            writing.insert_unranked(unranked, rank)
            check_lock()
            written_at = max(int(entry["written_at"]), writing.written_at)
            entry = {**entry, "revision": revision, "written_at": written_at}
            _store_entry(self._client, entry)
            self._see(entry)
        return revision

    def _read_maps(self, collection: str) -> Balance | None:
        """Return the maps of a collection; None where its rows are too long for a graph."""
        maps = self._maps
        if maps is None or maps[0] != collection:
            packed = _find_text(self._client, _MAPS + collection)
            if packed is None:
                return None
            maps = self._maps = collection, unpack_balance(base64.b64decode(packed))
        return maps[1]

    def _look(self) -> _Rows:
        """Return the rows that stand there now."""
        return self._see(_get_entry(self._client, self._name))

    def _see(self, entry: dict[str, Any]) -> _Rows:
        self._seen, self._seen_at = _Rows.of(entry), time.monotonic()
        return self._seen

    def _rows_at(self, revision: int) -> _Rows:
        """Return rows among which those of a revision are."""
        seen = self._seen
        is_old = time.monotonic() - self._seen_at > _LOOK_SECONDS
        return self._look() if seen is None or is_old or seen.revision < revision else seen

    def _ask(self, revision: int, ask: Callable[[_Rows], _Answer]) -> _Answer:
        """Return what is answered of the rows, or of those that take their place meanwhile."""
        with self._translate_errors():
            rows = self._rows_at(revision)
            try:
                return ask(rows)
            except MilvusException as error:
                if not _is_missing(error) or (now := self._look()).collection == rows.collection:
                    raise
                return ask(now)

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""
        with self._translate_errors():
            return self._look().revision

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""
        return self._ask(revision, lambda rows: self._count(rows, _condition(rows.at(revision), item_filter)))

    def _count(self, rows: _Rows, condition: str) -> int:
        (row,) = _query(self._client, rows.collection, condition, ["count(*)"], visibility=rows.visibility)
        return int(row["count(*)"])

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""

        def find(rows: _Rows) -> frozenset[str]:
            condition = f"{_alive_at(rows.at(revision))} and is_ranked == false"
            return frozenset(
                str(row["item_id"]) for row in self._scan(rows.collection, condition, ["item_id"])
            )

        return self._ask(revision, find)

    def search(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> tuple[list[EngineHit], bool]:
        """Return a page of results; see `EngineGallery.search`."""

        def find(rows: _Rows) -> tuple[list[EngineHit], bool]:
            seen = rows.at(revision)
            condition, n_candidates = _condition(seen, item_filter), (offset + k) * _CANDIDATES
            if n_candidates <= _MOST_HITS and not self._has_few(rows, seen, item_filter):
                maps = self._read_maps(rows.collection)
                if maps is not None:
                    hits = self._search_graph(rows, maps, condition, query, n_candidates)
                    if len(hits) >= offset + k:
                        return hits[offset : offset + k], False
            return self._compare(rows, "raw", condition, query, k, offset), True

        return self._ask(revision, find)

    def _has_few(self, rows: _Rows, revision: int, item_filter: ItemFilter) -> bool:
        """Return whether few rows are there or match, so that they are compared one by one."""
        n_rows = self._estimate(rows, revision, ItemFilter())
        return n_rows < ROWS_COMPARED or (
            item_filter != ItemFilter()
            and self._estimate(rows, revision, item_filter) < _LEAST_SHARE * n_rows
        )

    def _estimate(self, rows: _Rows, revision: int, item_filter: ItemFilter) -> int:
        """Return how many rows match a filter; where they are many, as of some revisions before."""
        condition = _condition(0, item_filter)
        counted, count = self._counted.get(condition, (revision + 1, 0))
        window = REVISIONS_BETWEEN_COUNTS if count >= ROWS_COMPARED else 1
        if not 0 <= revision - counted < window:
            count = self._count(rows, _condition(revision, item_filter))
            if len(self._counted) >= _MOST_COUNTS:
                self._counted.clear()
            self._counted[condition] = revision, count
        return count

    def search_exactly(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> list[EngineHit]:
        """Return the same page of results by comparing every row."""

        def find(rows: _Rows) -> list[EngineHit]:
            condition = _condition(rows.at(revision), item_filter)
            return self._compare(rows, "raw", condition, query, k, offset)

        return self._ask(revision, find)

    def search_similar(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None
    ) -> list[EngineHit]:
        """Return a page of results by cosine; see `EngineGallery.search_similar`."""

        def find(rows: _Rows) -> list[EngineHit]:
            condition = _condition(rows.at(revision), item_filter)
            if left_out is not None:
                condition += f" and item != {json.dumps(_digest(left_out))}"
            length = float(np.linalg.norm(query))
            unit = query / length if length else query
            return self._compare(rows, "unit", condition, unit, k, offset)

        return self._ask(revision, find)

    def _search_graph(
        self, rows: _Rows, maps: Balance, condition: str, query: Vector, n_candidates: int
    ) -> list[EngineHit]:
        """Return what the graph finds, ranked by inner products."""
        width = max(n_candidates, _LEAST_WIDTH)
        answer = self._find(
            rows,
            "mapped",
            condition,
            maps.map_query(query)[0],
            n_candidates,
            [*_ITEM_FIELDS, "raw"],
            {"ef": width},
        )
        if not answer:
            return []
        vectors = np.array([row["entity"]["raw"] for row in answer], np.float32)[:, : len(query)]
        return _rank(answer, (vectors * query).sum(axis=1))  # equal rows score alike wherever they are

    def _compare(
        self, rows: _Rows, field: str, condition: str, query: Vector, k: int, offset: int
    ) -> list[EngineHit]:
        """Return a page of the exact ranking by the inner products with a field."""
        depth = offset + k
        limit = depth + _TIED
        while limit <= _MOST_HITS:
            answer = self._find(rows, field, condition, query, limit, _ITEM_FIELDS, {})
            scores = np.array([row["distance"] for row in answer], np.float32)
            is_cut = len(answer) == limit and scores[-1] == scores[depth - 1]
            if not is_cut:
                return _rank(answer, scores)[offset:depth]
            limit *= 2  # more equal scores than were asked for
        return self._compare_here(rows.collection, field, condition, query, depth)[offset:]

    def _compare_here(
        self, collection: str, field: str, condition: str, query: Vector, depth: int
    ) -> list[EngineHit]:
        """Return the start of the exact ranking where it is longer than an answer of Milvus may be."""
        rows = self._scan(collection, condition, [*_ITEM_FIELDS, field])
        best: list[EngineHit] = []
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            vectors = np.array([row[field] for row in batch], np.float64)[:, : len(query)]
            # A sum of each row for itself: equal rows score alike wherever they are.
            scores = (vectors * query).sum(axis=1).astype(np.float32)
            best += _hits(batch, scores)
            if len(best) > 2 * depth + _ROWS_AT_ONCE:  # seldom: sorting every batch would take far longer
                best = sorted(best, key=_order)[:depth]
        return sorted(best, key=_order)[:depth]

    def _find(
        self,
        rows: _Rows,
        field: str,
        condition: str,
        query: Vector,
        limit: int,
        fields: list[str],
        parameters: dict[str, Any],
    ) -> list[Any]:
        search = partial(
            self._client.search,
            rows.collection,
            data=[_numbers(np.asarray(query, np.float32))],
            anns_field=field,
            filter=condition,
            limit=limit,
            output_fields=fields,
            search_params={"metric_type": "IP", "params": parameters},
            timeout=_SECONDS,
            **rows.visibility,
        )
        (answer,) = _read(self._client, rows.collection, search)
        return list(answer)

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""

        def find(rows: _Rows) -> bool:
            condition = _condition(rows.at(revision), ItemFilter(labels=(label,)))
            visibility = rows.visibility
            return bool(_query(self._client, rows.collection, condition, ["row"], 1, visibility))

        return self._ask(revision, find)

    def count_labels(self, revision: int) -> dict[str, int]:
        """Return how many items carry each label."""
        return Counter(label for item in self._items(revision) for label in item.labels)

    def count_values(self, revision: int, key: str) -> dict[Hashable, int]:
        """Return how many items have each value under a metadata key."""
        values = (item.metadata.get(key) for item in self._items(revision))
        return Counter(comparable(one) for one in values if isinstance(one, str | int | float | bool))

    def _items(self, revision: int) -> Iterator[EngineItem]:
        with self._translate_errors():
            rows = self._look()
            condition = _condition(rows.at(revision), ItemFilter())
            for row in self._scan(rows.collection, condition, _ITEM_FIELDS):
                yield _item(row)

    def sample(self, revision: int, count: int) -> Iterator[tuple[EngineItem, Vector]]:
        """Yield some items with their projections: those whose keys, which are digests, come first."""
        with self._translate_errors():
            rows = self._look()
            condition = _condition(rows.at(revision), ItemFilter())
            fields = [*_ITEM_FIELDS, "row", "raw"]
            for row in islice(self._scan(rows.collection, condition, fields), count):
                yield _item(row), np.asarray(row["raw"], np.float32)[: rows.rank]

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        with self._translate_errors():
            rows = self._look()
            for row in self._scan(rows.collection, _alive_at(rows.at(revision)), ["item_id"]):
                yield str(row["item_id"])

    def _scan(self, collection: str, condition: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Yield all rows that match, in the order of their keys."""
        begin = partial(
            self._client.query_iterator,
            collection,
            batch_size=_ROWS_AT_ONCE,
            timeout=_SECONDS,
            filter=condition,
            output_fields=fields,
            consistency_level="Strong",
        )
        rows = _read(self._client, collection, begin)
        try:
            while batch := rows.next():
                yield from map(dict, batch)
        finally:
            rows.close()

    def purge(self, before: int) -> int:
        """Remove rows that ended; see `EngineGallery.purge`.

        Those of which an earlier call said so: others may still be looking for them.
        """
        with self._translate_errors():
            with self._locks.hold(self._name):
                entry, now = _get_entry(self._client, self._name), time.monotonic()
                earliest = int(entry["earliest"])
                announced, standing_since = self._announced.get(self._name, (None, now))
                if announced != earliest:
                    self._announced[self._name] = earliest, now
                    return 0
                if now - standing_since < 2 * _LOOK_SECONDS:
                    return 0
                if earliest < before:
                    _store_entry(self._client, {**entry, "earliest": before})
                    self._announced[self._name] = before, now
            # Without the lock: no writer touches these rows.
            condition = f"until <= {earliest}"
            n_ended = self._count(_Rows.of(entry), condition)
            if n_ended:
                delete = partial(self._client.delete, entry["collection"], filter=condition, timeout=_SECONDS)
                _read(self._client, entry["collection"], delete)
            return n_ended


class MilvusEngine:
    """Galleries in a Milvus server, or in a file of Milvus Lite, which one process can open.

    Parameters
    ----------
    uri : str
        Address of the server, or path of the file.
    token : str
        Of the server; empty where it asks for none.
    locks : WriteLocks
        Of which a writer holds that of a gallery.
    """

    def __init__(self, uri: str, token: str, locks: WriteLocks) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints what it raises, with the filters
        self._uri = uri
        self._token = token
        self._locks = locks
        self._announced: dict[str, tuple[int, float]] = {}
        self._connected: MilvusClient | None = None
        self._connecting = threading.Lock()

    @property
    def _client(self) -> MilvusClient:
        """A connection, made when it is first needed, with the list of galleries."""
        if self._connected is None:
            # While the server takes long to answer one caller, the others need not wait as long.
            if not self._connecting.acquire(timeout=_PATIENCE_SECONDS):
                raise VectorEngineUnavailableError(_AWAY)
            try:
                if self._connected is None:
                    self._connected = self._connect()
            finally:
                self._connecting.release()
        return self._connected

    def _connect(self) -> MilvusClient:
        client = MilvusClient(self._uri, token=self._token, timeout=_SECONDS)
        if not client.has_collection(_GALLERIES, timeout=_SECONDS):
            self._create_list(client)
        return client

    def _create_list(self, client: MilvusClient) -> None:
        """Make the list of galleries, unless another process has."""
        with self._locks.hold(_GALLERIES):
            if client.has_collection(_GALLERIES, timeout=_SECONDS):
                return
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=100)
            _add_list(schema, "text", 65_535, _MOST_PIECES)
            schema.add_field("nowhere", DataType.FLOAT_VECTOR, dim=2)  # each collection has to have vectors
            indexes = client.prepare_index_params()
            indexes.add_index("nowhere", index_type="FLAT", metric_type="IP")
            client.create_collection(
                _GALLERIES,
                schema=schema,
                index_params=indexes,
                consistency_level="Strong",
                timeout=_SECONDS,
            )

    def open(self, key: GalleryKey) -> MilvusGallery | None:
        """Return a gallery that is complete; None where there is none."""
        with _translate_errors():
            entry = _find_entry(self._client, name_of(key))
            return None if entry is None else self._gallery(entry["name"])

    def _gallery(self, name: str) -> MilvusGallery:
        return MilvusGallery(self._client, name, self._locks, self._announced)

    @contextmanager
    def claim(self, key: GalleryKey) -> Iterator[None]:
        """Be the only one who makes a gallery; see `VectorEngine.claim`."""
        with self._locks.hold(f"making_{name_of(key)}"):
            yield

    def create(
        self,
        key: GalleryKey,
        revision: int,
        batches: Iterator[tuple[Sequence[EngineItem], Matrix]],
        vectors: Matrix,
        queries: Matrix,
        unranked: Collection[str],
    ) -> MilvusGallery:
        """Make a gallery, which others find once it is complete; see `VectorEngine.create`."""
        name, rank = name_of(key), vectors.shape[1]
        balance = balance_of(vectors, queries) if rank <= LARGEST_RANK_OF_A_GRAPH else None
        with self._locks.hold(name) as check_lock, _translate_errors():
            gallery = self._gallery(name)
            if _find_entry(self._client, name) is not None:
                return gallery
            self._remove_unfinished(name)
            collection = f"{name}_{uuid.uuid4().hex[:8]}"
            self._create_collection(collection, rank)
            writing = _Writing(self._client, collection, revision, check_lock)
            for items, part in batches:
                writing.insert(balance, items, part)
            writing.insert_unranked(unranked, rank)
            if balance is not None:
                _store_text(
                    self._client, _MAPS + collection, base64.b64encode(pack_balance(balance)).decode()
                )
            check_lock()
            entry = {
                **key._asdict(),
                "name": name,
                "collection": collection,
                "revision": revision,
                "earliest": revision,
                "rank": rank,
                "written_at": writing.written_at,
            }
            _store_entry(self._client, entry)
        return gallery

    def _create_collection(self, collection: str, rank: int) -> None:
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("item", DataType.VARCHAR, max_length=_DIGEST)  # whose characters need no quotes
        schema.add_field("item_id", DataType.VARCHAR, max_length=1024)
        schema.add_field("since", DataType.INT64)
        schema.add_field("until", DataType.INT64)
        schema.add_field("is_ranked", DataType.BOOL)
        _add_list(schema, "facets", _DIGEST, _MOST_FACETS)
        _add_list(schema, "text", 65_535, _MOST_PIECES)
        indexes = self._client.prepare_index_params()
        for name in ("raw", "mapped", "unit"):
            schema.add_field(name, DataType.FLOAT_VECTOR, dim=max(rank, 2))
            graph = {"M": _NEIGHBOURS, "efConstruction": _BUILD_WIDTH}
            kind, parameters = ("HNSW", graph) if name == "mapped" else ("FLAT", {})
            indexes.add_index(name, index_type=kind, metric_type="IP", params=parameters)
        self._client.create_collection(
            collection, schema=schema, index_params=indexes, consistency_level="Strong", timeout=_SECONDS
        )

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another; see `VectorEngine.replace`."""
        old, new = name_of(key), name_of(by)
        with self._locks.hold(old) as check_lock, self._locks.hold(new), _translate_errors():
            entry, earlier = _get_entry(self._client, new), _find_entry(self._client, old)
            if earlier is not None and earlier["revision"] > entry["revision"]:
                return False
            check_lock()
            # At no moment do two entries name the collection: dropping one would drop the other's rows.
            self._client.delete(_GALLERIES, ids=[new], timeout=_SECONDS)
            _store_entry(self._client, {**entry, **key._asdict(), "name": old})
            if earlier is not None:
                self._remove(earlier["collection"])
        return True

    def belongs_to(self, installation: str) -> bool:
        """Return whether an installation came first; see `VectorEngine.belongs_to`."""
        with self._locks.hold(_OWNER), _translate_errors():
            owner = _find_text(self._client, _OWNER)
            if owner is None:
                _store_text(self._client, _OWNER, installation)
            return owner in (None, installation)

    def keys(self) -> list[GalleryKey]:
        """Return the galleries there are."""
        with _translate_errors():
            entries = sorted(self._entries(), key=lambda entry: str(entry["name"]))
            return [
                GalleryKey(entry["collection_id"], entry["bundle"], entry["modality"]) for entry in entries
            ]

    def _entries(self) -> list[dict[str, Any]]:
        rows = _query(self._client, _GALLERIES, 'name like "gallery%"', ["text"])
        return [json.loads("".join(row["text"])) for row in rows]

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""
        name = name_of(key)
        with self._locks.hold(name), _translate_errors():
            if (entry := _find_entry(self._client, name)) is not None:
                self._client.delete(_GALLERIES, ids=[name], timeout=_SECONDS)
                self._remove(entry["collection"])
            self._remove_unfinished(name)

    def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        self._locks.close()

    def remove_unfinished(self) -> int:
        """Remove collections and maps that no entry names; see `VectorEngine.remove_unfinished`."""
        n_removed = 0
        with _translate_errors():
            maps = _query(self._client, _GALLERIES, f'name like "{_MAPS}%"', ["name"])
            collections = set(self._client.list_collections(timeout=_SECONDS))
            unfinished = self._find_unfinished("gallery_")
            for name in sorted({collection.rpartition("_")[0] for collection in unfinished}):
                try:
                    with self._locks.hold(name):  # which one that is being made has
                        n_removed += self._remove_unfinished(name)
                except VectorEngineUnavailableError as error:
                    _logger.info("what is unfinished of %s stays: %s", name, error)
            orphans = [row["name"] for row in maps if row["name"].removeprefix(_MAPS) not in collections]
            if orphans:
                self._client.delete(_GALLERIES, ids=orphans, timeout=_SECONDS)
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
            for collection in self._client.list_collections(timeout=_SECONDS)
            if collection.startswith(prefix)
        ]
        # Afterwards, so that what was finished meanwhile is among them.
        in_use = {entry["collection"] for entry in self._entries()}
        return [collection for collection in made if collection not in in_use]

    def _remove(self, collection: str) -> None:
        self._client.drop_collection(collection, timeout=_SECONDS)
        self._client.delete(_GALLERIES, ids=[_MAPS + collection], timeout=_SECONDS)


def _read(client: MilvusClient, collection: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns, after a collection was loaded if the server has released it."""
    try:
        return call()
    except MilvusException as error:
        if error.code != _RELEASED:
            raise
        client.load_collection(collection, timeout=_SECONDS)
        return call()


def _query(
    client: MilvusClient,
    collection: str,
    condition: str,
    fields: list[str],
    limit: int | None = None,
    visibility: Mapping[str, Any] = _STRONG,
) -> list[dict[str, Any]]:
    query = partial(
        client.query,
        collection,
        filter=condition,
        output_fields=fields,
        limit=limit,
        timeout=_SECONDS,
        **visibility,
    )
    return [dict(row) for row in _read(client, collection, query)]


def _find_text(client: MilvusClient, name: str) -> str | None:
    rows = _query(client, _GALLERIES, f"name == {json.dumps(name)}", ["text"])
    return "".join(rows[0]["text"]) if rows else None


def _find_entry(client: MilvusClient, name: str) -> dict[str, Any] | None:
    text = _find_text(client, name)
    return None if text is None else json.loads(text)


def _get_entry(client: MilvusClient, name: str) -> dict[str, Any]:
    entry = _find_entry(client, name)
    if entry is None:
        raise GalleriesGoneError
    return entry


def _store_entry(client: MilvusClient, entry: dict[str, Any]) -> None:
    _store_text(client, entry["name"], json.dumps(entry))


def _store_text(client: MilvusClient, name: str, text: str) -> None:
    row = {"name": name, "text": list(_parts(text, _PIECE)), "nowhere": [0.0, 0.0]}
    client.upsert(_GALLERIES, [row], timeout=_SECONDS)


def _numbers(vector: Vector) -> list[float]:
    """Return a vector as Milvus takes it, which has two numbers at least."""
    numbers: list[float] = vector.tolist()
    return numbers if len(numbers) > 1 else [*numbers, 0.0]


def _item(row: dict[str, Any]) -> EngineItem:
    labels, metadata = json.loads("".join(row["text"]))
    return EngineItem(row["item_id"], tuple(labels), metadata)


def _rank(answer: Sequence[Any], scores: Iterable[float]) -> list[EngineHit]:
    """Return hits by falling scores, equal ones by id."""
    return sorted(_hits([row["entity"] for row in answer], scores), key=_order)


def _hits(rows: Iterable[Any], scores: Iterable[float]) -> list[EngineHit]:
    return [EngineHit(_item(row), float(score)) for row, score in zip(rows, scores, strict=True)]


def _order(hit: EngineHit) -> tuple[float, str]:
    return -hit.score, hit.item.id


def _add_list(schema: Any, name: str, length: int, capacity: int) -> None:
    """Add a field for a list of texts."""
    kind, of = DataType.ARRAY, DataType.VARCHAR
    schema.add_field(name, kind, element_type=of, max_length=length, max_capacity=capacity)


def _parts(values: _Sliced, size: int) -> Iterator[_Sliced]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
