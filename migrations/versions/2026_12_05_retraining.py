"""When each collection is trained by itself, and why a job was requested.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
_INDEX = "ix_feedback_collection_id_created_at"


def upgrade() -> None:
    """Add the columns: no collection is, until somebody says so; an index to count feedback by its time."""
    op.add_column("collections", sa.Column("retraining", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("reason", sa.Text(), nullable=True))
    op.create_index(_INDEX, "feedback", ["collection_id", "created_at"])


def downgrade() -> None:
    """Remove them."""
    op.drop_index(_INDEX, "feedback")
    op.drop_column("jobs", "reason")
    op.drop_column("collections", "retraining")
