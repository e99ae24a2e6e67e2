"""The identity and history of a database, in SQL."""

from __future__ import annotations

from sqlalchemy import func, select

from app.db.collections import IS_NOT_DELETED
from app.db.models import CollectionRow, FeedbackRow, InstallationRow, ModelRow
from app.db.statements import Repository
from app.domain.entities import Installation

_MAX_POINTS = 64
"""Points kept in the history: the data folder's mark is set to the newest point immediately; only crashes
leave it a few behind."""


class InstallationRepository(Repository):
    """The database's identity and the last points of its history."""

    def get(self) -> Installation:
        """Return the identity of the database and its history."""
        row = self._session.execute(select(InstallationRow)).scalar_one()
        return Installation(row.identity, tuple(row.points))

    def begin(self, point: str) -> bool:
        """Make a point the first of the database's history; return whether it is part of it now. Of several
        processes that do so at the same time one succeeds, and those with the same point."""
        row = self._row()
        row.points = row.points or [point]
        self._session.flush()
        return point in row.points

    def add_point(self, point: str) -> None:
        """Append a point to the history, unless it is part of it."""
        row = self._row()
        if point not in row.points:
            row.points = [*row.points, point][-_MAX_POINTS:]
        self._session.flush()

    def progress(self) -> tuple[int, ...]:
        """Return numbers that change with items and when a model version or feedback is recorded."""
        counts = (
            select(func.count(), func.coalesce(func.sum(CollectionRow.revision), 0))
            .select_from(CollectionRow)
            .where(IS_NOT_DELETED)
        )
        newest = [self._session.scalar(select(func.max(row.id))) or 0 for row in (ModelRow, FeedbackRow)]
        return (*(int(number) for number in self._session.execute(counts).one()), *newest)

    def _row(self) -> InstallationRow:
        # The session's copy of the row may be older than the lock.
        query = select(InstallationRow).with_for_update().execution_options(populate_existing=True)
        return self._session.execute(query).scalar_one()
