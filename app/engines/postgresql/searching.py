"""Rows of a gallery's table: counted and ranked, in the caller's transaction."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.domain.entities import Vector
from app.domain.ports import EngineHit, EngineItem
from app.engines.postgresql.conditions import Conditions
from app.engines.postgresql.server import text_of
from app.index.balance import Balance

_CANDIDATES = 4  # candidates of the index for each result, which are ranked again
_WIDEST_SEARCH = 1000  # the largest ``hnsw.ef_search`` that pgvector takes
DEEPEST_SEARCH = _WIDEST_SEARCH // _CANDIDATES
"""The last place that the index is asked for."""
_LEAST_WIDTH = 200
"""Nodes that a search visits at least: of 1,000,000 clustered rows of 32 numbers it missed none of the ten
best of 100 queries."""
_ROWS_SAMPLED = 1000  # of which the share that matches a filter is estimated


def count_rows(connection: Connection, table: str, conditions: Conditions, at_most: int | None) -> int:
    """Return how many rows match and can be ranked, counted up to a bound if there is one."""
    limit = "" if at_most is None else f"LIMIT {at_most}"
    rows = connection.execute(
        sa.text(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} "
            f"WHERE raw IS NOT NULL AND {conditions.sql} {limit}) AS matching"
        ),
        conditions.parameters,
    )
    return int(rows.scalar_one())


def estimate_share(connection: Connection, table: str, conditions: Conditions) -> float:
    """Return about which share of the rows matches, of those in some random pages."""
    n_rows = connection.execute(
        sa.text("SELECT reltuples FROM pg_class WHERE oid = CAST(:table AS regclass)"), {"table": table}
    ).scalar_one()
    percentage = 100.0 * min(_ROWS_SAMPLED / max(n_rows, 1.0), 1.0)
    n_matching, n_sampled = connection.execute(
        sa.text(
            f"SELECT count(*) FILTER (WHERE raw IS NOT NULL AND {conditions.sql}), count(*) "
            f"FROM {table} TABLESAMPLE SYSTEM (:percentage)"
        ),
        {**conditions.parameters, "percentage": percentage},
    ).one()
    return float(n_matching / max(n_sampled, 1))


def rank_all(
    connection: Connection, table: str, conditions: Conditions, query: Vector, k: int, offset: int
) -> list[EngineHit]:
    """Return a page of the rows that match, all of which are compared."""
    rows = connection.execute(
        sa.text(
            "SELECT item_id, labels, metadata, -(raw <#> CAST(:query AS public.vector)) AS score "
            f"FROM {table} WHERE raw IS NOT NULL AND {conditions.sql} "
            "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
        ),
        {**conditions.parameters, "query": text_of(query), "k": k, "offset": offset},
    )
    return [_hit(row) for row in rows]


def rank_similar(
    connection: Connection,
    table: str,
    conditions: Conditions,
    query: Vector,
    k: int,
    offset: int,
    left_out: str | None,
) -> list[EngineHit]:
    """Return the same page by cosine, without the item that is left out."""
    rows = connection.execute(
        sa.text(
            "SELECT item_id, labels, metadata, "
            "COALESCE(NULLIF(1 - (raw <=> CAST(:query AS public.vector)), 'NaN'), 0) AS score "
            f"FROM {table} WHERE raw IS NOT NULL AND {conditions.sql} "
            "AND item_id IS DISTINCT FROM CAST(:left_out AS text) "
            "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
        ),
        {
            **conditions.parameters,
            "query": text_of(query),
            "left_out": left_out,
            "k": k,
            "offset": offset,
        },
    )
    return [_hit(row) for row in rows]


def rank_candidates(
    connection: Connection,
    table: str,
    conditions: Conditions,
    query: Vector,
    k: int,
    offset: int,
    balance: Balance,
) -> list[EngineHit]:
    """Return a page of the rows that the index finds, down to `DEEPEST_SEARCH`; fewer if it finds fewer."""
    n_candidates = (offset + k) * _CANDIDATES
    width = min(max(n_candidates, _LEAST_WIDTH), _WIDEST_SEARCH)
    # The other plans compare more rows: the planner cannot know how many match.
    connection.execute(
        sa.text(
            "SELECT set_config('hnsw.ef_search', :width, true), "
            "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
            "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
            "set_config('enable_sort', 'off', true)"
        ),
        {"width": str(width)},
    )
    rows = connection.execute(
        sa.text(
            "SELECT item_id, labels, metadata, -(raw <#> CAST(:query AS public.vector)) AS score FROM ("
            f"SELECT item_id, labels, metadata, raw FROM {table} WHERE raw IS NOT NULL "
            f"AND {conditions.sql} ORDER BY mapped <#> CAST(:mapped AS public.vector) LIMIT :n_candidates"
            ") AS candidates ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
        ),
        {
            **conditions.parameters,
            "query": text_of(query),
            "mapped": text_of(balance.map_query(query)[0]),
            "n_candidates": n_candidates,
            "k": k,
            "offset": offset,
        },
    )
    return [_hit(row) for row in rows]


def _hit(row: Any) -> EngineHit:
    item_id, labels, metadata, score = row
    return EngineHit(EngineItem(item_id, tuple(labels), metadata), float(score))
