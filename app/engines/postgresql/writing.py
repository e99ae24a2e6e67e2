"""Rows of a gallery's table: added and ended, in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

import sqlalchemy as sa
from pgvector.psycopg import register_vector
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from app.domain.entities import Matrix, Vector
from app.domain.ports import EngineItem
from app.engines.postgresql.conditions import FOREVER
from app.engines.postgresql.server import text_of
from app.index.balance import Balance

_ROWS_PER_INSERT = 500  # bounds the parameters of a statement
_COLUMNS = ("text", "int8", "int8", "text[]", "jsonb", "vector", "vector")  # types of a row's columns


def end_rows(connection: Connection, table: str, revision: int, item_ids: Collection[str]) -> None:
    """End the rows of some items that are alive."""
    if item_ids:
        connection.execute(
            sa.text(
                f"UPDATE {table} SET until = :revision WHERE item_id = ANY (:ids) "
                "AND since < :revision AND until > :revision"
            ),
            {"revision": revision, "ids": sorted(item_ids)},
        )


def insert_rows(
    connection: Connection,
    table: str,
    revision: int,
    items: Sequence[EngineItem],
    vectors: Matrix,
    balance: Balance | None,
) -> None:
    """Add rows; without maps (`balance`) the index does not find them."""
    mapped = _map(vectors, balance)
    for start in range(0, len(items), _ROWS_PER_INSERT):
        step = slice(start, start + _ROWS_PER_INSERT)
        connection.execute(
            sa.text(
                f"INSERT INTO {table} (item_id, since, until, labels, metadata, raw, mapped) "
                "VALUES (:id, :since, :until, CAST(:labels AS text[]), CAST(:metadata AS jsonb), "
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
    batches: Iterator[tuple[Sequence[EngineItem], Matrix]],
    balance: Balance | None,
) -> None:
    """Add the first rows of an empty table, many times faster than `insert_rows`."""
    driver_connection = connection.connection.driver_connection
    assert driver_connection is not None
    register_vector(driver_connection)
    copy = f"COPY {table} (item_id, since, until, labels, metadata, raw, mapped) FROM STDIN BINARY"
    with driver_connection.cursor() as cursor, cursor.copy(copy) as rows:
        rows.set_types(_COLUMNS)
        for items, vectors in batches:
            for item, raw, row in zip(items, vectors, _map(vectors, balance), strict=True):
                rows.write_row(
                    (item.id, revision, FOREVER, list(item.labels), Jsonb(item.metadata), raw, row)
                )


def _map(vectors: Matrix, balance: Balance | None) -> Sequence[Vector | None]:
    """Return what the index finds rows by."""
    return [None] * len(vectors) if balance is None else list(balance.map_rows(vectors))
