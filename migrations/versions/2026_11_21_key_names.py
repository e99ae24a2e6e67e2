"""Keys have names.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("api_keys", sa.Column("name", sa.String(64), nullable=True))


def downgrade() -> None:
    """Remove it; the keys stay."""
    with op.batch_alter_table("api_keys") as table:
        table.drop_column("name")
