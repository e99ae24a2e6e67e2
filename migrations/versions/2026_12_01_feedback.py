"""Feedback on search results.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "feedback",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("collection_id", _BIG, nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("item_id", sa.String(128), nullable=False),
        sa.Column("is_relevant", sa.Boolean(), nullable=False),
        sa.Column("query_item_id", sa.String(128), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.String(64), nullable=True),
        sa.Column("content_type", sa.String(64), nullable=True),
        sa.Column("features", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_feedback_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
        sqlite_autoincrement=True,
    )
    for names in (["collection_id", "id"], ["content_hash"]):
        op.create_index(f"ix_feedback_{'_'.join(names)}", "feedback", names)
    for name in ("item_id", "query_item_id"):
        op.create_index(f"ix_feedback_collection_id_{name}", "feedback", ["collection_id", name])


def downgrade() -> None:
    """Remove it; pictures of queries are then unused, and are swept."""
    op.drop_table("feedback")
