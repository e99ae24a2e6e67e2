"""Writing items to SQL: what is there already is left alone, the rest goes in by the batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.orm import Session

from app.db.models import ItemRow
from app.domain.entities import Collection, Counts, Item

_IDS_PER_QUERY = 500
_table: Table = ItemRow.metadata.tables[ItemRow.__tablename__]
_CONTENT = ("modality", "text", "content_hash", "content_type", "features", "pair_id", "train")
_DOCUMENTS = ("labels", "metadata")
_WRITTEN = (*_CONTENT, *_DOCUMENTS, "revision", "is_deleted")
_COMPARED = tuple(_table.c[name] for name in ("id", "item_id", "is_deleted", *_CONTENT, *_DOCUMENTS))
_UPDATE = (
    update(_table)
    .where(_table.c.id == bindparam("row_id"))
    .values({name: bindparam(f"new_{name}") for name in _WRITTEN})
)


def put_items(session: Session, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
    """Insert items that are not there, replace those that differ, leave alone those that are the same.

    Parameters
    ----------
    session : Session
        Holds the collection's lock, so that nobody else writes between the look and the write.
    collection : Collection
        Where they go.
    items : sequence of Item
        Each id once.
    revision : int
        What changed items get.
    """
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    unchanged = revived = 0
    for start in range(0, len(items), _IDS_PER_QUERY):
        chunk = items[start : start + _IDS_PER_QUERY]
        stored = _stored(session, collection, [item.id for item in chunk])
        for item in chunk:
            values = _values(item)
            row = stored.get(item.id)
            if row is None:
                head = {"collection_id": collection.id, "item_id": item.id}
                new.append({**head, **values, "revision": revision, "is_deleted": False})
            elif not row["is_deleted"] and _is_same(row, values):
                unchanged += 1
            else:
                values |= {"revision": revision, "is_deleted": False}
                changed.append({"row_id": row["id"], **{f"new_{key}": v for key, v in values.items()}})
                revived += int(row["is_deleted"])
    # In the order given: positions of new items, and so their pages, follow it.
    if new:
        session.execute(insert(_table), new)
    if changed:
        session.execute(_UPDATE, changed)
    return Counts(len(new) + revived, len(changed) - revived, unchanged)


def _stored(
    session: Session, collection: Collection, item_ids: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    query = select(*_COMPARED).where(_table.c.collection_id == collection.id, _table.c.item_id.in_(item_ids))
    return {row["item_id"]: dict(row) for row in session.execute(query).mappings()}


def _values(item: Item) -> dict[str, Any]:
    return {
        "modality": item.modality,
        "text": item.text,
        "content_hash": item.content_hash,
        "content_type": item.content_type,
        "features": None if item.features is None else item.features.astype("<f4", copy=False).tobytes(),
        "pair_id": item.pair_id,
        "train": item.train,
        "labels": list(item.labels),
        "metadata": dict(item.metadata),
    }


def _is_same(row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    if any(row[name] != values[name] for name in _CONTENT):
        return False
    # As text: in Python 1, 1.0 and true are equal, to those who read them they are not.
    return all(_text(row[name]) == _text(values[name]) for name in _DOCUMENTS)


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
