"""Collections that are deleted and not yet removed.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no collection that is there is deleted."""
    op.add_column("collections", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Remove what is left of deleted collections, which older code would list, then the column."""
    op.execute("DELETE FROM collections WHERE deleted_at IS NOT NULL")
    op.drop_column("collections", "deleted_at")
