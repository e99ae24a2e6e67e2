"""The clock of leases and of all that expires, the same for all processes of all hosts."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.models import UtcDateTime


def now(session: Session) -> datetime:
    """Return the time that all processes share: the database server's, or with SQLite the host's.
    It is read within the transaction, since beginning one may have to wait for a lock."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        # Not the start time of the transaction, which may have waited for a lock since. Executed on the
        # connection: a session would first flush half-changed rows, and a second write of a row takes more
        # locks.
        return connection.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()
    return datetime.now(UTC)
