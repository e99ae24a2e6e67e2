"""Galleries in PostgreSQL with pgvector: its schema and errors, rows, a gallery, and the engine."""
# Each gallery is a table of its own with an index of its own (HNSW; Malkov and Yashunin, 2018), since an
# index over several galleries would have to filter. What is indexed are rows that were centred and balanced
# (`Balance`), which changes no ranking and makes neighbours of what scores alike; the candidates
# are ranked again by their own inner products. Few rows, and those of narrow filters, are compared one by
# one.

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from pgvector.psycopg import register_vector
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, CursorResult, Engine
from sqlalchemy.exc import DBAPIError

from app.db.filters import FilterSql
from app.db.session import translate_errors
from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.errors import ServiceError, VectorEngineUnavailableError, galleries_gone
from app.domain.filters import NO_FILTER, ItemFilter, comparable, keyed_words
from app.domain.ports import EngineHits, GalleryKey, GalleryWrite, NewGallery, PageQuery
from app.engines import common
from app.index import Balance
from app.services.storage.pacing import in_batches

SCHEMA = "lrbs_engine"
LIST = f"{SCHEMA}.galleries"
"""The table that lists the galleries that are complete."""

_REASONS = {
    "0A000": "the PostgreSQL server has no extension pgvector",
    "58P01": "the PostgreSQL server has no extension pgvector",
    "42501": "the role may not make the extension, or a schema",
    common.LOCK_NOT_AVAILABLE: common.BUSY,
}
"""By SQLSTATE: feature_not_supported, undefined_file, insufficient_privilege, lock_not_available."""
_GONE = ("42P01", "3F000")  # SQLSTATE undefined_table and invalid_schema_name


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the service's errors in place of the driver's."""
    try:
        with translate_errors():
            yield
    except (DBAPIError, ServiceError) as error:
        driver = error if isinstance(error, DBAPIError) else error.__cause__
        code = getattr(getattr(driver, "orig", None), "sqlstate", None) or ""
        if code in _GONE:
            raise galleries_gone() from error
        reason = _REASONS.get(code)
        if reason is None:
            raise
        raise VectorEngineUnavailableError(reason) from error


def run(connection: Connection, statement: str, **parameters: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement with its parameters."""
    return connection.execute(sa.text(statement), parameters)


def text_of(vector: Vector) -> str:
    """Return a vector as pgvector reads it, with all the digits of single precision."""
    return "[" + ",".join(np.format_float_scientific(value, unique=True, trim="-") for value in vector) + "]"


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
_COLUMNS = ("text", "int8", "int8", "text[]", "jsonb", "text[]", "vector", "vector")
"""Types of a row's columns."""


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

    def rank_all(self, page: PageQuery) -> EngineHits:
        """Return a page of them by inner product, for which all are compared."""
        return self._rank(_PRODUCT, f"{self.table} WHERE {self.condition}", page)

    def rank_similar(self, page: PageQuery, left_out: str | None) -> EngineHits:
        """Return the same page by cosine, without the item that is left out."""
        others = f"{self.condition} AND item_id IS DISTINCT FROM CAST(:left_out AS text)"
        return self._rank(_COSINE, f"{self.table} WHERE {others}", page, left_out=left_out)

    def rank_candidates(self, page: PageQuery, balance: Balance) -> EngineHits:
        """Return a page of those that the index finds, down to `DEEPEST_SEARCH`; fewer if it finds fewer."""
        n_candidates = (page.offset + page.k) * _CANDIDATES
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
        mapped = text_of(balance.map_query(page.query)[0])
        return self._rank(_PRODUCT, candidates, page, mapped=mapped, n_candidates=n_candidates)

    def _rank(self, score: str, source: str, page: PageQuery, **parameters: Any) -> EngineHits:
        rows = self.execute(
            f"SELECT item_id, labels, metadata, {score} AS score FROM {source} "
            "ORDER BY score DESC, item_id LIMIT :k OFFSET :offset",
            query=text_of(page.query),
            k=page.k,
            offset=page.offset,
            **parameters,
        )
        return [
            (IndexedItem(item_id, tuple(labels), metadata), float(score))
            for item_id, labels, metadata, score in rows
        ]


def insert_rows(connection: Connection, table: str, change: GalleryWrite, balance: Balance | None) -> None:
    """Add the rows of a write; without maps (`balance`) the index does not find them."""
    rows = zip(change.items, change.vectors, _map(change.vectors, balance), strict=True)
    for batch in in_batches(rows, _ROWS_PER_INSERT):
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
                    "since": change.revision,
                    "until": FOREVER,
                    "labels": list(item.labels),
                    "metadata": json.dumps(item.metadata),
                    "words": keyed_words(item.metadata),
                    "raw": text_of(raw),
                    "mapped": None if mapped is None else text_of(mapped),
                }
                for item, raw, mapped in batch
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


def copy_rows(connection: Connection, table: str, new: NewGallery, balance: Balance | None) -> None:
    """Add the first rows of an empty table, many times faster than `insert_rows`."""
    driver_connection = connection.connection.driver_connection
    assert driver_connection is not None
    register_vector(driver_connection)
    copy = f"COPY {table} (item_id, since, until, labels, metadata, words, raw, mapped) FROM STDIN BINARY"
    with driver_connection.cursor() as cursor, cursor.copy(copy) as rows:
        rows.set_types(_COLUMNS)
        for items, vectors in new.batches:
            for item, raw, row in zip(items, vectors, _map(vectors, balance), strict=True):
                facts = (list(item.labels), Jsonb(item.metadata), keyed_words(item.metadata))
                rows.write_row((item.id, new.revision, FOREVER, *facts, raw, row))


def _map(vectors: Matrix, balance: Balance | None) -> Sequence[Vector | None]:
    """Return what the index finds rows by."""
    return [None] * len(vectors) if balance is None else list(balance.map_rows(vectors))


_LEAST_SHARE = 0.15
"""Of the rows that have to match a filter, so that the index is asked: of a tenth it found .99, in a fifth of
the time that comparing takes; of a hundredth .7, in twice the time."""


class PostgresGallery:
    """A gallery in a table, whose name is also that of the one which takes its place."""

    def __init__(self, engine: Engine, table: str) -> None:
        self._engine = engine
        self._name = table
        self._table = f"{SCHEMA}.{table}"
        self._condition = condition_at(table)
        self._maps: tuple[int, Balance] | None = None
        """Into the space of the index, with the number of the table that they are for."""
        self.is_gone = False
        self._known_large = -common.REVISIONS_BETWEEN_COUNTS
        """The revision at which the gallery was last seen to have too many rows to compare."""

    @contextmanager
    def _connection(self, writes: bool = False) -> Iterator[Connection]:
        """Give a connection, raise the service's errors, and remember that a gallery is gone."""
        try:
            with (
                translated_errors(),
                self._engine.begin() if writes else self._engine.connect() as connection,
            ):
                yield connection
        except VectorEngineUnavailableError as error:
            self.is_gone = self.is_gone or error.code == "galleries-gone"
            raise

    @contextmanager
    def _rows(self, revision: int, item_filter: ItemFilter = NO_FILTER) -> Iterator[MatchingRows]:
        """Give the rows of a revision that can be ranked and match a filter."""
        with self._connection() as connection:
            yield MatchingRows.of(connection, self._table, self._condition, revision, item_filter)

    def write(self, change: GalleryWrite) -> int:
        with self._connection(writes=True) as connection:
            # One writer at a time: an earlier write that came later would bring ended rows back.
            latest = self._revision(connection, "FOR UPDATE")
            if latest >= change.revision:
                return latest
            if latest < change.since:
                raise VectorEngineUnavailableError(common.BEHIND)
            if change.item_ids:
                are_theirs = "item_id = ANY (:ids) AND since < :revision AND until > :revision"
                update = f"UPDATE {self._table} SET until = :revision WHERE {are_theirs}"
                run(connection, update, revision=change.revision, ids=sorted(change.item_ids))
            if change.items:
                has_index = change.vectors.shape[1] <= common.LARGEST_RANK_OF_A_GRAPH
                balance = self._read_maps(connection) if has_index else None
                insert_rows(connection, self._table, change, balance)
            insert_unranked(connection, self._table, change.revision, change.unranked)
            update = f"UPDATE {LIST} SET revision = :revision WHERE table_name = :name"
            run(connection, update, revision=change.revision, name=self._name)
        return change.revision

    def _revision(self, connection: Connection, lock: str = "") -> int:
        query = f"SELECT revision FROM {LIST} WHERE table_name = :name {lock}"
        latest = run(connection, query, name=self._name).scalar_one_or_none()
        if latest is None:
            raise galleries_gone()
        return int(latest)

    def _read_maps(self, connection: Connection) -> Balance:
        """Return the maps of the table, in whose place no other is put before the transaction ends."""
        run(connection, f"LOCK TABLE {self._table} IN ACCESS SHARE MODE")
        query = "SELECT CAST(CAST(:table AS regclass) AS oid)"
        number = run(connection, query, table=self._table).scalar_one()
        maps = self._maps
        if maps is None or maps[0] != number:
            query = f"SELECT balance FROM {LIST} WHERE table_name = :name"
            packed = run(connection, query, name=self._name).scalar_one()
            maps = self._maps = number, common.unpack_balance(packed)
        return maps[1]

    def latest_revision(self) -> int:
        with self._connection() as connection:
            return self._revision(connection)

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        with self._rows(revision, item_filter) as rows:
            return rows.count()

    def find_unranked(self, revision: int) -> frozenset[str]:
        with self._connection() as connection:
            query = f"SELECT item_id FROM {self._table} WHERE raw IS NULL AND {self._condition}"
            return frozenset(run(connection, query, revision=revision).scalars())

    def search(self, page: PageQuery, compares_all: bool = False) -> tuple[EngineHits, bool]:
        with self._rows(page.revision, page.item_filter) as rows:
            if (
                not compares_all
                and page.offset + page.k <= DEEPEST_SEARCH
                and len(page.query) <= common.LARGEST_RANK_OF_A_GRAPH
                and not self._is_small(rows.connection, page.revision)
                and (page.item_filter.is_empty or rows.estimate_share() >= _LEAST_SHARE)
            ):
                hits = rows.rank_candidates(page, self._read_maps(rows.connection))
                if len(hits) == page.k:
                    return hits, False
            return rows.rank_all(page), True

    def _is_small(self, connection: Connection, revision: int) -> bool:
        """Return whether the gallery has few rows, so that they are compared one by one."""
        if 0 <= revision - self._known_large < common.REVISIONS_BETWEEN_COUNTS:
            return False
        rows = MatchingRows.of(connection, self._table, self._condition, revision, NO_FILTER)
        is_small = rows.count(common.ROWS_COMPARED) < common.ROWS_COMPARED
        if not is_small:
            self._known_large = revision
        return is_small

    def search_similar(self, page: PageQuery, left_out: str | None) -> EngineHits:
        with self._rows(page.revision, page.item_filter) as rows:
            return rows.rank_similar(page, left_out)

    def has_label(self, revision: int, label: str) -> bool:
        with self._rows(revision, ItemFilter.of((label,))) as rows:
            return rows.count(1) > 0

    def count_labels(self, revision: int, item_filter: ItemFilter) -> dict[str, int]:
        return {str(label): count for label, count in self._counts("unnest(labels)", revision, item_filter)}

    def count_values(self, revision: int, key: str, item_filter: ItemFilter) -> dict[Hashable, int]:
        counts = self._counts("metadata -> :key", revision, item_filter, key=key)
        return {
            comparable(value): count for value, count in counts if isinstance(value, str | int | float | bool)
        }

    def _counts(
        self, value: str, revision: int, item_filter: ItemFilter, **parameters: str
    ) -> list[tuple[Any, int]]:
        with self._rows(revision, item_filter) as rows:
            counts = rows.execute(
                f"SELECT value, count(*) FROM (SELECT {value} AS value FROM {rows.table} "
                f"WHERE {rows.condition}) AS of_items GROUP BY value",
                **parameters,
            )
            return [(value, int(count)) for value, count in counts]

    def sample(
        self, revision: int, count: int, item_filter: ItemFilter = NO_FILTER
    ) -> Iterator[tuple[IndexedItem, Vector]]:
        with self._rows(revision, item_filter) as rows:
            sampled = rows.execute(
                f"SELECT item_id, labels, metadata, CAST(raw AS real[]) FROM {rows.table} "
                f"WHERE {rows.condition} ORDER BY md5(item_id) LIMIT :count",
                count=count,
            )
            for item_id, labels, metadata, vector in sampled:
                yield IndexedItem(item_id, tuple(labels), metadata), np.asarray(vector, np.float32)

    def item_ids(self, revision: int) -> Iterator[str]:
        with self._connection() as connection:
            query = f"SELECT item_id FROM {self._table} WHERE {self._condition}"
            yield from run(connection.execution_options(yield_per=1000), query, revision=revision).scalars()

    def purge(self, before: int) -> int:
        with self._connection(writes=True) as connection:
            update = f"UPDATE {LIST} SET earliest = :before WHERE table_name = :name AND earliest < :before"
            advanced = run(connection, update, before=before, name=self._name)
        if not advanced.rowcount:
            return 0
        # In a transaction of its own: writers wait for that of the list.
        with self._connection(writes=True) as connection:
            delete = f"DELETE FROM {self._table} WHERE until <= :before"
            return run(connection, delete, before=before).rowcount


_NEIGHBOURS, _BUILD_WIDTH = 32, 128
"""Of a node of the index, and nodes that its insertion visits."""
_IS_CURRENT = (
    "EXISTS (SELECT FROM pg_attribute WHERE attname = 'words' "
    f"AND attrelid = to_regclass('{SCHEMA}.' || table_name))"
)
"""Whether the table of a gallery is of this release's form."""


class PostgresEngine:
    """Galleries in a PostgreSQL database with the extension pgvector.
    The engine has connections of its own, since a search has a transaction open already."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_set_up = False

    def close(self) -> None:
        self._engine.dispose()

    def set_up(self) -> None:
        """Make the extension, the schema and the list of galleries, unless they are there; once a process."""
        if self._is_set_up:
            return
        with translated_errors(), self._engine.begin() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(5141230)")
            run(connection, "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            run(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            run(
                connection,
                f"CREATE TABLE IF NOT EXISTS {LIST} (table_name text PRIMARY KEY, "
                "collection_id bigint NOT NULL, bundle text NOT NULL, modality text NOT NULL, "
                "revision bigint NOT NULL, earliest bigint NOT NULL, balance bytea NOT NULL)",
            )
        self._is_set_up = True

    def open(self, key: GalleryKey) -> PostgresGallery | None:
        self.set_up()
        try:
            with translated_errors(), self._engine.connect() as connection:
                statement = f"SELECT FROM {LIST} WHERE table_name = :name AND {_IS_CURRENT}"
                rows = run(connection, statement, name=common.name_of(key))
                return None if rows.first() is None else PostgresGallery(self._engine, common.name_of(key))
        except VectorEngineUnavailableError as error:
            if error.code != "galleries-gone":
                raise
            # Somebody dropped the schema.
            self._is_set_up = False
            self.set_up()
            return None

    def claim(self, key: GalleryKey) -> AbstractContextManager[object]:
        return common.lock_in_database(self._engine, common.name_of(key))

    def create(self, new: NewGallery) -> PostgresGallery:
        """Make a gallery in one transaction."""
        name, rank, balance = common.name_of(new.key), new.vectors.shape[1], common.balance_of(new)
        with translated_errors(), self._engine.begin() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(5141230, hashtext(:name))", name=name)
            if (existing := self.open(new.key)) is not None:
                return existing
            table = f"{SCHEMA}.{name}"
            # What stands there is of an earlier release, whose rows filters cannot be applied to.
            run(connection, f"DELETE FROM {LIST} WHERE table_name = :name", name=name)
            run(connection, f"DROP TABLE IF EXISTS {table}")
            run(
                connection,
                f'CREATE TABLE {table} (item_id text COLLATE "C", since bigint, until bigint NOT NULL, '
                "labels text[], metadata jsonb, words text[], "
                f"raw public.vector({rank}), mapped public.vector({rank}), PRIMARY KEY (item_id, since))",
            )
            copy_rows(connection, table, new, balance)
            insert_unranked(connection, table, new.revision, new.unranked)
            graph = f"(m = {_NEIGHBOURS}, ef_construction = {_BUILD_WIDTH})"
            indexes = (
                [f"USING hnsw (mapped public.vector_ip_ops) WITH {graph}"] if balance is not None else []
            )
            indexes += ["(item_id) WHERE raw IS NULL"]
            indexes += ["USING gin (labels)", "USING gin (words)", "USING gin (metadata jsonb_path_ops)"]
            for index in indexes:
                run(connection, f"CREATE INDEX ON {table} {index}")
            run(connection, f"ANALYZE {table}")
            columns = ":name, :collection_id, :bundle, :modality, :revision, :revision, :balance"
            packed = b"" if balance is None else common.pack_balance(balance)
            values = {**new.key._asdict(), "name": name, "revision": new.revision, "balance": packed}
            run(connection, f"INSERT INTO {LIST} VALUES ({columns})", **values)
        return PostgresGallery(self._engine, name)

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        names = {"old": common.name_of(key), "new": common.name_of(by)}
        with translated_errors(), self._engine.begin() as connection:
            query = f"SELECT table_name, revision FROM {LIST} WHERE table_name IN (:old, :new)"
            rows = run(connection, f"{query} ORDER BY table_name FOR UPDATE", **names)
            revisions = {row.table_name: row.revision for row in rows}
            if names["new"] not in revisions:
                raise galleries_gone()
            if revisions[names["new"]] < revisions.get(names["old"], 0):
                return False
            run(connection, f"DROP TABLE IF EXISTS {SCHEMA}.{names['old']}")
            run(connection, f"ALTER TABLE {SCHEMA}.{names['new']} RENAME TO {names['old']}")
            # The row stays that a writer may be waiting for.
            run(
                connection,
                f"INSERT INTO {LIST} SELECT :old, collection_id, bundle, :modality, "
                f"revision, earliest, balance FROM {LIST} WHERE table_name = :new "
                "ON CONFLICT (table_name) DO UPDATE SET revision = EXCLUDED.revision, "
                "earliest = EXCLUDED.earliest, balance = EXCLUDED.balance",
                **names,
                modality=key.modality,
            )
            run(connection, f"DELETE FROM {LIST} WHERE table_name = :new", new=names["new"])
        return True

    def belongs_to(self, installation: str) -> bool:
        """Return True: the galleries are in the installation's own database."""
        return True

    def keys(self) -> list[GalleryKey]:
        self.set_up()
        with translated_errors(), self._engine.connect() as connection:
            query = f"SELECT collection_id, bundle, modality FROM {LIST} ORDER BY table_name"
            return [GalleryKey(*row) for row in run(connection, query)]

    def drop(self, key: GalleryKey) -> None:
        self.set_up()
        with translated_errors(), self._engine.begin() as connection:
            run(connection, f"DELETE FROM {LIST} WHERE table_name = :name", name=common.name_of(key))
            run(connection, f"DROP TABLE IF EXISTS {SCHEMA}.{common.name_of(key)}")

    def remove_unfinished(self) -> int:
        """Remove nothing: a transaction that is not finished leaves nothing."""
        return 0
