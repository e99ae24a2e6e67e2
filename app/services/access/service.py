"""Keys: made once, stored as hashes, checked on every call that needs one."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from app.db.session import Database
from app.domain.entities import ApiKey, KeyBounds
from app.domain.errors import DatabaseUnavailableError, InvalidFieldError, ServiceError
from app.domain.names import MAX_KEY_COLLECTIONS, MAX_NAME, Scope, check_storable
from app.services.access.rates import RateLimits

_logger = logging.getLogger(__name__)
_PREFIX = "lrbs_"
_SECRET = re.compile(_PREFIX + r"[A-Za-z0-9_-]{43}")
_MOST_SEEN = 10_000
"""Valid keys that are remembered, by the hashes of their secrets; of more, the one used least recently is
dropped."""
_UNBOUND = KeyBounds()
_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
"""A day before the calendar ends: the time has to remain a date in every time zone."""


@dataclass(eq=False)
class AccessService:
    """Creates and checks API keys."""

    _database: Database
    _rates: RateLimits
    _used_at: dict[str, float] = field(default_factory=dict, init=False)  # by the monotonic clock
    # keys with the mark of the database from before they were looked up
    _seen: dict[str, tuple[Hashable | None, ApiKey]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def create(
        self, scope: Scope, name: str | None = None, replace: bool = False, bounds: KeyBounds = _UNBOUND
    ) -> tuple[ApiKey, str]:
        """Return a new key and its secret (256 random bits), which is shown this once; `replace` revokes all
        of that name. Raises InvalidFieldError for a bad name or bound, and CollectionNotFoundError."""
        if name is not None:
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
                raise InvalidFieldError("name", f"expected 1 to {MAX_NAME} printable characters")
            check_storable("name", name)
        _check_bounds(bounds)
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.write() as work:
            if bounds.expires_at is not None and bounds.expires_at <= work.now():
                raise InvalidFieldError("expires_at", "is in the past")
            for collection in bounds.collections or ():
                work.collections.get(collection)
            replaced = [key.id for key in work.keys.list() if replace and key.name == name]
            for key_id in replaced:
                work.keys.delete(key_id)
            key = work.keys.add(_hash(secret), scope, name, bounds)
        for key_id in replaced:
            _logger.info("key %s was revoked", key_id)
        _logger.info("key %s of scope %s was created", key.id, scope.value)
        return key, secret

    def list_keys(self) -> list[ApiKey]:
        """Return all keys."""
        with self._database.read() as work:
            return work.keys.list()

    def revoke(self, key_id: str) -> None:
        """Delete a key; raises NotFoundError."""
        with self._database.write() as work:
            work.keys.delete(key_id)
        _logger.info("key %s was revoked", key_id)

    def require(self, secret: str | None, scope: Scope) -> ApiKey:
        """Return the key of a call, if it has at least this scope; counts the call. Raises
        ServiceError without a valid key or for its scope, and for too many calls."""
        if not secret:
            raise ServiceError("key-missing")
        hashed = _hash(secret)
        key, mark, now = None, self._database.change_mark(), None
        if _SECRET.fullmatch(secret):
            with self._database.read() as work:
                key = work.keys.find(hashed)
                if key is not None and key.bounds.expires_at is not None:
                    now = work.now()
        self._note(hashed, mark, key)
        if key is None:
            raise ServiceError("unauthenticated", "the key is unknown or was revoked")
        return self.admit(key, scope, now)

    def recall(self, secret: str, scope: Scope) -> ApiKey | None:
        """Do what `require` does, without a transaction; None, and nothing is counted, where it needs one.
        It does not where nothing was committed to the database since the key was looked up."""
        hashed = _hash(secret)
        mark, key = self._seen.get(hashed, (None, None))
        if key is None or mark is None or mark != self._database.change_mark():
            return None
        self._note(hashed, mark, key)
        return self.admit(key, scope)

    def admit(self, key: ApiKey, scope: Scope, now: datetime | None = None) -> ApiKey:
        """Return a key that exists if it may make a call, which is counted; raises as `require` does."""
        # `now` is the database's; it may be left out for a remembered key: the database is a file then, on
        # this host's clock.
        if key.bounds.expires_at is not None and key.bounds.expires_at <= (now or datetime.now(UTC)):
            raise ServiceError("unauthenticated", "the key has expired")
        self._rates.count(f"key {key.id}", key.bounds.requests_per_minute)
        with self._lock:
            self._used_at[key.id] = time.monotonic()
        if not key.scope.allows(scope):
            raise ServiceError("forbidden", f"the key lacks the scope {scope.value!r}")
        return key

    def has_seen(self, secret: str) -> bool:
        """Return whether a secret was valid when this process last looked it up."""
        return _hash(secret) in self._seen

    def _note(self, hashed: str, mark: Hashable | None, key: ApiKey | None) -> None:
        with self._lock:
            self._seen.pop(hashed, None)
            if key is not None:
                self._seen[hashed] = mark, key
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]

    def count_without_key(self, address: str) -> None:
        """Count a call that needs no key, by where it comes from; raises ServiceError."""
        self._rates.count(f"address {address}", None)

    def share_counts(self) -> None:
        """Exchange with other processes how often callers called; called periodically."""
        self._rates.exchange(self._database)

    def record_use(self) -> None:
        """Store when keys were last used; called periodically, since no request should wait for it."""
        with self._lock:
            used_at, self._used_at = self._used_at, {}
        if not used_at:
            return
        try:
            with self._database.write() as work:
                now, ticks = work.now(), time.monotonic()
                moments = {key: now - timedelta(seconds=ticks - then) for key, then in used_at.items()}
                work.keys.note_use(moments)
        except DatabaseUnavailableError:
            with self._lock:
                self._used_at = used_at | self._used_at
            raise


def _check_bounds(bounds: KeyBounds) -> None:
    if bounds.collections is not None and not 1 <= len(bounds.collections) <= MAX_KEY_COLLECTIONS:
        raise InvalidFieldError("collections", f"expected 1 to {MAX_KEY_COLLECTIONS} collections")
    if bounds.expires_at is not None:
        if bounds.expires_at.tzinfo is None:
            raise InvalidFieldError("expires_at", "expected a time with its zone")
        if bounds.expires_at >= _LATEST:
            raise InvalidFieldError("expires_at", f"expected a time before {_LATEST:%Y-%m-%d}")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
