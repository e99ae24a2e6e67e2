"""Counts of calls in SQL, one row for each host."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from app.db.clock import now
from app.db.models import CallCountsRow
from app.db.statements import insert_into
from app.domain.entities import CallCount


class CallRepository:
    """What all hosts counted of late."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def exchange(
        self, host: str, counts: Mapping[str, CallCount], seconds: float
    ) -> list[Mapping[str, CallCount]]:
        """Store what a host counted within the last seconds, by caller; return the same of all others."""
        moment = now(self._session)
        since = moment - timedelta(seconds=seconds)
        values = {
            "counts": {caller: [count.calls, count.age_seconds] for caller, count in counts.items()},
            "written_at": moment,
        }
        is_own = CallCountsRow.process == host
        updated = self._session.scalar(
            update(CallCountsRow).where(is_own).values(values).returning(CallCountsRow.process)
        )
        if updated is None:  # rows of hosts that are silent go when another begins
            self._session.execute(delete(CallCountsRow).where(CallCountsRow.written_at < since))
            # Another process of the host may have added it since.
            added = insert_into(self._session, CallCountsRow).values(process=host, **values)
            self._session.execute(added.on_conflict_do_update(index_elements=("process",), set_=values))
        others = select(CallCountsRow.counts, CallCountsRow.written_at)
        rows = self._session.execute(others.where(~is_own, CallCountsRow.written_at >= since))
        return [
            {
                caller: CallCount(calls, age + (moment - written_at).total_seconds())
                for caller, (calls, age) in stored.items()
            }
            for stored, written_at in rows
        ]
