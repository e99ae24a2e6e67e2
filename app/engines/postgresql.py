"""Galleries in PostgreSQL with pgvector.

Each gallery is a table of its own with an index of its own (HNSW; Malkov and Yashunin, 2018), since an index
over several galleries would have to filter. What is indexed are rows that were centred and balanced
(`app.index.balance`), which changes no ranking and makes neighbours of what scores alike; the candidates are
ranked again by their own inner products. Few rows, and those of narrow filters, are compared one by one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from pgvector.psycopg import register_vector
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.db.faults import translate_errors
from app.domain.entities import ItemFilter, Matrix, Vector, comparable
from app.domain.errors import GalleriesGoneError, ServiceError, VectorEngineUnavailableError
from app.domain.ports.engine import EngineHit, EngineItem, GalleryKey
from app.engines.packing import (
    BEHIND,
    BUSY,
    LARGEST_RANK_OF_A_GRAPH,
    REVISIONS_BETWEEN_COUNTS,
    ROWS_COMPARED,
    balance_of,
    name_of,
    pack_balance,
    unpack_balance,
)
from app.engines.write_locks import LOCK_NOT_AVAILABLE, DatabaseLocks
from app.index.balance import Balance

_SCHEMA = "lrbs_engine"
_FOREVER = 2**63 - 1
"""The end of a row that is alive."""
_ROWS_PER_INSERT = 500
"""Bounds the parameters of a statement."""
_COLUMNS = ("text", "int8", "int8", "text[]", "jsonb", "vector", "vector")
"""Types of a row's columns."""
_CANDIDATES = 4
"""Candidates of the index for each result, which are ranked again."""
_WIDEST_SEARCH = 1000
"""The largest ``hnsw.ef_search`` that pgvector takes."""
_NEIGHBOURS, _BUILD_WIDTH, _LEAST_WIDTH = 32, 128, 200
"""Of a node, and nodes that its insertion and a search visit at least: of 1,000,000 clustered rows of 32 they
missed none of the ten best of 100 queries."""
_LEAST_SHARE = 0.15
"""Of the rows that have to match a filter, so that the index is asked: of a tenth it found .99, in a fifth of
the time that comparing takes; of a hundredth .7, in twice the time."""
_ROWS_SAMPLED = 1000
"""Of which that share is estimated."""


_REASONS = {
    "0A000": "the PostgreSQL server has no extension pgvector",
    "58P01": "the PostgreSQL server has no extension pgvector",
    "42501": "the role may not make the extension, or a schema",
    LOCK_NOT_AVAILABLE: BUSY,
}
"""By SQLSTATE: feature_not_supported, undefined_file, insufficient_privilege, lock_not_available."""
_GONE = ("42P01", "3F000")
"""SQLSTATE undefined_table and invalid_schema_name."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the service's errors in place of the driver's."""
    try:
        with translate_errors():
            yield
    except (DBAPIError, ServiceError) as error:
        driver = error if isinstance(error, DBAPIError) else error.__cause__
        code = getattr(getattr(driver, "orig", None), "sqlstate", None) or ""
        if code in _GONE:
            raise GalleriesGoneError from error
        reason = _REASONS.get(code)
        if reason is None:
            raise
        raise VectorEngineUnavailableError(reason) from error


def _condition_at(table: str) -> str:
    """Return the condition of the rows of a revision; of what is purged, the earliest that is there."""
    earliest = f"(SELECT earliest FROM {_SCHEMA}.galleries WHERE table_name = '{table}')"
    return f"since <= GREATEST(:revision, {earliest}) AND until > GREATEST(:revision, {earliest})"


@dataclass(frozen=True, slots=True)
class _Conditions:
    """A condition in SQL with its parameters."""

    sql: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, condition: str, revision: int, item_filter: ItemFilter) -> _Conditions:
        parts, parameters = [condition], dict[str, Any](revision=revision)
        if item_filter.labels is not None:
            parts.append("labels && CAST(:labels AS text[])")
            parameters["labels"] = list(item_filter.labels)
        for number, (name, values) in enumerate(item_filter.metadata.items()):
            parts.append(
                f"COALESCE(metadata -> :key_{number}, 'null'::jsonb) "
                f"= ANY (CAST(:values_{number} AS jsonb[]))"
            )
            parameters[f"key_{number}"] = name
            parameters[f"values_{number}"] = [json.dumps(value) for value in values]
            if values and None not in values:  # which an item without the key matches, too
                # Said once more, as the index understands it.
                names = [f"object_{number}_{position}" for position in range(len(values))]
                parts.append(
                    "(" + " OR ".join(f"metadata @> CAST(:{parameter} AS jsonb)" for parameter in names) + ")"
                )
                parameters |= {
                    parameter: json.dumps({name: value})
                    for parameter, value in zip(names, values, strict=True)
                }
        return cls(" AND ".join(parts), parameters)


class PostgresGallery:
    """A gallery in a table.

    Parameters
    ----------
    engine : Engine
        Of the database.
    table : str
        Its name, also that of the one which takes its place.
    """

    def __init__(self, engine: Engine, table: str) -> None:
        self._engine = engine
        self._name = table
        self._table = f"{_SCHEMA}.{table}"
        self._condition = _condition_at(table)
        self._maps: tuple[int, Balance] | None = None
        """Into the space of the index, with the number of the table that they are for."""
        self.is_gone = False
        self._known_large = -REVISIONS_BETWEEN_COUNTS
        """The revision at which the gallery was last seen to have too many rows to compare."""

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
        """Write the changes of a revision in one transaction; see `EngineGallery.write`."""
        with self._translate_errors(), self._engine.begin() as connection:
            # One writer at a time: an earlier write that came later would bring ended rows back.
            latest = connection.execute(
                sa.text(f"SELECT revision FROM {_SCHEMA}.galleries WHERE table_name = :name FOR UPDATE"),
                {"name": self._name},
            ).scalar_one_or_none()
            if latest is None:
                raise GalleriesGoneError
            if latest >= revision:
                return int(latest)
            if latest < since:
                raise VectorEngineUnavailableError(BEHIND)
            self._end(connection, revision, item_ids)
            self._insert(connection, revision, items, vectors)
            self._insert_unranked(connection, revision, unranked)
            connection.execute(
                sa.text(f"UPDATE {_SCHEMA}.galleries SET revision = :revision WHERE table_name = :name"),
                {"revision": revision, "name": self._name},
            )
        return revision

    def _end(self, connection: Connection, revision: int, item_ids: Collection[str]) -> None:
        if item_ids:
            connection.execute(
                sa.text(
                    f"UPDATE {self._table} SET until = :revision WHERE item_id = ANY (:ids) "
                    "AND since < :revision AND until > :revision"
                ),
                {"revision": revision, "ids": sorted(item_ids)},
            )

    def _insert(
        self, connection: Connection, revision: int, items: Sequence[EngineItem], vectors: Matrix
    ) -> None:
        if not items:
            return
        mapped: Sequence[Vector | None] = [None] * len(items)
        if vectors.shape[1] <= LARGEST_RANK_OF_A_GRAPH:
            mapped = list(self._read_maps(connection).map_rows(vectors))
        for start in range(0, len(items), _ROWS_PER_INSERT):
            step = slice(start, start + _ROWS_PER_INSERT)
            connection.execute(
                sa.text(
                    f"INSERT INTO {self._table} (item_id, since, until, labels, metadata, raw, mapped) "
                    "VALUES (:id, :since, :until, CAST(:labels AS text[]), CAST(:metadata AS jsonb), "
                    "CAST(:raw AS public.vector), CAST(:mapped AS public.vector)) "
                    "ON CONFLICT (item_id, since) DO NOTHING"
                ),
                [
                    {
                        "id": item.id,
                        "since": revision,
                        "until": _FOREVER,
                        "labels": list(item.labels),
                        "metadata": json.dumps(item.metadata),
                        "raw": _text_of(raw),
                        "mapped": None if row is None else _text_of(row),
                    }
                    for item, raw, row in zip(items[step], vectors[step], mapped[step], strict=True)
                ],
            )

    def _read_maps(self, connection: Connection) -> Balance:
        """Return the maps of the table, in whose place no other is put before the transaction ends."""
        connection.execute(sa.text(f"LOCK TABLE {self._table} IN ACCESS SHARE MODE"))
        number = connection.execute(
            sa.text("SELECT CAST(CAST(:table AS regclass) AS oid)"), {"table": self._table}
        ).scalar_one()
        maps = self._maps
        if maps is None or maps[0] != number:
            packed = connection.execute(
                sa.text(f"SELECT balance FROM {_SCHEMA}.galleries WHERE table_name = :name"),
                {"name": self._name},
            ).scalar_one()
            maps = self._maps = number, unpack_balance(packed)
        return maps[1]

    def fill(
        self,
        connection: Connection,
        revision: int,
        batches: Iterator[tuple[Sequence[EngineItem], Matrix]],
        balance: Balance | None,
    ) -> None:
        """Add the first rows of an empty table."""
        driver_connection = connection.connection.driver_connection
        assert driver_connection is not None
        register_vector(driver_connection)
        copy = f"COPY {self._table} (item_id, since, until, labels, metadata, raw, mapped) FROM STDIN BINARY"
        with driver_connection.cursor() as cursor, cursor.copy(copy) as rows:
            rows.set_types(_COLUMNS)
            for items, vectors in batches:
                mapped = [None] * len(vectors) if balance is None else balance.map_rows(vectors)
                for item, raw, row in zip(items, vectors, mapped, strict=True):
                    rows.write_row(
                        (item.id, revision, _FOREVER, list(item.labels), Jsonb(item.metadata), raw, row)
                    )

    def _insert_unranked(self, connection: Connection, revision: int, unranked: Collection[str]) -> None:
        if unranked:
            connection.execute(
                sa.text(
                    f"INSERT INTO {self._table} (item_id, since, until) VALUES (:id, :since, :until) "
                    "ON CONFLICT (item_id, since) DO NOTHING"
                ),
                [{"id": item_id, "since": revision, "until": _FOREVER} for item_id in sorted(unranked)],
            )

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(f"SELECT revision FROM {_SCHEMA}.galleries WHERE table_name = :name"),
                {"name": self._name},
            )
            latest = rows.scalar_one_or_none()
            if latest is None:
                raise GalleriesGoneError
            return int(latest)

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""
        conditions = _Conditions.of(self._condition, revision, item_filter)
        with self._translate_errors(), self._engine.connect() as connection:
            return self._count(connection, conditions, None)

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(f"SELECT item_id FROM {self._table} WHERE raw IS NULL AND {self._condition}"),
                {"revision": revision},
            )
            return frozenset(rows.scalars())

    def search(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> tuple[list[EngineHit], bool]:
        """Return a page of results; see `EngineGallery.search`."""
        conditions = _Conditions.of(self._condition, revision, item_filter)
        depth = offset + k
        with self._translate_errors(), self._engine.connect() as connection:
            if (
                depth * _CANDIDATES > _WIDEST_SEARCH
                or len(query) > LARGEST_RANK_OF_A_GRAPH
                or self._is_small(connection, revision)
                or (item_filter != ItemFilter() and self._share(connection, conditions) < _LEAST_SHARE)
                or len(hits := self._search_index(connection, conditions, query, k, offset)) < k
            ):
                return self._search_all(connection, conditions, query, k, offset), True
            return hits, False

    def search_exactly(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> list[EngineHit]:
        """Return the same page of results by comparing every row."""
        conditions = _Conditions.of(self._condition, revision, item_filter)
        with self._translate_errors(), self._engine.connect() as connection:
            return self._search_all(connection, conditions, query, k, offset)

    def _is_small(self, connection: Connection, revision: int) -> bool:
        """Return whether the gallery has few rows, so that they are compared one by one."""
        if 0 <= revision - self._known_large < REVISIONS_BETWEEN_COUNTS:
            return False
        conditions = _Conditions.of(self._condition, revision, ItemFilter())
        is_small = self._count(connection, conditions, ROWS_COMPARED) < ROWS_COMPARED
        if not is_small:
            self._known_large = revision
        return is_small

    def _share(self, connection: Connection, conditions: _Conditions) -> float:
        """Return about which share of the rows matches, of those in some random pages."""
        n_rows = connection.execute(
            sa.text("SELECT reltuples FROM pg_class WHERE oid = CAST(:table AS regclass)"),
            {"table": self._table},
        ).scalar_one()
        percentage = 100.0 * min(_ROWS_SAMPLED / max(n_rows, 1.0), 1.0)
        n_matching, n_sampled = connection.execute(
            sa.text(
                f"SELECT count(*) FILTER (WHERE raw IS NOT NULL AND {conditions.sql}), count(*) "
                f"FROM {self._table} TABLESAMPLE SYSTEM (:percentage)"
            ),
            {**conditions.parameters, "percentage": percentage},
        ).one()
        return float(n_matching / max(n_sampled, 1))

    def search_similar(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None
    ) -> list[EngineHit]:
        """Return a page of results by cosine; see `EngineGallery.search_similar`."""
        conditions = _Conditions.of(self._condition, revision, item_filter)
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    "SELECT item_id, labels, metadata, "
                    "COALESCE(NULLIF(1 - (raw <=> CAST(:query AS public.vector)), 'NaN'), 0) AS score "
                    f"FROM {self._table} WHERE raw IS NOT NULL AND {conditions.sql} "
                    "AND item_id IS DISTINCT FROM CAST(:left_out AS text) "
                    "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
                ),
                {
                    **conditions.parameters,
                    "query": _text_of(query),
                    "left_out": left_out,
                    "k": k,
                    "offset": offset,
                },
            )
            return [_hit(row) for row in rows]

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""
        conditions = _Conditions.of(self._condition, revision, ItemFilter(labels=(label,)))
        with self._translate_errors(), self._engine.connect() as connection:
            return self._count(connection, conditions, 1) > 0

    def count_labels(self, revision: int) -> dict[str, int]:
        """Return how many items carry each label."""
        return {str(label): count for label, count in self._counts("SELECT unnest(labels)", revision, {})}

    def count_values(self, revision: int, key: str) -> dict[Hashable, int]:
        """Return how many items have each value under a metadata key."""
        counts = self._counts("SELECT metadata -> :key", revision, {"key": key})
        return {
            comparable(value): count for value, count in counts if isinstance(value, str | int | float | bool)
        }

    def sample(self, revision: int, count: int) -> Iterator[tuple[EngineItem, Vector]]:
        """Yield some items with their projections."""
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    f"SELECT item_id, labels, metadata, CAST(raw AS real[]) FROM {self._table} "
                    f"WHERE raw IS NOT NULL AND {self._condition} ORDER BY md5(item_id) LIMIT :count"
                ),
                {"revision": revision, "count": count},
            )
            for item_id, labels, metadata, vector in rows:
                yield EngineItem(item_id, tuple(labels), metadata), np.asarray(vector, np.float32)

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execution_options(yield_per=1000).execute(
                sa.text(f"SELECT item_id FROM {self._table} WHERE {self._condition}"), {"revision": revision}
            )
            yield from rows.scalars()

    def purge(self, before: int) -> int:
        """Remove rows that ended; see `EngineGallery.purge`."""
        with self._translate_errors():
            with self._engine.begin() as connection:
                advanced = connection.execute(
                    sa.text(
                        f"UPDATE {_SCHEMA}.galleries SET earliest = :before "
                        "WHERE table_name = :name AND earliest < :before"
                    ),
                    {"before": before, "name": self._name},
                )
            if not advanced.rowcount:
                return 0
            # In a transaction of its own: writers wait for that of the list.
            with self._engine.begin() as connection:
                removed = connection.execute(
                    sa.text(f"DELETE FROM {self._table} WHERE until <= :before"), {"before": before}
                )
                return removed.rowcount

    def _counts(self, values: str, revision: int, parameters: dict[str, Any]) -> list[tuple[Any, int]]:
        with self._translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    f"SELECT value, count(*) FROM ({values} AS value FROM {self._table} "
                    f"WHERE raw IS NOT NULL AND {self._condition}) AS of_items GROUP BY value"
                ),
                {"revision": revision, **parameters},
            )
            return [(value, int(count)) for value, count in rows]

    def _count(self, connection: Connection, conditions: _Conditions, at_most: int | None) -> int:
        limit = "" if at_most is None else f"LIMIT {at_most}"
        rows = connection.execute(
            sa.text(
                f"SELECT count(*) FROM (SELECT 1 FROM {self._table} "
                f"WHERE raw IS NOT NULL AND {conditions.sql} {limit}) AS matching"
            ),
            conditions.parameters,
        )
        return int(rows.scalar_one())

    def _search_all(
        self, connection: Connection, conditions: _Conditions, query: Vector, k: int, offset: int
    ) -> list[EngineHit]:
        rows = connection.execute(
            sa.text(
                "SELECT item_id, labels, metadata, -(raw <#> CAST(:query AS public.vector)) AS score "
                f"FROM {self._table} WHERE raw IS NOT NULL AND {conditions.sql} "
                "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
            ),
            {**conditions.parameters, "query": _text_of(query), "k": k, "offset": offset},
        )
        return [_hit(row) for row in rows]

    def _search_index(
        self, connection: Connection, conditions: _Conditions, query: Vector, k: int, offset: int
    ) -> list[EngineHit]:
        n_candidates = (offset + k) * _CANDIDATES
        width = min(max(n_candidates, _LEAST_WIDTH), _WIDEST_SEARCH)
        maps = self._read_maps(connection)
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
                f"SELECT item_id, labels, metadata, raw FROM {self._table} WHERE raw IS NOT NULL "
                f"AND {conditions.sql} ORDER BY mapped <#> CAST(:mapped AS public.vector) LIMIT :n_candidates"
                ") AS candidates ORDER BY score DESC, item_id LIMIT :k OFFSET :offset"
            ),
            {
                **conditions.parameters,
                "query": _text_of(query),
                "mapped": _text_of(maps.map_query(query)[0]),
                "n_candidates": n_candidates,
                "k": k,
                "offset": offset,
            },
        )
        return [_hit(row) for row in rows]


class PostgresEngine:
    """Galleries in a PostgreSQL database with the extension pgvector.

    Parameters
    ----------
    engine : Engine
        Of the database; with connections of its own, since a search has a transaction open already.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_set_up = False

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def set_up(self) -> None:
        """Make the extension, the schema and the list of galleries, unless they are there; once a process."""
        if self._is_set_up:
            return
        with _translate_errors(), self._engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(5141230)"))
            connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"))
            connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}"))
            connection.execute(
                sa.text(
                    f"CREATE TABLE IF NOT EXISTS {_SCHEMA}.galleries (table_name text PRIMARY KEY, "
                    "collection_id bigint NOT NULL, bundle text NOT NULL, modality text NOT NULL, "
                    "revision bigint NOT NULL, earliest bigint NOT NULL, balance bytea NOT NULL)"
                )
            )
        self._is_set_up = True

    def open(self, key: GalleryKey) -> PostgresGallery | None:
        """Return a gallery that is complete; None where there is none."""
        self.set_up()
        try:
            with _translate_errors(), self._engine.connect() as connection:
                rows = connection.execute(
                    sa.text(f"SELECT FROM {_SCHEMA}.galleries WHERE table_name = :name"),
                    {"name": name_of(key)},
                )
                return None if rows.first() is None else PostgresGallery(self._engine, name_of(key))
        except GalleriesGoneError:  # somebody dropped the schema
            self._is_set_up = False
            self.set_up()
            return None

    @contextmanager
    def claim(self, key: GalleryKey) -> Iterator[None]:
        """Be the only one who makes a gallery; see `VectorEngine.claim`."""
        with DatabaseLocks(self._engine).hold(name_of(key)):
            yield

    def create(
        self,
        key: GalleryKey,
        revision: int,
        batches: Iterator[tuple[Sequence[EngineItem], Matrix]],
        vectors: Matrix,
        queries: Matrix,
        unranked: Collection[str],
    ) -> PostgresGallery:
        """Make a gallery in one transaction; see `VectorEngine.create`."""
        name, rank = name_of(key), vectors.shape[1]
        balance = balance_of(vectors, queries) if rank <= LARGEST_RANK_OF_A_GRAPH else None
        with _translate_errors(), self._engine.begin() as connection:
            connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(5141230, hashtext(:name))"), {"name": name}
            )
            if (existing := self.open(key)) is not None:
                return existing
            connection.execute(
                sa.text(
                    f'CREATE TABLE {_SCHEMA}.{name} (item_id text COLLATE "C", since bigint, '
                    f"until bigint NOT NULL, labels text[], metadata jsonb, "
                    f"raw public.vector({rank}), mapped public.vector({rank}), PRIMARY KEY (item_id, since))"
                )
            )
            gallery = PostgresGallery(self._engine, name)
            gallery.fill(connection, revision, batches, balance)
            gallery._insert_unranked(connection, revision, unranked)
            if balance is not None:
                connection.execute(
                    sa.text(
                        f"CREATE INDEX ON {_SCHEMA}.{name} USING hnsw (mapped public.vector_ip_ops) "
                        f"WITH (m = {_NEIGHBOURS}, ef_construction = {_BUILD_WIDTH})"
                    )
                )
            connection.execute(sa.text(f"CREATE INDEX ON {_SCHEMA}.{name} (item_id) WHERE raw IS NULL"))
            connection.execute(sa.text(f"CREATE INDEX ON {_SCHEMA}.{name} USING gin (labels)"))
            connection.execute(
                sa.text(f"CREATE INDEX ON {_SCHEMA}.{name} USING gin (metadata jsonb_path_ops)")
            )
            connection.execute(sa.text(f"ANALYZE {_SCHEMA}.{name}"))
            connection.execute(
                sa.text(
                    f"INSERT INTO {_SCHEMA}.galleries VALUES (:name, :collection, :bundle, :modality, "
                    ":revision, :revision, :balance)"
                ),
                {
                    "name": name,
                    "collection": key.collection_id,
                    "bundle": key.bundle,
                    "modality": key.modality,
                    "revision": revision,
                    "balance": b"" if balance is None else pack_balance(balance),
                },
            )
        return gallery

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another; see `VectorEngine.replace`."""
        names = {"old": name_of(key), "new": name_of(by)}
        with _translate_errors(), self._engine.begin() as connection:
            rows = connection.execute(
                sa.text(
                    f"SELECT table_name, revision FROM {_SCHEMA}.galleries "
                    "WHERE table_name IN (:old, :new) ORDER BY table_name FOR UPDATE"
                ),
                names,
            )
            revisions = {row.table_name: row.revision for row in rows}
            if names["new"] not in revisions:
                raise GalleriesGoneError
            if revisions[names["new"]] < revisions.get(names["old"], 0):
                return False
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {_SCHEMA}.{names['old']}"))
            connection.execute(sa.text(f"ALTER TABLE {_SCHEMA}.{names['new']} RENAME TO {names['old']}"))
            # The row stays that a writer may be waiting for.
            connection.execute(
                sa.text(
                    f"INSERT INTO {_SCHEMA}.galleries SELECT :old, collection_id, bundle, :modality, "
                    f"revision, earliest, balance FROM {_SCHEMA}.galleries WHERE table_name = :new "
                    "ON CONFLICT (table_name) DO UPDATE SET revision = EXCLUDED.revision, "
                    "earliest = EXCLUDED.earliest, balance = EXCLUDED.balance"
                ),
                {**names, "modality": key.modality},
            )
            connection.execute(sa.text(f"DELETE FROM {_SCHEMA}.galleries WHERE table_name = :new"), names)
        return True

    def belongs_to(self, installation: str) -> bool:
        """Return True: the galleries are in the installation's own database."""
        return True

    def keys(self) -> list[GalleryKey]:
        """Return the galleries there are."""
        self.set_up()
        with _translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    f"SELECT collection_id, bundle, modality FROM {_SCHEMA}.galleries ORDER BY table_name"
                )
            )
            return [GalleryKey(*row) for row in rows]

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""
        self.set_up()
        with _translate_errors(), self._engine.begin() as connection:
            name = name_of(key)
            connection.execute(
                sa.text(f"DELETE FROM {_SCHEMA}.galleries WHERE table_name = :name"), {"name": name}
            )
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {_SCHEMA}.{name}"))

    def remove_unfinished(self) -> int:
        """Remove nothing: a transaction that is not finished leaves nothing."""
        return 0


def _hit(row: Any) -> EngineHit:
    item_id, labels, metadata, score = row
    return EngineHit(EngineItem(item_id, tuple(labels), metadata), float(score))


def _text_of(vector: Vector) -> str:
    """Return a vector as pgvector reads it, with all the digits of single precision."""
    return "[" + ",".join(np.format_float_scientific(value, unique=True, trim="-") for value in vector) + "]"
