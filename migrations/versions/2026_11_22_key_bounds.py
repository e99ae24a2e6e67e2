"""Keys are bound to collections, expire, have rate limits, and remember when they were used.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; keys that are there stay bound to nothing."""
    op.add_column("api_keys", sa.Column("collections", sa.JSON(), nullable=True))
    op.add_column("api_keys", sa.Column("requests_per_minute", sa.Integer(), nullable=True))
    op.add_column("api_keys", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("api_keys", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Remove keys that older code would take for keys without bounds, then the columns."""
    keys = sa.table("api_keys", sa.column("collections", sa.JSON()), sa.column("expires_at"))
    bound = sa.cast(keys.c.collections, sa.Text()).is_not(None) | keys.c.expires_at.is_not(None)
    op.execute(keys.delete().where(bound))
    with op.batch_alter_table("api_keys") as table:
        for name in ("last_used_at", "expires_at", "requests_per_minute", "collections"):
            table.drop_column(name)
