"""Calls of the last minute by process, so that a rate limit holds for all of them together.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "call_counts",
        sa.Column("process", sa.String(32), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("process", name=op.f("pk_call_counts")),
    )


def downgrade() -> None:
    """Remove it: each process allows the whole limit again."""
    op.drop_table("call_counts")
