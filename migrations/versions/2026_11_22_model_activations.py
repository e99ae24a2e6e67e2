"""The history of activations, the events of jobs, and jobs that are tried again later.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns; a version that serves already opens its collection's history."""
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("collection_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("previous", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_activations_collection_id_collections"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activations")),
    )
    op.create_index("ix_activations_collection_id", "activations", ["collection_id"])
    op.execute(
        "INSERT INTO activations (collection_id, version, at, actor) "
        "SELECT c.id, c.active_version, v.created_at, 'migration' "
        "FROM collections c JOIN model_versions v ON v.collection_id = c.id AND v.version = c.active_version"
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_job_events")),
    )
    op.add_column("jobs", sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("last_event", sa.Integer(), nullable=False, server_default="0"))
    op.execute("UPDATE jobs SET attempts = fencing_token")


def downgrade() -> None:
    """Remove them; versions and jobs stay."""
    with op.batch_alter_table("jobs") as table:
        for column in ("last_event", "not_before", "attempts"):
            table.drop_column(column)
    op.drop_table("job_events")
    op.drop_table("activations")
