"""Keys and counts of calls in SQL."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, or_, select, update

from app.db.models import CallCountsRow, KeyRow
from app.db.statements import Repository, insert_into, now
from app.domain.entities import ApiKey, CallCount, KeyBounds
from app.domain.errors import NotFoundError
from app.domain.names import Scope, is_storable

_UNBOUND = KeyBounds()


class KeyRepository(Repository):
    """API keys by the hash of their secret, and what all hosts counted of calls of late."""

    def add(
        self, secret_hash: str, scope: Scope, name: str | None = None, bounds: KeyBounds = _UNBOUND
    ) -> ApiKey:
        """Store a key."""
        row = KeyRow(
            id=secrets.token_hex(8),
            secret_hash=secret_hash,
            scope=scope.value,
            name=name,
            collections=None if bounds.collections is None else list(bounds.collections),
            created_at=now(self._session),
        )
        self._add(row, bounds, "requests_per_minute", "expires_at")
        return _key(row)

    def find(self, secret_hash: str) -> ApiKey | None:
        """Return the key with that hash."""
        row = self._session.scalar(select(KeyRow).where(KeyRow.secret_hash == secret_hash))
        # The database's own comparison depends on its collation and is not constant-time, so compare again.
        if row is None or not hmac.compare_digest(row.secret_hash, secret_hash):
            return None
        return _key(row)

    def note_use(self, used_at: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by id; a later time on record stays, unknown ids are ignored."""
        for key_id, moment in sorted(used_at.items()):
            self._session.execute(
                update(KeyRow)
                .where(KeyRow.id == key_id)
                .where(or_(KeyRow.last_used_at.is_(None), KeyRow.last_used_at < moment))
                .values(last_used_at=moment)
            )

    def list(self) -> list[ApiKey]:
        """Return all, oldest first."""
        rows = select(KeyRow).order_by(KeyRow.created_at, KeyRow.id)
        return list(map(_key, self._session.scalars(rows)))

    def delete(self, key_id: str) -> None:
        """Revoke a key; raises NotFoundError."""
        gone = delete(KeyRow).where(KeyRow.id == key_id).returning(KeyRow.id)
        if not is_storable(key_id) or self._session.scalar(gone) is None:
            raise NotFoundError("key-not-found", f"there is no key {key_id!r}")

    def exchange_calls(
        self, host: str, counts: Mapping[str, CallCount], seconds: float
    ) -> Sequence[Mapping[str, CallCount]]:
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


def _key(row: KeyRow) -> ApiKey:
    collections = None if row.collections is None else tuple(row.collections)
    bounds = KeyBounds(collections, row.expires_at, row.requests_per_minute)
    return ApiKey(row.id, Scope(row.scope), row.created_at, row.name, bounds, row.last_used_at)
