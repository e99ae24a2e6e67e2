"""Imports that are stored in parts, and the items they replace.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_IS_UNPUBLISHED = sa.text("state <> 'published'")


def upgrade() -> None:
    """Add the tables, empty; what is stored already is published."""
    op.create_table(
        "imports",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("collection_id", _BIG, nullable=False),
        sa.Column("revision", _BIG, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("size", _BIG, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_imports_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imports")),
    )
    op.create_index(
        "uq_imports_unpublished_per_collection",
        "imports",
        ["collection_id"],
        unique=True,
        sqlite_where=_IS_UNPUBLISHED,
        postgresql_where=_IS_UNPUBLISHED,
    )
    op.create_table(
        "replaced_items",
        sa.Column("import_id", sa.String(32), nullable=False),
        sa.Column("position", _BIG, nullable=False),
        sa.Column("replaced_at", _BIG, nullable=False),
        sa.Column("collection_id", _BIG, nullable=False),
        sa.Column("item_id", sa.String(128), nullable=False),
        sa.Column("modality", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.String(64), nullable=True),
        sa.Column("content_type", sa.String(64), nullable=True),
        sa.Column("features", sa.LargeBinary(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("pair_id", sa.String(128), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("train", sa.Boolean(), nullable=False),
        sa.Column("revision", _BIG, nullable=False),
        sa.Column("is_deleted", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["import_id"],
            ["imports.id"],
            name=op.f("fk_replaced_items_import_id_imports"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("import_id", "position", name=op.f("pk_replaced_items")),
    )
    for names in (["collection_id", "item_id"], ["collection_id", "position"], ["content_hash"]):
        op.create_index(f"ix_replaced_items_{'_'.join(names)}", "replaced_items", names)


def downgrade() -> None:
    """Remove them; refused while an import is unfinished, whose items would all be seen."""
    unfinished = op.get_bind().scalar(sa.text("SELECT count(*) FROM imports WHERE state <> 'published'"))
    if unfinished:
        raise RuntimeError(f"{unfinished} imports are not finished: repeat or remove them first")
    op.drop_table("replaced_items")
    op.drop_table("imports")
