"""API keys in SQL."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session
from typing_extensions import override

from app.db.clock import now
from app.db.models import KeyRow
from app.domain.entities import ApiKey, KeyBounds, Scope
from app.domain.errors import KeyNotFoundError
from app.domain.names import is_storable
from app.domain.ports import KeyRepository

_UNBOUND = KeyBounds()


class SqlKeyRepository(KeyRepository):
    """API keys by the hash of their secret."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def add(
        self, secret_hash: str, scope: Scope, name: str | None = None, bounds: KeyBounds = _UNBOUND
    ) -> ApiKey:
        row = KeyRow(
            id=secrets.token_hex(8),
            secret_hash=secret_hash,
            scope=scope.value,
            name=name,
            collections=None if bounds.collections is None else list(bounds.collections),
            requests_per_minute=bounds.requests_per_minute,
            created_at=now(self._session),
            expires_at=bounds.expires_at,
        )
        self._session.add(row)
        self._session.flush()
        return _key(row)

    @override
    def find(self, secret_hash: str) -> ApiKey | None:
        row = self._session.scalar(select(KeyRow).where(KeyRow.secret_hash == secret_hash))
        # The database's own comparison depends on its collation and is not constant-time, so compare again.
        if row is None or not hmac.compare_digest(row.secret_hash, secret_hash):
            return None
        return _key(row)

    @override
    def note_use(self, used_at: Mapping[str, datetime]) -> None:
        for key_id, moment in sorted(used_at.items()):
            self._session.execute(
                update(KeyRow)
                .where(KeyRow.id == key_id)
                .where(or_(KeyRow.last_used_at.is_(None), KeyRow.last_used_at < moment))
                .values(last_used_at=moment)
            )

    @override
    def list(self) -> list[ApiKey]:
        return [
            _key(row) for row in self._session.scalars(select(KeyRow).order_by(KeyRow.created_at, KeyRow.id))
        ]

    @override
    def delete(self, key_id: str) -> None:
        if not is_storable(key_id):
            raise KeyNotFoundError(key_id)
        deleted = self._session.scalar(delete(KeyRow).where(KeyRow.id == key_id).returning(KeyRow.id))
        if deleted is None:
            raise KeyNotFoundError(key_id)


def _key(row: KeyRow) -> ApiKey:
    collections = None if row.collections is None else tuple(row.collections)
    bounds = KeyBounds(collections, row.expires_at, row.requests_per_minute)
    return ApiKey(row.id, Scope(row.scope), row.created_at, row.name, bounds, row.last_used_at)
