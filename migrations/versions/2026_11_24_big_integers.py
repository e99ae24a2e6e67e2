"""Ids and revisions have 64 bits on PostgreSQL; on SQLite every integer has them already.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COLUMNS = {
    "collections": ("id", "revision"),
    "saved_galleries": ("collection_id", "revision"),
    "items": ("id", "collection_id", "revision"),
    "model_versions": ("id", "collection_id", "index_revision"),
    "activations": ("id", "collection_id"),
    "jobs": ("collection_id",),
}


def upgrade() -> None:
    """Widen the columns and the sequences behind them; PostgreSQL rewrites each table once."""
    _change("BIGINT")


def downgrade() -> None:
    """Narrow them; PostgreSQL refuses when a value no longer fits."""
    _change("INTEGER")


def _change(kind: str) -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    for table, columns in _COLUMNS.items():
        changes = ", ".join(f"ALTER COLUMN {column} TYPE {kind}" for column in columns)
        op.execute(f"ALTER TABLE {table} {changes}")
        if "id" in columns:
            sequence = connection.scalar(sa.text(f"SELECT pg_get_serial_sequence('{table}', 'id')"))
            op.execute(f"ALTER SEQUENCE {sequence} AS {kind}")
