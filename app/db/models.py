"""Tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedColumn, mapped_column
from sqlalchemy.types import TypeDecorator

from app.domain.entities import JobState
from app.domain.names import MAX_IDENTIFIER, MAX_NAME

_SHA256 = 64  # characters of a SHA-256 sum in hexadecimal digits
_TOKEN = 32  # characters of an identity the service makes: up to 16 random bytes in hexadecimal digits
_WORD = 16  # characters of a state, a kind of event, or a scope
_MEDIA_TYPE = 64  # characters of a picture's media type, which is one of a few
_GENERATED_NAME = 128
"""Characters of a folder's name, a worker's, or an actor's: the service composes all of them."""
_EMPTY = sa.text("''")  # an empty text as the default of a column
BigInt = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""For ids and revisions, which only grow. SQLite numbers rows only in an INTEGER, of 64 bits."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware timestamps in UTC, also on SQLite, which does not store the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Store UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:
        """Return UTC."""
        if value is None:
            return None
        aware: datetime = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware


class Base(DeclarativeBase):
    """Declarative base with named constraints, so that migrations can refer to them."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def _of_collection(**key: Any) -> MappedColumn[int]:
    """Return the column of the collection that a row goes with."""
    return mapped_column(BigInt, sa.ForeignKey("collections.id", ondelete="CASCADE"), **key)


def _one_per_collection(name: str, condition: str) -> sa.Index:
    """Return an index by which a collection has one row at most that meets a condition."""
    where = sa.text(condition)
    return sa.Index(name, "collection_id", unique=True, sqlite_where=where, postgresql_where=where)


class InstallationRow(Base):
    """The only row: the identity of this database, and its history, which differs from that of a copy."""

    __tablename__ = "installation"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    identity: Mapped[str] = mapped_column(sa.String(_TOKEN))
    points: Mapped[list[str]] = mapped_column(sa.JSON)


class CallCountsRow(Base):
    """What a host counted of late: calls, and how many seconds ago the first of them was, by caller."""

    __tablename__ = "call_counts"

    process: Mapped[str] = mapped_column(sa.String(_TOKEN), primary_key=True)
    counts: Mapped[dict[str, tuple[int, float]]] = mapped_column(sa.JSON)
    written_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CollectionRow(Base):
    """A collection; `active_version` is the one place that says which model serves.
    A row with `deleted_at` counts as absent (`app.db.collections`): no query of this table shows it."""

    __tablename__ = "collections"
    # Without it SQLite reuses the key of a deleted collection for the next one: two collections, one id.
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(MAX_NAME), unique=True)
    modalities: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON)
    revision: Mapped[int] = mapped_column(BigInt, default=0)
    active_version: Mapped[int | None] = mapped_column(sa.Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    purged_through: Mapped[int] = mapped_column(BigInt, server_default="0")
    marked_revision: Mapped[int] = mapped_column(BigInt, server_default="0")
    marked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retraining: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))


class SavedGalleryRow(Base):
    """Where a collection's galleries are saved; folders that this table does not name are unused."""

    __tablename__ = "saved_galleries"

    collection_id: Mapped[int] = _of_collection(primary_key=True, autoincrement=False)
    model_bundle: Mapped[str] = mapped_column(sa.String(_GENERATED_NAME))
    revision: Mapped[int] = mapped_column(BigInt)
    folder: Mapped[str] = mapped_column(sa.String(_GENERATED_NAME))
    manifest_hash: Mapped[str] = mapped_column(sa.String(_SHA256))


class _ItemColumns:
    """Columns of an item, current or replaced."""

    item_id: Mapped[str] = mapped_column(sa.String(MAX_IDENTIFIER))
    modality: Mapped[str] = mapped_column(sa.String(MAX_NAME))
    text: Mapped[str | None] = mapped_column(sa.Text)
    content_hash: Mapped[str | None] = mapped_column(sa.String(_SHA256))
    content_type: Mapped[str | None] = mapped_column(sa.String(_MEDIA_TYPE))
    features: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    encoding: Mapped[str] = mapped_column(sa.String(_TOKEN), default="", server_default=_EMPTY)
    labels: Mapped[list[str]] = mapped_column(sa.JSON)
    pair_id: Mapped[str | None] = mapped_column(sa.String(MAX_IDENTIFIER))
    attributes: Mapped[dict[str, Any]] = mapped_column("metadata", sa.JSON)
    train: Mapped[bool] = mapped_column(sa.Boolean)
    revision: Mapped[int] = mapped_column(BigInt)
    is_deleted: Mapped[bool] = mapped_column(sa.Boolean)


class ItemRow(_ItemColumns, Base):
    """An item, or the tombstone of one, by whose revision other processes notice the deletion."""

    __tablename__ = "items"
    __table_args__ = (
        sa.UniqueConstraint("collection_id", "item_id"),
        # With the id: PostgreSQL would otherwise sort all rows of a revision, many after a long import.
        sa.Index("ix_items_collection_id_revision_id", "collection_id", "revision", "id"),
        sa.Index(
            "ix_items_present",
            *("collection_id", "modality", "id"),
            "is_deleted",  # otherwise SQLite would read the row of every entry it counts
            sqlite_where=sa.text("is_deleted IS 0"),
            postgresql_where=sa.text("is_deleted IS false"),
        ),
        sa.Index(
            "ix_items_tombstones",
            *("collection_id", "revision", "id"),
            sqlite_where=sa.text("is_deleted IS 1"),
            postgresql_where=sa.text("is_deleted IS true"),
        ),
        sa.Index("ix_items_content_hash", "content_hash"),
        sa.Index("ix_items_collection_id_pair_id", "collection_id", "pair_id"),
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = _of_collection()


class ImportRow(Base):
    """An import being stored or cleaned up; a collection has at most one unpublished import."""

    __tablename__ = "imports"
    __table_args__ = (_one_per_collection("uq_imports_unpublished_per_collection", "state <> 'published'"),)

    id: Mapped[str] = mapped_column(sa.String(_TOKEN), primary_key=True)
    collection_id: Mapped[int] = _of_collection()
    revision: Mapped[int] = mapped_column(BigInt)
    state: Mapped[str] = mapped_column(sa.String(_WORD))
    size: Mapped[int] = mapped_column(BigInt)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lease_expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ReplacedItemRow(_ItemColumns, Base):
    """An item as it was before an import changed it; readers see it until the import is published."""

    __tablename__ = "replaced_items"
    __table_args__ = (
        sa.Index("ix_replaced_items_collection_id_item_id", "collection_id", "item_id"),
        sa.Index("ix_replaced_items_by_revision", "collection_id", "replaced_at", "revision", "position"),
        sa.Index("ix_replaced_items_by_modality", "collection_id", "replaced_at", "modality", "position"),
        sa.Index("ix_replaced_items_content_hash", "content_hash"),
    )

    import_id: Mapped[str] = mapped_column(sa.ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    replaced_at: Mapped[int] = mapped_column(BigInt)
    collection_id: Mapped[int] = mapped_column(BigInt)


class EncodedContentRow(Base):
    """Features of a text, picture or sound by another encoder than that of the items that have it.
    By the hash of the content, so that they are right whatever is written meanwhile."""

    __tablename__ = "encoded_contents"

    collection_id: Mapped[int] = _of_collection(primary_key=True, autoincrement=False)
    modality: Mapped[str] = mapped_column(sa.String(MAX_NAME), primary_key=True)
    encoding: Mapped[str] = mapped_column(sa.String(_TOKEN), primary_key=True)
    content_hash: Mapped[str] = mapped_column(sa.String(_SHA256), primary_key=True)
    features: Mapped[bytes] = mapped_column(sa.LargeBinary)


class FeedbackRow(Base):
    """Feedback: an item's relevance to a query, which is an item or has content of its own."""

    __tablename__ = "feedback"
    __table_args__ = (
        sa.Index("ix_feedback_collection_id_id", "collection_id", "id"),
        sa.Index("ix_feedback_collection_id_item_id", "collection_id", "item_id"),
        sa.Index("ix_feedback_collection_id_query_item_id", "collection_id", "query_item_id"),
        sa.Index("ix_feedback_content_hash", "content_hash"),
        sa.Index("ix_feedback_collection_id_created_at", "collection_id", "created_at"),
        # No id is used twice: a cursor, or a client that deletes, would mean other feedback by it.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = _of_collection()
    source: Mapped[str] = mapped_column(sa.String(MAX_NAME))
    target: Mapped[str] = mapped_column(sa.String(MAX_NAME))
    item_id: Mapped[str] = mapped_column(sa.String(MAX_IDENTIFIER))
    is_relevant: Mapped[bool] = mapped_column(sa.Boolean)
    query_item_id: Mapped[str | None] = mapped_column(sa.String(MAX_IDENTIFIER))
    text: Mapped[str | None] = mapped_column(sa.Text)
    content_hash: Mapped[str | None] = mapped_column(sa.String(_SHA256))
    content_type: Mapped[str | None] = mapped_column(sa.String(_MEDIA_TYPE))
    features: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    encoding: Mapped[str] = mapped_column(sa.String(_TOKEN), default="", server_default=_EMPTY)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ModelRow(Base):
    """A model version."""

    __tablename__ = "model_versions"
    __table_args__ = (sa.UniqueConstraint("collection_id", "version"),)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = _of_collection()
    version: Mapped[int] = mapped_column(sa.Integer)
    bundle: Mapped[str] = mapped_column(sa.String(_GENERATED_NAME))
    manifest_hash: Mapped[str] = mapped_column(sa.String(_SHA256))
    index_revision: Mapped[int] = mapped_column(BigInt)
    facts: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    modalities: Mapped[list[dict[str, Any]] | None] = mapped_column(sa.JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ActivationRow(Base):
    """Record of a version becoming active."""

    __tablename__ = "activations"
    __table_args__ = (sa.Index("ix_activations_collection_id", "collection_id"),)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = _of_collection()
    version: Mapped[int] = mapped_column(sa.Integer)
    previous: Mapped[int | None] = mapped_column(sa.Integer)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(sa.String(_GENERATED_NAME))
    reason: Mapped[str | None] = mapped_column(sa.Text)


OPEN_STATES = tuple(state.value for state in JobState if state.is_open)
"""States of jobs with work that remains."""


class JobRow(Base):
    """A retrain job; the partial unique index allows one open job per collection."""

    __tablename__ = "jobs"
    __table_args__ = (_one_per_collection("uq_jobs_open_per_collection", "state IN ('queued', 'running')"),)

    id: Mapped[str] = mapped_column(sa.String(_TOKEN), primary_key=True)
    collection_id: Mapped[int] = _of_collection()
    state: Mapped[str] = mapped_column(sa.String(_WORD))
    parameters: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    reason: Mapped[str | None] = mapped_column(sa.Text)
    progress: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    error: Mapped[str | None] = mapped_column(sa.Text)
    model_version: Mapped[int | None] = mapped_column(sa.Integer)
    cancel_requested: Mapped[bool] = mapped_column(sa.Boolean)
    fencing_token: Mapped[int] = mapped_column(sa.Integer)
    attempts: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    not_before: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_event: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    worker: Mapped[str | None] = mapped_column(sa.String(_GENERATED_NAME))
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobEventRow(Base):
    """An event of a job, numbered within the job."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(sa.Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(_WORD))
    data: Mapped[dict[str, Any]] = mapped_column(sa.JSON)


class KeyRow(Base):
    """An API key: only the hash of its secret."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(sa.String(_TOKEN), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(sa.String(_SHA256), unique=True)
    scope: Mapped[str] = mapped_column(sa.String(_WORD))
    name: Mapped[str | None] = mapped_column(sa.String(MAX_NAME))
    collections: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    requests_per_minute: Mapped[int | None] = mapped_column(sa.Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class OwnWriteRow(Base):
    """The revision that a search with this key has to find; goes with the key and with the collection."""

    __tablename__ = "own_writes"
    __table_args__ = (sa.Index("ix_own_writes_key_id", "key_id"),)

    collection_id: Mapped[int] = _of_collection(primary_key=True, autoincrement=False)
    key_id: Mapped[str] = mapped_column(
        sa.String(_TOKEN), sa.ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True
    )
    revision: Mapped[int] = mapped_column(BigInt)


ITEMS: sa.Table = Base.metadata.tables[ItemRow.__tablename__]
REPLACED_ITEMS: sa.Table = Base.metadata.tables[ReplacedItemRow.__tablename__]
ENCODED_CONTENTS: sa.Table = Base.metadata.tables[EncodedContentRow.__tablename__]
FEEDBACK: sa.Table = Base.metadata.tables[FeedbackRow.__tablename__]
