"""Indexes that serve replaced items in the orders in which items are read.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them in place of one by position alone; the table is empty unless an import is under way."""
    for name in ("revision", "modality"):
        columns = ["collection_id", "replaced_at", name, "position"]
        op.create_index(f"ix_replaced_items_by_{name}", "replaced_items", columns)
    op.drop_index("ix_replaced_items_collection_id_position", "replaced_items")


def downgrade() -> None:
    """Make the one that was there before."""
    op.create_index(
        "ix_replaced_items_collection_id_position", "replaced_items", ["collection_id", "position"]
    )
    for name in ("modality", "revision"):
        op.drop_index(f"ix_replaced_items_by_{name}", "replaced_items")
