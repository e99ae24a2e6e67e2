"""Items are found by their pair, and galleries are saved.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an index and a table."""
    op.create_index("ix_items_collection_id_pair_id", "items", ["collection_id", "pair_id"])
    op.create_table(
        "saved_galleries",
        sa.Column("collection_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("model_bundle", sa.String(length=128), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("folder", sa.String(length=128), nullable=False),
        sa.Column("manifest_hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_saved_galleries_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("collection_id", name=op.f("pk_saved_galleries")),
    )


def downgrade() -> None:
    """Remove them."""
    op.drop_table("saved_galleries")
    op.drop_index("ix_items_collection_id_pair_id", table_name="items")
