"""The time by which leases are kept."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.models import UtcDateTime


def now(session: Session) -> datetime:
    """Return the time that all processes agree on: the server's; of SQLite all users are on one host.

    It is that within the transaction: to begin one may take as long as waiting for a lock.
    """
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        # Not the time the transaction began: it may have waited for a lock since. The connection is asked: a
        # session would write what is half changed first, and a second write of a row takes more locks.
        return connection.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()
    return datetime.now(UTC)
