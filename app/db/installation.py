"""What a database says of itself, in SQL."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.deletions import IS_THERE
from app.db.models import CollectionRow, InstallationRow, ModelRow
from app.domain.entities import Installation
from app.domain.ports import InstallationRepository

_POINTS_KEPT = 64
"""The folder's mark follows the newest point at once: only a crash leaves it some points behind."""


class SqlInstallationRepository(InstallationRepository):
    """The database's identity and the last points of its history."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def get(self) -> Installation:
        """Return what the database says of itself."""
        row = self._session.execute(select(InstallationRow)).scalar_one()
        return Installation(row.identity, tuple(row.points))

    @override
    def add_point(self, point: str) -> None:
        """Append a point to the history, unless it is there."""
        # What the session remembers of the row may be older than the lock.
        query = select(InstallationRow).with_for_update().execution_options(populate_existing=True)
        row = self._session.execute(query).scalar_one()
        if point not in row.points:
            row.points = [*row.points, point][-_POINTS_KEPT:]
        self._session.flush()

    @override
    def progress(self) -> tuple[int, ...]:
        counts = (
            select(func.count(), func.coalesce(func.sum(CollectionRow.revision), 0))
            .select_from(CollectionRow)
            .where(IS_THERE)
        )
        newest = self._session.scalar(select(func.max(ModelRow.id)))
        return (*(int(number) for number in self._session.execute(counts).one()), newest or 0)
