"""Rows of a gallery, ranked by the graph or one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from pymilvus import MilvusClient

from app.domain.entities import Vector
from app.domain.ports import EngineHit
from app.engines.milvus.rows import ITEM_FIELDS, ROWS_AT_ONCE, GalleryRows, item_of, numbers
from app.engines.milvus.server import SECONDS, call_loaded
from app.index.balance import Balance

_MOST_HITS = 16_384  # the longest answer to one search
_CANDIDATES, _TIED = 4, 32
"""Candidates of the graph for each result, and results beyond a page, to put equal scores in order."""
_LEAST_WIDTH = 200  # nodes that a search visits at least


def can_search_graph(depth: int) -> bool:
    """Return whether the graph can be asked for `depth` results."""
    return depth * _CANDIDATES <= _MOST_HITS


def search_graph(
    client: MilvusClient, rows: GalleryRows, maps: Balance, condition: str, query: Vector, depth: int
) -> list[EngineHit]:
    """Return all that the graph finds, some candidates for each of `depth` results, by inner products."""
    n_candidates = depth * _CANDIDATES
    answer = _find(
        client,
        rows,
        "mapped",
        condition,
        maps.map_query(query)[0],
        n_candidates,
        [*ITEM_FIELDS, "raw"],
        {"ef": max(n_candidates, _LEAST_WIDTH)},
    )
    if not answer:
        return []
    vectors = np.array([row["entity"]["raw"] for row in answer], np.float32)[:, : len(query)]
    return _rank(answer, (vectors * query).sum(axis=1))  # equal rows score alike wherever they are


def compare_rows(
    client: MilvusClient, rows: GalleryRows, field: str, condition: str, query: Vector, k: int, offset: int
) -> list[EngineHit]:
    """Return a page of the exact ranking by the inner products with a field."""
    depth = offset + k
    limit = depth + _TIED
    while limit <= _MOST_HITS:
        answer = _find(client, rows, field, condition, query, limit, ITEM_FIELDS, {})
        scores = np.array([row["distance"] for row in answer], np.float32)
        is_cut = len(answer) == limit and scores[-1] == scores[depth - 1]
        if not is_cut:
            return _rank(answer, scores)[offset:depth]
        limit *= 2  # more equal scores than were asked for
    return _compare_here(client, rows, field, condition, query, depth)[offset:]


def _compare_here(
    client: MilvusClient, rows: GalleryRows, field: str, condition: str, query: Vector, depth: int
) -> list[EngineHit]:
    """Return the start of the exact ranking where it is longer than an answer of Milvus may be."""
    matching = rows.scan_matching(client, condition, [*ITEM_FIELDS, field])
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
    client: MilvusClient,
    rows: GalleryRows,
    field: str,
    condition: str,
    query: Vector,
    limit: int,
    fields: list[str],
    parameters: dict[str, Any],
) -> list[Any]:
    search = partial(
        client.search,
        rows.collection,
        data=[numbers(np.asarray(query, np.float32))],
        anns_field=field,
        filter=condition,
        limit=limit,
        output_fields=fields,
        search_params={"metric_type": "IP", "params": parameters},
        timeout=SECONDS,
        **rows.visibility,
    )
    (answer,) = call_loaded(client, rows.collection, search)
    return list(answer)


def _rank(answer: Sequence[Any], scores: Iterable[float]) -> list[EngineHit]:
    """Return hits by falling scores, equal ones by id."""
    return sorted(_hits([row["entity"] for row in answer], scores), key=_order)


def _hits(rows: Iterable[Any], scores: Iterable[float]) -> list[EngineHit]:
    return [EngineHit(item_of(row), float(score)) for row, score in zip(rows, scores, strict=True)]


def _order(hit: EngineHit) -> tuple[float, str]:
    return -hit.score, hit.item.id
