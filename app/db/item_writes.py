"""Writing items to SQL: unchanged items are left alone, the others are written in batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Text, bindparam, cast, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.db.models import ITEMS
from app.db.statements import in_chunks
from app.domain.entities import Collection, Counts, Item, vector_bytes

_PLAIN = ("modality", "text", "content_hash", "content_type", "features", "encoding", "pair_id", "train")
_DOCUMENTS = ("labels", "metadata")
_INSERTED = ("collection_id", "item_id", "revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_UPDATED = ("revision", "is_deleted", *_PLAIN, *_DOCUMENTS)
_STORED = (
    *(ITEMS.c[name] for name in ("item_id", "id", "is_deleted", *_PLAIN)),
    *(cast(ITEMS.c[name], Text) for name in _DOCUMENTS),
)
_UPDATE = (
    update(ITEMS)
    .where(ITEMS.c.id == bindparam("row_id"))
    .values({name: bindparam(f"new_{name}") for name in _UPDATED})
)
_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to insert and to update for a list of items, ready for the driver."""

    counts: Counts
    new: Sequence[_Row]
    changed: Sequence[Mapping[str, Any]]

    @property
    def changed_ids(self) -> list[int]:
        """Primary keys of the rows to update."""
        return [entry["row_id"] for entry in self.changed]


def put_items(session: Session, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
    """Insert new items, replace those that differ, and leave unchanged ones alone; every id at most once."""
    # The session holds the collection's lock, so that no other writer comes between the comparison and the
    # write.
    plan = plan_items(session, collection, items, revision)
    write_plan(session, plan)
    return plan.counts


def plan_items(session: Session, collection: Collection, items: Sequence[Item], revision: int) -> Plan:
    """Compare items with the stored ones; parameters as for `put_items`."""
    new: list[_Row] = []
    changed: list[dict[str, Any]] = []
    unchanged = revived = 0
    for chunk in in_chunks(items):
        rows = _rows_by_id(session, collection, [item.id for item in chunk])
        for item in chunk:
            row, plain = rows.get(item.id), _plain(item)
            labels, metadata = json.dumps(item.labels), json.dumps(item.metadata)
            if row is None:
                new.append((collection.id, item.id, revision, False, *plain, labels, metadata))
                continue
            row_id, is_deleted, *stored = row
            if not is_deleted and _is_same(stored, (*plain, labels, metadata)):
                unchanged += 1
                continue
            revived += int(is_deleted)
            values = (revision, False, *plain, list(item.labels), dict(item.metadata))
            named = {f"new_{name}": value for name, value in zip(_UPDATED, values, strict=True)}
            changed.append({"row_id": row_id, **named})
    return Plan(Counts(len(new) + revived, len(changed) - revived, unchanged), new, changed)


def write_plan(session: Session, plan: Plan) -> None:
    """Write a plan; no other writer may have changed the collection since it was made."""
    # In input order, which determines the positions of new items, and so the order of pages.
    if plan.new:
        _insert(session.connection(), plan.new)
    if plan.changed:
        session.execute(_UPDATE, list(plan.changed))


def _rows_by_id(
    session: Session, collection: Collection, item_ids: Sequence[str]
) -> Mapping[str, Sequence[Any]]:
    query = select(*_STORED).where(ITEMS.c.collection_id == collection.id, ITEMS.c.item_id.in_(item_ids))
    return {row[0]: row[1:] for row in session.execute(query)}


def _insert(connection: Connection, rows: Sequence[_Row]) -> None:
    """Insert rows of `_INSERTED` directly with the driver: SQLAlchemy would take longer than the database."""
    columns = ", ".join(_INSERTED)
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        kind = connection.dialect.loaded_dbapi.Error
        statement = f"COPY items ({columns}) FROM STDIN"
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except kind as error:
            # As SQLAlchemy does for statements that it executes.
            raise DBAPIError.instance(
                statement, None, error, kind, hide_parameters=True, dialect=connection.dialect
            ) from error
    else:
        places = ", ".join("?" * len(_INSERTED))
        connection.exec_driver_sql(f"INSERT INTO items ({columns}) VALUES ({places})", list(rows))


def _plain(item: Item) -> _Row:
    features = None if item.features is None else vector_bytes(item.features)
    return (
        item.modality,
        item.text,
        item.content_hash,
        item.content_type,
        features,
        item.encoding,
        item.pair_id,
        item.train,
    )


def _is_same(stored: Sequence[Any], new: Sequence[Any]) -> bool:
    """Compare values of `_PLAIN`, and of `_DOCUMENTS` as JSON texts."""
    n_plain = len(_PLAIN)
    if tuple(stored[:n_plain]) != tuple(new[:n_plain]):
        return False
    pairs = zip(stored[n_plain:], new[n_plain:], strict=True)
    return all(left == right or _canonical(left) == _canonical(right) for left, right in pairs)


def _canonical(document: str) -> str:
    # As text: 1, 1.0 and true are equal in Python, but different in JSON.
    return json.dumps(json.loads(document), sort_keys=True)
