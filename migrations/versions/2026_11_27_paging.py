"""Indexes that serve pages of items, and of changes, in their order, and by which items are counted.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them; a million rows take some seconds."""
    op.create_index("ix_items_collection_id_revision_id", "items", ["collection_id", "revision", "id"])
    op.drop_index("ix_items_collection_id_revision", "items")
    op.create_index(
        "ix_items_present",
        "items",
        ["collection_id", "modality", "id", "is_deleted"],
        sqlite_where=sa.text("is_deleted IS 0"),
        postgresql_where=sa.text("is_deleted IS false"),
    )


def downgrade() -> None:
    """Make the one that was there before."""
    op.drop_index("ix_items_present", "items")
    op.create_index("ix_items_collection_id_revision", "items", ["collection_id", "revision"])
    op.drop_index("ix_items_collection_id_revision_id", "items")
