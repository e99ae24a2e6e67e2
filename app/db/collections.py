"""Collections in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.chunks import in_chunks
from app.db.clock import now
from app.db.constraints import violates_unique
from app.db.deletions import IS_NOT_DELETED, hidden_ids, hide, remove_some
from app.db.models import CollectionRow, SavedGalleryRow
from app.domain.entities import Collection, Modality, SavedGallery
from app.domain.errors import CollectionExistsError, CollectionNotFoundError
from app.domain.names import is_storable
from app.domain.ports import CollectionRepository


class SqlCollectionRepository(CollectionRepository):
    """Collections by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def add(self, name: str, modalities: tuple[Modality, Modality]) -> Collection:
        if self._session.scalar(select(CollectionRow.id).where(CollectionRow.name == name)) is not None:
            raise CollectionExistsError(name)
        row = CollectionRow(
            name=name,
            modalities=modalities_to_json(modalities),
            revision=0,
            purged_through=0,
            marked_revision=0,
            active_version=None,
            created_at=now(self._session),
        )
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            # Another transaction added it since the query above.
            if violates_unique(error, "uq_collections_name", "collections.name"):
                raise CollectionExistsError(name) from error
            raise
        return _collection(row)

    @override
    def get(self, name: str) -> Collection:
        return _collection(self._row(name))

    @override
    def lock(self, name: str) -> Collection:
        return _collection(self._row(name, lock=True))

    @override
    def list(self) -> list[Collection]:
        return [
            _collection(row)
            for row in self._session.scalars(
                select(CollectionRow).where(IS_NOT_DELETED).order_by(CollectionRow.name)
            )
        ]

    @override
    def delete(self, name: str) -> tuple[Collection, Sequence[str]]:
        collection = self.get(name)
        bundles = hide(self._session, collection.id)
        if bundles is None:
            raise CollectionNotFoundError(name)
        return collection, bundles

    @override
    def deleted_ids(self) -> Sequence[int]:
        return hidden_ids(self._session)

    @override
    def remove_some(self, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
        return remove_some(self._session, collection_id, max_rows, max_bytes)

    @override
    def next_revision(self, collection: Collection) -> int:
        revision = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id, IS_NOT_DELETED)
            .values(revision=CollectionRow.revision + 1)
            .returning(CollectionRow.revision)
        )
        if revision is None:
            raise CollectionNotFoundError(collection.name)
        return int(revision)

    @override
    def set_encoder_option(self, collection: Collection, modality: str, option: str, value: Any) -> None:
        row = self._row(collection.name)
        row.modalities = [
            {**entry, "encoder": {**entry["encoder"], option: value}} if entry["name"] == modality else entry
            for entry in row.modalities
        ]
        self._session.flush()

    @override
    def set_modalities(self, collection: Collection, modalities: tuple[Modality, Modality]) -> None:
        self._row(collection.name).modalities = modalities_to_json(modalities)
        self._session.flush()

    @override
    def saved_gallery(self, collection: Collection) -> SavedGallery | None:
        row = self._session.get(SavedGalleryRow, collection.id)
        if row is None:
            return None
        return SavedGallery(row.model_bundle, row.revision, row.folder, row.manifest_hash)

    @override
    def save_gallery(self, collection: Collection, saved: SavedGallery) -> None:
        self._session.merge(SavedGalleryRow(collection_id=collection.id, **asdict(saved)))
        self._session.flush()

    @override
    def used_galleries(self, folders: Sequence[str]) -> set[str]:
        used: set[str] = set()
        for chunk in in_chunks(folders):
            query = select(SavedGalleryRow.folder).where(SavedGalleryRow.folder.in_(chunk))
            used.update(self._session.scalars(query))
        return used

    def _row(self, name: str, lock: bool = False) -> CollectionRow:
        if not is_storable(name):
            raise CollectionNotFoundError(name)
        query = select(CollectionRow).where(CollectionRow.name == name, IS_NOT_DELETED)
        if lock:  # a lock that still lets other transactions add rows that refer to it
            query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
        row = self._session.scalar(query)
        if row is None:
            raise CollectionNotFoundError(name)
        return row


def modalities_of(entries: Sequence[Mapping[str, Any]]) -> tuple[Modality, Modality]:
    """Return the modalities of a collection or of a model version, as they are stored."""
    first, second = (
        Modality(entry["name"], entry["encoder"], entry.get("encoding", "")) for entry in entries
    )
    return first, second


def modalities_to_json(modalities: tuple[Modality, Modality]) -> list[dict[str, Any]]:
    """Return modalities as they are stored; the opposite of `modalities_of`."""
    return [
        {"name": modality.name, "encoder": dict(modality.encoder)}
        | ({"encoding": modality.encoding} if modality.encoding else {})
        for modality in modalities
    ]


def _collection(row: CollectionRow) -> Collection:
    return Collection(
        row.id,
        row.name,
        modalities_of(row.modalities),
        row.revision,
        row.active_version,
        row.created_at,
        row.purged_through,
    )
