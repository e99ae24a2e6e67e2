"""Rows of one revision, on their way into a collection."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from pymilvus import MilvusClient

from app.domain.entities import Matrix, Vector
from app.domain.ports import EngineItem
from app.engines.milvus.conditions import FOREVER, digest_of, facets_of
from app.engines.milvus.rows import ROWS_AT_ONCE, numbers
from app.engines.milvus.server import PIECE, SECONDS, read_rows, split
from app.index.balance import Balance


class Writing:
    """The rows of one revision, on their way into a collection. `check_lock` is called before each part:
    raises if another writer may be at work, who must not be overwritten."""

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
        for ids in split(sorted(item_ids), ROWS_AT_ONCE):
            items = json.dumps([digest_of(item_id) for item_id in ids])
            condition = f"item in {items} and since < {revision} and until > {revision}"
            # Also what a writer wrote that was killed before it named the revision: an end of the same rows.
            ending = read_rows(self._client, self._collection, condition, ["*"])
            if ending:
                self._upsert([{**row, "until": revision} for row in ending])

    def insert(self, balance: Balance | None, items: Sequence[EngineItem], vectors: Matrix) -> None:
        """Add rows, in the place of those of the same revision."""
        for start in range(0, len(items), ROWS_AT_ONCE):
            step = slice(start, start + ROWS_AT_ONCE)
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
        for part in split(rows, ROWS_AT_ONCE):
            self._upsert(part)

    def _row(
        self, item: EngineItem, is_ranked: bool, raw: Vector, mapped: Vector, unit: Vector
    ) -> dict[str, Any]:
        text = json.dumps([item.labels, item.metadata], ensure_ascii=False)
        return {
            "row": f"{digest_of(item.id)}/{self._revision}",
            "item": digest_of(item.id),
            "item_id": item.id,
            "since": self._revision,
            "until": FOREVER,
            "is_ranked": is_ranked,
            "facets": facets_of(item),
            "text": list(split(text, PIECE)),
            "raw": numbers(raw),
            "mapped": numbers(mapped),
            "unit": numbers(unit),
        }

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._check_lock()
        # The client's own `upsert` does the same, and keeps the time to itself.
        connection = self._client._get_connection()
        context = self._client._generate_call_context()
        answer = connection.upsert_rows(self._collection, rows, timeout=SECONDS, context=context)
        self.written_at = max(self.written_at, int(answer.timestamp))
