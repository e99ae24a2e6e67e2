"""Collections in SQL, and their deletion: hidden in one short transaction, removed in many."""
# Removing a large collection in one transaction would block all other writers of a SQLite database for its
# whole duration. So `delete` renames the collection to a name no client can choose, which frees its own name,
# and sets the time of its deletion, by which every query excludes it. Nothing writes to it from then on: a
# writer that had read its row before finds it gone when taking its lock. `remove_some` then removes a bounded
# number of rows, and the collection's own row last; after a crash it continues where it stopped.

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Table, bindparam, delete, func, literal, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.answers import RetrainingPolicy
from app.db.models import (
    ENCODED_CONTENTS,
    FEEDBACK,
    ITEMS,
    OPEN_STATES,
    REPLACED_ITEMS,
    CollectionRow,
    JobRow,
    KeyRow,
    ModelRow,
    OwnWriteRow,
    SavedGalleryRow,
)
from app.db.statements import Repository, insert_into, now, violates
from app.domain.entities import Collection, Modality, SavedGallery, value_of
from app.domain.errors import CollectionNotFoundError, ConflictError
from app.domain.names import is_storable

IS_NOT_DELETED: ColumnElement[bool] = CollectionRow.deleted_at.is_(None)
"""Condition that a collection is not deleted."""


def is_there(session: Session, collection_id: int) -> bool:
    """Return whether a collection with that id exists and is not deleted."""
    query = select(CollectionRow.id).where(CollectionRow.id == collection_id, IS_NOT_DELETED)
    return session.scalar(query) is not None


def _remove_encoded(session: Session, collection_id: int, max_rows: int) -> bool:
    """Remove some features by other encoders; return whether there were any."""
    columns = ENCODED_CONTENTS.c
    key = (columns.modality, columns.encoding, columns.content_hash)
    is_its = columns.collection_id == collection_id
    rows = session.execute(select(*key).where(is_its).limit(max_rows)).all()
    if rows:
        values = [tuple(row) for row in rows]
        session.execute(delete(ENCODED_CONTENTS).where(is_its, tuple_(*key).in_(values)))
    return bool(rows)


def some_rows(
    session: Session,
    table: Table,
    key: Sequence[ColumnElement[Any]],
    condition: ColumnElement[bool],
    max_rows: int,
    max_bytes: int,
) -> list[Any]:
    """Return key columns, picture hash and size of as many rows as one transaction may remove (one at least,
    bytes roughly). The table is of items, of replaced items, or of feedback."""
    sizes = (func.coalesce(func.length(table.c[name]), 0) for name in ("text", "features"))
    query = select(*key, table.c.content_hash, sum(sizes, start=func.length("")).label("size"))
    chosen: list[Any] = []
    size = 0
    for row in session.execute(query.where(condition).limit(max_rows)):
        size += row.size
        if chosen and size > max_bytes:
            break
        chosen.append(row)
    return chosen


_BY_NAME = select(CollectionRow).where(CollectionRow.name == bindparam("name"), IS_NOT_DELETED)
"""Made once: every search runs it."""
_BY_NAME_LOCKED = _BY_NAME.with_for_update(key_share=True).execution_options(populate_existing=True)
"""The lock still lets other transactions add rows that refer to it."""


class CollectionRepository(Repository):
    """Collections by name."""

    def add(self, name: str, modalities: tuple[Modality, Modality]) -> Collection:
        """Create one; raises ConflictError."""
        if self._session.scalar(select(CollectionRow.id).where(CollectionRow.name == name)) is not None:
            raise _exists(name)
        row = CollectionRow(
            name=name,
            modalities=modalities_to_json(modalities),
            purged_through=0,
            marked_revision=0,
            created_at=now(self._session),
        )
        self._session.add(row)
        try:
            self._session.flush()
        except IntegrityError as error:
            # Another transaction added it since the query above.
            if violates(error, "uq_collections_name", "collections.name"):
                raise _exists(name) from error
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
        rows = select(CollectionRow).where(IS_NOT_DELETED).order_by(CollectionRow.name)
        return list(map(_collection, self._session.scalars(rows)))

    def delete(self, name: str) -> tuple[Collection, Sequence[str]]:
        """Delete one for everybody and free its name; its rows stay for `remove_some`. Returns it and the
        bundles of its models; raises CollectionNotFoundError."""
        collection = self.get(name)
        hidden = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id, IS_NOT_DELETED)
            .values(name=f"deleted/{collection.id}", deleted_at=now(self._session), active_version=None)
            .returning(CollectionRow.id)
        )
        if hidden is None:  # another transaction was faster
            raise CollectionNotFoundError(name)
        is_open = JobRow.state.in_(OPEN_STATES)
        self._session.execute(delete(JobRow).where(JobRow.collection_id == collection.id, is_open))
        self._session.execute(delete(SavedGalleryRow).where(SavedGalleryRow.collection_id == collection.id))
        models = delete(ModelRow).where(ModelRow.collection_id == collection.id)
        return collection, list(self._session.scalars(models.returning(ModelRow.bundle)))

    def deleted_ids(self) -> Sequence[int]:
        """Return the ids of deleted collections that rows are left of."""
        hidden = select(CollectionRow.id).where(~IS_NOT_DELETED).order_by(CollectionRow.id)
        return list(self._session.scalars(hidden))

    def remove_some(self, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
        """Remove some rows of a deleted collection; return the hashes of their pictures, None at the end.
        About as many bytes of texts and features as `max_bytes` go at once; one row in any case."""
        # Its row is locked first, as in every transaction that removes parts of it, to avoid a deadlock.
        is_hidden = (CollectionRow.id == collection_id) & ~IS_NOT_DELETED
        if self._session.scalar(select(CollectionRow.id).where(is_hidden).with_for_update()) is None:
            return None
        # Replaced rows go before the items: on their own they would be what readers see in their place.
        for table, key in (
            (REPLACED_ITEMS, (REPLACED_ITEMS.c.import_id, REPLACED_ITEMS.c.position)),
            (ITEMS, (ITEMS.c.id,)),
            (FEEDBACK, (FEEDBACK.c.id,)),
        ):
            is_its = table.c.collection_id == collection_id
            rows = some_rows(self._session, table, key, is_its, max_rows, max_bytes)
            if rows:
                self._session.execute(
                    delete(table).where(tuple_(*key).in_([row[: len(key)] for row in rows]))
                )
                return {row.content_hash for row in rows if row.content_hash is not None}
        if _remove_encoded(self._session, collection_id, max_rows):
            return set()
        job_id = self._session.scalar(select(JobRow.id).where(JobRow.collection_id == collection_id).limit(1))
        if job_id is not None:
            self._session.execute(delete(JobRow).where(JobRow.id == job_id))  # its events go with it
            return set()
        self._session.execute(delete(CollectionRow).where(is_hidden))
        return None

    def next_revision(self, collection: Collection) -> int:
        """Count one write and lock the collection until the transaction ends."""
        revision = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id, IS_NOT_DELETED)
            .values(revision=CollectionRow.revision + 1)
            .returning(CollectionRow.revision)
        )
        if revision is None:
            raise CollectionNotFoundError(collection.name)
        return int(revision)

    def note_write(self, collection: Collection, key_id: str) -> None:
        """Note that a key wrote the revision that the collection now has; nothing for an unknown key."""
        # Nothing is found of a key that was revoked meanwhile; PostgreSQL waits for who is revoking it.
        revision = select(CollectionRow.revision).where(CollectionRow.id == collection.id).scalar_subquery()
        known_key = (
            select(literal(collection.id), KeyRow.id, revision)
            .where(KeyRow.id == key_id)
            .with_for_update(read=True, key_share=True, of=KeyRow)
        )
        key = ("collection_id", "key_id")
        noted = insert_into(self._session, OwnWriteRow).from_select((*key, "revision"), known_key)
        newest = {"revision": noted.excluded.revision}
        self._session.execute(noted.on_conflict_do_update(index_elements=key, set_=newest))

    def last_write(self, collection: Collection, key_ids: AbstractCollection[str]) -> int:
        """Return the last revision that one of the keys wrote, or any key where none is named; 0 if none."""
        query = select(func.max(OwnWriteRow.revision)).where(OwnWriteRow.collection_id == collection.id)
        if key_ids:
            query = query.where(OwnWriteRow.key_id.in_(key_ids))
        return self._session.scalar(query) or 0

    def set_encoder_option(self, collection: Collection, modality: str, option: str, value: Any) -> None:
        """Record an option that became known later, such as the dimension of the first vector."""
        row = self._row(collection.name)
        row.modalities = [
            {**entry, "encoder": {**entry["encoder"], option: value}} if entry["name"] == modality else entry
            for entry in row.modalities
        ]
        self._session.flush()

    def set_modalities(self, collection: Collection, modalities: tuple[Modality, Modality]) -> None:
        """Give a locked collection the encoders of a model version."""
        self._row(collection.name).modalities = modalities_to_json(modalities)
        self._session.flush()

    def set_retraining(self, collection: Collection, policy: RetrainingPolicy) -> None:
        """Record when a locked collection is trained by itself."""
        self._row(collection.name).retraining = asdict(policy) if policy != _NEVER else None
        self._session.flush()

    def saved_gallery(self, collection: Collection) -> SavedGallery | None:
        """Return where its galleries are saved."""
        row = self._session.get(SavedGalleryRow, collection.id)
        return None if row is None else value_of(SavedGallery, row)

    def save_gallery(self, collection: Collection, saved: SavedGallery) -> None:
        """Record where its galleries are saved, in place of what was recorded before."""
        self._session.merge(SavedGalleryRow(collection_id=collection.id, **asdict(saved)))
        self._session.flush()

    def used_galleries(self, folders: Sequence[str]) -> set[str]:
        """Return which of the folders any collection's galleries are saved in."""
        return self._find_used(SavedGalleryRow.folder, folders)

    def _row(self, name: str, lock: bool = False) -> CollectionRow:
        if not is_storable(name):
            raise CollectionNotFoundError(name)
        row = self._session.scalar(_BY_NAME_LOCKED if lock else _BY_NAME, {"name": name})
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


_NEVER = RetrainingPolicy()


def _policy(stored: Mapping[str, Any]) -> RetrainingPolicy:
    hours = stored["quiet_hours"]
    return RetrainingPolicy(**{**stored, "quiet_hours": hours and tuple(hours)})


def _collection(row: CollectionRow) -> Collection:
    return Collection(
        row.id,
        row.name,
        modalities_of(row.modalities),
        row.revision,
        row.active_version,
        row.created_at,
        row.purged_through,
        _policy(row.retraining) if row.retraining else _NEVER,
    )


def _exists(name: str) -> ConflictError:
    message = f"a collection {name!r} exists already: delete it first or choose another name"
    return ConflictError("collection-exists", message)
