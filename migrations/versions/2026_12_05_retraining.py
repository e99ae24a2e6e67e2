"""When each collection is trained by itself.

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


def upgrade() -> None:
    """Add the column: no collection is, until somebody says so."""
    op.add_column("collections", sa.Column("retraining", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("collections", "retraining")
