"""Counts of calls in SQL, one row for each process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.clock import now
from app.db.models import CallCountsRow
from app.domain.entities import CallCount
from app.domain.ports import CallRepository


class SqlCallRepository(CallRepository):
    """What the processes of all hosts counted of late."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def exchange(
        self, process: str, counts: Mapping[str, CallCount], seconds: float
    ) -> list[Mapping[str, CallCount]]:
        moment = now(self._session)
        since = moment - timedelta(seconds=seconds)
        values = {
            "counts": {caller: [count.calls, count.age_seconds] for caller, count in counts.items()},
            "written_at": moment,
        }
        is_own = CallCountsRow.process == process
        updated = self._session.scalar(
            update(CallCountsRow).where(is_own).values(values).returning(CallCountsRow.process)
        )
        if updated is None:  # rows of processes that ended go when another begins
            self._session.execute(delete(CallCountsRow).where(CallCountsRow.written_at < since))
            self._session.execute(insert(CallCountsRow).values(process=process, **values))
        others = select(CallCountsRow.counts, CallCountsRow.written_at)
        rows = self._session.execute(others.where(~is_own, CallCountsRow.written_at >= since))
        return [
            {
                caller: CallCount(calls, age + (moment - written_at).total_seconds())
                for caller, (calls, age) in stored.items()
            }
            for stored, written_at in rows
        ]
