"""Galleries in a PostgreSQL database: made, opened, put in each other's place and removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine

from app.domain.entities import IndexedItem, Matrix
from app.domain.errors import VectorEngineUnavailableError, galleries_gone
from app.domain.ports import GalleryKey
from app.engines.common import LARGEST_RANK_OF_A_GRAPH, DatabaseLocks, balance_of, name_of, pack_balance
from app.engines.postgresql.gallery import PostgresGallery
from app.engines.postgresql.rows import copy_rows, insert_unranked
from app.engines.postgresql.server import LIST, SCHEMA, run, translated_errors

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
        """Close the connections."""
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
        """Return a gallery that is complete; None where there is none."""
        self.set_up()
        try:
            with translated_errors(), self._engine.connect() as connection:
                statement = f"SELECT FROM {LIST} WHERE table_name = :name AND {_IS_CURRENT}"
                rows = run(connection, statement, name=name_of(key))
                return None if rows.first() is None else PostgresGallery(self._engine, name_of(key))
        except VectorEngineUnavailableError as error:
            if error.code != "galleries-gone":
                raise
            # Somebody dropped the schema.
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
        batches: Iterator[tuple[Sequence[IndexedItem], Matrix]],
        vectors: Matrix,
        queries: Matrix,
        unranked: Collection[str],
    ) -> PostgresGallery:
        """Make a gallery in one transaction; see `VectorEngine.create`."""
        name, rank = name_of(key), vectors.shape[1]
        balance = balance_of(vectors, queries) if rank <= LARGEST_RANK_OF_A_GRAPH else None
        with translated_errors(), self._engine.begin() as connection:
            run(connection, "SELECT pg_advisory_xact_lock(5141230, hashtext(:name))", name=name)
            if (existing := self.open(key)) is not None:
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
            copy_rows(connection, table, revision, batches, balance)
            insert_unranked(connection, table, revision, unranked)
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
            packed = b"" if balance is None else pack_balance(balance)
            values = {**key._asdict(), "name": name, "revision": revision, "balance": packed}
            run(connection, f"INSERT INTO {LIST} VALUES ({columns})", **values)
        return PostgresGallery(self._engine, name)

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another; see `VectorEngine.replace`."""
        names = {"old": name_of(key), "new": name_of(by)}
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
        """Return the galleries there are."""
        self.set_up()
        with translated_errors(), self._engine.connect() as connection:
            query = f"SELECT collection_id, bundle, modality FROM {LIST} ORDER BY table_name"
            return [GalleryKey(*row) for row in run(connection, query)]

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""
        self.set_up()
        with translated_errors(), self._engine.begin() as connection:
            run(connection, f"DELETE FROM {LIST} WHERE table_name = :name", name=name_of(key))
            run(connection, f"DROP TABLE IF EXISTS {SCHEMA}.{name_of(key)}")

    def remove_unfinished(self) -> int:
        """Remove nothing: a transaction that is not finished leaves nothing."""
        return 0
