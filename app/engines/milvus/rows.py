"""The rows of a gallery, as they stand in its collection at a moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from pymilvus import MilvusClient

from app.domain.entities import Vector
from app.domain.ports import EngineItem
from app.engines.milvus.server import SECONDS, call_loaded, read_rows

ROWS_AT_ONCE = 500
"""Rows of a request, whose size is bounded by 64 MB."""
ITEM_FIELDS = ["item_id", "text"]
"""From which an item is read."""


class GalleryRows(NamedTuple):
    """The rows that stand under the name of a gallery at a moment."""

    collection: str
    earliest: int
    rank: int
    revision: int
    written_at: int

    @classmethod
    def of(cls, entry: dict[str, Any]) -> GalleryRows:
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

    def count_matching(self, client: MilvusClient, condition: str) -> int:
        """Return how many of them match a condition."""
        (row,) = read_rows(client, self.collection, condition, ["count(*)"], visibility=self.visibility)
        return int(row["count(*)"])

    def scan_matching(
        self, client: MilvusClient, condition: str, fields: list[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield those that match a condition, in the order of their keys."""
        begin = partial(
            client.query_iterator,
            self.collection,
            batch_size=ROWS_AT_ONCE,
            timeout=SECONDS,
            filter=condition,
            output_fields=fields,
            consistency_level="Strong",
        )
        rows = call_loaded(client, self.collection, begin)
        try:
            while batch := rows.next():
                yield from map(dict, batch)
        finally:
            rows.close()


def item_of(row: dict[str, Any]) -> EngineItem:
    """Return the item of a row."""
    labels, metadata = json.loads("".join(row["text"]))
    return EngineItem(row["item_id"], tuple(labels), metadata)


def numbers(vector: Vector) -> list[float]:
    """Return a vector as Milvus takes it, which has two numbers at least."""
    values: list[float] = vector.tolist()
    return values if len(values) > 1 else [*values, 0.0]
