"""Which encoder features are of, features by other encoders, and the encoders of each model version.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = ("items", "replaced_items", "feedback")


def upgrade() -> None:
    """Add columns and the table; all versions there are have the encoders of their collection."""
    for table in _TABLES:
        op.add_column(
            table, sa.Column("encoding", sa.String(32), nullable=False, server_default=sa.text("''"))
        )
    op.add_column("model_versions", sa.Column("modalities", sa.JSON(), nullable=True))
    op.execute(
        "UPDATE model_versions SET modalities = "
        "(SELECT modalities FROM collections WHERE collections.id = model_versions.collection_id)"
    )
    op.create_table(
        "encoded_contents",
        sa.Column("collection_id", _BIG, autoincrement=False, nullable=False),
        sa.Column("modality", sa.String(64), nullable=False),
        sa.Column("encoding", sa.String(32), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("features", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_encoded_contents_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "collection_id", "modality", "encoding", "content_hash", name=op.f("pk_encoded_contents")
        ),
    )


def downgrade() -> None:
    """Remove them; a collection whose encoder was changed has to be made again."""
    op.drop_table("encoded_contents")
    op.drop_column("model_versions", "modalities")
    for table in reversed(_TABLES):
        op.drop_column(table, "encoding")
