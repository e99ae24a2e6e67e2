"""Items are found by their pair.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    op.create_index("ix_items_collection_id_pair_id", "items", ["collection_id", "pair_id"])


def downgrade() -> None:
    """Remove it."""
    op.drop_index("ix_items_collection_id_pair_id", table_name="items")
