"""The revision that each key's last write made, so that its next search finds it in every process.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "own_writes",
        sa.Column("collection_id", _BIG, autoincrement=False, nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("revision", _BIG, nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_own_writes_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_own_writes_key_id_api_keys"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("collection_id", "key_id", name=op.f("pk_own_writes")),
    )
    op.create_index("ix_own_writes_key_id", "own_writes", ["key_id"])


def downgrade() -> None:
    """Remove it: a search may be answered at a revision before the last write of its key."""
    op.drop_table("own_writes")
