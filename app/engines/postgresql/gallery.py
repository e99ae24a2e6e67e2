"""A gallery in a table of its own: which transactions there are, and when the index is asked."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine

from app.domain.entities import IndexedItem, Matrix, Vector
from app.domain.errors import VectorEngineUnavailableError, galleries_gone
from app.domain.filters import ItemFilter, comparable
from app.domain.ports import EngineHit
from app.engines.common import (
    BEHIND,
    LARGEST_RANK_OF_A_GRAPH,
    REVISIONS_BETWEEN_COUNTS,
    ROWS_COMPARED,
    unpack_balance,
)
from app.engines.postgresql.rows import (
    DEEPEST_SEARCH,
    MatchingRows,
    condition_at,
    end_rows,
    insert_rows,
    insert_unranked,
)
from app.engines.postgresql.server import LIST, SCHEMA, run, translated_errors
from app.index.inverted_lists import Balance

_NO_FILTER = ItemFilter()
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
        self._known_large = -REVISIONS_BETWEEN_COUNTS
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
    def _rows(self, revision: int, item_filter: ItemFilter = _NO_FILTER) -> Iterator[MatchingRows]:
        """Give the rows of a revision that can be ranked and match a filter."""
        with self._connection() as connection:
            yield MatchingRows.of(connection, self._table, self._condition, revision, item_filter)

    def write(
        self,
        revision: int,
        since: int,
        item_ids: Collection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: Collection[str],
    ) -> int:
        """Write the changes of a revision in one transaction; see `EngineGallery.write`."""
        with self._connection(writes=True) as connection:
            # One writer at a time: an earlier write that came later would bring ended rows back.
            latest = self._revision(connection, "FOR UPDATE")
            if latest >= revision:
                return latest
            if latest < since:
                raise VectorEngineUnavailableError(BEHIND)
            end_rows(connection, self._table, revision, item_ids)
            if items:
                has_index = vectors.shape[1] <= LARGEST_RANK_OF_A_GRAPH
                balance = self._read_maps(connection) if has_index else None
                insert_rows(connection, self._table, revision, items, vectors, balance)
            insert_unranked(connection, self._table, revision, unranked)
            update = f"UPDATE {LIST} SET revision = :revision WHERE table_name = :name"
            run(connection, update, revision=revision, name=self._name)
        return revision

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
            maps = self._maps = number, unpack_balance(packed)
        return maps[1]

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""
        with self._connection() as connection:
            return self._revision(connection)

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""
        with self._rows(revision, item_filter) as rows:
            return rows.count()

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""
        with self._connection() as connection:
            query = f"SELECT item_id FROM {self._table} WHERE raw IS NULL AND {self._condition}"
            return frozenset(run(connection, query, revision=revision).scalars())

    def search(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> tuple[list[EngineHit], bool]:
        """Return a page of results; see `EngineGallery.search`."""
        with self._rows(revision, item_filter) as rows:
            if (
                offset + k <= DEEPEST_SEARCH
                and len(query) <= LARGEST_RANK_OF_A_GRAPH
                and not self._is_small(rows.connection, revision)
                and (item_filter.is_empty or rows.estimate_share() >= _LEAST_SHARE)
            ):
                hits = rows.rank_candidates(query, k, offset, self._read_maps(rows.connection))
                if len(hits) == k:
                    return hits, False
            return rows.rank_all(query, k, offset), True

    def search_exactly(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> list[EngineHit]:
        """Return the same page of results by comparing every row."""
        with self._rows(revision, item_filter) as rows:
            return rows.rank_all(query, k, offset)

    def _is_small(self, connection: Connection, revision: int) -> bool:
        """Return whether the gallery has few rows, so that they are compared one by one."""
        if 0 <= revision - self._known_large < REVISIONS_BETWEEN_COUNTS:
            return False
        rows = MatchingRows.of(connection, self._table, self._condition, revision, _NO_FILTER)
        is_small = rows.count(ROWS_COMPARED) < ROWS_COMPARED
        if not is_small:
            self._known_large = revision
        return is_small

    def search_similar(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None
    ) -> list[EngineHit]:
        """Return a page of results by cosine; see `EngineGallery.search_similar`."""
        with self._rows(revision, item_filter) as rows:
            return rows.rank_similar(query, k, offset, left_out)

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""
        with self._rows(revision, ItemFilter.of((label,))) as rows:
            return rows.count(1) > 0

    def count_labels(self, revision: int, item_filter: ItemFilter) -> dict[str, int]:
        """Return how many items that match a filter carry each label."""
        return {str(label): count for label, count in self._counts("unnest(labels)", revision, item_filter)}

    def count_values(self, revision: int, key: str, item_filter: ItemFilter) -> dict[Hashable, int]:
        """Return how many items that match a filter have each value under a metadata key."""
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

    def sample(self, revision: int, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield some items with their projections."""
        with self._rows(revision) as rows:
            sampled = rows.execute(
                f"SELECT item_id, labels, metadata, CAST(raw AS real[]) FROM {rows.table} "
                f"WHERE {rows.condition} ORDER BY md5(item_id) LIMIT :count",
                count=count,
            )
            for item_id, labels, metadata, vector in sampled:
                yield IndexedItem(item_id, tuple(labels), metadata), np.asarray(vector, np.float32)

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        with self._connection() as connection:
            query = f"SELECT item_id FROM {self._table} WHERE {self._condition}"
            yield from run(connection.execution_options(yield_per=1000), query, revision=revision).scalars()

    def purge(self, before: int) -> int:
        """Remove rows that ended; see `EngineGallery.purge`."""
        with self._connection(writes=True) as connection:
            update = f"UPDATE {LIST} SET earliest = :before WHERE table_name = :name AND earliest < :before"
            advanced = run(connection, update, before=before, name=self._name)
        if not advanced.rowcount:
            return 0
        # In a transaction of its own: writers wait for that of the list.
        with self._connection(writes=True) as connection:
            return run(
                connection, f"DELETE FROM {self._table} WHERE until <= :before", before=before
            ).rowcount
