"""Why a job was requested, and an index to count feedback by its time.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
_INDEX = "ix_feedback_collection_id_created_at"


def upgrade() -> None:
    """Add the column and the index: of jobs of before no reason was kept."""
    op.add_column("jobs", sa.Column("reason", sa.Text(), nullable=True))
    op.create_index(_INDEX, "feedback", ["collection_id", "created_at"])


def downgrade() -> None:
    """Remove them."""
    op.drop_index(_INDEX, "feedback")
    op.drop_column("jobs", "reason")
