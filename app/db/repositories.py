"""Collections, model versions and keys in SQL; items have a file of their own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.constraints import violates_unique
from app.db.models import CollectionRow, KeyRow, ModelRow, SavedGalleryRow
from app.domain.entities import ApiKey, Collection, Modality, ModelVersion, SavedGallery, Scope
from app.domain.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    KeyNotFoundError,
    ModelNotFoundError,
)


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

    def lock(self, name: str) -> Collection:
        """Return one and keep others from changing its row until the transaction ends."""
        return _collection(self._row(name, lock=True))

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

    def saved_gallery(self, collection: Collection) -> SavedGallery | None:
        """Return where its galleries are saved."""
        row = self._session.get(SavedGalleryRow, collection.id)
        if row is None:
            return None
        return SavedGallery(row.model_bundle, row.revision, row.folder, row.manifest_hash)

    def save_gallery(self, collection: Collection, saved: SavedGallery) -> None:
        """Record where its galleries are saved, in place of what was recorded before."""
        self._session.merge(SavedGalleryRow(collection_id=collection.id, **asdict(saved)))
        self._session.flush()

    def used_galleries(self, folders: Sequence[str]) -> set[str]:
        """Return which of the folders any collection's galleries are saved in."""
        query = select(SavedGalleryRow.folder).where(SavedGalleryRow.folder.in_(folders))
        return set(self._session.scalars(query))

    def _row(self, name: str, lock: bool = False) -> CollectionRow:
        if "\x00" in name:  # PostgreSQL cannot even be asked for it
            raise CollectionNotFoundError(name)
        query = select(CollectionRow).where(CollectionRow.name == name)
        if lock:  # rows that refer to it may still be added
            query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
        row = self._session.scalar(query)
        if row is None:
            raise CollectionNotFoundError(name)
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
