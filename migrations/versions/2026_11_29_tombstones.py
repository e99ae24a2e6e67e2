"""Up to where tombstones of a collection are purged, and an index of those that are left.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns; no tombstone that is there was marked yet."""
    for name in ("purged_through", "marked_revision"):
        op.add_column("collections", sa.Column(name, _BIG, nullable=False, server_default="0"))
    op.add_column("collections", sa.Column("marked_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_items_tombstones",
        "items",
        ["collection_id", "revision", "id"],
        sqlite_where=sa.text("is_deleted IS 1"),
        postgresql_where=sa.text("is_deleted IS true"),
    )


def downgrade() -> None:
    """Remove them; servers of older code must have been started after the last purge."""
    op.drop_index("ix_items_tombstones", "items")
    for name in ("marked_at", "marked_revision", "purged_through"):
        op.drop_column("collections", name)
