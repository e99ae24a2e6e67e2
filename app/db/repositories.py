"""Collections and keys in SQL; items, jobs and model versions have files of their own."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.constraints import violates_unique
from app.db.deletions import IS_THERE, hidden_ids, hide, remove_some
from app.db.models import CollectionRow, KeyRow, SavedGalleryRow
from app.domain.entities import ApiKey, Collection, KeyBounds, Modality, SavedGallery, Scope
from app.domain.errors import (
    CollectionExistsError,
    CollectionNotFoundError,
    KeyNotFoundError,
)

_UNBOUND = KeyBounds()


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
            purged_through=0,
            marked_revision=0,
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
            for row in self._session.scalars(
                select(CollectionRow).where(IS_THERE).order_by(CollectionRow.name)
            )
        ]

    def delete(self, name: str) -> tuple[Collection, Sequence[str]]:
        """Delete one for everybody and free its name; its rows stay for `remove_some`.

        Returns it and the bundles of its models; raises CollectionNotFoundError.
        """
        collection = self.get(name)
        bundles = hide(self._session, collection.id)
        if bundles is None:
            raise CollectionNotFoundError(name)
        return collection, bundles

    def deleted(self) -> Sequence[int]:
        """Return the ids of deleted collections that rows are left of."""
        return hidden_ids(self._session)

    def remove_some(self, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
        """Remove some rows of a deleted collection; return the hashes of their pictures, None at the end."""
        return remove_some(self._session, collection_id, max_rows, max_bytes)

    def next_revision(self, collection: Collection) -> int:
        """Count one write and lock the collection until the transaction ends."""
        revision = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id, IS_THERE)
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
        query = select(CollectionRow).where(CollectionRow.name == name, IS_THERE)
        if lock:  # rows that refer to it may still be added
            query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
        row = self._session.scalar(query)
        if row is None:
            raise CollectionNotFoundError(name)
        return row


class SqlKeyRepository:
    """API keys by the hash of their secret."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self, secret_hash: str, scope: Scope, name: str | None = None, bounds: KeyBounds = _UNBOUND
    ) -> ApiKey:
        """Store a key."""
        row = KeyRow(
            id=secrets.token_hex(8),
            secret_hash=secret_hash,
            scope=scope.value,
            name=name,
            collections=None if bounds.collections is None else list(bounds.collections),
            requests_per_minute=bounds.requests_per_minute,
            created_at=datetime.now(UTC),
            expires_at=bounds.expires_at,
        )
        self._session.add(row)
        self._session.flush()
        return _key(row)

    def find(self, secret_hash: str) -> ApiKey | None:
        """Return the key with that hash."""
        row = self._session.scalar(select(KeyRow).where(KeyRow.secret_hash == secret_hash))
        # The database compared by index; its collation and its timing are not ours to rely on.
        if row is None or not hmac.compare_digest(row.secret_hash, secret_hash):
            return None
        return _key(row)

    def note_use(self, used_at: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by id; a later time on record stays, unknown ids are ignored."""
        for key_id, moment in sorted(used_at.items()):
            self._session.execute(
                update(KeyRow)
                .where(KeyRow.id == key_id)
                .where(or_(KeyRow.last_used_at.is_(None), KeyRow.last_used_at < moment))
                .values(last_used_at=moment)
            )

    def list(self) -> list[ApiKey]:
        """Return all, oldest first."""
        return [
            _key(row) for row in self._session.scalars(select(KeyRow).order_by(KeyRow.created_at, KeyRow.id))
        ]

    def delete(self, key_id: str) -> None:
        """Revoke a key; raises KeyNotFoundError."""
        if "\x00" in key_id:
            raise KeyNotFoundError(key_id)
        deleted = self._session.scalar(delete(KeyRow).where(KeyRow.id == key_id).returning(KeyRow.id))
        if deleted is None:
            raise KeyNotFoundError(key_id)


def _collection(row: CollectionRow) -> Collection:
    first, second = (Modality(entry["name"], entry["encoder"]) for entry in row.modalities)
    modalities = (first, second)
    return Collection(
        row.id,
        row.name,
        modalities,
        row.revision,
        row.active_version,
        row.created_at,
        row.purged_through,
    )


def _key(row: KeyRow) -> ApiKey:
    collections = None if row.collections is None else tuple(row.collections)
    bounds = KeyBounds(collections, row.expires_at, row.requests_per_minute)
    return ApiKey(row.id, Scope(row.scope), row.created_at, row.name, bounds, row.last_used_at)
