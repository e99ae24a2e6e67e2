"""Collections, items, model versions and keys in SQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import Row, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from app.db.constraints import violates_unique
from app.db.models import CollectionRow, ItemRow, KeyRow, ModelRow
from app.domain.entities import ApiKey, Change, Collection, Item, Modality, ModelVersion, Scope, Vector
from app.domain.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    ItemNotFoundError,
    KeyNotFoundError,
    ModelNotFoundError,
)

_IDS_PER_QUERY = 500
_ROWS_PER_FETCH = 1000
_AnyRow = Row[*tuple[Any, ...]]
_COLUMNS = (
    ItemRow.item_id,
    ItemRow.modality,
    ItemRow.text,
    ItemRow.content_hash,
    ItemRow.content_type,
    ItemRow.labels,
    ItemRow.pair_id,
    ItemRow.attributes,
    ItemRow.train,
    ItemRow.revision,
)
"""What `_item` reads; plain columns, since mapped objects cost more than the query that fetched them."""


class SqlCollectionRepository:
    """Collections by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, name: str, modalities: tuple[Modality, Modality]) -> Collection:
        """Create one; raises CollectionExistsError."""
        if self._session.scalar(select(CollectionRow.id).where(CollectionRow.name == name)) is not None:
            raise CollectionExistsError(name)
        row = CollectionRow(
            name=name,
            modalities=[{"name": m.name, "encoder": dict(m.encoder)} for m in modalities],
            revision=0,
            active_version=None,
            created_at=datetime.now(UTC),
        )
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            # Another transaction was faster since the look above.
            if violates_unique(error, "uq_collections_name", "collections.name"):
                raise CollectionExistsError(name) from error
            raise
        return _collection(row)

    def get(self, name: str) -> Collection:
        """Return one; raises CollectionNotFoundError."""
        return _collection(self._row(name))

    def list(self) -> list[Collection]:
        """Return all, by name."""
        return [
            _collection(row)
            for row in self._session.scalars(select(CollectionRow).order_by(CollectionRow.name))
        ]

    def delete(self, name: str) -> None:
        """Delete one with everything in it; raises CollectionNotFoundError."""
        self._session.execute(delete(CollectionRow).where(CollectionRow.id == self._row(name).id))

    def next_revision(self, collection: Collection) -> int:
        """Count one write and lock the collection until the transaction ends."""
        revision = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id)
            .values(revision=CollectionRow.revision + 1)
            .returning(CollectionRow.revision)
        )
        if revision is None:
            raise CollectionNotFoundError(collection.name)
        return int(revision)

    def set_encoder_option(self, collection: Collection, modality: str, option: str, value: Any) -> None:
        """Record an option that became known later, such as the dimension of the first vector."""
        row = self._row(collection.name)
        row.modalities = [
            {**entry, "encoder": {**entry["encoder"], option: value}} if entry["name"] == modality else entry
            for entry in row.modalities
        ]
        self._session.flush()

    def _row(self, name: str) -> CollectionRow:
        if "\x00" in name:  # PostgreSQL cannot even be asked for it
            raise CollectionNotFoundError(name)
        row = self._session.scalar(select(CollectionRow).where(CollectionRow.name == name))
        if row is None:
            raise CollectionNotFoundError(name)
        return row


class SqlItemRepository:
    """Items of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def existing(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        """Return which of the ids are taken."""
        query = select(ItemRow.item_id).where(
            ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False)
        )
        return {
            item_id
            for wanted in _chunks(item_ids)
            for item_id in self._session.scalars(query.where(ItemRow.item_id.in_(wanted)))
        }

    def put(self, collection: Collection, items: Sequence[Item], revision: int) -> None:
        """Insert or replace items."""
        rows = {row.item_id: row for row in self._rows(collection, [item.id for item in items])}
        for item in items:
            row = rows.get(item.id)
            if row is None:
                row = ItemRow(collection_id=collection.id, item_id=item.id)
                self._session.add(row)
            row.modality, row.text, row.train = item.modality, item.text, item.train
            row.content_hash, row.content_type = item.content_hash, item.content_type
            row.features = None if item.features is None else item.features.astype("<f4").tobytes()
            row.labels, row.attributes = list(item.labels), dict(item.metadata)
            row.pair_id, row.revision, row.is_deleted = item.pair_id, revision, False
        self._session.flush()

    def get(self, collection: Collection, item_id: str) -> Item:
        """Return one; raises ItemNotFoundError."""
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        query = select(*_COLUMNS, ItemRow.features).where(
            ItemRow.collection_id == collection.id,
            ItemRow.item_id == item_id,
            ItemRow.is_deleted.is_(False),
        )
        row = self._session.execute(query).one_or_none()
        if row is None:
            raise ItemNotFoundError(collection.name, item_id)
        return _item(row, row.features)

    def get_many(self, collection: Collection, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return those that exist, by id, without features."""
        query = select(*_COLUMNS).where(ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False))
        return {
            row[0]: _item(row)
            for wanted in _chunks(item_ids)
            for row in self._session.execute(query.where(ItemRow.item_id.in_(wanted)))
        }

    def delete(self, collection: Collection, item_id: str, revision: int) -> None:
        """Leave a tombstone; raises ItemNotFoundError."""
        row = self._live_row(collection, item_id)
        row.is_deleted, row.revision = True, revision
        row.text, row.features, row.content_hash, row.content_type = None, None, None, None
        row.labels, row.attributes, row.pair_id = [], {}, None
        self._session.flush()

    def page(
        self, collection: Collection, modality: str | None, after: int, limit: int
    ) -> list[tuple[int, Item]]:
        """Return items with their stable position, in order of creation."""
        query = select(*_COLUMNS, ItemRow.id).where(
            ItemRow.collection_id == collection.id, ItemRow.id > after, ItemRow.is_deleted.is_(False)
        )
        if modality is not None:
            query = query.where(ItemRow.modality == modality)
        rows = self._session.execute(query.order_by(ItemRow.id).limit(limit))
        return [(row.id, _item(row)) for row in rows]

    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield what changed after `revision`, in order of revision."""
        query = (
            select(*_COLUMNS, ItemRow.features, ItemRow.is_deleted)
            .where(ItemRow.collection_id == collection.id, ItemRow.revision > revision)
            .order_by(ItemRow.revision, ItemRow.id)
            .execution_options(yield_per=_ROWS_PER_FETCH)
        )
        for row in self._session.execute(query):
            item = None if row.is_deleted else _item(row, row.features)
            yield Change(row.item_id, row.modality, item, row.revision)

    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality."""
        query = (
            select(ItemRow.modality, func.count())
            .where(ItemRow.collection_id == collection.id, ItemRow.is_deleted.is_(False))
            .group_by(ItemRow.modality)
        )
        return {row[0]: row[1] for row in self._session.execute(query)}

    def training_labels(self, collection: Collection, modality: str) -> Iterator[tuple[str, ...]]:
        """Yield the labels of each item of a modality that may be trained on and has any."""
        query = (
            select(ItemRow.labels)
            .where(
                ItemRow.collection_id == collection.id,
                ItemRow.modality == modality,
                ItemRow.train.is_(True),
                ItemRow.is_deleted.is_(False),
            )
            .execution_options(yield_per=_ROWS_PER_FETCH)
        )
        return (tuple(labels) for labels in self._session.scalars(query) if labels)

    def content_of(self, collection: Collection) -> list[str]:
        """Return the hashes of a collection's pictures, each once."""
        query = select(ItemRow.content_hash).where(ItemRow.collection_id == collection.id)
        found = self._session.scalars(query.where(ItemRow.content_hash.is_not(None)).distinct())
        return [content_hash for content_hash in found if content_hash is not None]

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item of any collection has."""
        used: set[str] = set()
        for start in range(0, len(content_hashes), _IDS_PER_QUERY):
            wanted = content_hashes[start : start + _IDS_PER_QUERY]
            found = self._session.scalars(
                select(ItemRow.content_hash).where(ItemRow.content_hash.in_(wanted)).distinct()
            )
            used.update(content_hash for content_hash in found if content_hash is not None)
        return used

    def _rows(self, collection: Collection, item_ids: Sequence[str]) -> Iterator[ItemRow]:
        query = select(ItemRow).where(ItemRow.collection_id == collection.id)
        for wanted in _chunks(item_ids):
            found = query.where(ItemRow.item_id.in_(wanted)).options(defer(ItemRow.features))
            yield from self._session.scalars(found)

    def _live_row(self, collection: Collection, item_id: str) -> ItemRow:
        if "\x00" in item_id:
            raise ItemNotFoundError(collection.name, item_id)
        query = select(ItemRow).where(ItemRow.collection_id == collection.id, ItemRow.item_id == item_id)
        row = self._session.scalar(query)
        if row is None or row.is_deleted:
            raise ItemNotFoundError(collection.name, item_id)
        return row


class SqlModelRepository:
    """Model versions of a collection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, collection: Collection, model: ModelVersion) -> None:
        """Record a version, inactive."""
        self._session.add(
            ModelRow(
                collection_id=collection.id,
                version=model.version,
                bundle=model.bundle,
                manifest_hash=model.manifest_hash,
                index_revision=model.index_revision,
                facts=dict(model.facts),
                created_at=model.created_at,
            )
        )
        self._session.flush()

    def next_version(self, collection: Collection) -> int:
        """Return the number a new version gets."""
        query = select(func.max(ModelRow.version)).where(ModelRow.collection_id == collection.id)
        return (self._session.scalar(query) or 0) + 1

    def get(self, collection: Collection, version: int) -> ModelVersion:
        """Return one; raises ModelNotFoundError."""
        query = select(ModelRow).where(ModelRow.collection_id == collection.id, ModelRow.version == version)
        row = self._session.scalar(query)
        if row is None:
            raise ModelNotFoundError(collection.name, version)
        return _model(row, self._active_version(collection))

    def list(self, collection: Collection) -> list[ModelVersion]:
        """Return all, newest first."""
        query = select(ModelRow).where(ModelRow.collection_id == collection.id)
        active = self._active_version(collection)
        return [_model(row, active) for row in self._session.scalars(query.order_by(ModelRow.version.desc()))]

    def activate(self, collection: Collection, version: int) -> None:
        """Make one version the one that serves, in a single row; raises ModelNotFoundError."""
        self.get(collection, version)
        self._session.execute(
            update(CollectionRow).where(CollectionRow.id == collection.id).values(active_version=version)
        )

    def used_bundles(self, bundles: Sequence[str]) -> set[str]:
        """Return which of the bundles any version of any collection has."""
        return set(self._session.scalars(select(ModelRow.bundle).where(ModelRow.bundle.in_(bundles))))

    def replace_active(self, collection: Collection, version: int, expected: int | None) -> bool:
        """Make a version the one that serves if `expected` is (None: none is); return whether it was."""
        swapped = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id)
            .where(CollectionRow.active_version.is_not_distinct_from(expected))
            .values(active_version=version)
            .returning(CollectionRow.id)
        )
        return swapped is not None

    def _active_version(self, collection: Collection) -> int | None:
        return self._session.scalar(
            select(CollectionRow.active_version).where(CollectionRow.id == collection.id)
        )


class SqlKeyRepository:
    """API keys by the hash of their secret."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, secret_hash: str, scope: Scope, name: str | None = None) -> ApiKey:
        """Store a key."""
        row = KeyRow(
            id=secrets.token_hex(8),
            secret_hash=secret_hash,
            scope=scope.value,
            name=name,
            created_at=datetime.now(UTC),
        )
        self._session.add(row)
        self._session.flush()
        return _key(row)

    def find(self, secret_hash: str) -> ApiKey | None:
        """Return the key with that hash."""
        row = self._session.scalar(select(KeyRow).where(KeyRow.secret_hash == secret_hash))
        return None if row is None else _key(row)

    def list(self) -> list[ApiKey]:
        """Return all, oldest first."""
        return [
            _key(row) for row in self._session.scalars(select(KeyRow).order_by(KeyRow.created_at, KeyRow.id))
        ]

    def delete(self, key_id: str) -> None:
        """Revoke a key; raises KeyNotFoundError."""
        row = None if "\x00" in key_id else self._session.get(KeyRow, key_id)
        if row is None:
            raise KeyNotFoundError(key_id)
        self._session.delete(row)


def _collection(row: CollectionRow) -> Collection:
    first, second = (Modality(entry["name"], entry["encoder"]) for entry in row.modalities)
    return Collection(row.id, row.name, (first, second), row.revision, row.active_version, row.created_at)


def _chunks(item_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield as many ids at a time as one statement may bind."""
    for start in range(0, len(item_ids), _IDS_PER_QUERY):
        yield item_ids[start : start + _IDS_PER_QUERY]


def _item(row: _AnyRow, features: bytes | None = None) -> Item:
    """Return the item of a row that begins with `_COLUMNS`."""
    # By position: a row finds a column by name at several times the cost, 700 times for a long ranking.
    item_id, modality, text, content_hash, content_type, labels, pair_id, metadata, train, revision = row[:10]
    vector: Vector | None = None
    if features is not None:
        vector = np.frombuffer(features, dtype="<f4").astype(np.float32, copy=False)
    return Item(
        item_id,
        modality,
        text,
        content_hash,
        content_type,
        vector,
        tuple(labels),
        pair_id,
        metadata,
        train,
        revision,
    )


def _model(row: ModelRow, active_version: int | None) -> ModelVersion:
    return ModelVersion(
        version=row.version,
        bundle=row.bundle,
        manifest_hash=row.manifest_hash,
        index_revision=row.index_revision,
        facts=row.facts,
        created_at=row.created_at,
        is_active=row.version == active_version,
    )


def _key(row: KeyRow) -> ApiKey:
    return ApiKey(row.id, Scope(row.scope), row.created_at, row.name)
