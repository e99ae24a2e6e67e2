"""Runs migrations on the connection handed over by `app.db.schema`, or on LRBS_DATABASE_URL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from app.db.models import Base
from app.db.session import make_engine
from app.settings import Settings

_ADVISORY_LOCK = 0x4C524253
"""Two upgrades at once: the second waits, then finds nothing to do."""


def _run(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # A second upgrade waits for the first one longer than a write waits for others.
        connection.execute(text("SET LOCAL lock_timeout = '60s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    _run(handed_over)
else:
    with make_engine(Settings().resolved_database_url).begin() as own:
        _run(own)
