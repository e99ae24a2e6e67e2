"""The database has an identity, which its data folder remembers.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table with its one row; the data folder is matched with it when the service next looks."""
    table = op.create_table(
        "installation",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.String(length=32), nullable=False),
        sa.Column("points", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    op.bulk_insert(table, [{"id": 1, "identity": uuid.uuid4().hex, "points": []}])


def downgrade() -> None:
    """Remove it; the folder then belongs to no database that older code knows, and is not swept."""
    op.drop_table("installation")
