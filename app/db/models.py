"""Tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

BigInt = BigInteger().with_variant(Integer, "sqlite")
"""Of ids and revisions, which only grow. SQLite numbers rows itself only in an INTEGER, which has 64 bits."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware timestamps in UTC, also on SQLite, which forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return UTC."""
        if value is None:
            return None
        aware: datetime = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware


class Base(DeclarativeBase):
    """Declarative base with named constraints, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class InstallationRow(Base):
    """The one row that tells this database from others, and its history from that of its copies."""

    __tablename__ = "installation"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    identity: Mapped[str] = mapped_column(String(32))
    points: Mapped[list[str]] = mapped_column(JSON)


class CollectionRow(Base):
    """A collection; `active_version` is the one place that says which model serves.

    One with `deleted_at` is there for nobody (`app.db.deletions`): whoever reads this table leaves it out.
    """

    __tablename__ = "collections"
    # Without it SQLite gives a deleted collection's key to the next one: two collections, one identity.
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    modalities: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    revision: Mapped[int] = mapped_column(BigInt, default=0)
    active_version: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    purged_through: Mapped[int] = mapped_column(BigInt, server_default="0")
    marked_revision: Mapped[int] = mapped_column(BigInt, server_default="0")
    marked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SavedGalleryRow(Base):
    """Where a collection's galleries are saved; what this table does not know is not used."""

    __tablename__ = "saved_galleries"

    collection_id: Mapped[int] = mapped_column(
        BigInt, ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    model_bundle: Mapped[str] = mapped_column(String(128))
    revision: Mapped[int] = mapped_column(BigInt)
    folder: Mapped[str] = mapped_column(String(128))
    manifest_hash: Mapped[str] = mapped_column(String(64))


class _ItemColumns:
    """What is kept of an item, now or as it was."""

    item_id: Mapped[str] = mapped_column(String(128))
    modality: Mapped[str] = mapped_column(String(64))
    text: Mapped[str | None] = mapped_column(Text)
    content_hash: Mapped[str | None] = mapped_column(String(64))
    content_type: Mapped[str | None] = mapped_column(String(64))
    features: Mapped[bytes | None] = mapped_column(LargeBinary)
    labels: Mapped[list[str]] = mapped_column(JSON)
    pair_id: Mapped[str | None] = mapped_column(String(128))
    attributes: Mapped[dict[str, Any]] = mapped_column("metadata", JSON)
    train: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[int] = mapped_column(BigInt)
    is_deleted: Mapped[bool] = mapped_column(Boolean)


class ItemRow(_ItemColumns, Base):
    """An item, or the tombstone of one: other processes learn of a deletion from its revision."""

    __tablename__ = "items"
    __table_args__ = (
        UniqueConstraint("collection_id", "item_id"),
        # The id belongs to it: PostgreSQL would sort all rows of a revision, which a long import makes many.
        Index("ix_items_collection_id_revision_id", "collection_id", "revision", "id"),
        Index(
            "ix_items_present",
            "collection_id",
            "modality",
            "id",
            "is_deleted",  # or SQLite would read each row for it, to count them
            sqlite_where=text("is_deleted IS 0"),
            postgresql_where=text("is_deleted IS false"),
        ),
        Index(
            "ix_items_tombstones",
            *("collection_id", "revision", "id"),
            sqlite_where=text("is_deleted IS 1"),
            postgresql_where=text("is_deleted IS true"),
        ),
        Index("ix_items_content_hash", "content_hash"),
        Index("ix_items_collection_id_pair_id", "collection_id", "pair_id"),
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = mapped_column(BigInt, ForeignKey("collections.id", ondelete="CASCADE"))


_IS_UNPUBLISHED = text("state <> 'published'")


class ImportRow(Base):
    """An import that is being stored or cleaned up after; one at a time is unpublished in a collection."""

    __tablename__ = "imports"
    __table_args__ = (
        Index(
            "uq_imports_unpublished_per_collection",
            "collection_id",
            unique=True,
            sqlite_where=_IS_UNPUBLISHED,
            postgresql_where=_IS_UNPUBLISHED,
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    collection_id: Mapped[int] = mapped_column(BigInt, ForeignKey("collections.id", ondelete="CASCADE"))
    revision: Mapped[int] = mapped_column(BigInt)
    state: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(BigInt)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lease_expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ReplacedItemRow(_ItemColumns, Base):
    """An item as it was before an import changed it; readers see it until the import is published."""

    __tablename__ = "replaced_items"
    __table_args__ = (
        Index("ix_replaced_items_collection_id_item_id", "collection_id", "item_id"),
        Index("ix_replaced_items_by_revision", "collection_id", "replaced_at", "revision", "position"),
        Index("ix_replaced_items_by_modality", "collection_id", "replaced_at", "modality", "position"),
        Index("ix_replaced_items_content_hash", "content_hash"),
    )

    import_id: Mapped[str] = mapped_column(ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    replaced_at: Mapped[int] = mapped_column(BigInt)
    collection_id: Mapped[int] = mapped_column(BigInt)


class ModelRow(Base):
    """A model version."""

    __tablename__ = "model_versions"
    __table_args__ = (UniqueConstraint("collection_id", "version"),)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = mapped_column(BigInt, ForeignKey("collections.id", ondelete="CASCADE"))
    version: Mapped[int] = mapped_column(Integer)
    bundle: Mapped[str] = mapped_column(String(128))
    manifest_hash: Mapped[str] = mapped_column(String(64))
    index_revision: Mapped[int] = mapped_column(BigInt)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ActivationRow(Base):
    """That a version began to serve."""

    __tablename__ = "activations"
    __table_args__ = (Index("ix_activations_collection_id", "collection_id"),)

    id: Mapped[int] = mapped_column(BigInt, primary_key=True)
    collection_id: Mapped[int] = mapped_column(BigInt, ForeignKey("collections.id", ondelete="CASCADE"))
    version: Mapped[int] = mapped_column(Integer)
    previous: Mapped[int | None] = mapped_column(Integer)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(String(128))
    reason: Mapped[str | None] = mapped_column(Text)


_IS_OPEN = text("state IN ('queued', 'running')")


class JobRow(Base):
    """A retrain job; the partial unique index allows one open job per collection."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(
            "uq_jobs_open_per_collection",
            "collection_id",
            unique=True,
            sqlite_where=_IS_OPEN,
            postgresql_where=_IS_OPEN,
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    collection_id: Mapped[int] = mapped_column(BigInt, ForeignKey("collections.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(String(16))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    progress: Mapped[dict[str, Any]] = mapped_column(JSON)
    error: Mapped[str | None] = mapped_column(Text)
    model_version: Mapped[int | None] = mapped_column(Integer)
    cancel_requested: Mapped[bool] = mapped_column(Boolean)
    fencing_token: Mapped[int] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")
    not_before: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_event: Mapped[int] = mapped_column(Integer, server_default="0")
    worker: Mapped[str | None] = mapped_column(String(128))
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobEventRow(Base):
    """What happened to a job, numbered within it."""

    __tablename__ = "job_events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class KeyRow(Base):
    """An API key: only the hash of its secret."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[str] = mapped_column(String(16))
    name: Mapped[str | None] = mapped_column(String(64))
    collections: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    requests_per_minute: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
