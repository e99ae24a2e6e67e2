"""Rows of a gallery's table in the caller's transaction: conditions, ranking, counts, and changes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pgvector.psycopg import register_vector
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, CursorResult

from app.db.filters import FilterSql
from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.filters import ItemFilter, keyed_words
from app.domain.ports import EngineHit
from app.engines.postgresql.server import LIST, run, text_of
from app.index.inverted_lists import Balance

FOREVER = 2**63 - 1
"""The end of a row that is alive."""
_PRODUCT = "-(raw <#> CAST(:query AS public.vector))"
_COSINE = "COALESCE(NULLIF(1 - (raw <=> CAST(:query AS public.vector)), 'NaN'), 0)"
_CANDIDATES = 4  # candidates of the index for each result, which are ranked again
_WIDEST_SEARCH = 1000  # the largest ``hnsw.ef_search`` that pgvector takes
DEEPEST_SEARCH = _WIDEST_SEARCH // _CANDIDATES
"""The last place that the index is asked for."""
_LEAST_WIDTH = 200
"""Nodes that a search visits at least: of 1,000,000 clustered rows of 32 numbers it missed none of the ten
best of 100 queries."""
_ROWS_SAMPLED = 1000  # of which the share that matches a filter is estimated
_ROWS_PER_INSERT = 500  # bounds the parameters of a statement
_COLUMNS = (
    "text",
    "int8",
    "int8",
    "text[]",
    "jsonb",
    "text[]",
    "vector",
    "vector",
)  # types of a row's columns


def condition_at(table: str) -> str:
    """Return the condition of the rows of a revision; of what is purged, the earliest that is there."""
    earliest = f"(SELECT earliest FROM {LIST} WHERE table_name = '{table}')"
    return f"since <= GREATEST(:revision, {earliest}) AND until > GREATEST(:revision, {earliest})"


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """Rows of a table that can be ranked and match a condition in SQL, in the caller's transaction."""

    connection: Connection
    table: str
    condition: str
    parameters: dict[str, Any]

    @classmethod
    def of(
        cls, connection: Connection, table: str, condition: str, revision: int, item_filter: ItemFilter
    ) -> MatchingRows:
        """Return the rows of a revision (`condition_at`) that match a filter."""
        sql = FilterSql(metadata="metadata", labels="labels &&", words="words")
        parts = ["raw IS NOT NULL", condition, item_filter.fold(sql.read, sql.join)]
        return cls(connection, table, " AND ".join(parts), {"revision": revision, **sql.parameters})

    def execute(self, statement: str, **parameters: Any) -> CursorResult[*tuple[Any, ...]]:
        """Return what a statement finds that has their condition in it."""
        return run(self.connection, statement, **self.parameters, **parameters)

    def count(self, at_most: int | None = None) -> int:
        """Return how many they are, counted up to a bound if there is one."""
        limit = "" if at_most is None else f"LIMIT {at_most}"
        counted = f"SELECT 1 FROM {self.table} WHERE {self.condition} {limit}"
        return int(self.execute(f"SELECT count(*) FROM ({counted}) AS matching").scalar_one())

    def estimate_share(self) -> float:
        """Return about which share of the table they are, of the rows in some random pages."""
        query = "SELECT reltuples FROM pg_class WHERE oid = CAST(:table AS regclass)"
        n_rows = run(self.connection, query, table=self.table).scalar_one()
        n_matching, n_sampled = self.execute(
            f"SELECT count(*) FILTER (WHERE {self.condition}), count(*) "
            f"FROM {self.table} TABLESAMPLE SYSTEM (:percentage)",
            percentage=100.0 * min(_ROWS_SAMPLED / max(n_rows, 1.0), 1.0),
        ).one()
        return float(n_matching / max(n_sampled, 1))

    def rank_all(self, query: Vector, k: int, offset: int) -> list[EngineHit]:
        """Return a page of them by inner product, for which all are compared."""
        return self._rank(_PRODUCT, f"{self.table} WHERE {self.condition}", query, k, offset)

    def rank_similar(self, query: Vector, k: int, offset: int, left_out: str | None) -> list[EngineHit]:
        """Return the same page by cosine, without the item that is left out."""
        others = f"{self.condition} AND item_id IS DISTINCT FROM CAST(:left_out AS text)"
        return self._rank(_COSINE, f"{self.table} WHERE {others}", query, k, offset, left_out=left_out)

    def rank_candidates(self, query: Vector, k: int, offset: int, balance: Balance) -> list[EngineHit]:
        """Return a page of those that the index finds, down to `DEEPEST_SEARCH`; fewer if it finds fewer."""
        n_candidates = (offset + k) * _CANDIDATES
        width = min(max(n_candidates, _LEAST_WIDTH), _WIDEST_SEARCH)
        # The other plans compare more rows: the planner cannot know how many match.
        run(
            self.connection,
            "SELECT set_config('hnsw.ef_search', :width, true), "
            "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
            "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
            "set_config('enable_sort', 'off', true)",
            width=str(width),
        )
        candidates = (
            f"(SELECT item_id, labels, metadata, raw FROM {self.table} WHERE {self.condition} "
            "ORDER BY mapped <#> CAST(:mapped AS public.vector) LIMIT :n_candidates) AS candidates"
        )
        mapped = text_of(balance.map_query(query)[0])
        return self._rank(_PRODUCT, candidates, query, k, offset, mapped=mapped, n_candidates=n_candidates)

    def _rank(
        self, score: str, source: str, query: Vector, k: int, offset: int, **parameters: Any
    ) -> list[EngineHit]:
        rows = self.execute(
            f"SELECT item_id, labels, metadata, {score} AS score FROM {source} "
            "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset",
            query=text_of(query),
            k=k,
            offset=offset,
            **parameters,
        )
        return [
            EngineHit(IndexedItem(item_id, tuple(labels), metadata), float(score))
            for item_id, labels, metadata, score in rows
        ]


def end_rows(connection: Connection, table: str, revision: int, item_ids: Collection[str]) -> None:
    """End the rows of some items that are alive."""
    if item_ids:
        are_theirs = "item_id = ANY (:ids) AND since < :revision AND until > :revision"
        update = f"UPDATE {table} SET until = :revision WHERE {are_theirs}"
        run(connection, update, revision=revision, ids=sorted(item_ids))


def insert_rows(
    connection: Connection,
    table: str,
    revision: int,
    items: Sequence[IndexedItem],
    vectors: Matrix,
    balance: Balance | None,
) -> None:
    """Add rows; without maps (`balance`) the index does not find them."""
    mapped = _map(vectors, balance)
    for start in range(0, len(items), _ROWS_PER_INSERT):
        step = slice(start, start + _ROWS_PER_INSERT)
        connection.execute(
            sa.text(
                f"INSERT INTO {table} (item_id, since, until, labels, metadata, words, raw, mapped) "
                "VALUES (:id, :since, :until, CAST(:labels AS text[]), CAST(:metadata AS jsonb), "
                "CAST(:words AS text[]), "
                "CAST(:raw AS public.vector), CAST(:mapped AS public.vector)) "
                "ON CONFLICT (item_id, since) DO NOTHING"
            ),
            [
                {
                    "id": item.id,
                    "since": revision,
                    "until": FOREVER,
                    "labels": list(item.labels),
                    "metadata": json.dumps(item.metadata),
                    "words": keyed_words(item.metadata),
                    "raw": text_of(raw),
                    "mapped": None if row is None else text_of(row),
                }
                for item, raw, row in zip(items[step], vectors[step], mapped[step], strict=True)
            ],
        )


def insert_unranked(connection: Connection, table: str, revision: int, unranked: Collection[str]) -> None:
    """Add items that the model cannot place."""
    if unranked:
        connection.execute(
            sa.text(
                f"INSERT INTO {table} (item_id, since, until) VALUES (:id, :since, :until) "
                "ON CONFLICT (item_id, since) DO NOTHING"
            ),
            [{"id": item_id, "since": revision, "until": FOREVER} for item_id in sorted(unranked)],
        )


def copy_rows(
    connection: Connection,
    table: str,
    revision: int,
    batches: Iterator[tuple[Sequence[IndexedItem], Matrix]],
    balance: Balance | None,
) -> None:
    """Add the first rows of an empty table, many times faster than `insert_rows`."""
    driver_connection = connection.connection.driver_connection
    assert driver_connection is not None
    register_vector(driver_connection)
    copy = f"COPY {table} (item_id, since, until, labels, metadata, words, raw, mapped) FROM STDIN BINARY"
    with driver_connection.cursor() as cursor, cursor.copy(copy) as rows:
        rows.set_types(_COLUMNS)
        for items, vectors in batches:
            for item, raw, row in zip(items, vectors, _map(vectors, balance), strict=True):
                facts = (list(item.labels), Jsonb(item.metadata), keyed_words(item.metadata))
                rows.write_row((item.id, revision, FOREVER, *facts, raw, row))


def _map(vectors: Matrix, balance: Balance | None) -> Sequence[Vector | None]:
    """Return what the index finds rows by."""
    return [None] * len(vectors) if balance is None else list(balance.map_rows(vectors))
